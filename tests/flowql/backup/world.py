"""A project under load and what its results must be: a fold over the records that were fed, up to any positions."""

from __future__ import annotations

import json
import random
import threading
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pyarrow as pa

from flowql.deploy.settings import Settings
from flowql.query.committed import stopped_commits
from flowql.runtime.log.base import EARLIEST, PRODUCE_SCHEMA, TopicPartition
from flowql.runtime.log.embedded.log import EmbeddedLog
from flowql.runtime.log.murmur2 import partition_for
from flowql.server.host import Host
from tests.flowql.query.harness import plan_of

APP, PARTITIONS = "demo", 2
SQL = f"""
CREATE STREAM S (K STRING KEY, V INT) WITH (KAFKA_TOPIC = 's', PARTITIONS = {PARTITIONS}, KEY_FORMAT = 'KAFKA', VALUE_FORMAT = 'JSON');
CREATE TABLE A WITH (KAFKA_TOPIC = 'a') AS SELECT K, COUNT(*) AS N, SUM(V) AS TOTAL FROM S GROUP BY K;
CREATE TABLE B WITH (KAFKA_TOPIC = 'b') AS SELECT V, COUNT(*) AS N FROM S GROUP BY V;
CREATE STREAM C WITH (KAFKA_TOPIC = 'c') AS SELECT K, V FROM S WHERE V > 50;
"""
Rows = list[tuple[str, int]]


def settings_in(folder: Path, **more: Any) -> Settings:
    return Settings(folder, APP, 2, 64 << 20, **more)


@dataclass
class Feed:
    """Records from a seed, in transactions. fed: per partition all records so far, in order of their offsets."""

    seed: int = 1
    keys: int = 300
    fed: list[Rows] = field(default_factory=lambda: [[] for _ in range(PARTITIONS)])

    def __post_init__(self) -> None:
        self._rng = random.Random(self.seed)

    def send(self, log: EmbeddedLog, records: int) -> None:
        """One transaction."""
        parts: list[Rows] = [[] for _ in range(PARTITIONS)]
        for _ in range(records):
            key = f"k{self._rng.randrange(self.keys)}"
            parts[partition_for(key.encode(), PARTITIONS)].append((key, self._rng.randrange(100)))
        send(log, parts)
        for partition, rows in enumerate(parts):
            self.fed[partition] += rows

    @contextmanager
    def running(self, data_dir: Path, records: int = 200, pause_s: float = 0.01) -> Iterator[None]:
        """Beside whatever the block does, as another process would."""
        stop, failed = threading.Event(), []

        def work() -> None:
            log = EmbeddedLog(data_dir / "log")
            try:
                while not stop.wait(pause_s):
                    self.send(log, records)
            except BaseException as error:
                failed.append(error)
            finally:
                log.close()

        thread = threading.Thread(target=work)
        thread.start()
        try:
            yield
        finally:
            stop.set()
            thread.join()
        assert not failed, failed


def send(log: EmbeddedLog, parts: list[Rows]) -> None:
    producer = log.producer("feed")
    producer.begin()
    for partition, rows in enumerate(parts):
        if rows:
            raw = [
                {"timestamp": 1, "key": k.encode(), "value": json.dumps({"V": v}).encode(), "headers": None}
                for k, v in rows
            ]
            producer.send(TopicPartition("s", partition), pa.RecordBatch.from_pylist(raw, PRODUCE_SCHEMA))
    producer.commit()
    producer.close()


@dataclass
class Results:
    """What a data directory holds. tables: their stores. topics: their topics, folded. stream: records of C.

    Rows on their way to B between its two tasks are in the commit as well, so B is exact only when everything has been read.
    """

    tables: dict[str, dict[str, Any]] = field(default_factory=dict)
    topics: dict[str, dict[str, Any]] = field(default_factory=dict)
    stream: Counter[tuple[str, int]] = field(default_factory=Counter)

    def without_b(self) -> Results:
        return Results({"a": self.tables["a"]}, {"a": self.topics["a"]}, self.stream)


def expected(fed: list[Rows], ends: dict[str, list[int]]) -> Results:
    """The fold over what each query has read: query -> the end per partition."""
    counts, totals, values = Counter(), Counter(), Counter()
    for partition, rows in enumerate(fed):
        for k, v in rows[: ends["CTAS_A"][partition]]:
            counts[k] += 1
            totals[k] += v
        values.update(v for _, v in rows[: ends["CTAS_B"][partition]])
    table_a = {k: (n, totals[k]) for k, n in counts.items()}
    rows_c = [(k, v) for p, rows in enumerate(fed) for k, v in rows[: ends["CSAS_C"][p]] if v > 50]
    both = {"a": table_a, "b": dict(values)}
    return Results(both, both, Counter(rows_c))


def found(settings: Settings) -> tuple[Results, dict[str, list[int]], int]:
    """Results in a directory whose instance does not run, how far each query has read, and the commit of that."""
    with stopped_commits(settings.data_dir, settings.application_id) as take:
        commit = take([])
        with commit.snapshot as snapshot:
            return *found_in(snapshot, commit.log), snapshot.sequence


def found_in(snapshot: Any, log: Any) -> tuple[Results, dict[str, list[int]]]:
    """Results as of a commit, and how far each query has read."""
    tables = {
        "a": {k[0]: (v[0], v[1]) for k, v in snapshot.scan("A")},
        "b": {k[0]: v[0] for k, v in snapshot.scan("B")},
    }
    tasks = snapshot.tasks()
    ends = {q: _ends(tasks, q) for q in ("CTAS_A", "CTAS_B", "CSAS_C")}
    return Results(tables, _topics(log), _stream(log)), ends


def _ends(tasks: dict[str, dict[str, Any]], query: str) -> list[int]:
    ends = [0] * PARTITIONS
    for task, metadata in tasks.items():
        position = metadata.get("positions", {}).get("s")
        if task.rpartition("/")[0] == query and position is not None:
            ends[int(task.rpartition("_")[2])] = position
    return ends


def _records(log: Any, topic: str) -> Iterator[tuple[bytes | None, bytes | None]]:
    for partition in range(log.admin().topics()[topic].partitions):
        reader = log.reader(TopicPartition(topic, partition), EARLIEST)
        while (batch := reader.read(100_000, 1 << 30)) is not None:
            yield from zip(*(batch.records.column(c).to_pylist() for c in ("key", "value")), strict=True)


def _topics(log: Any) -> dict[str, dict[str, Any]]:
    last = {topic: {k: v for k, v in _records(log, topic) if v is not None} for topic in ("a", "b")}
    a = {k.decode(): json.loads(v) for k, v in last["a"].items()}
    b = {int.from_bytes(k, "big", signed=True): json.loads(v) for k, v in last["b"].items()}
    return {"a": {k: (v["N"], v["TOTAL"]) for k, v in a.items()}, "b": {k: v["N"] for k, v in b.items()}}


def _stream(log: Any) -> Counter[tuple[str, int]]:
    return Counter((k.decode(), json.loads(v)["V"]) for k, v in _records(log, "c"))


@contextmanager
def hosted(settings: Settings, sql: str | None = SQL) -> Iterator[Host]:
    host = Host(settings)
    host.start()
    try:
        if sql is not None:
            host.service.deploy(plan_of(sql))
        yield host
    finally:
        host.close()


def until_read(host: Host, feed: Feed, timeout_s: float = 120.0) -> None:
    """Everything that was fed is processed and committed."""
    done, limit = host.engine.catch_up(), time.monotonic() + timeout_s
    while not done():
        assert host.engine.fatal is None
        assert time.monotonic() < limit
        time.sleep(0.01)
