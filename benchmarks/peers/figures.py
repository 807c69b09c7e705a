"""The figures of a run, from samples that were taken outside of the system."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

SEEN_S, SEEN_SHARE = 0.7, 0.25  # least time and least share of the input for figures without the start


@dataclass(frozen=True, slots=True)
class Sample:
    """seconds: since the start. cpu_s: of the process tree so far. read: committed input records. written: visible results."""

    seconds: float
    cpu_s: float
    read: int
    written: int


@dataclass(frozen=True, slots=True)
class Rates:
    """Input records per second, and per second of processor time."""

    per_s: int
    per_cpu_s: int


@dataclass(frozen=True, slots=True)
class Figures:
    """start_s: until the first commit or result. seconds, cpu_s: until the last one. whole: rates with the start.

    working: rates after the first commit, which leave out the start; None if the run was too short to see them.
    """

    start_s: float
    seconds: float
    cpu_s: float
    whole: Rates
    working: Rates | None


def figures(samples: Sequence[Sample], records: int) -> Figures:
    """The figures of a run that read `records` records, from its samples.

    >>> run = [
    ...     Sample(0.0, 0.0, 0, 0),
    ...     Sample(2.0, 3.0, 400, 40),
    ...     Sample(4.0, 6.0, 1000, 100),
    ...     Sample(9.0, 7.0, 1000, 100),
    ... ]
    >>> figures(run, 1000)
    Figures(start_s=2.0, seconds=4.0, cpu_s=6.0, whole=Rates(per_s=250, per_cpu_s=166), working=Rates(per_s=300, per_cpu_s=200))
    """
    last = samples[-1]

    def first(test: Callable[[Sample], bool]) -> Sample:
        return next((s for s in samples if test(s)), last)

    start = first(lambda s: s.read > 0 or s.written > 0)
    end = first(lambda s: (s.read, s.written) == (last.read, last.written))
    known = first(lambda s: s.read > 0)
    left, seconds, cpu_s = records - known.read, end.seconds - known.seconds, end.cpu_s - known.cpu_s
    seen = seconds > SEEN_S and left > SEEN_SHARE * records
    return Figures(
        round(start.seconds, 2),
        round(end.seconds, 2),
        round(end.cpu_s, 2),
        _rates(records, end.seconds, end.cpu_s),
        _rates(left, seconds, cpu_s) if seen else None,
    )


def _rates(records: int, seconds: float, cpu_s: float) -> Rates:
    return Rates(int(records / max(seconds, 0.01)), int(records / max(cpu_s, 0.01)))
