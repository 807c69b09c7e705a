"""Committed state in another process than the instance: a copy of it, which the redo in the log brings forward."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from itertools import islice
from pathlib import Path

from flowql.runtime.clock import Clock
from flowql.runtime.errors import StateError
from flowql.runtime.state.catalog import read_restores, read_stores
from flowql.runtime.state.held import HeldStores
from flowql.runtime.state.layout import CATALOG, MARKER, RESTORES, decode_number, marker
from flowql.runtime.state.locks import NamedLock
from flowql.runtime.state.physical import WriteGuard, Writes
from flowql.runtime.state.rocks import open_rocks
from flowql.runtime.state.roll_forward import RedoAfter, merged
from flowql.runtime.state.runs.merged import MergedRuns
from flowql.runtime.state.runs.merging import SLICE_MS, RunMerger
from flowql.runtime.state.runs.physical import RunsPhysical
from flowql.runtime.state.runs.reader import RunCache, prefix_of
from flowql.runtime.state.runs.run import AREA, PREFIX_BYTES
from flowql.runtime.state.snapshot import SharedSnapshot, StateSnapshot

_CACHE, _WRITE_BUFFERS, _MERGED, _TABLES, _HELD = 3, 1, 1, 1, 3  # eighths; the cache has the write buffers in it
MERGE_MS = 20  # for merges of runs after commits


class FollowedState:
    """The state in `path`, as of the newest commit passed to `snapshot`. Any thread may call its methods.

    It has the stores that the copy has. If a commit adds or drops a store, or restores rows, which no redo contains, it cannot follow.
    """

    def __init__(self, path: Path, redo_after: RedoAfter, clock: Clock, bytes_max: int) -> None:
        """Deletes `path` when it is closed. bytes_max: of caches and tables in memory. Raises StateError if the copy cannot be followed."""
        part = bytes_max // 8
        rocks = open_rocks(path, cache_bytes=_CACHE * part, write_buffer_bytes=_WRITE_BUFFERS * part)
        self._path, self._redo_after, self._clock = path, redo_after, clock
        self._lock = NamedLock("followed state", guards="writes to the copy")
        self._current_lock = NamedLock("followed snapshot", guards="which snapshot is current")
        self._current: SharedSnapshot | None = None
        self._physical = RunsPhysical(rocks, RunCache(MergedRuns(_MERGED * part)))
        self._tables_bytes_max = _TABLES * part
        self._guard = WriteGuard(self._physical)
        self._stores = read_stores(self._physical)
        self._written = set[bytes]()
        self._merger = RunMerger(self._physical, self._write, lambda: self._stores, self._written, clock)
        self._reached = decode_number(self._physical.get(MARKER), 0)
        self._held = HeldStores(self._reached, _HELD * part)
        with self._lock:
            self._renew()
        if read_restores(self._physical):
            self.close()
            raise StateError("rows of the copied state are being restored")

    def snapshot(self, newest: int) -> StateSnapshot:
        """The commit `newest`, or a later one; close it. Raises StateError or LogCorrupt if redo does not lead there."""
        with self._lock:
            if self._reached < newest:
                self._reach(newest)
            return self._retained()

    def snapshot_now(self, newest: int) -> StateSnapshot | None:
        """As `snapshot`. Returns None if redo has to be read first."""
        return self._retained() if self._reached >= newest else None

    def has_more(self, store: str, rows: int) -> bool:
        """Whether a store has more rows than this, as far as that can be told without reading them all. Runs may have the same keys, so the largest one counts."""
        left, entry = rows, self._stores.get(store)
        for partition in () if entry is None else entry.partitions:
            prefix = entry.prefix(partition) if entry is not None else b""
            left -= max((run.head.rows for run in self._physical.runs(prefix).runs), default=0)
            if left >= 0:
                left -= sum(1 for _ in islice(self._physical.inner.scan(prefix, prefix + AREA), left + 1))
            if left < 0:
                return True
        return False

    @property
    def is_too_large(self) -> bool:
        """Whether the tables that look-ups have read need more than their part of the memory."""
        return self._physical.cache.tables_bytes() > self._tables_bytes_max

    def close(self) -> None:
        """Deletes the copy. Open snapshots stay readable."""
        with self._lock, self._current_lock:
            if self._current is not None:
                self._current.release()
                self._current = None
                self._physical.close()
                shutil.rmtree(self._path, ignore_errors=True)

    def _retained(self) -> StateSnapshot:
        with self._current_lock:
            if self._current is None:
                raise StateError("the copied state is closed")
            return StateSnapshot(self._current.retain())

    def _reach(self, newest: int) -> None:
        for sequence, writes in merged(self._redo_after(self._reached), self._reached):
            if any(key.startswith((CATALOG, RESTORES)) for key in writes.keys):
                raise StateError("a commit has other stores than the copied state")
            for prefix in {p for key in writes.keys if (p := prefix_of(key)) and key.startswith(AREA, PREFIX_BYTES)}:
                self._physical.expect_runs(prefix)
                self._written.add(prefix)
            self._held.note(sequence, writes)
            with self._guard.permit("replay"):
                self._guard.write(writes.keys, writes.values, writes.ranges, marker(sequence))
            self._reached = sequence
        until_ms = self._clock.timer_ms() + MERGE_MS
        while self._merger.run_once(0) <= SLICE_MS and self._clock.timer_ms() < until_ms:
            pass
        self._reached = max(self._reached, newest)  # a commit without changes of state has no redo
        self._renew()

    def _renew(self) -> None:
        self._lock.assert_held()
        new = SharedSnapshot(self._physical.snapshot(), self._stores, self._reached, held=self._held)
        with self._current_lock:
            old, self._current = self._current, new
        if old is not None:
            old.release()

    def _write(self, writes: Writes, still: Callable[[], bool]) -> bool:
        """For merges, which change no row."""
        if not still():
            return False
        with self._guard.permit("apply"):
            self._guard.write(writes.keys, writes.values, writes.ranges)
        return True
