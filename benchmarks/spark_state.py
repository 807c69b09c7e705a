"""The cost of different ways to keep state in Spark: `python -m benchmarks.spark_state`.

Count per key, four ways. Two are FlowQL's, records in and records out: `pages` is the exact way (one Spark state row per page of
keys), `native` is that of `streams: native`. Two get decoded columns and discard their counts, so they do less work: `per key` is a
Python transformWithState with a state row per key, `columns` Spark's own aggregation. Dense batches have many rows per key, sparse ones a
single row for every key.

Wall time is that of a micro-batch, including its trigger; processor time is that of this process and all its children.
"""

from __future__ import annotations

import argparse
import random
import shutil
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import orjson
import psutil
import pyarrow as pa
import pyarrow.parquet as pq

from flowql.compiler.diagnostics.source import SourceText
from flowql.compiler.driver import compile_project
from flowql.runtime.log.base import RECORD_SCHEMA
from flowql.runtime.output.partitioner import split

Spark = Any  # a SparkSession; PySpark is imported by `flowql.runtime.spark` alone
Frame = Any  # a DataFrame of one
PARTITIONS = 2
CHUNK_ROWS = 10_000
SQL = f"""
CREATE STREAM A (K BIGINT KEY, V BIGINT)
  WITH (KAFKA_TOPIC='a', PARTITIONS={PARTITIONS}, KEY_FORMAT='KAFKA', VALUE_FORMAT='JSON');
CREATE TABLE COUNTS AS SELECT K, COUNT(*) AS N FROM A GROUP BY K;
"""
WAYS = ("pages", "native", "per key", "columns")
RECORDS = ("pages", "native")  # these read packed records


@dataclass(frozen=True, slots=True)
class Load:
    """Batches of `rows` records over `keys` keys."""

    keys: int
    rows: int
    batches: int

    @property
    def name(self) -> str:
        return "sparse" if self.rows == self.keys else "dense"

    def batch(self, number: int) -> list[int]:
        """Keys of one batch."""
        rnd = random.Random(number)
        if self.rows == self.keys:
            return rnd.sample(range(self.keys), self.keys)
        return [rnd.randrange(self.keys) for _ in range(self.rows)]


@dataclass(frozen=True, slots=True)
class Figure:
    """Per batch, of the later half of the batches: the JVM compiles in the first ones."""

    seconds: float
    cpu_seconds: float
    state_bytes: float


def main() -> None:
    options = _options()
    from flowql.runtime.spark.session import close_session, open_session
    from flowql.runtime.spark.settings import SparkSettings

    folder = Path(tempfile.mkdtemp(prefix="flowql-bench-"))
    spark = open_session(
        SparkSettings(master="local[2]", shuffle_partitions=PARTITIONS), "state", folder / "spark-state"
    )
    try:
        print(f"{'keys':>8} {'load':<7} {'way':<8} {'rows/s':>10} {'cpu us/row':>11} {'state KB/batch':>15}")
        for load in (Load(k, r, options.batches) for k in options.keys for r in sorted({k, max(options.rows, k)})):
            for way in options.ways:
                figure = _measure(spark, folder / "run", load, way)
                print(
                    f"{load.keys:>8} {load.name:<7} {way:<8} {load.rows / figure.seconds:>10,.0f} "
                    f"{figure.cpu_seconds / load.rows * 1e6:>11.2f} {figure.state_bytes / 1024:>15,.0f}",
                    flush=True,
                )
    finally:
        close_session(spark)
        shutil.rmtree(folder, ignore_errors=True)


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--keys", type=int, nargs="+", default=[10_000, 200_000])
    parser.add_argument("--rows", type=int, default=400_000, help="of a dense batch")
    parser.add_argument("--batches", type=int, default=4)
    parser.add_argument("--ways", nargs="+", choices=WAYS, default=list(WAYS))
    return parser.parse_args()


def _measure(spark: Spark, folder: Path, load: Load, way: str) -> Figure:
    shutil.rmtree(folder, ignore_errors=True)
    (folder / "in").mkdir(parents=True)
    writer: Callable[[list[int], int], pa.Table] = _packed if way in RECORDS else _columns
    result = _RESULTS[way](spark, folder / "in")
    query = (
        result.writeStream.format("noop")
        .outputMode("update")
        .option("checkpointLocation", str(folder / "checkpoint"))
        .start()
    )
    walls, cpus, sizes = list[float](), list[float](), list[int]()
    try:
        for n in range(load.batches):
            pq.write_table(writer(load.batch(n), n * load.rows), folder / f"{n}.parquet")
            cpu, start = _cpu_seconds(), time.perf_counter()
            (folder / f"{n}.parquet").rename(folder / "in" / f"{n}.parquet")
            query.processAllAvailable()
            walls.append(time.perf_counter() - start)
            cpus.append(_cpu_seconds() - cpu)
            sizes.append(sum(f.stat().st_size for f in (folder / "checkpoint" / "state").rglob(f"{n + 1}.changelog")))
    finally:
        query.stop()
    later = load.batches // 2
    return Figure(*(sum(values[later:]) / (load.batches - later) for values in (walls, cpus, sizes)))


def _cpu_seconds() -> float:
    total = 0.0
    for process in [psutil.Process(), *psutil.Process().children(recursive=True)]:
        try:
            total += sum(process.cpu_times()[:2])
        except psutil.NoSuchProcess:  # it ended while we counted
            continue
    return total


def _packed(keys: list[int], first: int) -> pa.Table:
    from flowql.runtime.spark.shapes import PACKED, to_ipc

    value = [orjson.dumps({"V": k}) for k in keys]
    n = len(keys)
    columns = [
        pa.array(range(first, first + n), pa.int64()),
        pa.array(range(n), pa.int64()),
        pa.array([k.to_bytes(8, "big") for k in keys]),
        pa.array(value),
        pa.nulls(n, RECORD_SCHEMA.field("headers").type),
    ]
    rows = []
    for p, part in split(pa.RecordBatch.from_arrays(columns, schema=RECORD_SCHEMA), PARTITIONS, 0):
        for start in range(0, part.num_rows, CHUNK_ROWS):
            chunk = part.slice(start, CHUNK_ROWS)
            offsets = chunk.column(0)
            rows.append(("a", p, offsets[0].as_py(), offsets[-1].as_py() + 1, to_ipc(chunk)))
    return pa.Table.from_pylist([dict(zip(PACKED.names, r, strict=True)) for r in rows], PACKED)


def _columns(keys: list[int], _first: int) -> pa.Table:
    return pa.table({"k": pa.array(keys, pa.int64())})


def _pages(spark: Spark, folder: Path) -> Frame:
    from flowql.runtime.spark.shapes import PACKED_DDL
    from flowql.runtime.spark.stage.exact import exact_streaming
    from flowql.runtime.spark.stage.layout import layout_of
    from tests.packed_records import begun_of

    plan = compile_project([SourceText("bench.sql", SQL)]).plan
    layout = layout_of(plan, plan.queries[0], {"a": PARTITIONS})
    return exact_streaming(layout, begun_of(spark.readStream.schema(PACKED_DDL).parquet(str(folder)), layout))


class _Counter:
    """A stateful processor in all but name: Spark asks for these methods, not for a base class."""

    def init(self, handle: Any) -> None:
        self._n = handle.getValueState("n", "n bigint")

    def handleInputRows(self, key: Any, rows: Iterator[Any], timerValues: Any) -> Iterator[Any]:
        found = self._n.get()
        given = list(rows)
        n = (found[0] if found else 0) + len(given)
        self._n.update((n,))
        yield type(given[0])(k=key[0], n=n)

    def handleExpiredTimer(self, *_: Any) -> Iterator[Any]:
        return iter(())

    def handleInitialState(self, *_: Any) -> None:
        """There is none."""

    def close(self) -> None:
        """Nothing is held."""


def _per_key(spark: Spark, folder: Path) -> Frame:
    rows = spark.readStream.schema("k bigint").parquet(str(folder))
    return rows.groupBy("k").transformWithState(_Counter(), "k bigint, n bigint", "update", "none")


def _native(spark: Spark, folder: Path) -> Frame:
    from flowql.runtime.spark.over_topics import native_streaming
    from flowql.runtime.spark.shapes import PACKED_DDL
    from tests.packed_records import reader_of

    plan = compile_project([SourceText("bench.sql", SQL)]).plan
    packed = spark.readStream.schema(PACKED_DDL).parquet(str(folder))
    partitions, letters = {"a": PARTITIONS, "COUNTS": PARTITIONS}, str(folder.parent / "letters")
    return native_streaming(plan, plan.queries[0], reader_of(packed), partitions, letters).emitted


def _aggregated(spark: Spark, folder: Path) -> Frame:
    return spark.readStream.schema("k bigint").parquet(str(folder)).groupBy("k").count()


_RESULTS: dict[str, Callable[[Spark, Path], Frame]] = {
    "pages": _pages,
    "per key": _per_key,
    "native": _native,
    "columns": _aggregated,
}

if __name__ == "__main__":
    main()
