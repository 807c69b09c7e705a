"""A physical store in memory, for tests, conformance and simulation: nothing survives the process."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

from flowql.runtime.errors import StateError
from flowql.runtime.state.locks import NamedLock
from flowql.runtime.state.physical import BATCH_ROWS_MAX, ByteRange, chunked


class MemoryPhysical:
    """A dict with a sorted list of its keys, sorted when a scan needs it.

    Snapshots cost nothing until something is overwritten: the newest snapshot keeps what a write replaces, and an older
    one looks through the newer ones before it looks at the present.
    """

    incoming: Path | None = None

    def __init__(self) -> None:
        self._lock = NamedLock("memory physical", guards="rows, order and the undo of snapshots")
        self._rows: dict[bytes, bytes] = {}
        self._order: list[bytes] = []
        self._sorted = True
        self._snapshots: list[MemorySnapshot] = []  # oldest first

    def get(self, key: bytes) -> bytes | None:
        return self._rows.get(key)

    def multi_get(self, keys: Sequence[bytes]) -> list[bytes | None]:
        return list(map(self._rows.get, keys))

    def scan(self, low: bytes, high: bytes) -> Iterator[tuple[bytes, bytes]]:
        with self._lock:
            rows = self._rows
            return iter([(k, rows[k]) for k in self._between(low, high) if k in rows])

    def write_batch(
        self, keys: Sequence[bytes], values: Sequence[bytes | None], ranges: Sequence[ByteRange] = ()
    ) -> None:
        assert len(keys) <= BATCH_ROWS_MAX
        with self._lock:
            for low, high in ranges:
                for key in self._between(low, high):
                    self._set(key, None)
            for key, value in zip(keys, values, strict=True):
                self._set(key, value)

    def ingest(self, path: Path) -> None:
        raise StateError("a store in memory takes no files")

    def snapshot(self) -> MemorySnapshot:
        with self._lock:
            self._snapshots.append(MemorySnapshot(self))
            return self._snapshots[-1]

    def flush(self) -> None:
        """There is no disk."""

    def checkpoint(self, path: Path) -> None:
        raise StateError("a store in memory has no checkpoint")

    def compact(self, low: bytes, high: bytes) -> None:
        """Deleted rows are gone already; only the list of keys can shrink."""
        with self._lock:
            self._order = sorted(self._rows)
            self._sorted = True

    def property(self, name: str) -> int | None:
        return len(self._rows) if name == "rocksdb.estimate-num-keys" else None

    def statistics(self) -> str:
        return ""

    def accepts_files(self) -> bool:
        return True

    def reopen(self, roll_forward: Callable[[], None]) -> None:
        """There is no disk that could have lost anything."""
        roll_forward()

    def close(self) -> None:
        """Nothing is held."""

    def _set(self, key: bytes, value: bytes | None) -> None:
        old = self._rows.get(key)
        if self._snapshots:
            self._snapshots[-1].undo.setdefault(key, old)
        if value is not None:
            if old is None:
                self._order.append(key)
                self._sorted = False
            self._rows[key] = value
        elif old is not None:
            del self._rows[key]

    def _between(self, low: bytes, high: bytes) -> list[bytes]:
        """Keys of the range, some of them deleted."""
        if not self._sorted:
            self._order = sorted(self._rows)  # keys deleted and put again would be there twice
            self._sorted = True
        return self._order[bisect_left(self._order, low) : bisect_left(self._order, high)]


class MemorySnapshot:
    """The rows as they were. `undo`: what this and later moments replaced, until the next snapshot was taken."""

    def __init__(self, store: MemoryPhysical) -> None:
        self._store = store
        self.undo: dict[bytes, bytes | None] = {}

    def get(self, key: bytes) -> bytes | None:
        return self.multi_get([key])[0]

    def multi_get(self, keys: Sequence[bytes]) -> list[bytes | None]:
        with self._store._lock:
            past = self._past()
            return [self._value(k, past) for k in keys]

    def scan(self, low: bytes, high: bytes) -> Iterator[tuple[bytes, bytes]]:
        with self._store._lock:
            past = self._past()
            rows = {k: v for k in self._store._between(low, high) if (v := self._store._rows.get(k)) is not None}
            for undo in reversed(past):
                rows.update({k: v for k, v in undo.items() if low <= k < high})  # type: ignore[misc]
            return iter(sorted((k, v) for k, v in rows.items() if v is not None))

    def chunks(self, low: bytes, high: bytes) -> Iterator[tuple[list[bytes], list[bytes]]]:
        return chunked(self.scan(low, high))

    def close(self) -> None:
        with self._store._lock:
            snapshots = self._store._snapshots
            at = snapshots.index(self)
            if at:
                older = snapshots[at - 1].undo
                for key, value in self.undo.items():
                    older.setdefault(key, value)
            del snapshots[at]

    def _past(self) -> list[dict[bytes, bytes | None]]:
        """Undo of this and all newer snapshots: the first that knows a key tells its value."""
        snapshots = self._store._snapshots
        return [s.undo for s in snapshots[snapshots.index(self) :]]

    def _value(self, key: bytes, past: list[dict[bytes, bytes | None]]) -> bytes | None:
        for undo in past:
            if key in undo:
                return undo[key]
        return self._store._rows.get(key)
