"""Cost of operators over tables by number of keys, on the embedded log.

    python -m benchmarks.keyed_tables [--operators table stream-table table-table] [--keys 10000 1000000] [--rows 2000000] [--memory-mb 4096]

`table`: a table over a topic, filtered, so that old rows leave. `stream-table` and `table-table`: joins with a table of one row for each key, which is
written before. Keys are drawn uniformly; the input is written before the clock runs. Reported is processor time of the whole process for each record,
those of the joined table included, from the deployment to the last commit. Each measurement runs in a process of its own.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np
import pyarrow as pa

from benchmarks.feeding import kafka_bigint
from benchmarks.keyed_state import APP, CHUNK
from flowql.compiler.diagnostics.source import SourceText
from flowql.compiler.driver import compile_project
from flowql.config.storage import log_at
from flowql.deploy.engine import open_on
from flowql.runtime.app.instance import Instance
from flowql.runtime.app.progress import caught_up, source_ends
from flowql.runtime.batch import Ints
from flowql.runtime.config import InstanceConfig
from flowql.runtime.log.base import HEADERS_TYPE, PRODUCE_SCHEMA, TopicPartition

SOURCE = (
    "CREATE {kind} {name} (K BIGINT {key}, {value} BIGINT, T{value} STRING)"
    " WITH (KAFKA_TOPIC='" + APP + "-{topic}', KEY_FORMAT='KAFKA', VALUE_FORMAT='JSON');\n"
)
JOINED = " AS SELECT S.K, V, TV, W, TW FROM S JOIN D ON S.K = D.K EMIT CHANGES;"
QUERIES = {
    "table": ("TABLE", "TABLE C WITH (KAFKA_TOPIC='c') AS SELECT K, V, TV FROM S WHERE V >= 500 EMIT CHANGES;"),
    "stream-table": ("STREAM", "STREAM C WITH (KAFKA_TOPIC='c')" + JOINED),
    "table-table": ("TABLE", "TABLE C WITH (KAFKA_TOPIC='c')" + JOINED),
}


def write(instance: Instance, topic: str, name: str, ids: Ints, values: Ints, times: Ints) -> None:
    producer = instance.log.producer(f"keyed-{topic}")
    for start in range(0, len(ids), CHUNK):
        k, v, t = (a[start : start + CHUNK] for a in (ids, values, times))
        rows = zip(v.tolist(), k.tolist(), strict=True)
        json = pa.array(
            [b'{"%s":%d,"T%s":"t%d"}' % (name.encode(), v, name.encode(), i % 7) for v, i in rows], pa.binary()
        )
        columns = [pa.array(t), kafka_bigint(pa.array(k)), json, pa.nulls(len(k), HEADERS_TYPE)]
        producer.begin()
        producer.send(TopicPartition(topic, 0), pa.RecordBatch.from_arrays(columns, schema=PRODUCE_SCHEMA))
        producer.commit()
    producer.close()


def measure(operator: str, keys: int, options: argparse.Namespace) -> None:
    random, rows = np.random.default_rng(1), options.rows
    ids, values = random.integers(0, keys, rows), random.integers(0, 1_000, rows)
    kind, query = QUERIES[operator]
    text = SOURCE.format(kind=kind, name="S", key="KEY" if kind == "STREAM" else "PRIMARY KEY", value="V", topic="s")
    records = rows
    with tempfile.TemporaryDirectory(prefix="flowql-keyed-") as name:
        folder = Path(name)
        config = InstanceConfig(APP, memory_bytes=options.memory_mb << 20)
        instance = open_on(log_at(folder / "log", None, APP), folder / "state", config)
        instance.log.admin().create_topic(f"{APP}-s", 1)
        if operator != "table":
            records += keys
            instance.log.admin().create_topic(f"{APP}-d", 1)
            write(instance, f"{APP}-d", "W", np.arange(keys), np.arange(keys) % 1_000, np.zeros(keys, np.int64))
            text += SOURCE.format(kind="TABLE", name="D", key="PRIMARY KEY", value="W", topic="d")
        write(instance, f"{APP}-s", "V", ids, values, np.arange(1, rows + 1))
        compiled = compile_project([SourceText("keyed.sql", text + "CREATE " + query)])
        assert compiled.ok, compiled.diagnostics
        instance.start()
        wall, cpu = time.perf_counter(), time.process_time()
        instance.deploy(compiled.plan)
        ends = source_ends(instance)
        while not caught_up(instance, ends):
            if instance.fatal is not None:
                raise instance.fatal
            time.sleep(0.02)
        wall, cpu = time.perf_counter() - wall, time.process_time() - cpu
        check(instance, operator, ids, values)
        instance.stop()
    print(f"{operator:<13} {keys:>11,} {cpu / records * 1e6:>14.2f} {records / wall:>14,.0f}", flush=True)


def check(instance: Instance, operator: str, ids: Ints, values: Ints) -> None:
    """The result equals what numpy says: a stream by its number of rows, a table by its keys and their last value."""
    if operator == "stream-table":
        assert instance.metrics.query(next(iter(instance.queries))).records_out == len(ids), "rows are missing"
        return
    found, last = np.unique(ids[::-1], return_index=True)
    wanted = dict(zip(found.tolist(), values[::-1][last].tolist(), strict=True))
    if operator == "table":
        wanted = {k: v for k, v in wanted.items() if v >= 500}
    with instance.state.snapshot() as snapshot:
        held = {k[0]: v[0] for keys, rows in snapshot.chunks("C") for k, v in zip(keys, rows, strict=True)}
    assert held == wanted, "the result differs"


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.keyed_tables")
    parser.add_argument("--operators", nargs="+", choices=QUERIES, default=list(QUERIES))
    parser.add_argument("--keys", type=int, nargs="+", default=[10_000, 1_000_000])
    parser.add_argument("--rows", type=int, default=2_000_000)
    parser.add_argument("--memory-mb", type=int, default=4_096)
    options = parser.parse_args()
    if len(options.keys) == len(options.operators) == 1:
        measure(options.operators[0], options.keys[0], options)
        return
    print(f"{'operator':<13} {'keys':>11} {'CPU us/record':>14} {'records/s':>14}", flush=True)
    for operator in options.operators:
        for keys in options.keys:
            words = ["--operators", operator, "--keys", str(keys), "--rows", str(options.rows)]
            words += ["--memory-mb", str(options.memory_mb)]
            subprocess.run([sys.executable, "-m", "benchmarks.keyed_tables", *words], check=True)


if __name__ == "__main__":
    main()
