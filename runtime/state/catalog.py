"""Which logical stores and tasks there are: as committed, and as the next commit will make it."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace

from flowql.compiler.plan.topology import StoreSpec
from flowql.runtime.errors import StateError
from flowql.runtime.state.layout import (
    CATALOG,
    NEXT_ID,
    RESTORES,
    TASKS,
    StoreEntry,
    TaskRecord,
    catalog_key,
    decode_number,
    encode_number,
    entry_from_record,
    restore_key,
    segment_length,
    store_key_codec,
    successor,
    task_from_record,
    task_key,
)
from flowql.runtime.state.physical import PhysicalReader


def read_stores(reader: PhysicalReader) -> dict[str, StoreEntry]:
    """The catalog as it is in a physical store."""
    entries = (entry_from_record(v) for _, v in reader.scan(CATALOG, successor(CATALOG)))
    return {e.spec.name: e for e in entries}


def read_tasks(reader: PhysicalReader) -> dict[str, TaskRecord]:
    """All tasks of a physical store."""
    return {k[len(TASKS) :].decode(): task_from_record(v) for k, v in reader.scan(TASKS, successor(TASKS))}


def read_restores(reader: PhysicalReader) -> dict[str, TaskRecord]:
    """Tasks whose restoration has not ended, as they will be."""
    rows = reader.scan(RESTORES, successor(RESTORES))
    return {k[len(RESTORES) :].decode(): task_from_record(v) for k, v in rows}


def read_restore(reader: PhysicalReader, task_id: str) -> TaskRecord | None:
    data = reader.get(restore_key(task_id))
    return None if data is None else task_from_record(data)


def stored_task(
    reader: PhysicalReader, task_id: str, stores: Mapping[str, StoreEntry]
) -> tuple[TaskRecord | None, list[StoreEntry]]:
    """The record of a task in a snapshot, with its stores; None if the task is incomplete there. stores: all committed ones, by name."""
    data = reader.get(task_key(task_id))
    if data is None:
        return None, []
    record = task_from_record(data)
    return record, [stores[name] for name in record.stores if name in stores]


class StoreCatalog:
    """The stores of an instance. Guarded by the epoch lock.

    `changed` names what the next commit writes; entries are given out before they are committed, for nothing of an
    uncommitted store is written before the commit that also writes its entry.
    """

    def __init__(self, reader: PhysicalReader) -> None:
        self.load(reader)

    def load(self, reader: PhysicalReader) -> None:
        """Forget what is not committed."""
        self._entries = read_stores(reader)
        # The row of the next id may be older than an entry: that of a restoration, which wrote it while a commit was under way.
        used = max((e.id for e in self._entries.values()), default=0)
        self._next_id = max(decode_number(reader.get(NEXT_ID), 1), used + 1)
        self.changed: dict[str, None] = {}

    @property
    def next_id(self) -> int:
        """Id of the next store. Any thread may read it, as it only grows."""
        return self._next_id

    def __iter__(self) -> Iterator[StoreEntry]:
        return iter(self._entries.values())

    def get(self, name: str) -> StoreEntry | None:
        return self._entries.get(name)

    def ensure(self, spec: StoreSpec, partition: int) -> StoreEntry:
        """The entry of a store with this partition in it. StateError if the store exists with another key or kind."""
        entry = self._entries.get(spec.name)
        if entry is None:
            entry = StoreEntry(self._next_id, spec, segment_length(spec))
            self._next_id += 1
            self._put(entry)
        elif entry.spec != spec:
            if (entry.spec.kind, entry.codec.types) != (spec.kind, store_key_codec(spec).types):
                raise StateError(
                    f"the store {spec.name} exists with another key or kind; drop it first to rebuild its state"
                )
            entry = replace(entry, spec=spec)  # other columns or retention; its segments stay as they are
            self._put(entry)
        if partition not in entry.partitions:
            entry = replace(entry, partitions=tuple(sorted((*entry.partitions, partition))))
            self._put(entry)
        return entry

    def drop(self, name: str) -> None:
        del self._entries[name]
        self.changed[name] = None

    def drop_partition(self, name: str, partition: int) -> None:
        """The store goes with its last partition."""
        entry = self._entries[name]
        rest = tuple(p for p in entry.partitions if p != partition)
        if rest:
            self._put(replace(entry, partitions=rest))
        else:
            self.drop(name)

    def take_changes(self) -> dict[bytes, bytes | None]:
        """Rows that make the catalog in the physical store equal to this one."""
        names, self.changed = self.changed, {}
        return self.rows(names)

    def put_back(self, rows: Mapping[bytes, bytes | None]) -> None:
        """Changes that were taken are still not committed."""
        for key in rows:
            if key.startswith(CATALOG):
                self.changed[key[len(CATALOG) :].decode()] = None

    def rows(self, names: Iterable[str]) -> dict[bytes, bytes | None]:
        """The rows of these entries, None for a dropped one, and of the next id."""
        rows: dict[bytes, bytes | None] = {}
        for name in names:
            entry = self._entries.get(name)
            rows[catalog_key(name)] = None if entry is None else entry.record()
        if rows:
            rows[NEXT_ID] = encode_number(self._next_id)
        return rows

    def _put(self, entry: StoreEntry) -> None:
        self._entries[entry.spec.name] = entry
        self.changed[entry.spec.name] = None
