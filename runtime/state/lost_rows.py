"""Rows that are written here and cannot be read any more: their blocks were in a remote store, and are gone there or damaged.

Nothing stops for it. Their tasks are taken apart, and restored as if their rows had never been here.
"""

from __future__ import annotations

from collections.abc import Iterable

from flowql.runtime.state.layout import StoreEntry, TaskRecord
from flowql.runtime.state.locks import NamedLock
from flowql.runtime.state.positions import ChangelogPosition, StorePartition


class LostRows:
    """Partitions of stores. Any thread; replaced as a whole. A restart forgets them, and finds them again."""

    def __init__(self) -> None:
        self._lock = NamedLock("lost rows", guards="the replacement of the set; readers take it as it is")
        self._lost: frozenset[StorePartition] = frozenset()

    def __bool__(self) -> bool:
        return bool(self._lost)

    def add(self, prefix: bytes, stores: Iterable[StoreEntry]) -> StorePartition | None:
        """The partition of one of these stores that has its rows under this prefix, if it is there."""
        found = next(((e.spec.name, p) for e in stores for p in e.partitions if e.prefix(p) == prefix), None)
        if found is not None:
            with self._lock:
                self._lost |= {found}
        return found

    def restored(self, partitions: Iterable[StorePartition]) -> None:
        """Forgets the lost rows of these partitions."""
        with self._lock:
            self._lost -= frozenset(partitions)

    def all(self) -> frozenset[StorePartition]:
        return self._lost

    def of(self, record: TaskRecord) -> bool:
        """Whether a task has lost rows."""
        return any((store, record.partition) in self._lost for store in record.stores)

    def without(self, positions: dict[StorePartition, ChangelogPosition]) -> dict[StorePartition, ChangelogPosition]:
        """Positions of rows that are all here."""
        return {at: position for at, position in positions.items() if at not in self._lost}
