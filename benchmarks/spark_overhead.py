"""The overhead of FlowQL on Spark: its queries and jobs written by hand, alternating in one session, over the same input.

    python -m benchmarks.spark_overhead [--queries q0,q1,q7] [--events 1000000] [--rounds 5]
                                          [--input files|records] [--guarded] [--master local[2]] [--json FILE] [--plot FILE]

files: typed columns in Parquet as input and output, the same columns on both sides. records: JSON records, as in topics; FlowQL reads and
writes its log, the hand-written job Parquet files of records (q1, q2, q7 and qc). Both commit what they write. --guarded: jobs by hand over files give the same guarantees
(`spark_jobs.GUARDED`). Every run is bounded. The first round of each
warms up and is not counted. Ratios are of medians: of time, and of processor time of the process and its children (Spark's JVM
and Python workers), which is more reliable on a machine with other load. Every result is compared with the oracle.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
import tempfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from benchmarks import spark_jobs
from benchmarks.plots import plotted
from flowql.bench import nexmark
from flowql.bench.engines import NEXMARK, Job
from flowql.bench.measuring import BenchFailed, Figure, Stopwatch
from flowql.bench.nexmark_input import PARTITIONS, rows_of, write_log, write_parquet
from flowql.bench.oracle import EXPECTED, difference, rows_of_json
from flowql.bench.results import result
from flowql.compiler.plan.topology import Plan, QueryPlan
from flowql.runtime.log.base import PRODUCE_SCHEMA
from flowql.runtime.spark.choose import is_native
from flowql.runtime.spark.engine.deployed import new_run
from flowql.runtime.spark.files import source_frame
from flowql.runtime.spark.frames.lower import lower
from flowql.runtime.spark.log_address import shared_log
from flowql.runtime.spark.log_append import Target
from flowql.runtime.spark.log_offsets import Offsets, bounds
from flowql.runtime.spark.log_sink import SinkOptions, write_epoch
from flowql.runtime.spark.log_source import ReadOptions, read_log, register
from flowql.runtime.spark.log_staging import Staging
from flowql.runtime.spark.native.topics import Reading
from flowql.runtime.spark.over_topics import native_bounded
from flowql.runtime.spark.session import close_session, open_session
from flowql.runtime.spark.settings import SparkSettings, TopicFiles
from flowql.runtime.spark.shapes import Emitting
from flowql.runtime.spark.stage.exact import exact_bounded
from flowql.runtime.spark.stage.layout import layout_of

INPUTS = ("files", "records")
MEMORY_BYTES = 3 << 29
Run = Callable[[Path], None]  # writes its result to a folder


@dataclass(frozen=True, slots=True)
class Ratio:
    """Medians of both sides, in seconds. native: whether FlowQL's query is Spark's own operators."""

    query: str
    input: str
    events: int
    native: bool
    flowql_s: float
    by_hand_s: float
    ratio: float
    flowql_cpu_s: float
    by_hand_cpu_s: float
    cpu_ratio: float


@dataclass(frozen=True, slots=True)
class BenchInput:
    """Where the input is. events: bids."""

    folder: Path
    events: int

    def file(self, topic: str) -> Path:
        return self.folder / "parquet" / f"{topic}.parquet"

    @property
    def records(self) -> Path:
        return self.folder / "records.parquet"

    def write(self, kind: str) -> None:
        if kind == "files":
            write_parquet(self.folder / "parquet", self.events)
        else:
            write_log(self.folder, self.events, ["bid"])
            with pq.ParquetWriter(self.records, PRODUCE_SCHEMA) as writer:
                for _, batch in nexmark.records(nexmark.bids(self.events), PARTITIONS):
                    writer.write_batch(batch)


def compare(spark: Any, source: BenchInput, query: str, kind: str, rounds: int, *, guarded: bool = False) -> Ratio:
    """FlowQL's query and the job by hand in turns."""
    plan = Job(source.folder, NEXMARK, query, source.events, 1).plan()
    reads = EXPECTED[query].reads if kind == "files" else ()
    files = {topic: TopicFiles("parquet", str(source.file(topic))) for topic in reads}
    settings = SparkSettings(late_rows="none", files=files)
    native = all(is_native(plan, q, settings, "bounded") for q in plan.queries)
    sides = (
        _over_files(spark, source, plan, query, guarded=guarded)
        if kind == "files"
        else _over_records(spark, source, plan, query, native=native)
    )
    taken: dict[str, list[Figure]] = {name: [] for name in sides}
    for _ in range(rounds + 1):
        for name, run in sides.items():
            watch = Stopwatch()
            watch.start()
            run(source.folder / f"out-{query}-{name}")
            taken[name].append(watch.stop(query, name, source.events))
    _check(source, query, kind, sides)
    ours, theirs = (statistics.median(f.seconds for f in taken[name][1:]) for name in ("flowql", "by hand"))
    cpu, their_cpu = (statistics.median(f.cpu_s for f in taken[name][1:]) for name in ("flowql", "by hand"))
    times = (round(ours, 3), round(theirs, 3), round(ours / theirs, 2))
    return Ratio(
        query, kind, source.events, native, *times, round(cpu, 2), round(their_cpu, 2), round(cpu / their_cpu, 2)
    )


def _over_files(spark: Any, source: BenchInput, plan: Plan, query: str, *, guarded: bool) -> Mapping[str, Run]:
    reads = EXPECTED[query].reads
    sources = [s for s in plan.sources if s.topic in reads]
    made = next(q for q in plan.queries if q.sink == query)
    values = [f.name for f in made.logical.schema if f.role == "value"]

    def flowql(out: Path) -> None:
        rows = {s.name: source_frame(spark, s, TopicFiles("parquet", str(source.file(s.topic)))) for s in sources}
        lower(plan, rows)[query].select(*values).write.mode("overwrite").parquet(str(out))

    def by_hand(out: Path) -> None:
        frames = {topic: spark.read.parquet(str(source.file(topic))) for topic in reads}
        spark_jobs.over_columns(query, frames, guarded=guarded).write.mode("overwrite").parquet(str(out))

    return {"flowql": flowql, "by hand": by_hand}


def _over_records(spark: Any, source: BenchInput, plan: Plan, query: str, *, native: bool) -> Mapping[str, Run]:
    compiled: QueryPlan = plan.queries[0]
    log = shared_log(source.folder / "log")
    starts, ends = bounds(log, ["bid"])
    log.admin().create_topic(query, PARTITIONS)
    ended: Offsets = {}

    def flowql(_out: Path) -> None:
        """As a bounded run does it: each time replacing the previous results."""
        partitions = {"bid": PARTITIONS, query: PARTITIONS}
        options = ReadOptions(str(source.folder / "log"), ("bid",), starting=starts, ending=ends)

        def read(reading: Reading) -> Any:
            return read_log(spark, replace(options, reading=reading.dumps()))

        if native:
            made = native_bounded(plan, compiled, read, partitions, str(source.folder / "letters"))
        else:
            layout = layout_of(plan, compiled, partitions)
            made = Emitting(exact_bounded(layout, read_log(spark, replace(options, layout=layout.dumps()))))
        sink = SinkOptions(options.address, Staging(source.folder / "staging"), Target(query, new_run()), dict(ended))
        write_epoch(made.rows, sink, 0, emit=made.emit)
        ended.update(_bounds_after(source, query))

    def by_hand(out: Path) -> None:
        found = spark_jobs.over_records(query, spark.read.parquet(str(source.records)))
        found.write.mode("overwrite").parquet(str(out))

    return {"flowql": flowql, "by hand": by_hand}


def _bounds_after(source: BenchInput, query: str) -> Offsets:
    return bounds(shared_log(source.folder / "log"), [query])[1]


def _check(source: BenchInput, query: str, kind: str, sides: Mapping[str, Run]) -> None:
    for name in sides:
        out = source.folder / f"out-{query}-{name}"
        if kind == "files":
            given = {topic: rows_of(topic, source.events) for topic in EXPECTED[query].reads}
            message = difference(query, given, pq.read_table(out))
        else:
            found = pq.read_table(out) if out.exists() else None
            message = _difference_of_records(source, query, found)
        if message:
            raise BenchFailed(f"{name}: {message}")


def _difference_of_records(source: BenchInput, query: str, records: pa.Table | None) -> str:
    """records: those of the job by hand; None for what is in the log."""
    if records is None:
        return difference(
            query, {"bid": rows_of("bid", source.events)}, result(shared_log(source.folder / "log"), query)
        )
    given = pa.Table.from_batches(list(rows_of_json(query, records["value"].chunks)))
    return difference(query, {"bid": rows_of("bid", source.events)}, given)


def main(words: Sequence[str]) -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--queries", default="", help="all; of records q1, q2, q7 and qc")
    parser.add_argument("--events", type=int, default=1_000_000, help="bids")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--input", choices=INPUTS, default="files")
    parser.add_argument("--guarded", action="store_true", help="jobs by hand over files give the same guarantees")
    parser.add_argument("--master", default="local[2]")
    parser.add_argument("--json", type=Path)
    parser.add_argument("--plot", type=Path)
    options = parser.parse_args(words)
    with tempfile.TemporaryDirectory(prefix="flowql-bench-") as name:
        source = BenchInput(Path(name), options.events)
        source.write(options.input)
        settings = SparkSettings(master=options.master, memory_bytes=MEMORY_BYTES)
        spark = open_session(settings, "spark-overhead", source.folder / "spark")
        try:
            register(spark)
            found = []
            known = spark_jobs.JOBS if options.input == "files" else spark_jobs.KEYS
            for query in options.queries.split(",") if options.queries else known:
                found.append(compare(spark, source, query, options.input, options.rounds, guarded=options.guarded))
                print(_line(found[-1]), flush=True)
        finally:
            close_session(spark)
    if options.json is not None:
        options.json.write_text(json.dumps([asdict(f) for f in found], indent=1) + "\n")
    if options.plot is not None:
        plot(found, options.plot)
    return 0


def plot(found: Sequence[Ratio], file: Path) -> None:
    """Two bars a query, and the ratio above them."""
    with plotted(file) as axes:
        for offset, name, seconds in (
            (-0.2, "FlowQL", [f.flowql_s for f in found]),
            (0.2, "by hand", [f.by_hand_s for f in found]),
        ):
            axes.bar([i + offset for i in range(len(found))], seconds, 0.4, label=name)
        for i, f in enumerate(found):
            axes.text(i, max(f.flowql_s, f.by_hand_s), f"{f.ratio:.2f}", ha="center", va="bottom")
        axes.set(xticks=range(len(found)), xticklabels=[f.query for f in found], ylabel="median, s")
        axes.legend()


def _line(r: Ratio) -> str:
    way = "native" if r.native else "exact"
    times = f"flowql {r.flowql_s:.2f} s, by hand {r.by_hand_s:.2f} s, ratio {r.ratio:.2f}"
    cpu = f"processor {r.flowql_cpu_s:.2f} s and {r.by_hand_cpu_s:.2f} s, ratio {r.cpu_ratio:.2f}"
    return f"{r.query}  {r.input}  {way}: {times}; {cpu}"


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
