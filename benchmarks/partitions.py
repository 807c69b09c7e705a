"""The processor time of a record over fewer or more partitions of the input.

    python -m benchmarks.partitions [--queries q5,qc] [--partitions 4,32,256] [--events 200000] [--rounds 5] [--top 40]

Each pair of a query and a number of partitions runs in a process of its own and in one thread over an embedded log (`benchmarks.rounds`).
All get the same bids, and take turns round by round. The first round is not counted. A ratio is the median of the ratios within a round.
With `--top N`, cProfile runs as well, and prints the N functions with most time.
"""

from __future__ import annotations

import argparse
import cProfile
import os
import pstats
import statistics
import tempfile
from dataclasses import astuple, dataclass
from multiprocessing import get_context
from multiprocessing.connection import Connection
from pathlib import Path

from benchmarks.rounds import Rounds
from benchmarks.views import compiled
from flowql.bench.engines import NEXMARK
from flowql.runtime.app.threads import collect_less
from flowql.runtime.app.without_pandas import leave_pandas_out

HEADER = f"{'query':6}{'partitions':>11}{'us a record':>13}{'ratio':>8}{'micro-batches':>15}{'rows each':>11}{'slices':>8}{'commits':>9}"


@dataclass(frozen=True, slots=True)
class Round:
    """A round of one process."""

    cpu_s: float
    batches: int
    slices: int
    commits: int


class Counts:
    """Counts since the start of a process."""

    def __init__(self, rounds: Rounds) -> None:
        self._instance, self._batches = rounds.instance, 0
        for step in self._instance.processing:
            step.begins = self._begins

    def _begins(self, _task: object) -> None:
        self._batches += 1

    def now(self) -> tuple[int, int, int]:
        metrics = self._instance.metrics
        return self._batches, sum(q.slices for q in metrics.queries.values()), metrics.commits


def serve(pipe: Connection, query: str, partitions: int, events: int, rounds: int, top: int) -> None:
    """Runs a round for each message, until it is False."""
    leave_pandas_out()
    collect_less()
    with tempfile.TemporaryDirectory(prefix="flowql-partitions-") as folder:
        running = Rounds(compiled(NEXMARK), query, Path(folder), events, rounds, partitions)
        counts, profile = Counts(running), cProfile.Profile()
        warm = False
        while pipe.recv():
            before = counts.now()
            if top and warm:
                profile.enable()
            seconds = running.run()
            profile.disable()
            warm = True
            pipe.send(Round(seconds, *(b - a for a, b in zip(before, counts.now(), strict=True))))
        if top:
            print(f"{query} over {partitions} partitions", flush=True)
            pstats.Stats(profile).sort_stats("tottime").print_stats(top)
    os._exit(0)  # DuckDB's module would print what it has not freed


def main() -> None:
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.partitions",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--queries", default="q5,qc")
    parser.add_argument("--partitions", default="4,32,256")
    parser.add_argument("--events", type=int, default=200_000)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--top", type=int, default=0)
    options = parser.parse_args()
    print(HEADER, flush=True)
    numbers = [int(n) for n in options.partitions.split(",")]
    for query in options.queries.split(","):
        measure(query, numbers, options.events, options.rounds, options.top)


def measure(query: str, numbers: list[int], events: int, rounds: int, top: int) -> None:
    """Prints a line for each number of partitions."""
    context, pipes, found = get_context("spawn"), [], [list[Round]() for _ in numbers]
    for partitions in numbers:
        ours, theirs = context.Pipe()
        context.Process(target=serve, args=(theirs, query, partitions, events, 1 + rounds, top)).start()
        pipes.append(ours)
    for number in range(1 + rounds):
        for pipe, of in zip(pipes, found, strict=True):
            pipe.send(True)
            one = pipe.recv()
            of += [one] if number else []
    for pipe, partitions, of in zip(pipes, numbers, found, strict=True):
        pipe.send(False)
        ratio = statistics.median(a.cpu_s / b.cpu_s for a, b in zip(of, found[0], strict=True))
        cpu_s, batches, slices, commits = (statistics.median(c) for c in zip(*map(astuple, of), strict=True))
        figures = f"{1e6 * cpu_s / events:13.2f}{ratio:8.2f}{batches:15,.0f}{events / batches:11,.0f}"
        print(f"{query:6}{partitions:11}{figures}{slices:8,.0f}{commits:9.0f}", flush=True)


if __name__ == "__main__":
    main()
