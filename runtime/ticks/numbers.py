"""Numbers of ticks: which of them a reader that is behind takes next, and which are worth keeping for it.

Readers that are behind at different places meet where both take the multiple of the highest power of two: between two multiples of one power
lies a multiple of a higher one, so the number of most trailing zeros in a range is unique, and it is in every range around it.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping

from flowql.runtime.log.base import TopicPartition

KEPT = 2  # of each power of two
NEWEST_MAX = 64  # ticks that are all kept


def aligned(numbers: Iterable[int]) -> int | None:
    """Chooses from numbers of ticks as every member does: a multiple of the highest power of two."""
    return max(numbers, key=lambda n: (n & -n, n), default=None)


def worth_keeping(numbers: Iterable[int]) -> set[int]:
    """The newest multiples of each power of two: a reader that is behind finds in them the one that `aligned` chooses of all."""
    kept, seen = set[int](), dict[int, int]()
    for n in sorted(numbers, reverse=True):
        power = n & -n
        better = sum(count for p, count in seen.items() if p >= power)
        if better < KEPT:
            kept.add(n)
        seen[power] = seen.get(power, 0) + 1
    return kept


def remembered(numbers: Collection[int]) -> set[int]:
    """The newest, as stages far downstream are many ticks behind those that read sources; of older ones a few."""
    return {*worth_keeping(numbers), *sorted(numbers)[-NEWEST_MAX:]}


def whole_of(ends: Iterable[Mapping[int, Mapping[TopicPartition, int]]]) -> dict[TopicPartition, int] | None:
    """The ends as of the newest tick that all have; None if they have none in common. ends: of several topics, by tick."""
    known = list(ends)
    tick = max(set.intersection(*map(set, known)), default=None) if known else 0
    return None if tick is None else {tp: end for of in known for tp, end in of[tick].items()}
