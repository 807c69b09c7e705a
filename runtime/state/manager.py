"""The state of an instance: opens tasks, cuts epochs, makes them committed, gives snapshots.

Locks: `epoch_lock` guards active layers, catalog and the open tasks; the commit lock writes to the physical store; the
snapshot lock which snapshot is current (taken last). Epoch and commit lock are never held together, so a long apply delays no
batch.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from functools import partial
from pathlib import Path

from flowql.compiler.plan.topology import StoreSpec
from flowql.runtime.budget import StateLimits
from flowql.runtime.clock import Clock
from flowql.runtime.errors import StateError
from flowql.runtime.state import restore
from flowql.runtime.state.catalog import StoreCatalog, read_restore, read_restores, read_stores, read_tasks
from flowql.runtime.state.frozen import Drops, FrozenEpoch, FrozenStore, batch_rows, position_rows
from flowql.runtime.state.layout import (
    MARKER,
    StoreEntry,
    TaskRecord,
    decode_number,
    marker,
    task_from_record,
    task_key,
)
from flowql.runtime.state.locks import NamedLock
from flowql.runtime.state.physical import Physical, WriteGuard, Writes
from flowql.runtime.state.positions import (
    ChangelogPosition,
    LostRows,
    PositionRenewals,
    StorePartition,
    read_positions,
)
from flowql.runtime.state.remote.copying import BlockCopier, Lost
from flowql.runtime.state.restored_rows import RestoredRows
from flowql.runtime.state.roll_forward import RedoAfter, replay, roll_forward
from flowql.runtime.state.runs.merging import FoldBegin, RowFolder, RunMerger
from flowql.runtime.state.runs.physical import RunsPhysical
from flowql.runtime.state.runs.reader import RunsReader
from flowql.runtime.state.runs.writing import RunWriter
from flowql.runtime.state.snapshot import SharedSnapshot, StateSnapshot
from flowql.runtime.state.state_memory import StateMemory
from flowql.runtime.state.task_state import AbortCount, ManagedTask
from flowql.runtime.state.task_store import TaskStore, shrink_caches


class StateManager:
    """All state of one instance on one physical store.

    `cut` and `apply` alternate: at most one epoch is frozen. changelog: which stores give changelog records. shared: other instances
    have tasks of the same application, so that snapshots hold those of open tasks alone (`disown`).
    """

    def __init__(
        self,
        physical: Physical,
        limits: StateLimits = StateLimits(),  # noqa: B008  (it is frozen)
        *,
        changelog: Callable[[StoreSpec], bool] = lambda _spec: False,
        shared: bool = False,
    ) -> None:
        self.epoch_lock = NamedLock("epoch lock", guards="active layers, the catalog and the open tasks")
        self._commit_lock = NamedLock("commit lock", guards="writes to the physical store")
        self._snapshot_lock = NamedLock("snapshot lock", guards="which snapshot is current")
        self._physical = RunsPhysical(physical)
        self._guard, self.writer = WriteGuard(self._physical), RunWriter(self._physical, limits.run_rows_min)
        self.unlogged = self._guard.unlogged
        self.uncommitted, self._has_changelog = StateMemory(limits), changelog
        self._catalog = StoreCatalog(self._physical)
        self._committed = {e.spec.name: e for e in self._catalog}
        self._restoring = read_restores(physical)
        self._generation = AbortCount()
        self._tasks: dict[str, ManagedTask] = {}
        self._kept: set[str] = set()  # closed but still owned tasks
        self._shared = shared
        self._owned: frozenset[str] | None = frozenset() if shared else None  # what snapshots show
        self._dirty: dict[str, ManagedTask] = {}
        self._in_flight: FrozenEpoch | None = None
        self._written: FrozenEpoch | None = None  # it is in the physical store, and not all of `apply` is done
        self._openings = 0  # under the commit lock
        self._drops = Drops()
        self._deleted: dict[bytes, bytes] = {}  # applied range deletes, low -> high, until the cleaner compacts them
        self._renewals = PositionRenewals()
        self.lost = LostRows()
        self.wants_flush = False  # positions were renewed, which is of use once it is durable
        self.applied_sequence = decode_number(physical.get(MARKER), 0)
        self._current = SharedSnapshot(self._physical.snapshot(), self._committed, self.applied_sequence)
        self.restored = RestoredRows(
            self._physical,
            self._guard,
            self._catalog,
            self._tasks,
            self.epoch_lock,
            self._commit_lock,
            is_dropped=self._is_dropped,
            committed=self.committed_stores,
            commit_entry=self._commit_entry,
            openings=lambda: self._openings,
        )

    # Tasks and stores

    def open_task(self, task_id: str, partition: int, stores: Sequence[StoreSpec]) -> ManagedTask:
        """A task as of the last commit, empty if there is none. Its stores are made at the next commit."""
        with self.epoch_lock.join():
            if task_id in self._tasks:
                raise StateError(f"task {task_id} is open already")
            opened = [self._task_store(self._catalog.ensure(spec, partition), partition) for spec in stores]
            record = self._task_record(task_id)
            task = ManagedTask(task_id, partition, opened, record, self.epoch_lock, self._generation, self._published)
            self._tasks[task_id] = task
            self._kept.discard(task_id)
            self._note_owned()
            return task

    def _task_store(self, entry: StoreEntry, partition: int) -> TaskStore:
        is_empty = partial(self._physical.is_empty, entry.prefix(partition))
        dropped = self._is_dropped(entry, partition)
        return TaskStore(entry, partition, self._physical, detached=dropped, is_empty=is_empty)

    def close_task(self, task_id: str, *, owned: bool = False) -> None:
        """Closes a task; its committed state stays. Raises StateError if it has uncommitted writes.

        owned: no other member runs it, so snapshots continue to show it until `disown`.
        """
        with self.epoch_lock.join():
            if self._tasks[task_id].is_dirty:
                raise StateError(f"task {task_id} has uncommitted writes; commit or abort first")
            task = self._tasks.pop(task_id)
            if owned:
                self._kept.add(task_id)
            self._note_owned()
        task.close()

    def disown(self, tasks: Iterable[str]) -> None:
        """Others may have these closed tasks from now on: what is here of them is shown no more."""
        with self.epoch_lock.join():
            self._kept.difference_update(tasks)
            self._note_owned()

    def _note_owned(self) -> None:
        """Tasks that are whole here, and nowhere else newer."""
        if self._shared:
            self._owned = frozenset((self._tasks.keys() | self._kept) - self._restoring.keys())

    def drop_task(self, task_id: str) -> None:
        """Delete a task's state and metadata with the next commit; it must be closed."""
        with self.epoch_lock.join():
            self._refuse_open([t for t in self._tasks if t == task_id])
            record = self._task_record(task_id)
            if record is None:
                return
            self._drops.add_task(task_id)
            for name in record.stores:
                entry = self._catalog.get(name)
                if entry is not None and record.partition in entry.partitions:
                    self._drops.add_partition(entry, record.partition)
                    self._catalog.drop_partition(name, record.partition)
                elif task_id in self._restoring:  # never opened here: its rows are in the changelog only
                    self._drops.partitions[name, record.partition] = None

    def stores(self) -> list[StoreSpec]:
        """Stores in the catalog, those of the next commit included."""
        with self.epoch_lock.join():
            return [e.spec for e in self._catalog]

    def committed_tasks(self) -> list[str]:
        """All tasks that have committed state, open or not, here or still to be restored."""
        return sorted({*read_tasks(self._physical), *self.restoring()})

    def _commit_entry(self, entry: StoreEntry) -> None:
        """A store that a restoration has put into the physical catalog. The commit lock is held."""
        self._committed = {**self._committed, entry.spec.name: entry}

    def committed_stores(self) -> Mapping[str, StoreEntry]:
        """By name, as of the last commit."""
        return self._committed

    def batch_of(self, task_id: str) -> dict[str, tuple[list[bytes], list[bytes | None]]]:
        """By store, what the run under way has written, as a commit would write it (UnwritableState). The task's thread."""
        return {name: batch_rows(task_id, s) for name, s in self._tasks[task_id].stores.items() if s.batch}

    def open_tasks(self) -> list[str]:
        with self.epoch_lock.join():
            return list(self._tasks)

    # The commit

    def cut(self, now_ms: int = 0) -> FrozenEpoch:
        """Everything published since the last cut becomes one frozen epoch; publishing goes on in the next. now_ms: by the wall clock."""
        with self.epoch_lock.join():
            assert self._in_flight is None, "the last cut is neither applied nor aborted"
            dirty, self._dirty = self._dirty, {}
            stores: list[FrozenStore] = []
            tasks: dict[str, TaskRecord] = {}
            for task in dirty.values():
                tasks[task.id] = TaskRecord(task.partition, tuple(task.stores), task.freeze())
                for store in task.stores.values():
                    overlay = store.freeze()
                    if overlay is not None:
                        stores.append(FrozenStore(task.id, store, overlay, task.counts))
            self.uncommitted.cut()
            catalog = self._catalog.take_changes()
            drops, self._drops = self._drops, Drops()
            self._in_flight = FrozenEpoch(
                self.applied_sequence + 1,
                stores=stores,
                tasks=tasks,
                drops=drops,
                catalog=catalog,
                entries={e.spec.name: e for e in self._catalog} if catalog else None,
                has_changelog=self._has_changelog,
                writer=self.writer,
                as_of_ms=now_ms,
                to_renew=self._renewals.due(self._tasks.values(), self._restoring, now_ms),
                restoring=frozenset(self._restoring),
            )
            return self._in_flight

    def apply(
        self, frozen: FrozenEpoch, sequence: int, positions: Mapping[StorePartition, ChangelogPosition] | None = None
    ) -> None:
        """The log has committed `frozen` as `sequence`: write it, let readers see it. If that raises, call it again.

        positions: of the changelog partitions that this commit has written, as far as they are known.
        """
        epoch = self._in_flight
        assert epoch is not None, "nothing was cut, or it was aborted"
        assert frozen is epoch, "this epoch was aborted or applied already"
        if sequence <= self.applied_sequence and self._written is not epoch:
            raise StateError(f"commit {sequence} comes after commit {self.applied_sequence} was applied")
        writes = epoch.writes()
        with self._commit_lock:
            if self._written is not epoch:
                keys, values = position_rows(self._physical, epoch, positions or {})
                with self._guard.permit("apply"):  # positions come after all rows, so no crash leaves one ahead of them
                    self._guard.write([*writes.keys, *keys], [*writes.values, *values], writes.ranges, marker(sequence))
                self.applied_sequence, self._written = sequence, epoch
                self.writer.wrote(s.store.entry.prefix(s.store.partition) for s in epoch.stores)
                self.wants_flush |= bool(keys and epoch.to_renew)
            if epoch.entries is not None:
                self._committed = epoch.entries
            self._note_deleted(writes)
            self._renew_snapshot()
        with self.epoch_lock.join():
            self._in_flight = self._written = None
            self.uncommitted.applied(epoch.counted_rows())
            self._attach()  # before writes leave the frozen layer
            for task in self._tasks.values():
                if task.id in epoch.tasks:
                    task.mark_applied()
            for task_id in epoch.drops.tasks:
                self._restoring.pop(task_id, None)
            self._restoring.update((t, r) for t, r in epoch.tasks.items() if t in self._restoring)
            self._note_owned()
            shrink_caches(
                [s for t in self._tasks.values() for s in t.stores.values()], self.uncommitted.cached_rows_max
            )

    def abort(self) -> None:
        """Back to the last commit: active and frozen layers are gone, batches under way will be refused.

        Pending drops and new stores are not writes of tasks; they wait for the next commit.
        """
        with self.epoch_lock.join():
            self._generation.number += 1
            for task in self._tasks.values():
                task.revert()
            self._dirty = {}
            self.uncommitted.revert()
            frozen, self._in_flight = self._in_flight, None
            if frozen is not None:
                self._catalog.put_back(frozen.catalog)
                self._drops = frozen.drops.merged(self._drops)

    def withdraw(self, frozen: FrozenEpoch, task_ids: Collection[str]) -> FrozenEpoch:
        """Some tasks go back to the last commit, as in `abort`; the epoch without their writes takes the place of `frozen`.

        The epoch lock is held.
        """
        self.epoch_lock.assert_held()
        epoch = self._in_flight
        assert frozen is epoch, "this epoch was aborted or applied already"
        assert epoch is not None
        for task_id in task_ids:
            self._tasks[task_id].withdraw()
            self._dirty.pop(task_id, None)
        self._in_flight = epoch.without(task_ids)
        return self._in_flight

    def abandon(self) -> None:
        """As `abort`, but drops and new stores are forgotten, too: they were decided on what is not the case any more.

        Open tasks are of no more use; close them.
        """
        with self.epoch_lock.join():
            self.abort()
            self._drops = Drops()
            self._catalog.load(self._physical)

    # Recovery

    def replay_all(self, commits: Iterable[tuple[int, bytes]]) -> None:
        """Redo commits in order. Rows that later ones overwrite are not written: rows are absolute, the marker comes last."""
        assert not self._tasks, "redo comes before tasks are opened"
        try:
            with self._commit_lock, self._guard.permit("replay"):
                for reached in replay(self._guard, commits, self.applied_sequence):
                    self.applied_sequence = reached
        finally:  # as far as it could be read
            self._reread()

    def _reread(self) -> None:
        """Reads the in-memory part of the physical store again, after a write that passed the tasks by."""
        with self._commit_lock:
            self._physical.forget()
            self._committed = read_stores(self._physical)
            self._renew_snapshot()
        with self.epoch_lock.join():
            self._catalog.load(self._physical)
            self._restoring = read_restores(self._physical)

    @property
    def openings(self) -> int:
        """How often it was opened again. Any thread."""
        return self._openings

    def accepts_files(self) -> bool:
        """Whether the disk of the physical store would take new files now."""
        return self._physical.accepts_files()

    def reopen(self, redo_after: RedoAfter | None) -> None:
        """After an I/O error: close the physical store, open it again, and bring back what was not durable. See `Physical.reopen`.

        Without redo the state is as of an older commit, and open tasks are of no more use.
        """
        with self._commit_lock:
            self._openings += 1
            if self._in_flight is not None:
                self._in_flight.forget_writes()
            self.writer.wrote(list(self.writer.versions))  # what comes back may be in other runs, or in none
            self._physical.reopen(partial(self._roll_forward, redo_after))
        if redo_after is None:
            self._reread()

    def _roll_forward(self, redo_after: RedoAfter | None) -> None:
        before, coming = self.applied_sequence, self._in_flight
        if redo_after is None:
            self.applied_sequence = decode_number(self._physical.get(MARKER), 0)
        else:
            entries = coming.entries if coming is not None and coming.entries is not None else self._committed
            self.applied_sequence = roll_forward(self._guard, redo_after, before, self._restoring)
            if self.applied_sequence > before:  # the log has it: it is what was to be applied
                self._written, self._committed = coming, entries
        self._renew_snapshot()

    def reset(self, sequence: int) -> None:
        """At start-up: deletes what is here, to be made anew as of commit `sequence`. The disk says 0, so that a crash before the next commit finds it lost, too."""
        assert not self._tasks, "a reset comes before tasks are opened"
        with self._commit_lock:
            with self._guard.permit("restore"):
                self._guard.write([], [], [(b"", b"\xff" * 16)], marker(0))
            self._physical.flush()  # no redo leads here
            self.applied_sequence = sequence
        self._reread()

    def begin_restore(
        self,
        whole: Mapping[str, TaskRecord],
        stale: Iterable[str],
        sequence: int,
        kept: Collection[StorePartition] = (),
    ) -> None:
        """At start-up, when this state is behind commit `sequence` and redo cannot help. whole: all tasks as of then; stale:
        those that changed since `applied_sequence`.

        What is here of stale tasks is cleared, but for rows of `kept`, which are restored from their position on. `restoring` says what must come
        from changelogs. Everything else is current.
        """
        assert not self._tasks, "restoration is decided before tasks are opened"
        with self.epoch_lock.join():
            writes, restoring = restore.begin_writes(self._physical, self._catalog, whole, stale, kept)
        with self._commit_lock:
            with self._guard.permit("restore"):
                self._guard.write(writes.keys, writes.values, writes.ranges, marker(sequence))
            self._physical.flush()  # no redo leads here
            self.applied_sequence = sequence
            self._renew_snapshot()
        with self.epoch_lock.join():
            self._restoring = restoring

    def local_record(self, task_id: str) -> TaskRecord | None:
        """A task as of the last commit that is here, open or not; None if there is nothing, or not all."""
        with self.epoch_lock.join():
            record = None if task_id in self._restoring else self._task_record(task_id)
            return None if record is None or self.lost.of(record) else record

    def incomplete(self) -> dict[str, TaskRecord]:
        """Tasks that have lost rows here, open or restored, as of the last commit: they are to be restored anew."""
        with self.epoch_lock.join():
            looked = {*self._tasks, *self._restoring} if self.lost else ()  # reading a record costs 50 us
            return {t: r for t in looked if (r := self._task_record(t)) is not None and self.lost.of(r)}

    def positions_of(self, stores: Iterable[str], partition: int) -> dict[StorePartition, ChangelogPosition]:
        """The positions of one partition of stores, as far as there are any here. They need not be good: `positions.doubts` tells."""
        with self.epoch_lock.join():
            entries = [e for e in map(self._catalog.get, stores) if e is not None]
        return self.lost.without(read_positions(self._physical, entries, partition))

    def rebuild(self, tasks: Mapping[str, TaskRecord | None], kept: Collection[StorePartition] = ()) -> None:
        """While others run: clear what is here of tasks that are not open. Those with a record are to be restored as of it.

        kept: rows that stay, to be restored from their position on; others are restored from nothing.
        What the log has of the tasks stays as it is: another instance may be using it.
        """
        lost = self.lost.all()
        with self.epoch_lock.join():
            self._refuse_open([t for t in self._tasks if t in tasks])
            new = {t: record for t, record in tasks.items() if record is not None}
            here = {t: [r for r in (self._task_record(t), new.get(t)) if r is not None] for t in tasks}
            writes = restore.clear_writes(self._catalog, here, new, set(kept) - lost)
        with self._commit_lock:
            with self._guard.permit("restore"):
                self._guard.write(writes.keys, writes.values, writes.ranges)
            self._note_deleted(writes)
            self._renew_snapshot()
        with self.epoch_lock.join():
            for task_id in tasks:
                self._restoring.pop(task_id, None)
            self._restoring.update(new)
            self.lost.restored(
                lost & {(s, r.partition) for records in here.values() for r in records for s in r.stores}
            )
            self._note_owned()

    def restoring(self) -> dict[str, TaskRecord]:
        """Tasks whose rows are not all here; they may be open, but must not run. Without the lock: a dictionary is copied in one step."""
        return dict(self._restoring)

    def end_restore(self, task_id: str, positions: Mapping[str, ChangelogPosition] = restore.NO_POSITIONS) -> bool:
        """Ends the restoration of a task: all of its changelog records are here, and it may run. positions: by store, the ends of its changelogs.

        Returns False if the task has a commit under way, or committed in between; call it again.
        """
        with self.epoch_lock.join():
            if (known := self._at_rest(task_id)) is None:
                return False
            entries = [e for e in map(self._catalog.get, known.stores) if e is not None]
        with self._commit_lock:
            openings = self._openings
            record = read_restore(self._physical, task_id) or known  # a commit may just have put a newer one there
            writes = restore.end_writes(self._physical, entries, task_id, record, self.writer.floor, positions)
            with self._guard.permit("restore"):
                self._guard.write(writes.keys, writes.values, writes.ranges)
            self._note_deleted(writes)
            self._renew_snapshot()
        self._physical.flush()  # no redo leads here
        if self._openings != openings:  # that it is whole may be lost, and the next crash would find it incomplete
            raise StateError(f"the state was opened again while the restoration of {task_id} ended")
        with self.epoch_lock.join():
            if self._at_rest(task_id) is not known:
                return False
            del self._restoring[task_id]
            self._note_owned()
            if task_id in self._tasks:
                self._tasks[task_id].reload()
            return True

    def _at_rest(self, task_id: str) -> TaskRecord | None:
        """The record as of which a task is restored; None while the task has published changes that are not applied."""
        task = self._tasks.get(task_id)
        return None if task is not None and task.is_dirty else self._restoring[task_id]

    def flush(self) -> int:
        """Make everything applied durable; the sequence up to which the log's redo may go."""
        sequence, self.wants_flush = self.applied_sequence, False
        self._physical.flush()
        return sequence

    def checkpoint(self, path: Path, also: Callable[[], None] = lambda: None) -> int:
        """A copy of the committed state in a new directory, taken between commits; its sequence.

        also: called before the next commit is applied. Until it returns, the log keeps the redo of all commits after the copy,
        because redo is trimmed up to applied commits only.
        """
        with self._commit_lock:
            self._physical.checkpoint(path)
            also()
            return self.applied_sequence

    def compact(self, *, ranges_min: int = 1) -> int:
        """Give back the space of range deletes, once there are `ranges_min`; how many ranges were compacted."""
        with self._commit_lock:
            if len(self._deleted) < ranges_min:
                return 0
            ranges, self._deleted = self._deleted, {}
        for low, high in ranges.items():
            self._physical.compact(low, high)
        return len(ranges)

    def checkpoint_snapshot(self) -> tuple[RunsReader, dict[bytes, int]]:
        """A snapshot between two commits, and by prefix how often rows that are in no run have changed. Close it."""
        with self._commit_lock:
            return self._physical.snapshot(), dict(self.writer.versions)

    def open_task_of(self, task_id: str) -> ManagedTask | None:
        """The task as it was opened last, if it is open and whole."""
        with self.epoch_lock.join():
            return None if task_id in self._restoring else self._tasks.get(task_id)

    def merger(self, clock: Clock) -> RunMerger:
        """The step that merges runs of stores, and makes those that `writer` wants."""
        write = self._write_between
        folder = RowFolder(self._physical, self.writer, write, self._begin_fold, lambda: self._in_flight)
        return RunMerger(self._physical, write, self.committed_stores, self.writer.written, clock, folder)

    def _begin_fold(self, prefix: bytes) -> FoldBegin:
        with self._commit_lock:
            return FoldBegin(self._physical.snapshot(), self._physical.watch(prefix), self.applied_sequence)

    def block_copier(self, on_lost: Lost) -> BlockCopier:
        """Brings blocks here that are in a remote store."""
        return BlockCopier(self._physical, self._write_between, partial(self._write_between, deletes=True), on_lost)

    def _write_between(self, writes: Writes, still: Callable[[], bool], *, deletes: bool = False) -> bool:
        """Writes what changes no row between two commits, if `still` says so then; whether it did. deletes: the cleaner gives the space back."""
        with self._commit_lock:
            if not still():
                return False
            with self._guard.permit("merge"):
                self._guard.write(writes.keys, writes.values, writes.ranges)
            if deletes:
                self._note_deleted(writes)
            return True

    def snapshot(self) -> StateSnapshot:
        """The last commit. Any thread; close it."""
        owned = self._owned  # first: what becomes whole later is in the commit that is current then
        with self._snapshot_lock:
            return StateSnapshot(self._current.retain(), owned)

    def close(self) -> None:
        """Close the physical store. Open snapshots stay readable and keep its files in use until they are closed."""
        for task in self._tasks.values():
            task.close()
        with self._snapshot_lock:
            self._current.release()
        self._physical.close()

    def _published(self, task: ManagedTask, rows: int) -> None:
        self._dirty[task.id] = task
        if task.counts:
            self.uncommitted.add(rows)

    def _renew_snapshot(self) -> None:
        self._commit_lock.assert_held()
        new = SharedSnapshot(self._physical.snapshot(), self._committed, self.applied_sequence)
        with self._snapshot_lock:
            old, self._current = self._current, new
        old.release()

    def _refuse_open(self, open_tasks: list[str]) -> None:
        if open_tasks:
            raise StateError(f"task {open_tasks[0]} is open; close it before its state is dropped")

    def _pending(self) -> list[Drops]:
        """Drops that no commit has made true yet."""
        return [self._drops] if self._in_flight is None else [self._drops, self._in_flight.drops]

    def _is_dropped(self, entry: StoreEntry, partition: int) -> bool:
        return any(d.has_partition(entry, partition) for d in self._pending())

    def _task_record(self, task_id: str) -> TaskRecord | None:
        """The committed record of a task; None if a drop of it is pending."""
        if any(d.has_task(task_id) for d in self._pending()):
            return None
        if task_id in self._restoring:
            return self._restoring[task_id]
        data = self._physical.get(task_key(task_id))
        return None if data is None else task_from_record(data)

    def _attach(self) -> None:
        """Partitions whose drop is committed now hold nothing but what was written since."""
        for store in [s for t in self._tasks.values() for s in t.stores.values() if s.detached]:
            store.detached = self._is_dropped(store.entry, store.partition)

    def _note_deleted(self, writes: Writes) -> None:
        self._commit_lock.assert_held()
        for low, high in writes.ranges:
            self._deleted[low] = max(high, self._deleted.get(low, high))
