"""The size of each store in bytes, counted by reading its rows slowly enough to disturb no query.

RocksDB estimates sizes by file, and stores of many queries share a file; its interface for ranges is not in the driver. So the rows
are counted: keys and values as they are written, without RocksDB's compression and without uncommitted rows. Runs count with all that belongs to them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from itertools import islice

from flowql.runtime.clock import Clock
from flowql.runtime.errors import StateError
from flowql.runtime.state.layout import StoreEntry
from flowql.runtime.state.physical import PhysicalReader

ROWS = 500  # looked at in one go: about a millisecond
# Waits so many times as long as it worked, so the walk takes at most one hundredth of one processor.
REST = 100
PASS_MS_MIN = 5_000  # from the beginning of a walk to that of the next


class StoreSizes:
    """A step of its own thread. `of` holds the result of the last walk by name of the store; stores come and go.

    entries: the committed stores. A walk reads the present, not a snapshot: it may count a row that moves meanwhile twice, or not.
    """

    def __init__(self, physical: PhysicalReader, entries: Callable[[], Mapping[str, StoreEntry]], clock: Clock) -> None:
        self._physical, self._entries, self._clock = physical, entries, clock
        self._walk: Iterator[None] | None = None
        self._begun_ms = 0
        self.of: Mapping[str, int] = {}

    def total(self, stores: Iterable[str]) -> int | None:
        """The size of these together; None while one of them was not counted to its end yet: ten million rows take minutes."""
        sizes = [self.of.get(name) for name in stores]
        return None if None in sizes else sum(s for s in sizes if s is not None)

    def run_once(self, now_ms: int) -> int:
        if self._walk is None:
            if self._begun_ms and now_ms < self._begun_ms + PASS_MS_MIN:
                return self._begun_ms + PASS_MS_MIN - now_ms
            self._walk, self._begun_ms = self._count(), now_ms
        start = self._clock.cost_ns()
        try:
            if next(self._walk, self) is self:
                self._walk = None
        except StateError:  # it is being opened again, say: another walk will tell
            self._walk = None
        return max(1, (self._clock.cost_ns() - start) * REST // 1_000_000)

    def _count(self) -> Iterator[None]:
        """Stops after every few rows."""
        found: dict[str, int] = {}
        for name, entry in list(self._entries().items()):
            found[name] = 0
            for partition in entry.partitions:
                low, high = entry.partition_range(partition)
                rows = ROWS
                while rows == ROWS:
                    rows = 0
                    for key, value in islice(
                        self._physical.scan(low, high), ROWS
                    ):  # a new look each time: nothing is kept open
                        found[name] += len(key) + len(value)
                        low, rows = key + b"\0", rows + 1
                    yield
        self.of = found
