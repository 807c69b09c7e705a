"""Latency of a critical query while large results are rebuilt beside it, and whether these can be queried all the time.

    python -m benchmarks.rebuild [--events 5000000] [--seconds 10] [--threads 2] [--plot FILE]

A stream and a table over bids are complete. A separate process appends 1,000 critical records a second. First the critical query is
measured alone, then from the deployment of an edit that rebuilds both results until they have swapped in. Latency is
that of `benchmarks.isolation`: from the creation of a record to its output in the record collector; `engine` excludes the time until the
record was durable in the log, in which the process that appends it waits for the disk. The most of it is for how long the rebuild held the
critical query up; the interval between two commits is the limit. Every 50 ms the table is queried; each answer must be that of the old or of
the new generation. The diagram shows the latency of each record over time, when interactive queries were answered, and the share of records above a latency.
"""

from __future__ import annotations

import argparse
import os
import tempfile
import time
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from benchmarks.feeding import feeding
from benchmarks.isolation import SETTLE_S, WARM_UP_S, Floats, Ints, ObservedInstance, appended, feed, plan_of
from benchmarks.plots import plotted
from flowql.bench.measuring import BenchFailed
from flowql.bench.nexmark_input import write_log
from flowql.query.session import evaluate
from flowql.runtime.app.progress import caught_up, source_ends
from flowql.runtime.clock import SystemClock
from flowql.runtime.config import COMMIT_INTERVAL_MS_DEFAULT, InstanceConfig
from flowql.runtime.log.embedded.log import EmbeddedLog
from flowql.runtime.state.rocks import open_rocks
from flowql.server.on_runtime import RuntimeEngine

TOPIC = "pulse"
TOTALS = "SELECT count(*) AS n, sum(N) AS total FROM CHANNELS"
ASK_S, CAUGHT_UP_S, REBUILT_S, TARGET_FACTOR = 0.05, 600.0, 600.0, 1.5
SQL = """
CREATE STREAM BID (AUCTION BIGINT, BIDDER BIGINT, PRICE BIGINT, CHANNEL STRING, URL STRING, EXTRA STRING)
  WITH (KAFKA_TOPIC='bid', VALUE_FORMAT='JSON');
CREATE STREAM PULSE (ID BIGINT KEY, CREATED BIGINT) WITH (KAFKA_TOPIC='pulse', KEY_FORMAT='KAFKA', VALUE_FORMAT='JSON');
CREATE STREAM ANSWERS WITH (PRIORITY='critical') AS SELECT ID, CREATED, CREATED % 1000 AS REST FROM PULSE;
CREATE STREAM DEAR AS SELECT AUCTION, CHANNEL, PRICE FROM BID WHERE PRICE > {over};
CREATE TABLE CHANNELS AS SELECT CHANNEL, COUNT(*) AS N, AVG(PRICE) AS MEAN FROM DEAR GROUP BY CHANNEL;
"""


@dataclass(frozen=True, slots=True)
class Latencies:
    """Of each record in ms: from its creation, and from when it was durable in the log. created_ns: when it was created."""

    created_ns: Ints
    ms: Floats
    engine_ms: Floats


@dataclass(slots=True)
class Phase:
    """Measurements from `since_ns` to `until_ns`. answers: distinct answers, in the order in which they came.

    queried: when each interactive query was sent (ns), and how long its answer took (ms). slowest_commit_ms: from a cut until it was applied.
    """

    name: str
    since_ns: int = 0
    until_ns: int = 0
    slowest_commit_ms: float = 0.0
    queried: list[tuple[int, float]] = field(default_factory=list)
    answers: list[str] = field(default_factory=list)

    def ask(self, engine: RuntimeEngine) -> None:
        start = time.time_ns()
        answer = str(evaluate(TOTALS, engine.take).to_pylist())
        self.queried.append((start, (time.time_ns() - start) / 1e6))
        if answer not in self.answers[-1:]:
            self.answers.append(answer)

    def latencies(self, instance: ObservedInstance, times: Path) -> Latencies:
        """times: what the feed wrote of when records were durable."""
        created, collected = instance.answers(self.since_ns, self.until_ns)
        if not len(created):
            raise BenchFailed(f"no critical record was answered {self.name}")
        self.slowest_commit_ms = max(ms for at, ms in instance.commits if self.since_ns <= at < self.until_ns)
        return Latencies(created, (collected - created) / 1e6, (collected - appended(times, created)) / 1e6)


def run(folder: Path, seconds: float, threads: int) -> tuple[list[Phase], list[Latencies]]:
    log = EmbeddedLog(folder / "log")
    log.admin().create_topic(TOPIC, 1)
    config = InstanceConfig(application_id="rebuild", threads=threads)
    instance = ObservedInstance(log, open_rocks(folder / "state"), SystemClock(), config)
    instance.start()
    try:
        instance.deploy(plan_of(SQL.format(over=1_000)))
        ends = source_ends(instance)
        _until(lambda: caught_up(instance, ends), CAUGHT_UP_S, "the first results are not complete")
        with feeding("benchmarks.rebuild", str(folder)):
            phases = _phases(instance, seconds)
        time.sleep(SETTLE_S)
        return phases, [p.latencies(instance, folder / f"{TOPIC}.times") for p in phases]
    finally:
        instance.stop()


def _phases(instance: ObservedInstance, seconds: float) -> list[Phase]:
    engine = RuntimeEngine(instance)
    _until(lambda: bool(instance.seen), 30.0, "no critical record arrives")
    time.sleep(WARM_UP_S)
    alone = Phase("alone", since_ns=time.time_ns())
    limit = time.monotonic() + seconds
    while time.monotonic() < limit:
        alone.ask(engine)
        time.sleep(ASK_S)
    alone.until_ns = time.time_ns()
    beside = Phase("beside the rebuild", since_ns=time.time_ns())
    instance.deploy(plan_of(SQL.format(over=2_000)))
    limit = time.monotonic() + REBUILT_S
    while not instance.deployer.rebuilt:
        beside.ask(engine)
        if time.monotonic() > limit:
            raise BenchFailed(f"the rebuild does not end: {instance.rebuilding.why}")
        time.sleep(ASK_S)
    beside.ask(engine)
    beside.until_ns = time.time_ns()
    return [alone, beside]


def _until(condition: object, limit_s: float, what: str) -> None:
    assert callable(condition)
    limit = time.monotonic() + limit_s
    while not condition():
        if time.monotonic() > limit:
            raise BenchFailed(what)
        time.sleep(0.05)


def table(phases: list[Phase], latencies: list[Latencies]) -> str:
    lines = [
        f"{'critical query':20}{'seconds':>9}{'records':>9}{'p50 ms':>9}{'p99 ms':>9}{'max ms':>9}{'engine p99':>12}{'engine max':>12}"
        f"{'commit max':>12}{'queries':>11}{'slowest ms':>12}"
    ]
    for p, found in zip(phases, latencies, strict=True):
        at = [float(np.percentile(found.ms, q)) for q in (50, 99, 100)]
        engine = [float(np.percentile(found.engine_ms, q)) for q in (99, 100)]
        lines.append(
            f"{p.name:20}{(p.until_ns - p.since_ns) / 1e9:>9.1f}{len(found.ms):>9,}"
            + "".join(f"{v:>9.1f}" for v in at)
            + "".join(f"{v:>12.1f}" for v in (*engine, p.slowest_commit_ms))
            + f"{len(p.queried):>11,}{max(ms for _, ms in p.queried):>12.1f}"
        )
    alone, beside = (float(np.percentile(found.ms, 99)) for found in latencies)
    met = "met" if beside <= TARGET_FACTOR * alone else "missed"
    lines.append(f"p99 beside the rebuild is {beside / alone:.2f} of that alone; target {TARGET_FACTOR}: {met}")
    held_up = float(latencies[1].engine_ms.max())
    met = "met" if held_up <= COMMIT_INTERVAL_MS_DEFAULT else "missed"
    lines.append(
        f"held up for {held_up:.1f} ms at most; target one commit interval, {COMMIT_INTERVAL_MS_DEFAULT} ms: {met}"
    )
    answers = [a for p in phases for a in p.answers]
    lines.append(f"answers, old then new: {len(dict.fromkeys(answers))} different ones (2 expected)")
    return "\n".join(lines)


def plot(phases: list[Phase], latencies: list[Latencies], file: Path) -> None:
    """Above each record and each interactive query over time, below the shares of slow records."""
    with plotted(file, rows=2, size=(8, 7), shared=False) as (above, below):
        begin = phases[1].since_ns
        for p, found in zip(phases, latencies, strict=True):
            above.plot((found.created_ns - begin) / 1e9, found.ms, ".", markersize=1, label=p.name)
            x = np.sort(found.ms)
            below.plot(x, 1 - np.arange(len(x)) / len(x), label=p.name)
        queried = [at for p in phases for at in p.queried]
        above.plot(
            [(at - begin) / 1e9 for at, _ in queried],
            [ms for _, ms in queried],
            "+",
            color="grey",
            label="interactive queries",
        )
        above.axvline(0, color="grey", linewidth=0.5)
        above.set(yscale="log", xlabel="seconds since the deployment", ylabel="creation to output, ms")
        below.axhline(0.01, color="grey", linewidth=0.5)
        below.set(xscale="log", yscale="log", xlabel="creation to output, ms", ylabel="share of records above")
        above.legend()
        below.legend()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=float, default=10.0)
    parser.add_argument("--events", type=int, default=5_000_000, help="bids that the results are made of")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--plot", type=Path)
    parser.add_argument("--feed", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.feed:
        feed(Path(options.feed), TOPIC)
    with tempfile.TemporaryDirectory(prefix="flowql-rebuild-") as name:
        write_log(Path(name), options.events, ["bid"])
        os.sync()  # or its pages are written while commits wait for the same disk
        phases, latencies = run(Path(name), options.seconds, options.threads)
    print(table(phases, latencies))
    if options.plot:
        plot(phases, latencies, options.plot)


if __name__ == "__main__":
    main()
