"""How long a critical query waits beside batch queries that never run out of work, under each scheduling policy.

    python -m benchmarks.isolation [--seconds 10] [--events 2000000] [--threads 2] [--plot FILE]

A separate process appends 1,000 records a second; each carries the time of its creation. Latency is the time from there until the
critical query's output is in the record collector (only the commit follows). `engine` excludes the time until the record was durable in the log,
in which the feed waits for the disk and for other appends. At every sample it is checked that the three batch queries have rows waiting;
otherwise the measurement fails. Figures of one machine and one run
compare with each other only.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import orjson
import pyarrow as pa

from benchmarks.feeding import feeding, kafka_bigint
from benchmarks.plots import plot_latency_tails
from flowql.bench.measuring import BenchFailed
from flowql.bench.nexmark_input import write_log
from flowql.compiler.diagnostics.source import SourceText
from flowql.compiler.driver import compile_project
from flowql.compiler.plan.topology import Plan
from flowql.runtime.app.instance import Instance
from flowql.runtime.clock import SystemClock
from flowql.runtime.config import InstanceConfig
from flowql.runtime.log.base import PRODUCE_SCHEMA, TopicPartition
from flowql.runtime.log.embedded.log import EmbeddedLog
from flowql.runtime.state.rocks import open_rocks
from flowql.runtime.task.program import SinkRecords
from flowql.runtime.task.publisher import MicroBatchResult
from flowql.runtime.task.task import Task

RATE = 1_000  # critical records per second
TICK_S = 0.01  # the feed commits as often; its appends and the instance's commits take turns at the log
WARM_UP_S = 2.0  # not measured: first runs compile their kernels
SAMPLE_S = 0.01
START_S, SETTLE_S = 30.0, 1.0
POLICIES = ("weighted_fair", "most_buffered")
TARGET_FACTOR, TARGET_MS = 3.0, 50.0
CRITICAL = "CSAS_ANSWERS"

SOURCES = """
CREATE STREAM BID (AUCTION BIGINT, BIDDER BIGINT, PRICE BIGINT, CHANNEL STRING, URL STRING, EXTRA STRING)
  WITH (KAFKA_TOPIC='bid', VALUE_FORMAT='JSON');
CREATE STREAM PULSE (ID BIGINT KEY, CREATED BIGINT) WITH (KAFKA_TOPIC='{pulse}', KEY_FORMAT='KAFKA', VALUE_FORMAT='JSON');
CREATE STREAM ANSWERS WITH (PRIORITY='critical') AS
  SELECT ID, CREATED, CREATED % 1000 AS REST FROM PULSE;
"""
# Functions in Python (they hold the interpreter lock); vector kernels and many keys; few keys. The last two through repartitions.
BATCH = """
CREATE STREAM LETTERS WITH (PRIORITY='batch') AS
  SELECT AUCTION, REGEXP_REPLACE(URL, 'item', 'x') AS URL, MASK(EXTRA) AS EXTRA, LEN(URL) * PRICE AS SIZE FROM BID
  WHERE PRICE % 10 = 1;
CREATE TABLE SPENT WITH (PRIORITY='batch') AS
  SELECT AUCTION, COUNT(*) AS N, SUM(PRICE) AS TOTAL, MAX(REPLACE(UCASE(URL), 'HTTP', 'X')) AS LAST,
         MIN(SUBSTRING(LCASE(EXTRA), 3)) AS FIRST, AVG(ROUND(SQRT(PRICE * LEN(URL)), 2)) AS MEAN
  FROM BID WHERE URL LIKE '%item%' OR EXTRA LIKE '%a%b%c%' OR INITCAP(CHANNEL) <> '' GROUP BY AUCTION;
CREATE TABLE CHANNELS WITH (PRIORITY='batch') AS
  SELECT CHANNEL, COUNT(*) AS N, MIN(URL) AS FIRST, AVG(PRICE) AS MEAN FROM BID GROUP BY CHANNEL;
"""
BATCH_QUERIES = ("CSAS_LETTERS", "CTAS_SPENT", "CTAS_CHANNELS")


Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class ScenarioResult:
    """One scenario. latencies_ms: of every critical record created while it was measured; shares: of processor time.

    engine_ms: the same from when the record was durable in the log. unanswered: records that still waited at the end.
    """

    policy: str
    beside: bool
    latencies_ms: Floats
    engine_ms: Floats
    shares: dict[str, float]
    unanswered: int

    def percentile(self, p: float) -> float:
        return float(np.percentile(self.latencies_ms, p))


class ObservedInstance(Instance):
    """Notes when output of the critical query enters the collector, and how long commits take.

    commits: when each was applied (ns), and how long it took from its cut (ms).
    """

    def __init__(self, *args: Any) -> None:
        super().__init__(*args)
        self.seen: list[tuple[int, pa.Array]] = []
        self.commits: list[tuple[int, float]] = []
        self._publish, self.publisher.publish = self.publisher.publish, self._observe  # type: ignore[method-assign]

    def _committed(self) -> None:
        super()._committed()
        self.commits.append((time.time_ns(), self.metrics.cut_to_commit_ms))

    def _observe(self, task: Task, result: MicroBatchResult) -> None:
        self._publish(task, result)
        if task.id.query == CRITICAL:
            now = time.time_ns()
            for output in result.outputs:
                if isinstance(output, SinkRecords):
                    self.seen += [(now, records.column("value")) for _, records in output.parts]

    def answers(self, since_ns: int, until_ns: int) -> tuple[Ints, Ints]:
        """When the records of that time were created, and when their answers were collected."""
        created, collected = [], []
        for now, values in self.seen:
            for value in values.to_pylist():
                at = orjson.loads(value)["CREATED"]
                if since_ns <= at < until_ns:
                    created.append(at)
                    collected.append(now)
        return np.array(created, np.int64), np.array(collected, np.int64)


@dataclass(slots=True)
class Saturation:
    """Whether each batch query had rows waiting at every sample, and could read what it took."""

    queries: Sequence[str] = BATCH_QUERIES
    samples: int = 0
    starved: dict[str, int] = field(default_factory=dict)
    unread: dict[str, int] = field(default_factory=dict)

    def sample(self, instance: Instance) -> None:
        self.samples += 1
        for q in self.queries:
            if not any(t.buffered_rows for t in instance.queries[q].built.tasks):
                self.starved[q] = self.starved.get(q, 0) + 1
            if instance.metrics.query(q).dead_letters:
                self.unread[q] = instance.metrics.query(q).dead_letters

    def check(self) -> None:
        if self.unread:
            raise BenchFailed(f"batch queries cannot read their records: {self.unread}")
        if self.starved:
            raise BenchFailed(
                f"batch queries ran out of work in {self.starved} of {self.samples} samples: more --events"
            )


def plan_of(sql: str) -> Plan:
    compiled = compile_project([SourceText("isolation.sql", sql)], topic_partitions={"bid": 4})
    if not compiled.ok:
        raise BenchFailed("; ".join(d.title for d in compiled.diagnostics))
    return compiled.plan


def measure(folder: Path, policy: str, seconds: float, threads: int, *, beside: bool) -> ScenarioResult:
    """One scenario on an instance of its own over the log in `folder`."""
    name = f"{policy}-{'beside' if beside else 'alone'}".replace("_", "-")
    log = EmbeddedLog(folder / "log")
    log.admin().create_topic(f"pulse-{name}", 1)
    config = InstanceConfig(application_id=name, threads=threads, policy=policy)  # type: ignore[arg-type]
    instance = ObservedInstance(log, open_rocks(folder / name), SystemClock(), config)
    instance.start()
    try:
        instance.deploy(plan_of(SOURCES.format(pulse=f"pulse-{name}") + (BATCH if beside else "")))
        return _watch(instance, folder, policy, seconds, beside=beside)
    finally:
        instance.stop()


def _watch(instance: ObservedInstance, folder: Path, policy: str, seconds: float, *, beside: bool) -> ScenarioResult:
    topic = next(s.topic for s in instance.plan.sources if s.name == "PULSE")
    with feeding("benchmarks.isolation", str(folder), topic) as feed:
        return _measured(instance, feed, folder / f"{topic}.times", policy, seconds, beside=beside)


def _measured(
    instance: ObservedInstance,
    feed: subprocess.Popen[bytes],
    feed_times: Path,
    policy: str,
    seconds: float,
    *,
    beside: bool,
) -> ScenarioResult:
    saturation, limit = Saturation(), time.monotonic() + START_S
    while not instance.seen:
        if feed.poll() is not None:
            raise BenchFailed("the feed ended early")
        if time.monotonic() > limit:
            if beside:
                break  # starved from the start: all its records count as waiting
            raise BenchFailed("no critical record arrives")
        time.sleep(SAMPLE_S)
    time.sleep(WARM_UP_S)
    before = {q: instance.metrics.query(q).turn_ns for q in instance.queries}
    since_ns = time.time_ns()
    until_ns = since_ns + int(seconds * 1e9)
    while time.time_ns() < until_ns:
        if instance.fatal is not None:
            raise BenchFailed(str(instance.fatal))
        if beside:
            saturation.sample(instance)
        time.sleep(SAMPLE_S)
    spent = {q: instance.metrics.query(q).turn_ns - before[q] for q in instance.queries}
    saturation.check()
    if feed.poll() is not None:
        raise BenchFailed("the feed ended early")
    time.sleep(SETTLE_S)  # for records that are on their way still: none may be left out for being slow
    total = max(1, sum(spent.values()))
    shares = {q: ns / total for q, ns in spent.items()}
    created, collected = instance.answers(since_ns, until_ns)
    if len(created) != len(set(created.tolist())):
        raise BenchFailed("a critical record was answered twice")
    unanswered = _due(feed_times, since_ns, until_ns, created)
    at = np.concatenate([created, unanswered])
    done = np.concatenate([collected, np.full(len(unanswered), time.time_ns())])  # they have waited until now at least
    engine_ms = (done - appended(feed_times, at)) / 1e6
    return ScenarioResult(policy, beside, (done - at) / 1e6, engine_ms, shares, len(unanswered))


def _due(file: Path, since_ns: int, until_ns: int, answered: Ints) -> Ints:
    """Creation times of the unanswered records of that time; the feed creates records at equal intervals."""
    distance = 1_000_000_000 // RATE
    first = int(file.read_text().split(maxsplit=1)[0]) % distance
    begin = since_ns + (first - since_ns) % distance
    return np.setdiff1d(np.arange(begin, until_ns, distance, dtype=np.int64), answered)


def appended(file: Path, created: Ints) -> Ints:
    """When the records created then were durable in the log, from the lines `last created, durable` of the feed."""
    lines = np.array([line.split() for line in file.read_text().splitlines()], np.int64)
    index = np.minimum(np.searchsorted(lines[:, 0], created), len(lines) - 1)
    appended: Ints = lines[index, 1]
    return appended


def feed(folder: Path, topic: str) -> None:
    """Append RATE records a second, each with its creation time in nanoseconds (when it was due), until terminated."""
    log = EmbeddedLog(folder / "log")
    producer = log.producer(f"feed-{topic}")
    times = (folder / f"{topic}.times").open("w", buffering=1)
    start, sent = time.time_ns(), 0
    while True:
        due = (time.time_ns() - start) * RATE // 1_000_000_000
        if due > sent:
            created = [start + (n + 1) * 1_000_000_000 // RATE for n in range(sent, due)]
            producer.begin()
            producer.send(TopicPartition(topic, 0), _records(sent, created))
            producer.commit()
            times.write(f"{created[-1]} {time.time_ns()}\n")
            sent = due
        time.sleep(TICK_S)


def _records(first: int, created: Sequence[int]) -> pa.RecordBatch:
    n = len(created)
    columns = [
        pa.array([c // 1_000_000 for c in created], pa.int64()),
        kafka_bigint(pa.array(range(first, first + n), pa.int64())),
        pa.array([orjson.dumps({"CREATED": c}) for c in created], pa.binary()),
        pa.nulls(n, PRODUCE_SCHEMA.field("headers").type),
    ]
    return pa.RecordBatch.from_arrays(columns, schema=PRODUCE_SCHEMA)


def table(results: Sequence[ScenarioResult]) -> str:
    """The figures and, per policy, whether the target was met."""
    lines = [
        f"{'policy':15}{'batch queries':>15}{'records':>9}{'p50 ms':>9}{'p99 ms':>9}{'max ms':>9}{'engine p99':>12}{'waiting':>9}{'share':>8}"
    ]
    for o in results:
        figures = f"{len(o.latencies_ms):>9}{o.percentile(50):>9.1f}{o.percentile(99):>9.1f}{o.percentile(100):>9.1f}"
        figures += f"{float(np.percentile(o.engine_ms, 99)):>12.1f}{o.unanswered:>9}"
        lines.append(f"{o.policy:15}{'three' if o.beside else 'none':>15}{figures}{o.shares[CRITICAL]:>8.1%}")
    for policy in POLICIES:
        alone, beside = ([o for o in results if o.policy == policy and o.beside is b] for b in (False, True))
        if alone and beside:
            limit = max(TARGET_FACTOR * alone[0].percentile(99), TARGET_MS)
            met = "met" if beside[0].percentile(99) <= limit else "missed"
            lines.append(f"{policy}: p99 beside {beside[0].percentile(99):.1f} ms, target {limit:.1f} ms: {met}")
    return "\n".join(lines)


def _run_of(o: ScenarioResult) -> tuple[str, str, Floats]:
    """Label, line style and latencies of a scenario in the diagram."""
    return f"{o.policy}, {'beside three' if o.beside else 'alone'}", "-" if o.beside else ":", o.latencies_ms


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=float, default=10.0)
    parser.add_argument("--events", type=int, default=2_000_000, help="records for the batch queries")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--policies", default=",".join(POLICIES))
    parser.add_argument("--plot", type=Path)
    parser.add_argument("--feed", nargs=2, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.feed:
        feed(Path(options.feed[0]), options.feed[1])
    results = []
    with tempfile.TemporaryDirectory(prefix="flowql-isolation-") as name:
        write_log(Path(name), options.events, ["bid"])
        os.sync()  # or its pages are written while commits wait for the same disk
        for policy in options.policies.split(","):
            for beside in (False, True):
                print(f"{policy}, {'beside three batch queries' if beside else 'alone'}", file=sys.stderr)
                results.append(measure(Path(name), policy, options.seconds, options.threads, beside=beside))
    print(table(results))
    if options.plot is not None:
        plot_latency_tails(map(_run_of, results), options.plot)


if __name__ == "__main__":
    main()
