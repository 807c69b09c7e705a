"""What checkpoints in an object store cost an instance under a steady load, and what they leave there.

    python -m benchmarks.remote_load [--minutes 5] [--keys 1000000] [--rate 20000] [--without | --turns 20] [--rebuild 10]

One table with so many keys, whose records are uniform, and a critical query beside it, on a broker of their own. The store is an S3 that answers after
20 ms (`benchmarks.slow_store`). A line each half minute: bytes of changelogs that were committed, bytes uploaded and their ratio, requests, objects,
bytes in the store and on the local disk, processor time of the thread `remote`, and the critical query's p99. --without: the same load without a store.

--turns: the thread `remote` works and rests in turns of so many seconds, and the p99 of either is of records that came in its turns: other work on the
machine hits both alike. --rebuild: the table's text changes every so many minutes, and it is computed again beside the old one.
"""

from __future__ import annotations

import argparse
import multiprocessing
import random
import tempfile
import threading
import time
import uuid
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from multiprocessing import parent_process
from multiprocessing.queues import Queue
from pathlib import Path
from queue import Empty
from typing import Any
from unittest.mock import patch

import numpy as np
import pyarrow as pa

from benchmarks.feeding import kafka_bigint
from benchmarks.restore import cpu_seconds
from benchmarks.slow_store import slow_s3
from flowql.compiler.diagnostics.source import SourceText
from flowql.compiler.driver import compile_project
from flowql.compiler.plan.topology import Plan
from flowql.config.storage import log_at
from flowql.deploy.engine import open_on
from flowql.kafka.broker import Broker
from flowql.runtime.app.checkpoints import RemoteCheckpoints
from flowql.runtime.app.instance import Instance
from flowql.runtime.app.status import statuses
from flowql.runtime.config import InstanceConfig
from flowql.runtime.log.base import HEADERS_TYPE, PRODUCE_SCHEMA, Log, TopicPartition
from flowql.runtime.log.kafka.settings import KafkaSettings
from flowql.runtime.remote.objects import objects_at
from flowql.runtime.state.remote.pace import IDLE_MS

PARTITIONS, REPORT_S, TICK_S, SAMPLE = 4, 30.0, 0.1, 1_000
MIB = 1 << 20
START_S = 20.0  # whose results do not count
TABLE = "CREATE TABLE C WITH (KAFKA_TOPIC='{app}-c') AS SELECT K, COUNT(*) AS N, SUM(V + {n}) AS T FROM S GROUP BY K EMIT CHANGES;"
SQL = f"""CREATE STREAM S (K BIGINT KEY, V BIGINT)
  WITH (KAFKA_TOPIC='{{app}}-s', PARTITIONS={PARTITIONS}, KEY_FORMAT='KAFKA', VALUE_FORMAT='JSON');
CREATE STREAM P (K BIGINT KEY, V BIGINT)
  WITH (KAFKA_TOPIC='{{app}}-p', PARTITIONS=1, KEY_FORMAT='KAFKA', VALUE_FORMAT='JSON');
CREATE STREAM A WITH (KAFKA_TOPIC='{{app}}-a', PRIORITY='critical') AS SELECT K, V + 1 AS V FROM P EMIT CHANGES;"""


def write_load(folder: Path, kafka: KafkaSettings, app: str, keys: int, rate: int) -> None:
    """Records at a rate, and a tenth of that for the critical query, at most 200 a second, until the process is ended."""
    log = log_at(folder / "log2", kafka, f"{app}-input")
    rng, producer = np.random.default_rng(1), log.producer(f"{app}-input")
    due = time.monotonic()
    while parent_process().is_alive():  # type: ignore[union-attr]
        now_ms = int(time.time() * 1000)
        producer.begin()
        chosen = rng.integers(0, keys, int(rate * TICK_S))
        for p in range(PARTITIONS):
            _send(producer, TopicPartition(f"{app}-s", p), chosen[chosen % PARTITIONS == p], now_ms)
        _send(producer, TopicPartition(f"{app}-p", 0), chosen[: int(min(rate / 10, 200) * TICK_S)], now_ms)
        producer.commit()
        due += TICK_S
        time.sleep(max(0.0, due - time.monotonic()))


def read_results(folder: Path, kafka: KafkaSettings, app: str, found: Queue[tuple[float, list[float]]]) -> None:
    """For each batch of results of the critical query, the time by `time.monotonic` and the ms since its records, until the process is ended."""
    log = log_at(folder / "log3", kafka, f"{app}-results")
    reader = log.reader(TopicPartition(f"{app}-a", 0))
    while parent_process().is_alive():  # type: ignore[union-attr]
        batch = reader.read(10_000, MIB)
        if batch is None or not batch.records.num_rows:
            time.sleep(0.002)
            continue
        times = batch.records.column("timestamp").to_numpy()
        found.put((time.monotonic(), (time.time() * 1000 - times).tolist()))


@contextmanager
def beside(target: Callable[..., None], *arguments: Any) -> Iterator[None]:
    """In a process of its own, so that the instance's interpreter is not shared with what measures it."""
    process = multiprocessing.get_context("spawn").Process(target=target, args=arguments, daemon=True)
    process.start()
    try:
        yield
    finally:
        process.kill()
        process.join()


def _send(producer: Any, tp: TopicPartition, keys: np.ndarray[Any, Any], now_ms: int) -> None:
    n = len(keys)
    values = pa.array([b'{"V":1}'] * n, pa.binary())
    columns = [pa.array([now_ms] * n), kafka_bigint(pa.array(keys)), values, pa.nulls(n, HEADERS_TYPE)]
    producer.send(tp, pa.RecordBatch.from_arrays(columns, schema=PRODUCE_SCHEMA))


class Turns:
    """The thread `remote` works in one turn of `seconds` of every two, drawn, so that no deployment falls into those of one kind. Collects the ms from each record of the critical query until its result is read."""

    def __init__(self, seconds: float) -> None:
        self._seconds, self._begin = seconds, time.monotonic()
        self.results: Queue[tuple[float, list[float]]] = multiprocessing.get_context("spawn").Queue()
        self._found: dict[bool, list[list[float]]] = {True: [], False: []}
        self._step = RemoteCheckpoints.run_once

    def works_at(self, at: float) -> bool:
        if not self._seconds:
            return True
        pair, second = divmod(int((at - self._begin) / self._seconds), 2)
        return random.Random(pair).random() < 0.5 if second else random.Random(pair).random() >= 0.5

    @contextmanager
    def taken(self) -> Iterator[None]:
        def step(checkpoints: RemoteCheckpoints, now_ms: int) -> int:
            return self._step(checkpoints, now_ms) if self.works_at(time.monotonic()) else IDLE_MS

        with patch.object(RemoteCheckpoints, "run_once", step):
            yield

    def _take(self) -> None:
        with suppress(Empty):
            while True:
                at, found = self.results.get_nowait()
                if at > self._begin + START_S:
                    self._found[self.works_at(at)].append(found)

    def line(self) -> str:
        self._take()
        said = []
        for works, name in ((True, "with the store"), (False, "without")):
            if self._found[works]:
                p50, p99 = np.percentile(np.concatenate(self._found[works]), (50, 99))
                said.append(f"{name} p50 {p50:.0f} ms p99 {p99:.0f} ms")
        return ", ".join(said)


class Figures:
    """The figures that are printed each time."""

    def __init__(self, instance: Instance, log: Log, app: str, folder: Path, url: str) -> None:
        self._instance, self._log, self._app, self._folder, self._url = instance, log, app, folder, url
        self._begin = self._ends()
        self._bytes: dict[TopicPartition, float] = {}

    def _ends(self) -> dict[TopicPartition, int]:
        admin = self._log.admin()
        names = [t for t in admin.topics() if t.startswith(f"{self._app}-") and t.endswith("-changelog")]
        return dict(
            admin.end_offsets([TopicPartition(t, p) for t in names for p in range(admin.partition_counts([t])[t])])
        )

    def committed_bytes(self) -> int:
        """Counts of changelogs since the begin, those of tables that were replaced too: records by their number, bytes by the last ones."""
        for tp, end in self._ends().items():
            records = end - self._begin.get(tp, 0)
            reader = self._log.key_values(tp, max(0, end - SAMPLE))
            found = reader.read(SAMPLE, 1 << 20)
            reader.close()
            if found is not None and found.keys:
                size = sum(map(len, found.keys)) + sum(len(v or b"") for v in found.values)
                self._bytes[tp] = records * size / len(found.keys)
        return int(sum(self._bytes.values()))

    def line(self, seconds: float) -> str:
        committed = self.committed_bytes()
        status = statuses(self._instance)
        critical = next(q for q in status if q["id"] == "CSAS_A")
        p99 = (critical["latency_ms"] or {"p99": None})["p99"]
        local = sum(f.stat().st_size for f in self._folder.rglob("*") if f.is_file())
        said = (
            f"{seconds:6.0f} s  committed {committed / MIB:8.1f} MB  local {local / MIB:7.1f} MB  critical p99 {p99} ms"
        )
        if self._instance.checkpoints is None:
            return said
        remote = self._instance.checkpoints.status()
        objects = list(objects_at(self._url).list(""))
        cpu = sum(cpu_seconds(t) for t in threading.enumerate() if t.name == "remote" or t.name.startswith("remote_"))
        ratio = remote["uploaded_bytes"] / committed if committed else 0
        return (
            f"{said}  uploaded {remote['uploaded_bytes'] / MIB:8.1f} MB ({ratio:.2f})  {remote['requests']:,} requests  "
            f"{len(objects):,} objects  {sum(o.size for o in objects) / MIB:.1f} MB there  remote {cpu / seconds:.1%} of a core"
        )


def plan_of(app: str, n: int) -> Plan:
    """n: a number in the table's text."""
    compiled = compile_project([SourceText("load.sql", SQL.format(app=app) + TABLE.format(app=app, n=n))])
    assert compiled.ok, compiled.diagnostics
    return compiled.plan


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.remote_load")
    parser.add_argument("--minutes", type=float, default=5)
    parser.add_argument("--keys", type=int, default=1_000_000)
    parser.add_argument("--rate", type=int, default=20_000)
    parser.add_argument("--without", action="store_true")
    parser.add_argument("--turns", type=float, default=0)
    parser.add_argument("--rebuild", type=float, default=0)
    options = parser.parse_args()
    random.seed(1)
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="flowql-remote-")))
        url = "" if options.without else stack.enter_context(slow_s3())
        broker = Broker(folder / "broker")
        kafka = KafkaSettings(broker.start().bootstrap)
        stack.callback(broker.kill)
        app = f"load-{uuid.uuid4().hex[:6]}"
        config = InstanceConfig(app, changelogs=True, remote_state=url)
        instance = open_on(log_at(folder / "log", kafka, app), folder / "state", config)
        instance.start()
        stack.callback(instance.stop)
        instance.deploy(plan_of(app, 0))
        log = log_at(folder / "log4", kafka, f"{app}-figures")
        stack.callback(log.close)
        turns, texts = Turns(options.turns), 0
        stack.enter_context(beside(write_load, folder, kafka, app, options.keys, options.rate))
        stack.enter_context(beside(read_results, folder, kafka, app, turns.results))
        with turns.taken():
            figures, begin = Figures(instance, log, app, folder / "state", url), time.monotonic()
            for n in range(int(options.minutes * 60 / REPORT_S)):
                time.sleep(max(0.0, begin + (n + 1) * REPORT_S - time.monotonic()))
                print(f"{figures.line(time.monotonic() - begin)}  {turns.line()}", flush=True)
                if options.rebuild and (due := int((n + 1) * REPORT_S / 60 / options.rebuild)) > texts:
                    texts = due
                    instance.deploy(plan_of(app, texts))


if __name__ == "__main__":
    main()
