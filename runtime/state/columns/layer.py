"""The rows of one store in memory as columns by slot, and the deltas that micro-batches make of them.

A micro-batch finds the slots of its keys, reads their values, and stages new ones as a `Delta`, which is never changed once it is made. `publish`
writes it to the columns and adds it to the epoch; redo, changelog and store are made of deltas, never of the columns (rule R1).

There are two generations of columns, as of the cache of `flowql.runtime.state.task_store`: what is not read while one fills is gone with the next.
Rows of deltas that are not committed are in one of them at any time. The thread that holds the task finds, stages and publishes; the
committing thread exchanges generations, which are not changed any more once they are replaced, but by a batch that has found slots
in one and will find at `publish` that it is not the latest.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import groupby

import numpy as np
import numpy.typing as npt

from flowql.runtime.batch import Ints
from flowql.runtime.state.columns.packed import NO_SLOT, KeyIndex, PackedKeys, Words, joined
from flowql.runtime.state.columns.values import RowValues, ValueLayout, ValueTable, concatenated
from flowql.runtime.state.rows import Value


class Generation:
    """Keys and values by slot. `written`: the epoch in which a slot was written last."""

    __slots__ = ("index", "values", "written")

    def __init__(self, layout: ValueLayout) -> None:
        self.index = KeyIndex()
        self.values = ValueTable(layout, self.index.capacity)
        self.written: npt.NDArray[np.int64] = np.zeros(self.index.capacity, np.int64)

    def add(self, keys: PackedKeys, hashes: Words, values: RowValues) -> Ints:
        """Slots of keys that are not here yet."""
        slots = self.index.add(keys, hashes)
        capacity = self.index.capacity
        if capacity > len(self.written):
            self.values.reserve(capacity)
            longer = np.zeros(capacity, np.int64)
            longer[: len(self.written)] = self.written
            self.written = longer
        self.values.write(slots, values)
        return slots

    def put(self, keys: PackedKeys, values: RowValues) -> Ints:
        """Slots of keys, different ones, after these values were written."""
        hashes = keys.hashes()
        slots = self.index.find(keys, hashes)
        here = slots != NO_SLOT
        self.values.write(slots[here], values.take(np.flatnonzero(here)))
        new = np.flatnonzero(~here)
        if len(new):
            slots[new] = self.add(keys.take(new), hashes[new], values.take(new))
        return slots


@dataclass(frozen=True, slots=True)
class Found:
    """The slots of a batch's keys, different ones, and their values as the batch sees them."""

    generation: Generation
    slots: Ints
    values: RowValues

    def take(self, at: Ints) -> Found:
        """Those of the keys at these places."""
        return Found(self.generation, self.slots[at], self.values.take(at))

    def seen_through(self, deltas: Sequence[Delta], keys: PackedKeys) -> Found:
        """The same with what the batch has staged since. keys: those that were found."""
        values = self.values
        for delta in filter(len, deltas):
            slots = (
                self.slots if delta.generation is self.generation else delta.generation.index.find(keys, keys.hashes())
            )
            order = np.argsort(delta.slots)
            places = np.minimum(np.searchsorted(delta.slots[order], slots), len(order) - 1)
            hit = delta.slots[order[places]] == slots
            if hit.any():
                at = np.arange(len(slots))
                at[hit] = len(slots) + order[places[hit]]
                values = concatenated([values, delta.values]).take(at)
        return Found(self.generation, self.slots, values)


@dataclass(frozen=True, slots=True)
class Delta:
    """The writes of a micro-batch: a value for each of some different slots of a generation; no value deletes."""

    generation: Generation
    slots: Ints
    values: RowValues

    def __len__(self) -> int:
        return len(self.slots)

    @property
    def keys(self) -> PackedKeys:
        return self.generation.index.keys(self.slots)


class ColumnLayer:
    """See the module. epoch: how many cuts there were."""

    def __init__(self, layout: ValueLayout) -> None:
        self.layout, self.epoch = layout, 1
        self._latest, self._older = Generation(layout), Generation(layout)

    @property
    def size(self) -> int:
        """Rows in memory."""
        return self._latest.index.count + self._older.index.count

    @property
    def is_one(self) -> bool:
        """No row is in the older generation."""
        return not self._older.index.count

    def put(self, keys: PackedKeys, values: Sequence[Value | None]) -> None:
        """Before anyone else knows of it: rows that are in memory already."""
        self._latest.put(keys, RowValues.of(self.layout, values))

    def seek(self, keys: PackedKeys) -> Seek:
        """Where a batch's keys are, as far as that is known here."""
        latest = self._latest  # before the older one, which it becomes
        return Seek(latest, self._older, keys)

    def publish(self, delta: Delta) -> tuple[Delta, int]:
        """Writes it to the columns; as it is kept in the epoch, and how many rows it adds to that. The epoch lock is held."""
        latest = self._latest
        if delta.generation is not latest:  # replaced since the batch found its slots
            delta = Delta(latest, latest.put(delta.keys.compact(), delta.values), delta.values)
        else:
            latest.values.write(delta.slots, delta.values)
        fresh = int(np.count_nonzero(latest.written[delta.slots] != self.epoch))
        latest.written[delta.slots] = self.epoch
        return delta, fresh

    def age(self, rows: Appended, uncommitted: Iterable[Delta]) -> None:
        """Begins a new generation. What is not committed: rows from before the store was in columns, and deltas in their order. The epoch lock is held."""
        latest, new = self._latest, Generation(self.layout)
        older = [(d.keys.compact(), d.values) for d in uncommitted if d.generation is not latest]
        for keys, values in [(rows.keys, rows.values), *older]:
            stay = np.flatnonzero(latest.index.find(keys, keys.hashes()) == NO_SLOT)  # those that are there are newer
            new.put(keys.take(stay), values.take(stay))
        self._older = latest  # before the latest is replaced: a reader between finds rows in both
        self._latest = new

    def forget(self) -> None:
        """All rows are gone, those of deltas too. The epoch lock is held, or the task does not run."""
        self._latest, self._older = Generation(self.layout), Generation(self.layout)


class Seek:
    """A search under way: in the latest generation, then in the older one, then by the caller below."""

    __slots__ = ("_hashes", "_keys", "_latest", "_slots", "missing")

    def __init__(self, latest: Generation, older: Generation, keys: PackedKeys) -> None:
        self._latest, self._keys = latest, keys
        self._hashes = keys.hashes()
        self._slots = latest.index.find(keys, self._hashes)
        self.missing = np.flatnonzero(self._slots == NO_SLOT)
        if len(self.missing) and older.index.count:
            there = older.index.find(keys.take(self.missing), self._hashes[self.missing])
            at = np.flatnonzero(there != NO_SLOT)
            if len(at):
                self.add(self.missing[at], older.values.read(there[at]))
                self.missing = self.missing[there == NO_SLOT]

    @property
    def missing_keys(self) -> PackedKeys:
        return self._keys.take(self.missing)

    def add(self, at: Ints, values: RowValues) -> None:
        """Lets the latest generation know the values of keys at these places."""
        self._slots[at] = self._latest.add(self._keys.take(at), self._hashes[at], values)

    def found(self) -> Found:
        return Found(self._latest, self._slots, self._latest.values.read(self._slots))


@dataclass(frozen=True, slots=True)
class Appended:
    """The writes of a micro-batch to a store that its task does not read: a value per key; no value deletes, and the last value of a key counts."""

    keys: PackedKeys
    values: RowValues

    def __len__(self) -> int:
        return len(self.values)


ColumnWrite = Delta | Appended


def last_values(writes: Sequence[ColumnWrite]) -> list[tuple[PackedKeys, RowValues]]:
    """The last value of each key, in parts.

    Each part has different keys, in the order of their bytes. If several parts have a key, the last of them has its last value.
    """
    found = []
    for generation, members in groupby(writes, key=lambda w: w.generation if isinstance(w, Delta) else None):
        of_one = list(members)
        values = concatenated([w.values for w in of_one])
        if generation is None:
            keys = joined([w.keys for w in of_one])
            places = keys.last_of_each()
            found.append((keys.take(places), values.take(places)))
            continue
        slots = np.concatenate([w.slots for w in of_one if isinstance(w, Delta)])
        if len(of_one) > 1:
            slots, first = np.unique(slots[::-1], return_index=True)
            values = values.take(len(values) - 1 - first)
        keys = generation.index.keys(slots)
        order = keys.order()
        found.append((keys.take(order), values.take(order)))
    return found
