"""Committed state as anyone may read it: on a live instance, beside it, or of a stopped one."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import islice
from typing import Any

from flowql.compiler.plan.topology import StoreSpec
from flowql.runtime.errors import StateError
from flowql.runtime.state.catalog import read_tasks
from flowql.runtime.state.held import HeldStores
from flowql.runtime.state.layers import PhysicalRows
from flowql.runtime.state.layout import BEGINNING_MS, StoreEntry, TaskRecord, decode_number
from flowql.runtime.state.locks import NamedLock
from flowql.runtime.state.physical import PhysicalSnapshot, chunk_sizes, chunked
from flowql.runtime.state.rows import Key, Rows, Value
from flowql.runtime.state.values import decode_value, decode_values

EncodedRows = tuple[list[bytes], list[bytes]]


class SharedSnapshot:
    """One physical snapshot with its catalog, kept until the manager and all handles have let go."""

    def __init__(
        self,
        physical: PhysicalSnapshot,
        stores: Mapping[str, StoreEntry],
        sequence: int,
        tasks: dict[str, TaskRecord] | None = None,
        held: HeldStores | None = None,
    ) -> None:
        """tasks: None to read those that the snapshot has whole. held: decoded rows of stores, if some are kept in memory."""
        self.physical, self.stores, self.sequence, self.held = physical, stores, sequence, held
        self._tasks = tasks
        self._lock = NamedLock("snapshot", guards="the number of its users")
        self._users = 1  # its maker

    @property
    def tasks(self) -> dict[str, TaskRecord]:
        """All tasks of the commit, those of other members included."""
        if self._tasks is None:
            self._tasks = read_tasks(self.physical)
        return self._tasks

    def retain(self) -> SharedSnapshot:
        with self._lock:
            assert self._users > 0, "a released snapshot cannot come back"
            self._users += 1
        return self

    def release(self) -> None:
        with self._lock:
            self._users -= 1
            last = self._users == 0
        if last:
            self.physical.close()


class StateSnapshot:
    """Implements `flowql.runtime.state.store.Snapshot`: one user's handle on a shared snapshot. Close it, or use it in a `with`.

    owned: tasks to show; None for all of them. A member of a group has files of tasks that it gave up, which say what was.
    """

    def __init__(self, shared: SharedSnapshot, owned: frozenset[str] | None = None) -> None:
        self._shared: SharedSnapshot | None = shared
        self.owned = owned
        self._shown: dict[str, set[int]] = {}  # partitions of stores, if not all are shown
        if owned is not None:
            for record in self._records().values():
                for store in record.stores:
                    self._shown.setdefault(store, set()).add(record.partition)
        self.sequence = shared.sequence
        self._bounds: dict[bytes, int] = {}
        self._read = 0

    def of_task(self, task_id: str) -> StateSnapshot:
        """The same commit with one task alone. Close it as well."""
        return StateSnapshot(self._open().retain(), frozenset({task_id}))

    def retain(self) -> StateSnapshot:
        """Another handle on the same commit. Close it as well."""
        return StateSnapshot(self._open().retain(), self.owned)

    def stores(self) -> Sequence[StoreSpec]:
        return [e.spec for e in self._open().stores.values()]

    def tasks(self) -> dict[str, dict[str, Any]]:
        """Task id -> its committed metadata."""
        return {task_id: record.read() for task_id, record in self._records().items()}

    def _records(self) -> dict[str, TaskRecord]:
        found = self._open().tasks
        return found if self.owned is None else {t: record for t, record in found.items() if t in self.owned}

    def get(self, store: str, key: Key) -> Value | None:
        return self.get_many(store, [key])[0]

    def get_many(self, store: str, keys: Sequence[Key]) -> list[Value | None]:
        """As `get` for each key."""
        shared, entry = self._open(), self._entry(store)
        found: list[Value | None] = [None] * len(keys)
        for partition in self._partitions(entry):
            self._read += len(keys)
            bound = self._bound(entry, partition)
            rows = shared.physical.multi_get(entry.encode_rows(keys, partition))
            for i, data in enumerate(rows):
                if data is not None and (bound == BEGINNING_MS or keys[i][-1] >= bound):  # type: ignore[operator]
                    found[i] = decode_value(data)
        return found

    def scan(
        self, store: str, *, low: Key | None = None, high: Key | None = None, limit: int | None = None
    ) -> Iterator[tuple[Key, Value]]:
        """Partition after partition."""
        chunks = self.chunks(store, low=low, high=high)
        return islice((row for keys, values in chunks for row in zip(keys, values, strict=True)), limit)

    def chunks(self, store: str, *, low: Key | None = None, high: Key | None = None) -> Iterator[Rows]:
        entry = self._entry(store)
        if low is None and high is None and (held := self._held(entry)) is not None:
            yield from held
            return
        start = b"" if low is None else entry.codec.encode(low)
        end = None if high is None else entry.codec.encode(high)
        for partition in self._partitions(entry):
            bound = self._bound(entry, partition)
            for encoded, data in self._encoded(entry, partition, start, end):
                rows = entry.codec.decode_many(encoded), decode_values(data)
                yield rows if bound == BEGINNING_MS else _above(rows, bound)

    def size(self, store: str) -> tuple[int, int]:
        entry, physical = self._entry(store), self._open().physical
        sizes = [
            len(key) + len(value)
            for partition in self._partitions(entry)
            for key, value in physical.scan(*entry.partition_range(partition))
        ]
        return len(sizes), sum(sizes)

    def rows_read(self) -> int:
        return self._read

    def close(self) -> None:
        if self._shared is not None:
            self._shared.release()
            self._shared = None

    def __enter__(self) -> StateSnapshot:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _held(self, entry: StoreEntry) -> Iterator[Rows] | None:
        """All rows of a store that is kept in memory, some at a time. Returns None if it is not, or is not shown whole."""
        shared = self._open()
        if shared.held is None or self.owned is not None:
            return None
        found = shared.held.rows(shared.physical, entry, self.sequence)
        if found is None:
            return None
        self._read += len(found[0])
        return _parts(*found)

    def _encoded(self, entry: StoreEntry, partition: int, low: bytes, high: bytes | None) -> Iterator[EncodedRows]:
        """Rows of a partition in key order, some at a time."""
        physical = self._open().physical
        rows = PhysicalRows(physical, entry, partition)
        ranges = rows.ranges(low, high)
        chunks: Iterator[EncodedRows]
        if len(ranges) == 1:
            ((n, start, stop),) = ranges
            chunks = (([k[n:] for k in keys], values) for keys, values in physical.chunks(start, stop))
        else:
            chunks = chunked(rows.scan(low, high))
        for chunk in chunks:
            self._read += len(chunk[0])
            yield chunk

    def _bound(self, entry: StoreEntry, partition: int) -> int:
        if entry.segment_ms is None:
            return BEGINNING_MS
        key = entry.bound_key(partition)
        if key not in self._bounds:
            self._bounds[key] = decode_number(self._open().physical.get(key), BEGINNING_MS)
        return self._bounds[key]

    def _entry(self, store: str) -> StoreEntry:
        entry = self._open().stores.get(store)
        if entry is None:
            raise StateError(f"there is no store {store} at commit {self.sequence}")
        return entry

    def _partitions(self, entry: StoreEntry) -> Iterable[int]:
        if self.owned is None:
            return entry.partitions
        shown = self._shown.get(entry.spec.name, set())
        return [p for p in entry.partitions if p in shown]

    def _open(self) -> SharedSnapshot:
        assert self._shared is not None, "the snapshot is closed"
        return self._shared


def _parts(keys: list[Key], values: list[Value]) -> Iterator[Rows]:
    at = 0
    for size in chunk_sizes():
        if at >= len(keys):
            return
        yield keys[at : at + size], values[at : at + size]
        at += size


def _above(rows: Rows, bound_ms: int) -> Rows:
    """The rows whose last key part is not below the bound."""
    kept = [(k, v) for k, v in zip(*rows, strict=True) if k[-1] >= bound_ms]  # type: ignore[operator]
    return [k for k, _ in kept], [v for _, v in kept]
