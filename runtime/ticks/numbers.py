"""Numbers of ticks: which of them a reader that is behind takes next, and which are worth keeping for it.

Readers that are behind at different places meet where both take the multiple of the highest power of two: between two multiples of one power
lies a multiple of a higher one, so the number of most trailing zeros in a range is unique, and it is in every range around it.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from functools import lru_cache
from types import MappingProxyType
from typing import TypeVar

from flowql.runtime.log.base import TopicPartition

V = TypeVar("V")
Ends = Mapping[TopicPartition, int]
# The least age of a record that replaces an older one at a broker: its segment has to be full, and the cleaner to come by. Brokers compact without regard to readers.
COMPACTED_MS = 60_000
KEPT = 2  # of each power of two
NEWEST_MAX = 64  # ticks that are all kept
SETS_KEPT = 32  # of numbers whose answer is known: most stages finish the same ticks
SLACK = 32  # ticks that are added before old ones are deleted


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


def remembered(numbers: Collection[int]) -> frozenset[int]:
    """The newest, as stages far downstream are many ticks behind those that read sources; of older ones a few."""
    return _remembered(frozenset(numbers))


@lru_cache(SETS_KEPT)
def _remembered(numbers: frozenset[int]) -> frozenset[int]:
    return frozenset((*worth_keeping(numbers), *sorted(numbers)[-NEWEST_MAX:]))


class ByTick(dict[int, V]):
    """Values by tick, the newest last. `trim` deletes old ones from time to time."""

    _full = NEWEST_MAX

    def trim(self, spared: Iterable[Collection[int]] = ()) -> None:
        """Keeps the ticks that are worth remembering, and these."""
        if len(self) >= self._full:
            for n in self.keys() - remembered(self).union(*spared):
                del self[n]
            self._full = len(self) + SLACK


def whole_of(
    ends: Mapping[str, Mapping[int, Ends]],
    cuts: Mapping[int, Ends] = MappingProxyType({}),
    held: Collection[str] = (),
) -> dict[TopicPartition, int] | None:
    """Finds the newest tick that all writers have finished, and returns the ends as of it. Returns None if no tick is common to all. ends: of topics, by
    their writers and by tick. cuts: the ends of sources; a tick that lacks a partition of them does not count. held: writers that are not waited for;
    the ends of their topics are as of their newest tick up to the one found.
    """
    if not ends:
        return {}
    known = [of for name, of in ends.items() if name not in held]
    if partitions := max(map(len, cuts.values()), default=0):
        known.append({n: of for n, of in cuts.items() if len(of) == partitions})
    late = [of for name, of in ends.items() if name in held]
    common = set.intersection(*map(set, known or late))
    if not (common or known):  # all are held, at different ticks
        common = set[int]().union(*late)
    tick = max(common, default=0)
    lasts = [max((n for n in of if n <= tick), default=0) for of in late]
    if not tick or not all(lasts):
        return None
    found = [*(of[tick] for of in known), *(of[n] for of, n in zip(late, lasts, strict=True))]
    return {tp: end for of in found for tp, end in of.items()}


def cuts_of(cuts: Mapping[int, Ends], topics: Collection[str]) -> dict[int, Ends]:
    """The ends of these topics, by tick."""
    return {n: {tp: end for tp, end in ends.items() if tp.topic in topics} for n, ends in cuts.items()}


def misses_rows(drawn_ms: int, now_ms: int) -> bool:
    """Whether a reader of tables that finishes a tick may have missed rows that are in no record before its lines any more: records beyond these have
    replaced them, and were compacted since the tick was drawn. Both on the timer.
    """
    return now_ms - drawn_ms > COMPACTED_MS
