"""Cost of a keyed aggregate by number of keys: COUNT, SUM and MAX on the embedded log.

    python -m benchmarks.keyed_state [--keys 10000 1000000] [--rows 2000000] [--kind bigint|text|both] [--memory-mb 4096]

Keys are drawn uniformly; the input is written before the clock runs. Reported is processor time of the whole process per record, from the
deployment to the last commit, and the rows per second of wall time. Each number of keys runs in a process of its own, and its result is compared with
numpy's.
"""

from __future__ import annotations

import argparse
import resource
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pyarrow as pa

from flowql.bench.nexmark import kafka_bigint
from flowql.compiler.diagnostics.source import SourceText
from flowql.compiler.driver import compile_project
from flowql.compiler.plan.topology import Plan
from flowql.config.storage import log_at
from flowql.deploy.engine import open_on
from flowql.runtime.app.instance import Instance
from flowql.runtime.app.progress import caught_up, source_ends
from flowql.runtime.batch import Ints
from flowql.runtime.config import InstanceConfig
from flowql.runtime.log.base import HEADERS_TYPE, PRODUCE_SCHEMA, TopicPartition

CHUNK = 100_000
APP = "keyed"
KEYS = {"bigint": ("K BIGINT KEY", "K"), "text": ("K STRING KEY", "K"), "both": ("K BIGINT KEY", "K, T")}
SQL = """CREATE STREAM S ({key}, V BIGINT, T STRING)
  WITH (KAFKA_TOPIC='{app}-s', PARTITIONS={partitions}, KEY_FORMAT='KAFKA', VALUE_FORMAT='JSON');
CREATE TABLE C WITH (KAFKA_TOPIC='{app}-c')
  AS SELECT {by}, COUNT(*) AS N, SUM(V) AS TOTAL, MAX(V) AS HIGHEST FROM S GROUP BY {by} EMIT CHANGES;"""


def plan_of(kind: str, partitions: int) -> Plan:
    key, by = KEYS[kind]
    compiled = compile_project([SourceText("keyed.sql", SQL.format(app=APP, key=key, by=by, partitions=partitions))])
    assert compiled.ok, compiled.diagnostics
    return compiled.plan


@dataclass(slots=True)
class Expected:
    """The expected result, by key."""

    count: Ints
    total: Ints
    highest: Ints

    @staticmethod
    def of(keys: int) -> Expected:
        return Expected(*(np.zeros(keys, np.int64) for _ in range(3)))

    def add(self, ids: Ints, values: Ints) -> None:
        np.add.at(self.count, ids, 1)
        np.add.at(self.total, ids, values)
        np.maximum.at(self.highest, ids, values)


def write_input(instance: Instance, kind: str, partitions: int, keys: int, rows: int) -> Expected:
    producer, random = instance.log.producer("keyed-input"), np.random.default_rng(1)
    expected = Expected.of(keys)
    for start in range(0, rows, CHUNK):
        ids = random.integers(0, keys, min(CHUNK, rows - start))
        values = random.integers(0, 1_000, len(ids))
        expected.add(ids, values)
        producer.begin()
        for p in range(partitions):
            mine = ids % partitions == p
            k, v = ids[mine], values[mine].tolist()
            text = pa.array([b"key-%d" % n for n in k.tolist()], pa.binary())
            key = text if kind == "text" else kafka_bigint(pa.array(k))
            json = pa.array(
                [b'{"V":%d,"T":"t%d"}' % (n, i % 7) for n, i in zip(v, k.tolist(), strict=True)], pa.binary()
            )
            columns = [pa.array(k + 1), key, json, pa.nulls(len(k), HEADERS_TYPE)]
            batch = pa.RecordBatch.from_arrays(columns, schema=PRODUCE_SCHEMA)
            producer.send(TopicPartition(f"{APP}-s", p), batch)
        producer.commit()
    producer.close()
    return expected


def check(instance: Instance, expected: Expected) -> None:
    """The state equals what numpy says."""
    found = Expected.of(len(expected.count))
    with instance.state.snapshot() as snapshot:
        for keys, values in snapshot.chunks("C"):
            ids = np.array([int(str(k[0]).removeprefix("key-")) for k in keys])
            found.count[ids], found.total[ids], found.highest[ids] = np.array([v[:3] for v in values]).T
    for name in ("count", "total", "highest"):
        assert np.array_equal(getattr(found, name), getattr(expected, name)), f"{name} differs"


def measure(options: argparse.Namespace, keys: int) -> None:
    with tempfile.TemporaryDirectory(prefix="flowql-keyed-") as name:
        folder = Path(name)
        config = InstanceConfig(APP, memory_bytes=options.memory_mb << 20)
        instance = open_on(log_at(folder / "log", None, APP), folder / "state", config)
        instance.log.admin().create_topic(f"{APP}-s", options.partitions)
        expected = write_input(instance, options.kind, options.partitions, keys, options.rows)
        instance.start()
        wall, cpu = time.perf_counter(), time.process_time()
        instance.deploy(plan_of(options.kind, options.partitions))
        ends = source_ends(instance)
        while not caught_up(instance, ends):
            if instance.fatal is not None:
                raise instance.fatal
            time.sleep(0.02)
        wall, cpu = time.perf_counter() - wall, time.process_time() - cpu
        check(instance, expected)
        peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss >> 10
        instance.stop()
        print(
            f"{options.kind:<7} {keys:>11,} {cpu / options.rows * 1e6:>14.2f} {options.rows / wall:>14,.0f} {peak:>10,}",
            flush=True,
        )


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.keyed_state")
    parser.add_argument("--keys", type=int, nargs="+", default=[10_000, 1_000_000])
    parser.add_argument("--rows", type=int, default=2_000_000)
    parser.add_argument("--partitions", type=int, default=1)
    parser.add_argument("--kind", choices=KEYS, default="bigint")
    parser.add_argument("--memory-mb", type=int, default=4_096)
    options = parser.parse_args()
    if len(options.keys) == 1:
        measure(options, options.keys[0])
        return
    print(f"{'key':<7} {'keys':>11} {'CPU us/record':>14} {'records/s':>14} {'peak MiB':>10}", flush=True)
    shared = ["--rows", str(options.rows), "--partitions", str(options.partitions), "--kind", options.kind]
    for keys in options.keys:
        words = ["--keys", str(keys), *shared, "--memory-mb", str(options.memory_mb)]
        subprocess.run([sys.executable, "-m", "benchmarks.keyed_state", *words], check=True)


if __name__ == "__main__":
    main()
