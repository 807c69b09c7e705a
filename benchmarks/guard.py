"""The processor time of Nexmark queries at two commits, in turns. Exits with 1 where the second needs over 5 % more.

    python -m benchmarks.guard BASE [HEAD] [--queries q0,qc] [--events 40000] [--rounds 60]

BASE, HEAD: commits. Without HEAD the working tree is compared, with its uncommitted changes. Each commit measures itself with its own
`benchmarks.rounds`: a query of `flowql bench` runs in one thread over the embedded log and gets `--events` bids a round. Commits count, the start
does not, and results are compared with the oracle. Rounds go on until the 99 % confidence interval of the median ratio is on one side of 1.05,
or for `--rounds`. A query is slower if the whole interval is above.

Processor time depends on the caches and so on what else the machine does. This is why the commits take turns round by round, why ratios are
taken within a round, and why processes are replaced: two processes of one program may differ by where their memory lies.
"""

from __future__ import annotations

import argparse
import io
import os
import statistics
import subprocess
import sys
import tarfile
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path

ROOT = Path(__file__).parents[1]
QUERIES = "q0,q1,q2,qc,q3,q5,q11"
LIMIT = 1.05
FIRST_ROUNDS, ROUNDS_PER_PROCESS = 10, 6
DEVIATIONS = 2.58  # of a normal distribution, for 99 %
HEADER = f"{'query':6}{'rounds':>7}{'base, s':>10}{'head, s':>10}{'ratio':>8}{'99 % interval':>17}  verdict"


@dataclass(slots=True)
class Measured:
    """Processor seconds of a query, in rounds."""

    query: str
    base_s: list[float] = field(default_factory=list)
    head_s: list[float] = field(default_factory=list)

    @property
    def ratios(self) -> list[float]:
        return sorted(head / base for base, head in zip(self.base_s, self.head_s, strict=True))

    @property
    def interval(self) -> tuple[float, float]:
        """Bounds of the median ratio, by order statistics: no distribution is assumed.

        >>> Measured("q0", [1.0] * 100, [1 + n / 100 for n in range(100)]).interval
        (1.37, 1.62)
        """
        ratios, half = self.ratios, DEVIATIONS * len(self.base_s) ** 0.5 / 2
        middle = len(ratios) / 2
        return ratios[max(int(middle - half), 0)], ratios[min(int(middle + half), len(ratios) - 1)]

    @property
    def slower(self) -> bool:
        return self.interval[0] > LIMIT

    @property
    def decided(self) -> bool:
        return len(self.base_s) >= FIRST_ROUNDS and (self.slower or self.interval[1] < LIMIT)

    @property
    def verdict(self) -> str:
        return "slower" if self.slower else "equal or faster" if self.interval[1] < LIMIT else "undecided"

    def line(self) -> str:
        """As in the table.

        >>> Measured("q0", [1.0, 1.0, 1.0], [1.2, 1.2, 1.3]).line()
        'q0          3     1.000     1.200   1.200     1.200 1.300  slower'
        """
        base, head, (low, high) = statistics.median(self.base_s), statistics.median(self.head_s), self.interval
        figures = f"{len(self.base_s):7}{base:10.3f}{head:10.3f}{statistics.median(self.ratios):8.3f}"
        return f"{self.query:6}{figures}{low:10.3f} {high:.3f}  {self.verdict}"


class Process:
    """`benchmarks.rounds` of one commit. tree: the sources of the commit. rounds: the most of a query."""

    def __init__(self, tree: Path, folder: Path, events: int, rounds: int) -> None:
        self._child = subprocess.Popen(
            [sys.executable, "-P", "-m", "benchmarks.rounds", str(folder), str(events), str(rounds)],
            cwd=folder,
            env={**os.environ, "PYTHONPATH": str(tree), "PYTHONHASHSEED": "0"},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )

    def ask(self, words: str) -> str:
        assert self._child.stdin is not None
        assert self._child.stdout is not None
        self._child.stdin.write(words + "\n")
        self._child.stdin.flush()
        answer = self._child.stdout.readline()
        if not answer:
            raise SystemExit(f"{words}: the measuring process failed")
        return answer.strip()

    def __enter__(self) -> Process:
        return self

    def __exit__(self, *_error: object) -> None:
        self._child.communicate()  # the end of its input ends it


def compare(trees: Sequence[Path], queries: Sequence[str], events: int, rounds: int) -> list[Measured]:
    """Every query that is not decided gets as many rounds as processes live, in turns; then they are replaced."""
    measured = [Measured(query) for query in queries]
    for _ in range(0, rounds, ROUNDS_PER_PROCESS):
        open_ = [m for m in measured if not m.decided]
        if not open_:
            break
        with ExitStack() as stack:
            base, head = (stack.enter_context(_process(tree, events)) for tree in trees)
            for number in range(-1, ROUNDS_PER_PROCESS):
                for one in open_:
                    pair = [(base, one.base_s), (head, one.head_s)]
                    for process, seconds in pair if number % 2 == 0 else reversed(pair):
                        found = float(process.ask(one.query))
                        if number >= 0:  # the one before warms the process up
                            seconds.append(found)
            for process in (base, head):
                for one in open_:
                    if (wrong := process.ask(f"check {one.query}")) != "''":
                        raise SystemExit(wrong)
    return measured


@contextmanager
def _process(tree: Path, events: int) -> Iterator[Process]:
    with (
        tempfile.TemporaryDirectory(prefix="flowql-guard-") as folder,
        Process(tree, Path(folder), events, 1 + ROUNDS_PER_PROCESS) as process,
    ):
        yield process


@contextmanager
def checkout(commit: str) -> Iterator[Path]:
    """The files of a commit, in a folder that is removed."""
    with tempfile.TemporaryDirectory(prefix="flowql-guard-") as name:
        packed = subprocess.run(["git", "archive", commit], cwd=ROOT, stdout=subprocess.PIPE, check=True).stdout
        with tarfile.open(fileobj=io.BytesIO(packed)) as files:
            files.extractall(name, filter="tar")
        yield Path(name)


def main() -> None:
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.guard", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("base")
    parser.add_argument("head", nargs="?", help="by default the working tree")
    parser.add_argument("--queries", default=QUERIES)
    parser.add_argument("--events", type=int, default=40_000, help="bids; queries without bids read a longer timeline")
    parser.add_argument("--rounds", type=int, default=60, help="the most")
    options = parser.parse_args()
    with ExitStack() as stack:
        trees = [ROOT if c is None else stack.enter_context(checkout(c)) for c in (options.base, options.head)]
        measured = compare(trees, options.queries.split(","), options.events, options.rounds)
    print("\n".join([HEADER, *(m.line() for m in measured)]))
    sys.exit(any(m.slower for m in measured))


if __name__ == "__main__":
    main()
