"""What it costs to be watched: throughput with `flowql top` and ten people who ask questions, over that without, in one run.

    python -m flowql.bench.watchers [--pairs 6] [--seconds 3] [--users 10] [--think 10] [--events 3000000] [--json FILE]

Two queries that always have work run on one instance; phases without and with watchers take turns (ABBA). The watchers are in a
processes of their own on the same machine, so what their side costs is counted as well: one is `flowql top` in a terminal, which
looks every two seconds, the others ask over HTTP, as the shell does, for a row by its key, and then think for as long as --think
says; a question that reads a whole table costs more, in proportion to its rows. Throughput is records that the queries processed in a phase. The ratio is over all phases; its
spread is that of the pairs. Beside it stands the same for records per second of the instance's own processor time, which other work on
the machine disturbs less, and which leaves out what the other side costs. That the queries had rows waiting all the time is checked, else the measurement fails.
"""

from __future__ import annotations

import argparse
import json
import os
import pty
import random
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

import numpy as np

from flowql.bench.isolation import SAMPLE_S, Saturation, plan_of
from flowql.bench.measuring import BenchFailed
from flowql.bench.nexmark_input import write_log
from flowql.deploy.settings import Settings
from flowql.server.client import Client, connect
from flowql.server.host import Host
from flowql.server.on_runtime import RuntimeEngine
from runtime.app.instance import Instance

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
QUESTION = "SELECT * FROM spent WHERE id = '{n}'"
ANSWERS_MIN = 1


@dataclass(frozen=True, slots=True)
class Phase:
    """cpu_s: processor time of the instance's process."""

    records: int
    seconds: float
    cpu_s: float

    @property
    def rate(self) -> float:
        return self.records / self.seconds


def _rate(phases: Sequence[Phase]) -> float:
    return sum(p.records for p in phases) / sum(p.seconds for p in phases)


def _cpu_rate(phases: Sequence[Phase]) -> float:
    return sum(p.records for p in phases) / sum(p.cpu_s for p in phases)


@dataclass(frozen=True, slots=True)
class Outcome:
    """The phases, pair by pair. looks: pieces of its picture that top wrote meanwhile; answers: that users got."""

    without: list[Phase]
    with_: list[Phase]
    looks: int
    answers: int

    @property
    def ratio(self) -> float:
        return _rate(self.with_) / _rate(self.without)

    @property
    def cpu_ratio(self) -> float:
        """Of records per second of processor time."""
        return _cpu_rate(self.with_) / _cpu_rate(self.without)

    @property
    def spread(self) -> tuple[float, float]:
        """The least and the largest of the pairs."""
        ratios = [b.rate / a.rate for a, b in zip(self.without, self.with_, strict=True)]
        return min(ratios), max(ratios)


class Watchers:
    """The process of the watchers. They begin and end when told to, by a line."""

    def __init__(self, folder: Path, users: int, think_s: float) -> None:
        words = ["--watch", str(folder), "--users", str(users), "--think", str(think_s)]
        self._process = subprocess.Popen(
            [sys.executable, "-m", "flowql.bench.watchers", *words],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        self._said()

    def begin(self) -> None:
        self._tell("begin")

    def end(self) -> tuple[int, int]:
        """Looks and answers since they began."""
        looks, answers = self._tell("end").split()
        return int(looks), int(answers)

    def close(self) -> None:
        self._process.communicate()  # it ends with its input, and takes top along

    def _tell(self, word: str) -> str:
        assert self._process.stdin is not None
        self._process.stdin.write(f"{word}\n")
        self._process.stdin.flush()
        return self._said()

    def _said(self) -> str:
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        if not line:
            raise BenchFailed("the watchers have ended")
        return line


class Crowd:
    """In the process of the watchers: one thread each, asleep unless `on`."""

    def __init__(self, folder: Path, users: int, think_s: float) -> None:
        self._folder, self._think_s = folder, think_s
        self._on, self._lock = threading.Event(), threading.Lock()
        self.looks = self.answers = 0
        for n in range(users):
            threading.Thread(target=self._ask, args=(n,), daemon=True).start()
        self._terminal, inside = pty.openpty()
        program = [sys.executable, "-c", "from flowql.cli import main; main()", "top", "-p", str(folder)]
        self._top = subprocess.Popen(program, stdin=inside, stdout=inside, env={**os.environ, "TERM": "xterm"})
        os.read(self._terminal, 1)  # it has drawn something
        threading.Thread(target=self._look, daemon=True).start()
        self._top.send_signal(signal.SIGSTOP)

    def obey(self) -> None:
        """Until the other side is gone."""
        print("ready", flush=True)
        for word in sys.stdin:
            if word.strip() == "begin":
                self.looks = self.answers = 0
                self._on.set()
                self._top.send_signal(signal.SIGCONT)
            else:
                self._on.clear()
                self._top.send_signal(signal.SIGSTOP)
            print(self.looks, self.answers, flush=True)
        self._top.kill()

    def _ask(self, number: int) -> None:
        rnd, client = random.Random(number), self._client()
        while True:
            self._on.wait()
            time.sleep(self._think_s * rnd.uniform(0.5, 1.5))  # first: nobody asks all at once
            if self._on.is_set():
                client.query(QUESTION.format(n=rnd.randrange(1000, 2000)))
                with self._lock:
                    self.answers += 1

    def _look(self) -> None:
        while os.read(self._terminal, 65_536):
            with self._lock:
                self.looks += 1

    def _client(self) -> Client:
        found = connect(self._folder)
        assert found is not None, "the instance runs"
        return found


def measure(folder: Path, *, pairs: int, seconds: float, users: int, think_s: float, threads: int) -> Outcome:
    """Phases over one instance, which reads the log in `folder`."""
    host = Host(Settings(folder, "watchers", threads, 512 << 20))
    host.start()
    try:
        host.service.deploy(plan_of(SQL))
        assert isinstance(host.engine, RuntimeEngine)
        watchers = Watchers(folder, users, think_s)
        try:
            return _phases(host.engine.instance, watchers, pairs, seconds)
        finally:
            watchers.close()
    finally:
        host.close()


def _phases(instance: Instance, watchers: Watchers, pairs: int, seconds: float) -> Outcome:
    saturation = Saturation(QUERIES)
    found: dict[bool, list[Phase]] = {False: [], True: []}
    looks = answers = 0
    time.sleep(WARM_UP_S)
    for pair in range(pairs):
        for watched in (False, True) if pair % 2 == 0 else (True, False):
            if watched:
                watchers.begin()
            time.sleep(TURN_S)
            found[watched].append(_throughput(instance, seconds, saturation))
            if watched:
                more = watchers.end()
                looks, answers = looks + more[0], answers + more[1]
    saturation.check()
    if looks < pairs or answers < ANSWERS_MIN:
        raise BenchFailed(f"nobody watched: {looks} looks, {answers} answers")
    return Outcome(found[False], found[True], looks, answers)


def _throughput(instance: Instance, seconds: float, saturation: Saturation) -> Phase:
    """What all queries took in."""
    start, cpu, before = time.perf_counter(), time.process_time(), _records(instance)
    while time.perf_counter() < start + seconds:
        if instance.fatal is not None:
            raise BenchFailed(str(instance.fatal))
        saturation.sample(instance)
        time.sleep(SAMPLE_S)
    return Phase(_records(instance) - before, time.perf_counter() - start, time.process_time() - cpu)


def _records(instance: Instance) -> int:
    return sum(instance.metrics.query(q).records_in for q in instance.queries)


def report(outcome: Outcome) -> str:
    least, most = outcome.spread
    lines = [f"{'pair':>4}{'without':>12}{'with':>12}{'ratio':>8}"]
    for n, (a, b) in enumerate(zip(outcome.without, outcome.with_, strict=True), 1):
        lines.append(f"{n:>4}{a.rate:>10,.0f}/s{b.rate:>10,.0f}/s{b.rate / a.rate:>8.3f}")
    rates = [p.rate for p in outcome.without]
    noise = float(np.std(rates) / np.mean(rates))
    lines.append(
        f"{outcome.looks} looks, {outcome.answers} answers; phases without differ by {noise:.1%} (standard deviation)"
    )
    lines.append(
        f"ratio {outcome.ratio:.3f} (pairs {least:.3f} to {most:.3f}): being watched costs {1 - outcome.ratio:.1%}"
    )
    lines.append(f"of the instance's processor time alone: ratio {outcome.cpu_ratio:.3f}, {1 - outcome.cpu_ratio:.1%}")
    return "\n".join(lines)


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--pairs", type=int, default=6)
    parser.add_argument("--seconds", type=float, default=3.0, help="of a phase")
    parser.add_argument("--users", type=int, default=10)
    parser.add_argument("--think", type=float, default=10.0, help="seconds between two questions of a user")
    parser.add_argument("--events", type=int, default=3_000_000)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--json", type=Path)
    parser.add_argument("--watch", type=Path, help=argparse.SUPPRESS)
    options = parser.parse_args(arguments)
    if options.watch:
        Crowd(options.watch, options.users, options.think).obey()
        return
    with tempfile.TemporaryDirectory(prefix="flowql-watchers-") as name:
        print(f"writing {options.events:,} events", file=sys.stderr)
        write_log(Path(name), options.events, ["bid"])
        (Path(name) / "flowql.yaml").write_text("name: watchers\ntargets: {default: {data_dir: .}}\n")
        os.sync()
        times = {"pairs": options.pairs, "seconds": options.seconds}
        outcome = measure(Path(name), **times, users=options.users, think_s=options.think, threads=options.threads)
    print(report(outcome))
    if options.json is not None:
        options.json.write_text(
            json.dumps({**asdict(outcome), "ratio": outcome.ratio, "cpu_ratio": outcome.cpu_ratio}) + "\n",
            encoding="utf-8",
        )


if __name__ == "__main__":
    main()
