"""Exact streams on Spark against a job by hand: an aggregation by windows that keeps its lateness per hash bucket, in turns.

    python -m benchmarks.spark_exact [--events 500000] [--rounds 1] [--buckets 4] [--master local[2]] [--json FILE]

Both read the bids of Nexmark from one Parquet file as a stream until it is consumed, and count and sum them by bidder in windows of 10 s. A bid is
late where its window and the grace period are over by the greatest event time before it in its bucket. Both hold their state in RocksDB and write
each micro-batch exactly once. Time and processor time are of whole processes, with the start of Spark.

flowql: `flowql run --until-caught-up` of a project with `streams: exact`. It reads the file into its log, commits state, results and positions to the log
in one step, and writes the windows that a micro-batch has changed into a folder of files. by hand: `transformWithStateInPandas` over as many
buckets, and folders alike, which a repeated micro-batch overwrites. It has no log, no dead letters, and no counts of late rows.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from typing import Any

import duckdb
import numpy as np
import pandas as pd
import psutil

from flowql.bench.measuring import BenchFailed
from flowql.bench.nexmark_input import write_parquet
from flowql.runtime.spark.session import close_session, open_session
from flowql.runtime.spark.settings import SparkSettings

SIZE_MS, GRACE_MS = 10_000, 10_000_000
MEMORY_MB = 1536
LOOK_S = 0.5
SQL = """
CREATE STREAM BID (AUCTION BIGINT, BIDDER BIGINT, PRICE BIGINT, CHANNEL STRING, URL STRING, `dateTime` BIGINT, EXTRA STRING)
  WITH (KAFKA_TOPIC='bid', VALUE_FORMAT='JSON', TIMESTAMP='`dateTime`', PARTITIONS={buckets});
CREATE TABLE TOTALS WITH (KAFKA_TOPIC='totals', PARTITIONS={buckets}) AS
  SELECT BIDDER, COUNT(*) AS N, SUM(PRICE) AS TOTAL FROM BID
  WINDOW TUMBLING (SIZE {size} MILLISECONDS, GRACE PERIOD {grace} MILLISECONDS) GROUP BY BIDDER EMIT CHANGES;
"""
PROJECT = """name: exact
sql: [exact.sql]
targets:
  spark:
    engine: spark
    memory: {memory} MiB
    spark:
      master: '{master}'
      streams: exact
      history: arrival
      files: {{bid: {{format: parquet, path: bids}}, totals: {{format: parquet, path: totals}}}}
"""
EXPECTED = f"""
SELECT bidder, "dateTime" // {SIZE_MS} * {SIZE_MS}, count(*), sum(price) FROM read_parquet(?) GROUP BY ALL
"""
# The last values of each window; each micro-batch has a folder with those that it changed.
FOUND = """
SELECT bidder, {start}, max_by(n, epoch), max_by(total, epoch)
FROM read_parquet(? || '/*/*.parquet', hive_partitioning=true) GROUP BY ALL
"""


@dataclass(frozen=True, slots=True)
class Pair:
    """Medians of both sides, in seconds. events: bids."""

    events: int
    buckets: int
    flowql_s: float
    by_hand_s: float
    ratio: float
    flowql_cpu_s: float
    by_hand_cpu_s: float
    cpu_ratio: float

    def __str__(self) -> str:
        times = f"flowql {self.flowql_s:.1f} s, by hand {self.by_hand_s:.1f} s, ratio {self.ratio:.2f}"
        cpu = f"processor {self.flowql_cpu_s:.1f} s and {self.by_hand_cpu_s:.1f} s, ratio {self.cpu_ratio:.2f}"
        return f"{self.events:,} bids, {self.buckets} buckets: {times}; {cpu}"


@dataclass(frozen=True, slots=True)
class Side:
    """One way to the result: a process that is started in a folder. check: raises BenchFailed for a wrong result."""

    name: str
    command: tuple[str, ...]
    folder: Path
    check: Callable[[], None]


def in_turns(events: int, buckets: int, rounds: int, sides_of: Callable[[int], Sequence[Side]]) -> Pair:
    """FlowQL's side and the one by hand, which `sides_of` gives for the number of a round, each from nothing."""
    taken: tuple[list[tuple[float, float]], list[tuple[float, float]]] = ([], [])
    for n in range(rounds):
        for side, found in zip(sides_of(n), taken, strict=True):
            found.append(_timed(side))
            side.check()
    (ours, cpu), (theirs, their_cpu) = (
        (statistics.median(t[0] for t in of), statistics.median(t[1] for t in of)) for of in taken
    )
    times, cpus = (round(ours, 2), round(theirs, 2)), (round(cpu, 2), round(their_cpu, 2))
    return Pair(events, buckets, *times, round(ours / theirs, 2), *cpus, round(cpu / their_cpu, 2))


def compare(folder: Path, events: int, rounds: int, buckets: int, master: str) -> Pair:
    """Both sides in turns, each from nothing; raises BenchFailed for a result that is wrong."""
    bids = write_parquet(folder / "input" / "bids", events, ["bid"])["bid"]
    sides = (_flowql(folder, bids.parent, buckets, master), _by_hand(folder, bids.parent, buckets, master))

    def from_nothing(_round: int) -> Sequence[Side]:
        for side in sides:
            for left in ("totals", "checkpoint", ".flowql"):
                shutil.rmtree(side.folder / left, ignore_errors=True)
        return sides

    return in_turns(events, buckets, rounds, from_nothing)


def _flowql(folder: Path, bids: Path, buckets: int, master: str) -> Side:
    project = folder / "project"
    project.mkdir()
    (project / "bids").symlink_to(bids)
    (project / "exact.sql").write_text(SQL.format(buckets=buckets, size=SIZE_MS, grace=GRACE_MS))
    (project / "flowql.yaml").write_text(PROJECT.format(master=master, memory=MEMORY_MB))
    command = (sys.executable, "-m", "flowql", "run", "-t", "spark", "--until-caught-up")
    return Side("flowql", command, project, partial(_check, project, "windowstart", bids))


def _by_hand(folder: Path, bids: Path, buckets: int, master: str) -> Side:
    place = folder / "by-hand"
    place.mkdir()
    command = (sys.executable, "-m", "benchmarks.spark_exact", "--by-hand", str(bids), "--master", master)
    return Side("by hand", (*command, "--buckets", str(buckets)), place, partial(_check, place, "start", bids))


def _timed(side: Side) -> tuple[float, float]:
    """Seconds and processor seconds of a process with all its descendants."""
    log = side.folder / "output.log"
    start, seen = time.perf_counter(), dict[int, float]()
    with log.open("w") as out:
        made = subprocess.Popen(side.command, cwd=side.folder, stdout=out, stderr=out, env=_environment())
        tree = psutil.Process(made.pid)
        while made.poll() is None:
            _add_cpu(tree, seen)
            time.sleep(LOOK_S)
    seconds = time.perf_counter() - start
    if made.returncode:
        raise BenchFailed(f"{side.name} ended with {made.returncode}:\n{log.read_text()[-2000:]}")
    return seconds, sum(seen.values())


def _add_cpu(tree: psutil.Process, seen: dict[int, float]) -> None:
    """Processor time by process; that of one which ends between two looks is not counted."""
    try:
        for process in (tree, *tree.children(recursive=True)):
            seen[process.pid] = float(sum(process.cpu_times()[:2]))
    except psutil.NoSuchProcess:
        return


def _environment() -> dict[str, str]:
    """The sides run in folders of their own, with the same modules."""
    return {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path)), "PYSPARK_PYTHON": sys.executable}


def _check(folder: Path, start: str, bids: Path) -> None:
    """start: the column that has it."""
    found = duckdb.execute(FOUND.format(start=start), [str(folder / "totals")]).fetchall()
    expected = duckdb.execute(EXPECTED, [f"{bids}/*.parquet"]).fetchall()
    if sorted(found) != sorted(expected):
        raise BenchFailed(f"{folder.name}: {len(found)} windows, {len(expected)} expected, or other values")


# -- the job by hand


def run_by_hand(bids: str, buckets: int, master: str) -> None:
    """Writes `totals` and `checkpoint` in the working directory, in a session of the settings that the other side has."""
    conf = {"spark.sql.execution.arrow.maxRecordsPerBatch": "100000"}
    settings = SparkSettings(master, conf, shuffle_partitions=buckets, memory_bytes=MEMORY_MB << 20)
    here = Path.cwd()  # which is not that of the JVM
    spark = open_session(settings, "by-hand", here / "spark")
    rows = spark.readStream.schema(spark.read.parquet(bids).schema).parquet(bids)
    made = (
        rows.selectExpr("bidder", "price", "dateTime", f"pmod(hash(bidder), {buckets}) AS bucket")
        .groupBy("bucket")
        .transformWithStateInPandas(Windows(), "bidder bigint, start bigint, n bigint, total bigint", "update", "none")
    )

    def write(frame: Any, epoch: int) -> None:
        frame.write.mode("overwrite").parquet(f"{here}/totals/epoch={epoch}")

    writer = (
        made.writeStream.foreachBatch(write).outputMode("update").option("checkpointLocation", f"{here}/checkpoint")
    )
    writer.trigger(availableNow=True).start().awaitTermination()
    close_session(spark)


class Windows:
    """Counts and sums of one bucket: a state row per bidder and window, read and written once a micro-batch.

    Spark asks for these methods, not for a base class.
    """

    def init(self, handle: Any) -> None:
        self._latest = handle.getValueState("latest", "at bigint")
        self._windows = handle.getMapState("windows", "bidder bigint, start bigint", "n bigint, total bigint")

    def handleInputRows(self, key: Any, rows: Iterator[Any], timerValues: Any) -> Iterator[Any]:
        latest, parts = (self._latest.get() or (-1,))[0], []
        for frame in rows:
            at = frame["dateTime"].to_numpy()
            before = np.maximum(np.maximum.accumulate(at), latest)
            latest, start = int(before[-1]), at // SIZE_MS * SIZE_MS
            kept = start + SIZE_MS + GRACE_MS > before
            parts.append(frame[["bidder", "price"]].assign(start=start)[kept])
        self._latest.update((latest,))
        made = pd.concat(parts).groupby(["bidder", "start"])["price"].agg(["size", "sum"]).reset_index()
        changed = [self._changed(*(int(x) for x in row)) for row in made.itertuples(index=False)]
        yield pd.DataFrame(changed, columns=["bidder", "start", "n", "total"])

    def _changed(self, bidder: int, start: int, n: int, total: int) -> tuple[int, int, int, int]:
        old = self._windows.getValue((bidder, start))
        if old is not None:
            n, total = n + old[0], total + old[1]
        self._windows.updateValue((bidder, start), (n, total))
        return bidder, start, n, total

    def handleExpiredTimer(self, *_: Any) -> Iterator[Any]:
        return iter(())

    def handleInitialState(self, *_: Any) -> None:
        """There is none."""

    def close(self) -> None:
        """Nothing is held."""


def main(words: Sequence[str]) -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--events", type=int, default=500_000, help="bids")
    parser.add_argument("--rounds", type=int, default=1)
    parser.add_argument("--buckets", type=int, default=4)
    parser.add_argument("--master", default="local[2]")
    parser.add_argument("--json", type=Path)
    parser.add_argument("--by-hand", help=argparse.SUPPRESS)
    options = parser.parse_args(words)
    if options.by_hand:
        run_by_hand(options.by_hand, options.buckets, options.master)
        return 0
    with tempfile.TemporaryDirectory(prefix="flowql-bench-") as name:
        found = compare(Path(name), options.events, options.rounds, options.buckets, options.master)
    print(found)
    if options.json is not None:
        options.json.write_text(json.dumps(asdict(found), indent=1) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
