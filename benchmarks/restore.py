"""How fast lost state is restored: changelog records per second, from the log into RocksDB.

    python -m benchmarks.restore [--keys 1000000] [--partitions 4] [--busy] [--bootstrap HOST:PORT]

A table with a row per key is built with changelogs on: two records per key, as the aggregation and the table have a store each. The
state directory is deleted; the clock runs from the start of the threads to the last hand-over. busy: a second query processes its input
meanwhile, which is one record per key. bootstrap: of a Kafka cluster; default: the embedded log.
"""

from __future__ import annotations

import argparse
import shutil
import sys
import tempfile
import threading
import time
import uuid
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pyarrow as pa

from benchmarks.feeding import kafka_bigint
from flowql.compiler.diagnostics.source import SourceText
from flowql.compiler.driver import compile_project
from flowql.compiler.plan.topology import Plan
from flowql.config.storage import log_at
from flowql.deploy.engine import open_on
from flowql.runtime.app.instance import Instance
from flowql.runtime.app.progress import caught_up, source_ends
from flowql.runtime.config import InstanceConfig
from flowql.runtime.log.base import HEADERS_TYPE, PRODUCE_SCHEMA, Log, TopicPartition
from flowql.runtime.log.kafka.settings import KafkaSettings
from flowql.runtime.task.status import TaskStatus

TICK_S = 0.01
REPORT_S = 1.0
CHUNK = 50_000
SQL = """CREATE STREAM S (K BIGINT KEY, V BIGINT)
  WITH (KAFKA_TOPIC='{app}-s', PARTITIONS={partitions}, KEY_FORMAT='KAFKA', VALUE_FORMAT='JSON');
CREATE TABLE C WITH (KAFKA_TOPIC='{app}-c') AS SELECT K, COUNT(*) AS N, SUM(V) AS T FROM S GROUP BY K EMIT CHANGES;"""
BUSY = """CREATE STREAM B WITH (KAFKA_TOPIC='{app}-b') AS SELECT K, V * 2 AS V FROM S WHERE V > 10 EMIT CHANGES;"""
TABLE = "CTAS_C"
RECORDS_PER_KEY = 2
RESTORING = ("consumer-restore", "restoration")  # threads that do nothing else here


@dataclass(frozen=True, slots=True)
class RestoreSetup:
    """Log and directories of the benchmark. kafka: None for the embedded log. remote: URL of a store for checkpoints."""

    folder: Path
    partitions: int
    kafka: KafkaSettings | None
    app: str
    remote: str = ""

    def open(self) -> Instance:
        config = InstanceConfig(self.app, changelogs=True, remote_state=self.remote)
        return open_on(self.log(), self.folder / "state", config)

    def log(self) -> Log:
        return log_at(self.folder / "log", self.kafka, self.app)

    def plan(self, *, busy: bool = False) -> Plan:
        sql = (SQL + BUSY if busy else SQL).format(app=self.app, partitions=self.partitions)
        compiled = compile_project([SourceText("restore.sql", sql)])
        assert compiled.ok, compiled.diagnostics
        return compiled.plan


@dataclass(frozen=True, slots=True)
class Restored:
    """records: of changelogs; cpu_s: of the threads that restore, and process_cpu_s of all of the process; busy_records: what the
    other query processed in the same time, and gap_s the longest time between two commits of its work.
    """

    records: int
    seconds: float
    cpu_s: float
    process_cpu_s: float
    busy_records: int
    gap_s: float


def build(setup: RestoreSetup, keys: int) -> int:
    """The table, built and committed; how many rows it has."""
    instance = setup.open()
    instance.start()
    instance.deploy(setup.plan())
    write_input(instance, setup, keys)
    ends = source_ends(instance)
    total = sum(ends.values())
    _wait(
        instance,
        "building",
        lambda: caught_up(instance, ends),
        lambda: (instance.metrics.query(TABLE).records_in, total),
    )
    rows = _rows(instance)
    if instance.checkpoints is not None:
        _wait(instance, "uploading", lambda: is_uploaded(instance), lambda: (_uploaded_bytes(instance), 0))
    instance.stop()
    return rows


def is_uploaded(instance: Instance) -> bool:
    """Whether the store has all that the instance has."""
    assert instance.checkpoints is not None
    queries = instance.checkpoints.status()["queries"]
    return TABLE in queries and all(q["behind_ms"] == 0 and q["stored_bytes"] for q in queries.values())


def _uploaded_bytes(instance: Instance) -> int:
    assert instance.checkpoints is not None
    return int(instance.checkpoints.status()["uploaded_bytes"])


def write_input(instance: Instance, setup: RestoreSetup, keys: int) -> None:
    """One record of each key."""
    producer = instance.log.producer(f"{setup.app}-input")
    for start in range(0, keys, CHUNK):
        ids = np.arange(start, min(start + CHUNK, keys))
        producer.begin()
        for p in range(setup.partitions):
            mine = ids[ids % setup.partitions == p]
            values = pa.array([b'{"V":%d}' % k for k in mine.tolist()], pa.binary())
            columns = [pa.array(mine + 1), kafka_bigint(pa.array(mine)), values, pa.nulls(len(mine), HEADERS_TYPE)]
            producer.send(
                TopicPartition(f"{setup.app}-s", p), pa.RecordBatch.from_arrays(columns, schema=PRODUCE_SCHEMA)
            )
        producer.commit()
    producer.close()


def restore(setup: RestoreSetup, *, busy: bool) -> Restored:
    """Without its state directory; from the start of the threads until all tasks run."""
    shutil.rmtree(setup.folder / "state")
    instance = setup.open()
    start, process_cpu_s = time.perf_counter(), time.process_time()
    instance.start()
    instance.resume()
    if busy:
        instance.deploy(setup.plan(busy=True))
    tasks = instance.queries[TABLE].built.tasks
    gaps = Gaps(instance)

    def whole() -> bool:
        gaps.look()
        return all(t.status is TaskStatus.RUNNING for t in tasks)

    _wait(instance, "restoring", whole, lambda: _progress(instance))
    seconds, process_cpu_s = time.perf_counter() - start, time.process_time() - process_cpu_s
    cpu_s = sum(cpu_seconds(t) for t in threading.enumerate() if t.name in RESTORING)
    records = instance.restoration.records
    busy_records = instance.metrics.query("CSAS_B").records_in
    found = Restored(records, seconds, cpu_s, process_cpu_s, busy_records, gaps.longest_s)
    instance.stop()
    return found


class Gaps:
    """The longest time between two commits, while there is something to commit."""

    def __init__(self, instance: Instance) -> None:
        self._instance, self._sequence = instance, instance.state.applied_sequence
        self._since: float | None = None  # the last commit, or when there was something to commit again
        self.longest_s = 0.0

    def look(self) -> None:
        now, sequence = time.perf_counter(), self._instance.state.applied_sequence
        if self._since is not None:
            self.longest_s = max(self.longest_s, now - self._since)
        if sequence != self._sequence or self._since is None:
            self._sequence, self._since = sequence, now
        if self._instance.commit.idle:
            self._since = None


def cpu_seconds(thread: threading.Thread) -> float:
    """Processor time of a thread that runs."""
    assert thread.ident is not None
    return time.clock_gettime(time.pthread_getcpuclockid(thread.ident))


def _progress(instance: Instance) -> tuple[int, int]:
    found = instance.restoration.progress().get(TABLE)
    return (0, 0) if found is None else (found.done, found.total)


def _rows(instance: Instance) -> int:
    with instance.state.snapshot() as snapshot:
        return sum(1 for _ in snapshot.scan("C"))


def _wait(instance: Instance, what: str, done: Callable[[], bool], progress: Callable[[], tuple[int, int]]) -> None:
    said = time.monotonic()
    while not done():
        if instance.fatal is not None:
            raise instance.fatal
        if time.monotonic() - said > REPORT_S:
            now, total = progress()
            print(f"{what}: {now:,} of {total:,}", file=sys.stderr, flush=True)
            said = time.monotonic()
        time.sleep(TICK_S)


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.restore")
    parser.add_argument("--keys", type=int, default=1_000_000)
    parser.add_argument("--partitions", type=int, default=4)
    parser.add_argument("--busy", action="store_true")
    parser.add_argument("--bootstrap")
    options = parser.parse_args()
    kafka = None if options.bootstrap is None else KafkaSettings(options.bootstrap)
    with tempfile.TemporaryDirectory(prefix="flowql-restore-") as name:
        setup = RestoreSetup(Path(name), options.partitions, kafka, f"restore-{uuid.uuid4().hex[:8]}")
        try:
            rows = build(setup, options.keys)
            assert rows == options.keys, f"{rows} rows of {options.keys}"
            found = restore(setup, busy=options.busy)
        finally:
            _remove_topics(setup)
        assert found.records == RECORDS_PER_KEY * options.keys, f"{found.records:,} records of {options.keys:,} keys"
        print(
            f"{found.records:,} records in {found.seconds:.2f} s: {int(found.records / found.seconds):,} records/s; ",
            end="",
        )
        cpu_us, process_us = (s / found.records * 1e6 for s in (found.cpu_s, found.process_cpu_s))
        print(f"CPU per record {cpu_us:.2f} us of the threads that restore, {process_us:.2f} us of the process")
        if options.busy:
            print(f"meanwhile {found.busy_records:,} rows of the other query; ", end="")
            print(f"at most {found.gap_s * 1000:.0f} ms from one of its commits to the next")


def _remove_topics(setup: RestoreSetup) -> None:
    """On a cluster they would stay."""
    log = setup.log()
    for topic in [t for t in log.admin().topics() if t.startswith(setup.app)]:
        log.admin().delete_topic(topic)
    log.close()


if __name__ == "__main__":
    main()
