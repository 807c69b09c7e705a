"""The cost of checksums of the embedded log: processor time of queries with and without them, in alternating runs over the same input.

    python -m benchmarks.checksums [--queries q0,qc] [--events 3000000] [--rounds 4] [--threads 2]

Each run is a process of its own over a fresh copy of the input. In runs with checksums, the processor time of computing and comparing them is
measured in the thread that does it. The target applies to its share of the run's processor time, because that does not depend on other load of
the machine. The difference between both runs of a pair is printed as well; their order alternates, and a run before each pair does not count. In
runs without checksums their functions are replaced in the measuring process; the product has no option to turn them off.

Whoever reads a page of a mapped segment first has its page fault: the comparison in runs with checksums, the decoder in runs without. The
faults of both are printed and are as many. So the pages of a batch are touched before the clock starts.
"""

from __future__ import annotations

import argparse
import json
import mmap
import resource
import shutil
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ParamSpec, TypeVar

import numpy as np
import pyarrow as pa

from flowql.bench.engines import NEXMARK, Job, on_runtime
from flowql.bench.measuring import BenchFailed
from flowql.bench.nexmark_input import write_log
from flowql.bench.oracle import EXPECTED
from flowql.runtime.log.embedded import segment

SHARE_MAX = 0.03
P = ParamSpec("P")
T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Pair:
    """A run with checksums and one without: processor seconds, the part of them spent in checksums, minor page faults."""

    query: str
    with_s: float
    checksums_s: float
    with_faults: float
    without_s: float
    without_faults: float


class Timed:
    """Sums up the processor time of the threads that call a function."""

    def __init__(self) -> None:
        self.seconds = 0.0
        self._lock = threading.Lock()

    def around(self, function: Callable[P, T]) -> Callable[P, T]:
        def timed(*args: P.args, **options: P.kwargs) -> T:
            start = time.thread_time()
            try:
                return function(*args, **options)
            finally:
                took = time.thread_time() - start
                with self._lock:
                    self.seconds += took

        return timed


def measure(job: Job, *, on: bool) -> dict[str, float]:
    """Runs the job in this process. on: checksums are timed; otherwise they are removed for the rest of the process."""
    timed = Timed()
    names: dict[str, Callable[..., Any]] = {"sealed": list, "damage": lambda _message, must_be_sealed: None}
    if on:
        names = {name: timed.around(getattr(segment, name)) for name in names}
        names["damage"] = touching(names["damage"])
    for name, function in names.items():
        setattr(segment, name, function)
    before, measured = _faults(), dict[str, float]()

    def run_is_over(_: str) -> None:
        """Then the results are read and compared, which is no part of the run."""
        measured.update({"checksums_s": timed.seconds, "faults": _faults() - before})

    figure = on_runtime(job, run_is_over)
    return {"cpu_s": figure.cpu_s, **measured}


def touching(damage: Callable[..., str | None]) -> Callable[..., str | None]:
    """The function, with all pages of its message in memory when it is called."""

    def touched(message: pa.Buffer, *, must_be_sealed: bool) -> str | None:
        np.frombuffer(message, np.uint8)[:: mmap.PAGESIZE].max()
        return damage(message, must_be_sealed=must_be_sealed)

    return touched


def _faults() -> int:
    return resource.getrusage(resource.RUSAGE_SELF).ru_minflt


def pair(query: str, source: Path, events: int, threads: int, *, with_first: bool) -> Pair:
    # The first run after those of another query takes longer, whichever of the two it is.
    _child(query, source, events, threads, on=False)
    found = {on: _child(query, source, events, threads, on=on) for on in (with_first, not with_first)}
    with_them, without = found[True], found[False]
    return Pair(
        query,
        with_them["cpu_s"],
        with_them["checksums_s"],
        with_them["faults"],
        without["cpu_s"],
        without["faults"],
    )


def _child(query: str, source: Path, events: int, threads: int, *, on: bool) -> dict[str, float]:
    with tempfile.TemporaryDirectory(prefix="flowql-checksums-") as name:
        shutil.copytree(source / "log", Path(name) / "log")
        words = [name, query, str(events), str(threads), "on" if on else "off"]
        command = [sys.executable, "-m", "benchmarks.checksums", "--child", *words]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        raise BenchFailed(f"{query}: {done.stderr[-2000:]}")
    found: dict[str, float] = json.loads(done.stdout.splitlines()[-1])
    return found


def table(pairs: Sequence[Pair]) -> str:
    lines = [
        f"{'query':8}{'pairs':>7}{'cpu s':>9}{'in checksums':>14}{'without, cpu s':>16}{'difference':>12}{'faults':>10}{'without':>10}"
    ]
    for query in dict.fromkeys(p.query for p in pairs):
        mine = [p for p in pairs if p.query == query]
        share = sum(p.checksums_s for p in mine) / sum(p.with_s for p in mine)
        cpu, without = (statistics.mean(v) for v in zip(*((p.with_s, p.without_s) for p in mine), strict=True))
        faults, faults_without = (
            statistics.mean(v) for v in zip(*((p.with_faults, p.without_faults) for p in mine), strict=True)
        )
        difference = statistics.median(p.with_s / p.without_s - 1 for p in mine)
        met = "met" if share <= SHARE_MAX else "missed"
        lines.append(
            f"{query:8}{len(mine):>7}{cpu:>9.2f}{share:>14.2%}{without:>16.2f}{difference:>12.1%}"
            f"{faults:>10,.0f}{faults_without:>10,.0f}  target 3 %: {met}"
        )
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--queries", default="q0,qc")
    parser.add_argument("--events", type=int, default=3_000_000)
    parser.add_argument("--rounds", type=int, default=4)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--child", nargs=5, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.child:
        folder, query, events, threads, on = options.child
        print(json.dumps(measure(Job(Path(folder), NEXMARK, query, int(events), int(threads)), on=on == "on")))
        return
    queries = options.queries.split(",")
    with tempfile.TemporaryDirectory(prefix="flowql-checksums-") as name:
        write_log(Path(name), options.events, sorted({t for q in queries for t in EXPECTED[q].reads}))
        rounds = [(q, n) for n in range(options.rounds) for q in queries]
        pairs = []
        for query, number in rounds:
            print(f"{query}: pair {number + 1} of {options.rounds}", file=sys.stderr)
            pairs.append(pair(query, Path(name), options.events, options.threads, with_first=number % 2 == 0))
    print(table(pairs))


if __name__ == "__main__":
    main()
