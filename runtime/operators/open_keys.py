"""Keys of groups that wait until a time closes them, kept beside the store so that closing does not search it."""

from __future__ import annotations

from collections.abc import Callable
from heapq import heappop, heappush

import numpy as np

from flowql.runtime.batch import Ints
from flowql.runtime.state.columns.packed import PackedKeys, joined, pack

Read = Callable[[], tuple[Ints, PackedKeys]]  # the times of all keys of the store that wait, and these keys
NO_TIMES: Ints = np.zeros(0, np.int64)


class OpenKeys:
    """Keys, each with the time that closes it. It may name keys that the store does not have (a run failed), and never lacks one that it has.

    The store is the truth. It is read anew when time is not where the last run left it, after a restart or a failed run. Each batch of keys is
    sorted by time and loses its beginning as time goes on, so closing looks at no key that stays open.
    """

    __slots__ = ("_batches", "_number", "_time")

    def __init__(self) -> None:
        self._batches: list[tuple[int, int, Ints, PackedKeys]] = []  # a heap: first time, number, times, keys
        self._number = 0
        self._time: int | None = None

    def is_at(self, began: int) -> bool:
        """Whether a run that begins when time is at `began` needs no reading."""
        return began == self._time

    def begin(self, began: int, read: Read) -> None:
        """Before a run that begins when time is at `began`."""
        if not self.is_at(began):
            self._batches = []
            self.add(*read())
        self._time = None  # a run that does not come to its end may have taken keys

    def add(self, times: Ints, keys: PackedKeys) -> None:
        order = np.argsort(times, kind="stable")
        self._push(times[order], keys.take(order).compact())

    def due(self, now: int) -> tuple[Ints, PackedKeys]:
        """Takes the keys that are closed at `now`, and their times: by time, then key."""
        taken: list[tuple[Ints, PackedKeys]] = []
        while self._batches and self._batches[0][0] <= now:
            _, _, times, keys = heappop(self._batches)
            end = int(np.searchsorted(times, now, "right"))
            taken.append((times[:end], keys.between(0, end)))
            self._push(times[end:], keys.between(end, len(keys)))
        if not taken:
            return NO_TIMES, pack([])
        times, keys = np.concatenate([t for t, _ in taken]), joined([k for _, k in taken])
        places = keys.last_of_each()
        places = places[np.argsort(times[places], kind="stable")]
        return times[places], keys.take(places)

    def end(self, now: int) -> None:
        """After a run that left time at `now`."""
        self._time = now

    def _push(self, times: Ints, keys: PackedKeys) -> None:
        if len(keys):
            self._number += 1
            heappush(self._batches, (int(times[0]), self._number, times, keys))
