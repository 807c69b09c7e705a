"""How fast lost state comes back: changelog records per second, from the embedded log into RocksDB.

    python -m flowql.bench.restore [--keys 300000] [--partitions 4] [--busy]

A table with a row per key is built with changelogs on; the state directory is deleted; the clock runs from the start of the
threads to the last hand-over. busy: a second query works through its input meanwhile.
"""

from __future__ import annotations

import argparse
import shutil
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pyarrow as pa

from compiler.diagnostics.source import SourceText
from compiler.driver import compile_project
from compiler.plan.topology import Plan
from flowql.bench.nexmark import kafka_bigint
from flowql.deploy.engine import open_instance
from runtime.app.instance import Instance
from runtime.app.progress import caught_up, source_ends
from runtime.config import InstanceConfig
from runtime.log.base import HEADERS_TYPE, PRODUCE_SCHEMA, TopicPartition
from runtime.task.status import TaskStatus

TICK_S = 0.002
CHUNK = 50_000
SQL = """CREATE STREAM S (K BIGINT KEY, V BIGINT)
  WITH (KAFKA_TOPIC='s', PARTITIONS={partitions}, KEY_FORMAT='KAFKA', VALUE_FORMAT='JSON');
CREATE TABLE C WITH (KAFKA_TOPIC='c') AS SELECT K, COUNT(*) AS N, SUM(V) AS T FROM S GROUP BY K EMIT CHANGES;"""
BUSY = """CREATE STREAM B WITH (KAFKA_TOPIC='b') AS SELECT K, V * 2 AS V FROM S WHERE V > 10 EMIT CHANGES;"""


@dataclass(frozen=True, slots=True)
class Restored:
    """records: of changelogs; busy_records: what the other query processed in the same time."""

    records: int
    seconds: float
    busy_records: int


def plan_of(sql: str) -> Plan:
    compiled = compile_project([SourceText("restore.sql", sql)])
    assert compiled.ok, compiled.diagnostics
    return compiled.plan


def build(folder: Path, keys: int, partitions: int, config: InstanceConfig) -> int:
    """The table, built and committed; how many rows it has."""
    instance = open_instance(folder / "log", folder / "state", config)
    instance.start()
    instance.deploy(plan_of(SQL.format(partitions=partitions)))
    write_input(instance, keys, partitions)
    ends = source_ends(instance)
    _wait(instance, lambda: caught_up(instance, ends))
    rows = _rows(instance)
    instance.stop()
    return rows


def write_input(instance: Instance, keys: int, partitions: int) -> None:
    """One record of each key, and then one more of each."""
    producer = instance.log.producer("input")
    for start in range(0, 2 * keys, CHUNK):
        ids = np.arange(start, min(start + CHUNK, 2 * keys)) % keys
        producer.begin()
        for p in range(partitions):
            mine = ids[ids % partitions == p]
            values = pa.array([b'{"V":%d}' % k for k in mine.tolist()], pa.binary())
            columns = [pa.array(mine), kafka_bigint(pa.array(mine)), values, pa.nulls(len(mine), HEADERS_TYPE)]
            producer.send(TopicPartition("s", p), pa.RecordBatch.from_arrays(columns, schema=PRODUCE_SCHEMA))
        producer.commit()
    producer.close()


def restore(folder: Path, partitions: int, config: InstanceConfig, *, busy: bool) -> Restored:
    """Without its state directory; from the start of the threads until all tasks run."""
    shutil.rmtree(folder / "state")
    instance = open_instance(folder / "log", folder / "state", config)
    start = time.perf_counter()
    instance.start()
    instance.resume()
    if busy:
        instance.deploy(plan_of(SQL.format(partitions=partitions) + BUSY))
    tasks = instance.queries["CTAS_C"].built.tasks
    _wait(instance, lambda: all(t.status is TaskStatus.RUNNING for t in tasks))
    seconds = time.perf_counter() - start
    found = Restored(instance.restoration.records, seconds, instance.metrics.query("CSAS_B").records_in)
    instance.stop()
    return found


def _rows(instance: Instance) -> int:
    with instance.state.snapshot() as snapshot:
        return sum(1 for _ in snapshot.scan("C"))


def _wait(instance: Instance, done: Callable[[], bool]) -> None:
    while not done():
        if instance.fatal is not None:
            raise instance.fatal
        time.sleep(TICK_S)


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m flowql.bench.restore")
    parser.add_argument("--keys", type=int, default=300_000)
    parser.add_argument("--partitions", type=int, default=4)
    parser.add_argument("--busy", action="store_true")
    options = parser.parse_args()
    config = InstanceConfig(changelogs=True)
    with tempfile.TemporaryDirectory(prefix="flowql-restore-") as name:
        rows = build(Path(name), options.keys, options.partitions, config)
        assert rows == options.keys, f"{rows} rows of {options.keys}"
        found = restore(Path(name), options.partitions, config, busy=options.busy)
        rate = int(found.records / found.seconds)
        print(f"{found.records:,} records in {found.seconds:.2f} s: {rate:,} records/s", end="")
        print(f"; {found.busy_records:,} rows of the other query meanwhile" if options.busy else "")


if __name__ == "__main__":
    main()
