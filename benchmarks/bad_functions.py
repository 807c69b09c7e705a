"""Latency of a critical query beside queries whose functions sleep, spin, allocate, crash or exit, in processes of their own.

    python -m benchmarks.bad_functions [--seconds 10] [--threads 2] [--plot FILE]

A separate process appends 1,000 critical records a second; latency is that of `benchmarks.isolation`. The critical query is measured
beside a query of class `batch` that calls a function that only returns, and then beside one at a time of those that do harm for every
third record, with timeout=1.0; alone before each of them, and at the end, as other work on the machine comes and goes. At the end all queries
must run, or wait for their restart, and the critical one must have answered every record.
"""

from __future__ import annotations

import argparse
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import orjson
import pyarrow as pa

from benchmarks.feeding import feeding
from benchmarks.isolation import CRITICAL, SETTLE_S, WARM_UP_S, Floats, ObservedInstance, feed
from benchmarks.plots import plot_latency_tails
from flowql.bench import nexmark
from flowql.bench.measuring import BenchFailed
from flowql.compiler.diagnostics.source import SourceText
from flowql.compiler.driver import compile_project
from flowql.compiler.plan.topology import Plan
from flowql.config.functions import load_functions
from flowql.runtime.clock import SystemClock
from flowql.runtime.config import InstanceConfig
from flowql.runtime.functions.workers import end_idle_workers
from flowql.runtime.log.base import PRODUCE_SCHEMA, TopicPartition
from flowql.runtime.log.embedded.log import EmbeddedLog
from flowql.runtime.state.rocks import open_rocks

TOPIC, CALLS = "pulse", "calls"
RECORDS, TARGET_FACTOR = 1_000_000, 1.3
MODULE = """
import os, signal, sys, time
from flowql import udf

@udf
def returns(a: int) -> int:
    return a

@udf(timeout=1.0)
def sleeps(a: int) -> int:
    return time.sleep(3600) if a % 3 == 0 else a

@udf(timeout=1.0)
def spins(a: int) -> int:
    while a % 3 == 0:
        pass
    return a

@udf
def allocates(a: int) -> int:
    return len(bytearray(10 << 30)) if a % 3 == 0 else a

@udf
def crashes(a: int) -> int:
    return os.kill(os.getpid(), signal.SIGSEGV) if a % 3 == 0 else a

@udf
def exits(a: int) -> int:
    return sys.exit(1) if a % 3 == 0 else a
"""
FUNCTIONS = ("returns", "sleeps", "spins", "allocates", "crashes", "exits")
SQL = """
CREATE STREAM PULSE (ID BIGINT KEY, CREATED BIGINT) WITH (KAFKA_TOPIC='pulse', KEY_FORMAT='KAFKA', VALUE_FORMAT='JSON');
CREATE STREAM CALLS (ID BIGINT KEY, A BIGINT) WITH (KAFKA_TOPIC='calls', KEY_FORMAT='KAFKA', VALUE_FORMAT='JSON');
CREATE STREAM ANSWERS WITH (PRIORITY='critical') AS SELECT ID, CREATED, CREATED % 1000 AS REST FROM PULSE;
"""


@dataclass(frozen=True, slots=True)
class Phase:
    """Which function the query beside the critical one calls, if there is one; from when until when; how many records it processed, with how many
    dead letters.
    """

    function: str
    since_ns: int
    until_ns: int
    records: int = 0
    dead_letters: int = 0

    @property
    def beside(self) -> str:
        return self.function or "nothing"


def plan_of(folder: Path, function: str) -> Plan:
    """function: that the other query calls; none for the critical one alone."""
    sql = SQL
    if function:
        sql += f"CREATE STREAM {function}_IT WITH (PRIORITY='batch') AS SELECT ID, {function}(A) AS A FROM CALLS;"
    functions = load_functions(folder, ["harm"])
    compiled = compile_project(
        [SourceText("harm.sql", sql)], topic_partitions={TOPIC: 1, CALLS: 1}, functions=functions
    )
    if not compiled.ok:
        raise BenchFailed("; ".join(d.title for d in compiled.diagnostics))
    return compiled.plan


def run(folder: Path, seconds: float, threads: int) -> list[tuple[Phase, Floats]]:
    log = EmbeddedLog(folder / "log")
    for topic in (TOPIC, CALLS):
        log.admin().create_topic(topic, 1)
    _write_calls(log)
    config = InstanceConfig(application_id="harm", threads=threads)
    instance = ObservedInstance(log, open_rocks(folder / "state"), SystemClock(), config)
    instance.start()
    try:
        instance.deploy(plan_of(folder, ""))
        with feeding("benchmarks.bad_functions", str(folder)):
            _measured(instance, folder, "", seconds)  # not counted: the first seconds of an instance
            names = [n for function in FUNCTIONS for n in ("", function)] + [""]
            phases = [_measured(instance, folder, name, seconds) for name in names]
        time.sleep(SETTLE_S)
        if instance.fatal is not None:
            raise BenchFailed(f"the instance is broken: {instance.fatal}")
        return [(p, _latencies(instance, p)) for p in phases]
    finally:
        instance.stop()
        end_idle_workers()


def _measured(instance: ObservedInstance, folder: Path, function: str, seconds: float) -> Phase:
    instance.deploy(plan_of(folder, function))
    time.sleep(WARM_UP_S)
    since_ns = time.time_ns()
    time.sleep(seconds)
    until_ns = time.time_ns()
    other = next((q for q in instance.queries if q != CRITICAL), None)
    if (other is not None) != bool(function):
        raise BenchFailed(f"queries are {', '.join(instance.queries)}")
    figures = None if other is None else instance.metrics.query(other)
    if figures is None:
        return Phase("", since_ns, until_ns)
    return Phase(function, since_ns, until_ns, figures.records_in, figures.dead_letters)


def _latencies(instance: ObservedInstance, phase: Phase) -> Floats:
    created, collected = instance.answers(phase.since_ns, phase.until_ns)
    if not len(created):
        raise BenchFailed(f"no critical record was answered beside {phase.beside}")
    found: Floats = (collected - created) / 1e6
    return found


def _write_calls(log: EmbeddedLog) -> None:
    producer, ids = log.producer("calls"), pa.array(range(RECORDS), pa.int64())
    columns = [
        pa.array([0] * RECORDS, pa.int64()),
        nexmark.kafka_bigint(ids),
        pa.array([orjson.dumps({"A": n}) for n in range(RECORDS)], pa.binary()),
        pa.nulls(RECORDS, PRODUCE_SCHEMA.field("headers").type),
    ]
    records = pa.RecordBatch.from_arrays(columns, schema=PRODUCE_SCHEMA)
    for start in range(0, RECORDS, 10_000):
        producer.begin()
        producer.send(TopicPartition(CALLS, 0), records.slice(start, 10_000))
        producer.commit()
    producer.close()


def table(found: list[tuple[Phase, Floats]]) -> str:
    """A line per phase. A function's p99 is compared with that of the critical query alone, of the phases before and after it together."""
    lines = [
        f"{'function':12}{'records':>10}{'dead letters':>14}{'answers':>9}{'p50 ms':>9}{'p99 ms':>9}{'max ms':>9}{'of p99 alone':>14}"
    ]
    worst = 0.0
    for n, (phase, ms) in enumerate(found):
        at = [float(np.percentile(ms, q)) for q in (50, 99, 100)]
        of_alone = ""
        if phase.function:
            alone = float(np.percentile(np.concatenate([found[n - 1][1], found[n + 1][1]]), 99))
            of_alone = f"{at[1] / alone:.2f}"
            worst = worst if phase.function == FUNCTIONS[0] else max(worst, at[1] / alone)
        figures = "".join(f"{v:>9.1f}" for v in at)
        lines.append(
            f"{phase.beside:12}{phase.records:>10,}{phase.dead_letters:>14,}{len(ms):>9,}{figures}{of_alone:>14}"
        )
    met = "met" if worst <= TARGET_FACTOR else "missed"
    lines.append(f"the highest p99 beside harm is {worst:.2f} of that alone; target {TARGET_FACTOR}: {met}")
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=float, default=10.0)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--plot", type=Path)
    parser.add_argument("--feed", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.feed:
        feed(Path(options.feed), TOPIC)
    with tempfile.TemporaryDirectory(prefix="flowql-harm-") as name:
        (Path(name) / "harm.py").write_text(MODULE)
        found = run(Path(name), options.seconds, options.threads)
    print(table(found))
    if options.plot:
        plot_latency_tails([(p.beside, "-", ms) for p, ms in found], options.plot)


if __name__ == "__main__":
    main()
