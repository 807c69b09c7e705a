"""How long things took, counted in classes: constant memory and time, whatever the number of records."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field

# Four classes to an octave: a percentile is at most 19 % too high. Class 0 is below 1 ms, the last is open.
PER_OCTAVE = 4
OCTAVES = 24  # up to 4.6 hours
CLASSES = PER_OCTAVE * OCTAVES + 2


@dataclass(slots=True)
class Latencies:
    """A histogram of milliseconds. Written by one thread; reading needs no lock (counts only rise)."""

    counts: list[int] = field(default_factory=lambda: [0] * CLASSES)
    sum_ms: int = 0

    def add(self, ms: int, records: int) -> None:
        """`records` of them took `ms` each."""
        index = 0 if ms < 1 else min(CLASSES - 1, 1 + int(math.log2(ms) * PER_OCTAVE))
        self.counts[index] += records
        self.sum_ms += max(0, ms) * records


def upper_ms(index: int) -> float:
    """The upper end of a class; the open one has none."""
    return math.inf if index == CLASSES - 1 else 2.0 ** (index / PER_OCTAVE)


def percentile(counts: Sequence[int], fraction: float) -> float | None:
    """The time that `fraction` of them did not exceed, as the upper end of its class; None of nothing.

    >>> latencies = Latencies()
    >>> latencies.add(10, 99)
    >>> latencies.add(1000, 1)
    >>> [round(percentile(latencies.counts, p)) for p in (0.5, 0.99, 1.0)]
    [11, 11, 1024]
    """
    total = sum(counts)
    if not total:
        return None
    wanted, seen = math.ceil(total * fraction), 0
    for index, count in enumerate(counts):
        seen += count
        if seen >= wanted:
            return upper_ms(min(index, CLASSES - 2))
    raise AssertionError("the classes hold what they count")


def octaves(counts: Sequence[int]) -> list[tuple[float, int]]:
    """(upper end in ms, how many took no longer) per octave, rising; the last upper end is infinite."""
    found, seen = [], 0
    for index, count in enumerate(counts):
        seen += count
        if index % PER_OCTAVE == 0 or index == CLASSES - 1:
            found.append((upper_ms(index), seen))
    return found
