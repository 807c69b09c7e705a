"""How long a batch of a light Spark query takes beside a query that keeps all cores busy, with and without FlowQL's pools.

    python -m benchmarks.spark_pools [--seconds 30] [--master local[2]] [--plot FILE]

Two streaming queries in one session: a small grouped count (critical), and one whose micro-batches are 40 long tasks (batch).
Without pools both are in Spark's default pool, where jobs go first come, first served. The measurement fails unless the heavy query ran
all the time. Only figures of one run on one machine are comparable.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from benchmarks.plots import plotted
from flowql.bench.measuring import BenchFailed
from flowql.runtime.spark.session import close_session, in_pool, open_session
from flowql.runtime.spark.settings import SparkSettings

LIGHT_ROWS, LIGHT_TICK = 200, "100 milliseconds"
HEAVY_TASKS, HEAVY_TASK_MS = 40, 100.0
HEAVY_WORK = "aggregate(sequence(1, 3000), 0L, (a, i) -> a + crc32(cast({value} * i AS string)))"
CALIBRATION_ROWS, CALIBRATION_ROUNDS = 200, 6
WARM_UP_BATCHES = 10
START_SECONDS = 120.0
BUSY_LEAST = 0.9  # of the time a batch of the heavy query is under way


@dataclass(frozen=True, slots=True)
class ScenarioResult:
    """One scenario. batches_ms: of the light query, in order; heavy_rows: a second of the heavy one."""

    name: str
    batches_ms: npt.NDArray[np.float64]
    heavy_rows: float

    def quantile(self, q: float) -> float:
        return float(np.quantile(self.batches_ms, q))


def rows_of_a_task(spark: Any) -> int:
    """Rows per task of the heavy query so that a task takes HEAVY_TASK_MS on this machine: by the best of some rounds, the first of which warm up."""
    took = []
    for _ in range(CALIBRATION_ROUNDS):
        began = time.monotonic()
        spark.range(0, CALIBRATION_ROWS, 1, 1).selectExpr(f"sum({HEAVY_WORK.format(value='id')})").collect()
        took.append((time.monotonic() - began) * 1000)
    return max(1, round(CALIBRATION_ROWS * HEAVY_TASK_MS / min(took)))


def measure(spark: Any, folder: Path, name: str, seconds: float, *, rows: int, pools: bool) -> ScenarioResult:
    """Run the light query for a while, beside the heavy one if that has rows per task."""
    with (
        _heavy(spark, folder, rows, pools=pools) if rows else nullcontext() as busy,
        _light(spark, folder, pools=pools) as light,
    ):
        _wait(light, WARM_UP_BATCHES)
        if busy is not None:
            _wait(busy, 1)
        first, first_busy = _done(light), _done(busy)
        began = time.monotonic()
        while (left := began + seconds - time.monotonic()) > 0:
            time.sleep(min(left, 1.0))
            for query in (light, busy):
                if query is not None and query.exception() is not None:
                    raise BenchFailed(str(query.exception()))
        progress = [p for p in light.recentProgress if p["batchId"] >= first]
        worked = [p for p in busy.recentProgress if p["batchId"] >= first_busy] if busy is not None else []
    if busy is not None:
        _check_busy(worked)
    taken = sum(_taken_ms(p) for p in worked) / 1000
    rate = sum(p["numInputRows"] for p in worked) / taken if worked else 0.0
    return ScenarioResult(name, np.array([_taken_ms(p) for p in progress], np.float64), rate)


@contextmanager
def _light(spark: Any, folder: Path, *, pools: bool) -> Iterator[Any]:
    counted = _rows(spark, LIGHT_ROWS, 2).selectExpr("value % 10 AS k").groupBy("k").count()
    writer = counted.writeStream.outputMode("update").format("noop").trigger(processingTime=LIGHT_TICK)
    with _running(spark, writer, folder, "critical" if pools else None) as query:
        yield query


@contextmanager
def _heavy(spark: Any, folder: Path, rows: int, *, pools: bool) -> Iterator[Any]:
    worked = _rows(spark, rows * HEAVY_TASKS, HEAVY_TASKS).selectExpr(f"{HEAVY_WORK.format(value='value')} AS w")
    with _running(spark, worked.writeStream.format("noop"), folder, "batch" if pools else None) as query:
        yield query


def _rows(spark: Any, rows: int, partitions: int) -> Any:
    source = spark.readStream.format("rate-micro-batch")
    return source.options(rowsPerBatch=rows, numPartitions=partitions).load()


@contextmanager
def _running(spark: Any, writer: Any, folder: Path, priority: str | None) -> Iterator[Any]:
    with tempfile.TemporaryDirectory(dir=folder) as checkpoint, in_pool(spark, priority) if priority else nullcontext():
        query = writer.option("checkpointLocation", checkpoint).start()
        try:
            yield query
        finally:
            query.stop()


def _done(query: Any) -> int:
    """The number of the batch after the last finished one."""
    last = query.lastProgress if query is not None else None
    return last["batchId"] + 1 if last else 0


def _taken_ms(progress: Any) -> float:
    return float(progress["durationMs"]["triggerExecution"])


def _wait(query: Any, batches: int) -> None:
    end = time.monotonic() + START_SECONDS
    while _done(query) < batches:
        if query.exception() is not None:
            raise BenchFailed(str(query.exception()))
        if time.monotonic() > end:
            raise BenchFailed(f"a query did not get through {batches} batches within {START_SECONDS:.0f} s")
        time.sleep(0.2)


def _check_busy(worked: Sequence[Any]) -> None:
    if len(worked) < 2:
        raise BenchFailed("too short: the heavy query did not get through two batches; try more --seconds")
    starts = [np.datetime64(p["timestamp"].rstrip("Z"), "ms").astype(np.int64) for p in worked]
    span = float(starts[-1] - starts[0])
    busy = sum(_taken_ms(p) for p in worked[:-1]) / span
    if busy < BUSY_LEAST:
        raise BenchFailed(f"the heavy query worked {busy:.0%} of the time only, so this measured nothing")


def table(results: Sequence[ScenarioResult]) -> str:
    lines = [f"{'light query':<34}{'batches':>8}{'p50 ms':>8}{'p95 ms':>8}{'max ms':>8}{'heavy rows/s':>14}"]
    for o in results:
        heavy = f"{o.heavy_rows:14.1f}" if o.heavy_rows else f"{'':>14}"
        figures = "".join(f"{o.quantile(q):8.0f}" for q in (0.5, 0.95, 1.0))
        lines.append(f"{o.name:<34}{len(o.batches_ms):8d}{figures}{heavy}")
    return "\n".join(lines)


def draw(results: Sequence[ScenarioResult], file: Path) -> None:
    """For each scenario the share of batches within a duration."""
    with plotted(file) as axes:
        for o in results:
            x = np.sort(o.batches_ms)
            axes.step(x, np.arange(1, len(x) + 1) / len(x), where="post", label=f"{o.name} ({len(x)} batches)")
        axes.set(xscale="log", xlabel="time of a batch of the light query, ms", ylabel="share of batches within it")
        axes.legend()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=float, default=30.0)
    parser.add_argument("--master", default="local[2]")
    parser.add_argument("--plot", type=Path)
    options = parser.parse_args()
    scenarios = (("alone", False, True), ("beside, without pools", True, False), ("beside, with pools", True, True))
    results = []
    with tempfile.TemporaryDirectory(prefix="flowql-pools-") as name:
        conf = {"spark.sql.streaming.numRecentProgressUpdates": "10000"}
        spark = open_session(SparkSettings(options.master, conf), "pools", Path(name))
        try:
            rows = rows_of_a_task(spark)
            for scenario, heavy, pools in scenarios:
                print(scenario, file=sys.stderr)
                beside = rows if heavy else 0
                results.append(measure(spark, Path(name), scenario, options.seconds, rows=beside, pools=pools))
        finally:
            close_session(spark)
    print(table(results))
    if options.plot is not None:
        draw(results, options.plot)


if __name__ == "__main__":
    main()
