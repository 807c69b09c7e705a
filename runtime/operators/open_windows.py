"""Which windows of which keys EMIT FINAL has still to give, kept beside the store so that closing does not search it."""

from __future__ import annotations

from heapq import heappop, heappush

import numpy as np

from flowql.compiler.plan.topology import StoreSpec
from flowql.runtime.batch import Ints
from flowql.runtime.state.columns.packed import PackedKeys, joined, pack
from flowql.runtime.state.layout import store_key_codec
from flowql.runtime.state.store import Store


class OpenWindows:
    """Keys of groups, each with the start of its window at the end. It may name keys that the store does not have (a run failed), and never
    lacks one that it has.

    The store is the truth. It is read anew when stream time is not where the last run left it, after a restart or a failed run. Each batch of keys is
    sorted by start and loses its beginning as windows close, so closing looks at no window that stays open.
    """

    __slots__ = ("_batches", "_codec", "_number", "_time")

    def __init__(self, spec: StoreSpec) -> None:
        self._codec = store_key_codec(spec)
        self._batches: list[tuple[int, int, Ints, PackedKeys]] = []  # a heap: first start, number, starts, keys
        self._number = 0
        self._time: int | None = None

    def begin(self, began: int, closed: int, store: Store) -> None:
        """Before a run: windows that start at or before `closed` have been given."""
        if began != self._time:
            self._batches = []
            self.add(pack(self._codec.encode_many([k for k, _ in store.scan() if k[-1] > closed])))  # type: ignore[operator]
        self._time = None  # a run that does not come to its end may have taken keys

    def add(self, keys: PackedKeys) -> None:
        starts = keys.last_times()
        order = np.argsort(starts, kind="stable")
        self._push(starts[order], keys.take(order).compact())

    def due(self, closed: int) -> PackedKeys:
        """Takes the keys of the windows that start at or before `closed`, by start, then key."""
        taken: list[PackedKeys] = []
        while self._batches and self._batches[0][0] <= closed:
            _, _, starts, keys = heappop(self._batches)
            end = int(np.searchsorted(starts, closed, "right"))
            taken.append(keys.between(0, end))
            self._push(starts[end:], keys.between(end, len(keys)))
        if not taken:
            return pack([])
        found = joined(taken)
        found = found.take(found.last_of_each())
        return found.take(np.argsort(found.last_times(), kind="stable"))

    def end(self, now: int) -> None:
        """After a run that left stream time at `now`."""
        self._time = now

    def _push(self, starts: Ints, keys: PackedKeys) -> None:
        if len(keys):
            self._number += 1
            heappush(self._batches, (int(starts[0]), self._number, starts, keys))
