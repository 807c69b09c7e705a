"""The cost of monitoring: throughput with `flowql top` and ten users of shells, relative to throughput without, in one run.

    python -m benchmarks.watchers [--pairs 12] [--seconds 3] [--users 10] [--think 10] [--events N] [--json FILE]

Two queries that always have work run on one instance; short phases without and with monitoring alternate (ABBA), so that drift of the
machine affects both equally. The clients run in separate processes on the same machine, so that their cost is measured as well: one
is `flowql top` in a terminal, which refreshes every two seconds; the others are shells, which stay connected. Each user sends a query, reads
the answer, thinks and types for ten seconds (--think: 0.5 to 1.5 times as long), and sends the next one, so ten users send one query
a second, all the time. Of ten queries over a table of 20,000 rows six are for a row by its key, two for the first rows, one
counts the rows and one selects the ten highest of a column; the last two read the whole table.

Throughput is the number of records processed in a phase. The cost of monitoring is the mean over the pairs, with its standard error:
first of records per second of wall time, second of records per second of the instance's own processor time, which other load of
the machine disturbs far less, and which excludes the processes of the clients. Also printed: the share of the instance's processor
time in the threads that answer, the processor time of the clients' processes, the time of a commit, and the waiting time of users.
The measurement fails unless the queries had rows waiting all the time and the users sent as many queries as intended.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing
from dataclasses import asdict, dataclass
from pathlib import Path

import numpy as np
import pyarrow as pa

from benchmarks.crowd import ROWS, Seen, Watchers, lines_of
from benchmarks.isolation import SAMPLE_S, Saturation, plan_of
from flowql.bench.measuring import BenchFailed
from flowql.bench.nexmark import BID_SCHEMA, bids
from flowql.bench.nexmark_input import PARTITIONS, produce
from flowql.deploy.settings import Settings
from flowql.runtime.app.instance import Instance
from flowql.runtime.log.embedded.log import EmbeddedLog
from flowql.server.host import Host
from flowql.server.on_runtime import RuntimeEngine

# Of one stage each: with repartitions between, their buffers would fill first, and phases would not be alike.
SQL = """
CREATE STREAM BID (ID STRING KEY, BIDDER BIGINT, PRICE BIGINT, CHANNEL STRING, URL STRING, EXTRA STRING)
  WITH (KAFKA_TOPIC='bid', KEY_FORMAT='KAFKA', VALUE_FORMAT='JSON');
CREATE STREAM LETTERS WITH (PRIORITY='batch') AS
  SELECT ID, REGEXP_REPLACE(URL, 'item', 'x') AS URL, MASK(EXTRA) AS EXTRA, MASK(URL) AS M, LEN(URL) * PRICE AS SIZE FROM BID;
CREATE TABLE SPENT WITH (PRIORITY='batch') AS
  SELECT ID, COUNT(*) AS N, SUM(PRICE) AS TOTAL, MAX(REPLACE(UCASE(URL), 'HTTP', 'X')) AS LAST,
         MIN(SUBSTRING(LCASE(EXTRA), 3)) AS FIRST, AVG(ROUND(SQRT(PRICE * LEN(URL)), 2)) AS MEAN
  FROM BID GROUP BY ID;
"""
QUERIES = ("CSAS_LETTERS", "CTAS_SPENT")
WARM_UP_S = 5.0  # not measured: kernels are compiled, caches fill
TURN_S = 0.3  # after watchers come or go, before a phase counts
RATE_MAX = 80_000  # records a second that one query of the two takes in at most
ASKED_MIN = 0.7  # of the interactive queries there should have been


@dataclass(frozen=True, slots=True)
class Phase:
    """cpu_s: processor time of the instance's process; answering_s: of those of its threads that answer. commits, commit_ms: how
    many, and how long they took together.
    """

    records: int
    seconds: float
    cpu_s: float
    answering_s: float = 0.0
    commits: int = 0
    commit_ms: int = 0


@dataclass(frozen=True, slots=True)
class Cost:
    """A share of throughput, and the standard error of it."""

    share: float
    error: float

    def __str__(self) -> str:
        return f"{self.share:.1%} \u00b1 {self.error:.1%}"


@dataclass(frozen=True, slots=True)
class PhasePairs:
    """The phases, pair by pair, and what the watchers saw in `with_`."""

    without: list[Phase]
    with_: list[Phase]
    seen: Seen

    @property
    def wall(self) -> Cost:
        """Of records per second."""
        return self._cost(lambda p: p.records / p.seconds)

    @property
    def cpu(self) -> Cost:
        """Of records per second of processor time."""
        return self._cost(lambda p: p.records / p.cpu_s)

    def _cost(self, rate: Callable[[Phase], float]) -> Cost:
        ratios = [math.log(rate(b) / rate(a)) for a, b in zip(self.without, self.with_, strict=True)]
        error = float(np.std(ratios, ddof=1)) / math.sqrt(len(ratios)) if len(ratios) > 1 else math.nan
        return Cost(1 - math.exp(float(np.mean(ratios))), error)


def write_bids(folder: Path, events: int) -> None:
    """Nexmark's bids with few different auctions, so that the table of them reaches its final size after a moment."""
    with closing(EmbeddedLog(folder / "log")) as log:
        log.admin().create_topic("bid", PARTITIONS)
        produce(log, "bid", _few_auctions(bids(events)))


def _few_auctions(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    for batch in batches:
        few = pa.array(np.asarray(batch.column(0)) % ROWS)
        yield pa.RecordBatch.from_arrays([few, *batch.columns[1:]], schema=BID_SCHEMA)


def measure(folder: Path, *, pairs: int, seconds: float, users: int, think_s: float, threads: int) -> PhasePairs:
    """Phases over one instance, which reads the log in `folder`."""
    host = Host(Settings(folder, "watchers", threads, 512 << 20))
    host.start()
    try:
        host.service.deploy(plan_of(SQL))
        assert isinstance(host.engine, RuntimeEngine)
        watchers = Watchers(folder, users, think_s)
        try:
            phases = _phases(host.engine.instance, watchers, pairs, seconds)
        finally:
            watchers.close()
    finally:
        host.close()
    check(phases, users / think_s)
    return phases


def check(phases: PhasePairs, rate: float) -> None:
    """BenchFailed if top or users did not run as intended. rate: expected interactive queries a second."""
    wanted = rate * sum(p.seconds + TURN_S for p in phases.with_)
    if phases.seen.looks < len(phases.with_) or phases.seen.answers < ASKED_MIN * wanted - math.sqrt(wanted):
        title = f"the monitoring did not run as intended: {phases.seen.looks} refreshes, {phases.seen.answers} answers of {wanted:.0f}"
        raise BenchFailed(title)


def _phases(instance: Instance, watchers: Watchers, pairs: int, seconds: float) -> PhasePairs:
    saturation = Saturation(QUERIES)
    found: dict[bool, list[Phase]] = {False: [], True: []}
    seen = Seen()
    watchers.begin()  # what is made for the first interactive query is no cost of the second
    time.sleep(WARM_UP_S)
    watchers.end()
    for pair in range(pairs):
        for watched in (False, True) if pair % 2 == 0 else (True, False):
            if watched:
                watchers.begin()
            time.sleep(TURN_S)
            found[watched].append(_throughput(instance, seconds, saturation))
            if watched:
                seen.add(watchers.end())
    saturation.check()
    return PhasePairs(found[False], found[True], seen)


def _throughput(instance: Instance, seconds: float, saturation: Saturation) -> Phase:
    """What all queries took in."""
    start, cpu, before, threads = time.perf_counter(), time.process_time(), _counts(instance), _answering()
    while time.perf_counter() < start + seconds:
        if instance.fatal is not None:
            raise BenchFailed(str(instance.fatal))
        saturation.sample(instance)
        time.sleep(SAMPLE_S)
    records, commits, commit_ms = (b - a for a, b in zip(before, _counts(instance), strict=True))
    answering_s = sum(s - threads.get(thread, 0.0) for thread, s in _answering().items())
    return Phase(records, time.perf_counter() - start, time.process_time() - cpu, answering_s, commits, commit_ms)


def _answering() -> dict[int, float]:
    """Processor time of each thread that answers: that of HTTP, and its workers."""
    threads = [t for t in threading.enumerate() if t.name == "http" or "worker" in t.name]
    return {t.ident: time.clock_gettime(time.pthread_getcpuclockid(t.ident)) for t in threads if t.ident is not None}


def _counts(instance: Instance) -> tuple[int, int, int]:
    """Records taken in, commits and how long they took."""
    m = instance.metrics
    return sum(m.query(q).records_in for q in instance.queries), m.commits, m.commit_latency.sum_ms


def report(phases: PhasePairs) -> str:
    lines = [f"{'pair':>4}{'without':>12}{'with':>12}{'ratio':>8}{'us of CPU a record':>22}{'ratio':>8}"]
    for n, (a, b) in enumerate(zip(phases.without, phases.with_, strict=True), 1):
        rates = [p.records / p.seconds for p in (a, b)]
        costs = [p.cpu_s / p.records * 1e6 for p in (a, b)]
        lines.append(
            f"{n:>4}{rates[0]:>10,.0f}/s{rates[1]:>10,.0f}/s{rates[1] / rates[0]:>8.3f}"
            f"{costs[0]:>12.3f}{costs[1]:>10.3f}{costs[0] / costs[1]:>8.3f}"
        )
    seen, watched_s = phases.seen, sum(p.seconds + TURN_S for p in phases.with_)
    commits = [
        sum(p.commit_ms for p in ps) / max(1, sum(p.commits for p in ps)) for ps in (phases.without, phases.with_)
    ]
    answering = sum(p.answering_s for p in phases.with_) / sum(p.cpu_s for p in phases.with_)
    return "\n".join(
        [
            *lines,
            *lines_of(seen.answers_ms),
            f"{seen.answers / watched_s:.2f} interactive queries and {seen.looks / watched_s:.2f} looks of top a second",
            f"a commit takes {commits[0]:.1f} ms without and {commits[1]:.1f} ms with watchers",
            f"being watched costs {phases.wall} of the throughput",
            f"of the instance's processor time alone: {phases.cpu}",
            f"answering took {answering:.2%} of the instance's processor time; beside it the watchers' own processes took "
            f"{seen.cpu_s / watched_s:.2%} of a processor",
        ]
    )


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--pairs", type=int, default=12)
    parser.add_argument("--seconds", type=float, default=3.0, help="of a phase")
    parser.add_argument("--users", type=int, default=10)
    parser.add_argument("--think", type=float, default=10.0, help="seconds between two interactive queries of a user")
    parser.add_argument("--events", type=int, help="else as many as last")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--json", type=Path)
    options = parser.parse_args(arguments)
    times = {"pairs": options.pairs, "seconds": options.seconds}
    events = options.events or int(RATE_MAX * (WARM_UP_S + 2 * options.pairs * (options.seconds + 2 * TURN_S)))
    with tempfile.TemporaryDirectory(prefix="flowql-watchers-") as name:
        print(f"writing {events:,} events", file=sys.stderr)
        write_bids(Path(name), events)
        (Path(name) / "flowql.yaml").write_text("name: watchers\ntargets: {default: {data_dir: .}}\n")
        os.sync()
        phases = measure(Path(name), **times, users=options.users, think_s=options.think, threads=options.threads)
    print(report(phases))
    if options.json is not None:
        figures = {**asdict(phases), "wall": asdict(phases.wall), "cpu": asdict(phases.cpu)}
        options.json.write_text(json.dumps(figures) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
