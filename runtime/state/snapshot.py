"""Committed state as anyone may read it: on a live instance, beside it, or of a stopped one."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import islice
from typing import Any

from compiler.plan.topology import StoreSpec
from runtime.errors import StateError
from runtime.state.catalog import read_tasks
from runtime.state.layers import PhysicalRows, above_bound, merge_rows
from runtime.state.layout import BEGINNING_MS, StoreEntry, decode_number
from runtime.state.locks import NamedLock
from runtime.state.physical import PhysicalSnapshot
from runtime.state.store import Key, Value
from runtime.state.values import decode_value


class SharedSnapshot:
    """One physical snapshot with its catalog, kept until the manager and all handles have let go."""

    def __init__(self, physical: PhysicalSnapshot, stores: dict[str, StoreEntry], sequence: int) -> None:
        self.physical, self.stores, self.sequence = physical, stores, sequence
        self._lock = NamedLock("snapshot", guards="the number of its users")
        self._users = 1  # its maker

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
    """Implements `runtime.state.store.Snapshot`: one user's handle on a shared snapshot. Close it, or use it in a `with`."""

    def __init__(self, shared: SharedSnapshot) -> None:
        self._shared: SharedSnapshot | None = shared
        self.sequence = shared.sequence
        self._bounds: dict[bytes, int] = {}
        self._gets = 0
        self._scans: list[PhysicalRows] = []

    def stores(self) -> Sequence[StoreSpec]:
        return [e.spec for e in self._open().stores.values()]

    def tasks(self) -> dict[str, dict[str, Any]]:
        """Task id -> its committed metadata."""
        return {task_id: record.read() for task_id, record in read_tasks(self._open().physical).items()}

    def get(self, store: str, key: Key) -> Value | None:
        return self.get_many(store, [key])[0]

    def get_many(self, store: str, keys: Sequence[Key]) -> list[Value | None]:
        """As `get` for each key."""
        shared, entry = self._open(), self._entry(store)
        found: list[Value | None] = [None] * len(keys)
        for partition in entry.partitions:
            self._gets += len(keys)
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
        entry = self._entry(store)
        start = b"" if low is None else entry.codec.encode(low)
        end = None if high is None else entry.codec.encode(high)
        rows = (row for p in entry.partitions for row in self._partition(entry, p, start, end))
        return islice(rows, limit)

    def size(self, store: str) -> tuple[int, int]:
        entry, physical = self._entry(store), self._open().physical
        sizes = [
            len(key) + len(value)
            for partition in entry.partitions
            for key, value in physical.scan(*entry.partition_range(partition))
        ]
        return len(sizes), sum(sizes)

    def rows_read(self) -> int:
        return self._gets + sum(s.read for s in self._scans)

    def close(self) -> None:
        if self._shared is not None:
            self._shared.release()
            self._shared = None

    def __enter__(self) -> StateSnapshot:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _partition(self, entry: StoreEntry, partition: int, low: bytes, high: bytes | None) -> Iterator[Any]:
        rows = PhysicalRows(self._open().physical, entry, partition)
        self._scans.append(rows)
        return above_bound(merge_rows(entry.codec, [], rows.scan(low, high)), self._bound(entry, partition))

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

    def _open(self) -> SharedSnapshot:
        assert self._shared is not None, "the snapshot is closed"
        return self._shared
