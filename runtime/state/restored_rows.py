"""Rows of restored tasks: changelog records, or files of rows made of them, on their way into the physical store."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from flowql.compiler.plan.topology import StoreSpec
from flowql.runtime.errors import StateError
from flowql.runtime.state import restore
from flowql.runtime.state.catalog import StoreCatalog
from flowql.runtime.state.layout import StoreEntry
from flowql.runtime.state.locks import NamedLock
from flowql.runtime.state.physical import WriteGuard, Writes
from flowql.runtime.state.positions import ChangelogPosition
from flowql.runtime.state.remote.warm_start import FoundStore
from flowql.runtime.state.restore import RowFile
from flowql.runtime.state.runs.physical import RunsPhysical
from flowql.runtime.state.runs.run import floor_key, run_rows
from flowql.runtime.state.task_state import ManagedTask

# Files that reads have to look through and compaction is behind with. RocksDB slows down writes at 20, which would hold up all.
FILES_ON_TOP, FILES_ON_TOP_MAX = "rocksdb.num-files-at-level0", 12


class RestoredRows:
    """Writes rows of tasks that do not run. A part of the state manager, which shares its locks, catalog and open tasks."""

    def __init__(
        self,
        physical: RunsPhysical,
        guard: WriteGuard,
        catalog: StoreCatalog,
        tasks: Mapping[str, ManagedTask],
        epoch_lock: NamedLock,
        commit_lock: NamedLock,
        *,
        is_dropped: Callable[[StoreEntry, int], bool],
        committed: Callable[[], Mapping[str, StoreEntry]],
        commit_entry: Callable[[StoreEntry], None],
        openings: Callable[[], int],
    ) -> None:
        """openings: how often the store was opened again, under the commit lock. is_dropped: whether a drop of a partition waits for its commit. commit_entry: notes a store that is in the physical catalog now."""
        self._physical, self._guard, self._catalog, self._tasks = physical, guard, catalog, tasks
        self._epoch_lock, self._commit_lock = epoch_lock, commit_lock
        self._is_dropped, self._committed, self._commit_entry = is_dropped, committed, commit_entry
        self._openings = openings

    def take(
        self,
        spec: StoreSpec,
        partition: int,
        keys: Sequence[bytes],
        values: Sequence[bytes | None],
        position: ChangelogPosition | None = None,
        *,
        openings: int | None = None,
    ) -> None:
        """Write changelog records (`FrozenEpoch.changelog`) of one partition of a store, in their order; its task is not running.

        position: the one reached with them. It is written last, so a crash never leaves it ahead of the rows. openings: as of when the rows
        before these were written: StateError if the store was opened again since, which may have lost them.
        """
        entry = self._restored_store(spec, partition)
        for start in range(0, len(keys), restore.RESTORE_ROWS_MAX):
            part = slice(start, start + restore.RESTORE_ROWS_MAX)
            around, rows = restore.place_records(entry, partition, keys[part], values[part])
            self._restore_batch(around)  # first: it may delete runs
            if None in rows.values and self.has_runs(entry, partition):
                rows = restore.over_runs(rows)
            self._restore_batch(rows)
        self._reach(entry, partition, position, openings)
        self._forget(spec.name, partition)

    def has_runs(self, entry: StoreEntry, partition: int) -> bool:
        """Whether a deleted row has to hide what runs have of it."""
        return bool(self._physical.runs(entry.prefix(partition)).runs)

    def _reach(
        self, entry: StoreEntry, partition: int, position: ChangelogPosition | None, openings: int | None = None
    ) -> None:
        if position is None:
            return
        with self._commit_lock:
            if openings is not None and openings != self._openings():
                raise StateError("the state was opened again in between")
            with self._guard.permit("restore"):
                self._guard.write([entry.position_key(partition)], [position.record()])

    def adopt(self, spec: StoreSpec, partition: int, found: FoundStore) -> bytes:
        """Adopts the rows of a checkpoint for one partition of a store, which is empty here. Blocks of its runs stay where they are. Its prefix here.

        The position is written last, so a crash before leaves rows without one, which nobody uses.
        """
        entry = self._restored_store(spec, partition)
        prefix, section = entry.prefix(partition), found.section
        self._physical.cache.keep(prefix, ())
        self._physical.expect_runs(prefix)
        keys, values = found.rows
        for start in range(0, len(keys), restore.RESTORE_ROWS_MAX):
            part = slice(start, start + restore.RESTORE_ROWS_MAX)
            self._restore_batch(Writes([], [prefix + k for k in keys[part]], list(values[part])))
        rows: dict[bytes, bytes] = {}
        if section.bound is not None:
            rows[entry.bound_key(partition)] = section.bound
        if section.floor:
            rows[floor_key(prefix)] = section.floor
        for name, tail, place in reversed(found.runs):
            rows |= run_rows(prefix, name, tail, place)
        self._restore_batch(Writes([], list(rows), list(rows.values())))
        self._reach(entry, partition, found.position)
        self._forget(spec.name, partition)
        return prefix

    @property
    def incoming(self) -> Path | None:
        """Where files for `take_file` are to be; None if it takes none."""
        return self._physical.incoming

    def expect_files(self, spec: StoreSpec, partition: int) -> StoreEntry:
        """The store of files that `take_file` will be given. That its task is not whole, and whose its rows are, is on disk
        when this returns, as the files are at once.
        """
        entry = self._restored_store(spec, partition)
        self._physical.flush()
        return entry

    def take_file(
        self, entry: StoreEntry, partition: int, file: RowFile, position: ChangelogPosition | None = None
    ) -> bool:
        """As `take`, of records that are a file already. False if the store has to catch up first: ask again."""
        if (self._physical.property(FILES_ON_TOP) or 0) >= FILES_ON_TOP_MAX:
            return False
        with self._epoch_lock.join():
            known = self._catalog.get(entry.spec.name)
            if known is None or known.id != entry.id or self._is_dropped(known, partition):
                raise StateError(f"{entry.spec.name} was dropped after its files were asked for")
        self._restore_batch(file.around)
        if file.around.ranges:  # else the ingestion would flush while it holds the locks
            self._physical.flush()
        if file.path is not None:
            with self._commit_lock, self._guard.permit("restore"):
                self._guard.ingest(file.path)
        self._reach(entry, partition, position)
        self._forget(entry.spec.name, partition)
        return True

    def _restored_store(self, spec: StoreSpec, partition: int) -> StoreEntry:
        """A store that is to be written to. In the catalog before its rows, so that no other store ever gets its id."""
        with self._epoch_lock.join():
            entry = self._catalog.ensure(spec, partition)
            if self._is_dropped(entry, partition):
                raise StateError(f"{spec.name} waits for a commit to drop its partition {partition}")
            catalog = {} if self._committed().get(spec.name) == entry else self._catalog.rows([spec.name])
        if catalog:
            self._restore_batch(Writes([], list(catalog), list(catalog.values())), entry)
        return entry

    def _forget(self, store: str, partition: int) -> None:
        """Drops cached rows of open tasks that were overwritten below them."""
        with self._epoch_lock.join():
            for task in self._tasks.values():
                if task.partition == partition and store in task.stores:
                    task.stores[store].forget()

    def _restore_batch(self, writes: Writes, entry: StoreEntry | None = None) -> None:
        if not (writes.ranges or writes.keys):
            return
        with self._commit_lock:
            with self._guard.permit("restore"):
                self._guard.write(writes.keys, writes.values, writes.ranges)
            if entry is not None:
                self._commit_entry(entry)
