"""Numbers of ticks: which of them a reader that is behind takes next, and which are worth keeping for it.

Readers that are behind at different places meet where both take the multiple of the highest power of two: between two multiples of one power
lies a multiple of a higher one, so the number of most trailing zeros in a range is unique, and it is in every range around it.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from types import MappingProxyType

from flowql.runtime.log.base import TopicPartition

Ends = Mapping[TopicPartition, int]
# The least age of a record that replaces an older one at a broker: its segment has to be full, and the cleaner to come by. Brokers compact without regard to readers.
COMPACTED_MS = 60_000
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


def whole_of(
    ends: Iterable[Mapping[int, Ends]], cuts: Mapping[int, Ends] = MappingProxyType({})
) -> dict[TopicPartition, int] | None:
    """The ends as of the newest tick that all have; None if they have none in common. ends: of several topics, by tick. cuts: of sources that belong to
    them; a tick without the ends of all their partitions does not count.
    """
    known = list(ends)
    if not known:
        return {}
    if partitions := max(map(len, cuts.values()), default=0):
        known.append({n: of for n, of in cuts.items() if len(of) == partitions})
    tick = max(set.intersection(*map(set, known)), default=None)
    return None if tick is None else {tp: end for of in known for tp, end in of[tick].items()}


def cuts_of(cuts: Mapping[int, Ends], topics: Collection[str]) -> dict[int, Ends]:
    """The ends of these topics, by tick."""
    return {n: {tp: end for tp, end in ends.items() if tp.topic in topics} for n, ends in cuts.items()}


def misses_rows(drawn_ms: int, now_ms: int) -> bool:
    """Whether a reader of tables that finishes a tick may have missed rows that are in no record before its lines any more: records beyond these have
    replaced them, and were compacted since the tick was drawn. Both on the timer.
    """
    return now_ms - drawn_ms > COMPACTED_MS
