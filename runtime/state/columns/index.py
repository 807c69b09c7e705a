"""The slots of keys: a hash table with open addressing that whole batches are looked up in.

Each round of a search takes all keys that are not found yet one place further, so a batch costs a few dozen calls of numpy, whatever
its length. A table is at most half full. There is no removal: what is not used any more goes with its index.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from flowql.runtime.batch import Ints
from flowql.runtime.state.columns.packed import PackedKeys, Words, same, word_counts

NO_SLOT = -1
_PLACES_MIN, _SLOTS_MIN, _WORDS_MIN = 1 << 10, 1 << 9, 1 << 10


class KeyIndex:
    """Slots 0, 1, ... in the order in which keys were added. For one thread; others may read keys of slots that they know."""

    __slots__ = ("_hashes", "_lengths", "_starts", "_table", "_used", "_words", "count")

    def __init__(self) -> None:
        self.count = 0
        self._table = np.full(_PLACES_MIN, NO_SLOT, np.int32)
        self._hashes = np.empty(_SLOTS_MIN, np.uint64)
        self._starts, self._lengths = np.empty(_SLOTS_MIN, np.int64), np.empty(_SLOTS_MIN, np.int64)
        self._words, self._used = np.empty(_WORDS_MIN, np.uint64), 0

    def find(self, keys: PackedKeys, hashes: Words) -> Ints:
        """The slot of each key, NO_SLOT for one that is not here."""
        found = np.full(len(keys), NO_SLOT, np.int64)
        table = (
            self._table
        )  # the task's thread may exchange it for a larger one while the committing thread looks something up
        mask = len(table) - 1
        at = np.arange(len(keys))
        places = (hashes & np.uint64(mask)).astype(np.int64)
        while len(at):
            slots = table[places].astype(np.int64)
            taken = slots != NO_SLOT
            if not taken.all():
                at, places, slots = at[taken], places[taken], slots[taken]
            equal = self._hashes[slots] == hashes[at]
            candidates = np.flatnonzero(equal)
            if len(candidates):
                these = at[candidates]
                equal[candidates] = same(self.keys(slots[candidates]), keys.take(these))
                found[at[equal]] = slots[equal]
            other = ~equal
            at, places = at[other], (places[other] + 1) & mask
        return found

    def add(self, keys: PackedKeys, hashes: Words) -> Ints:
        """New slots for keys that are not here, no two alike."""
        n, first = len(keys), self.count
        counts = word_counts(keys.lengths)
        self._reserve(first + n, self._used + int(counts.sum()))
        slots = np.arange(first, first + n)
        packed = keys.compact()
        self._starts[first : first + n] = packed.starts + self._used
        self._lengths[first : first + n] = packed.lengths
        self._hashes[first : first + n] = hashes
        self._words[self._used : self._used + len(packed.words)] = packed.words
        self._used += len(packed.words)
        self.count = first + n
        _place(self._table, slots, hashes)
        return slots

    def keys(self, slots: Ints) -> PackedKeys:
        return PackedKeys(self._starts[slots], self._lengths[slots], self._words)

    @property
    def capacity(self) -> int:
        """Slots there is room for."""
        return len(self._hashes)

    def _reserve(self, slots: int, words: int) -> None:
        if words > len(self._words):
            self._words = grown(self._words, words, self._used)
        if slots > len(self._hashes):
            self._hashes = grown(self._hashes, slots, self.count)
            self._starts, self._lengths = (
                grown(self._starts, slots, self.count),
                grown(self._lengths, slots, self.count),
            )
        if slots * 2 > len(self._table):
            places = len(self._table)
            while slots * 2 > places:
                places *= 2
            table = np.full(places, NO_SLOT, np.int32)
            _place(table, np.arange(self.count), self._hashes[: self.count])
            self._table = table


def grown(array: npt.NDArray[Any], least: int, used: int) -> npt.NDArray[Any]:
    """A longer array with the same beginning; the rest is not set. The old one stays as it is, for those who read it."""
    longer = np.empty(max(least, 2 * len(array)), array.dtype)
    longer[:used] = array[:used]
    return longer


def _place(table: npt.NDArray[np.int32], slots: Ints, hashes: Words) -> None:
    """Write slots into free places. Where several want the same one, the last has it and the others go on."""
    mask = len(table) - 1
    places = (hashes & np.uint64(mask)).astype(np.int64)
    slots = slots.astype(np.int32)
    while len(slots):
        free = table[places] == NO_SLOT
        table[places[free]] = slots[free]
        lost = table[places] != slots
        slots, places = slots[lost], (places[lost] + 1) & mask
