"""The step of the thread `remote`: checkpoints of the tasks that run here, copies of blocks that are away, and the removal of old objects.

It takes a twentieth of one processor and nothing on the way of a commit but one short hold of the commit lock for each checkpoint.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from flowql.runtime.clock import Clock
from flowql.runtime.errors import StateError
from flowql.runtime.events import WARNING, say
from flowql.runtime.remote.objects import Objects, RemoteError
from flowql.runtime.state.catalog import stored_task
from flowql.runtime.state.layout import MARKER, decode_number
from flowql.runtime.state.manager import StateManager
from flowql.runtime.state.remote.manifest import KEPT_MS, RunObject, garbage_of, task_folder, write_lease
from flowql.runtime.state.remote.pace import IDLE_MS, Outage, Pace, Walk, awaited
from flowql.runtime.state.remote.upload import TaskUpload, TaskUploads, Uploaded
from flowql.runtime.state.runs.objects import BlocksAway, RunPlace, read_tail
from flowql.runtime.state.runs.run import Run
from flowql.runtime.state.task_state import ManagedTask

INTERVAL_MS = 10_000  # between two checkpoints of a task
LOOK_MS = 1_000  # between two checks of a task that has nothing new
COLLECT_MS = 300_000
LEASE_RENEWED_MS = 600_000
COPY_SHARE, COPY_BYTES_PER_S = 0.25, 256 << 20  # a task reads blocks from far away until they are here
_CURRENT: Mapping[str, Any] = {"behind_commits": 0, "behind_ms": 0, "waiting_bytes": 0, "stored_bytes": 0}
# Below the first blocks that the store has leave the disk, until there are the second one's bytes; none are copied here meanwhile.
FREE_LEAST_BYTES, FREE_ENOUGH_BYTES = 256 << 20, 1 << 30
FREE_LOOK_MS = 10_000
FOLD_ROWS = 2_000  # rows that are in no run, from which on they become one before a checkpoint
FOLD_WAIT_MS = 5_000  # for that


@dataclass(slots=True)
class OwnedTask:
    """A task whose checkpoints are written here. task: as it was opened; another opening takes another term."""

    task: ManagedTask
    uploads: TaskUploads
    due_ms: int = 0
    collect_ms: int = 0


class RemoteCheckpoints:
    """A step. running: the names of open tasks whose rows are whole, those of the weightiest queries first."""

    def __init__(
        self,
        objects: Objects,
        state: StateManager,
        application_id: str,
        reader: str,
        running: Callable[[], list[str]],
        clock: Clock,
        avoid: Callable[[str], None],
        free_bytes: Callable[[], int] = lambda: FREE_ENOUGH_BYTES,
    ) -> None:
        """reader: the name of this instance among those that hold leases. avoid: no restoration is to begin with this object. free_bytes: of the disk."""
        self._objects, self._state, self._app, self._reader = objects, state, application_id, reader
        self._running, self._clock, self._free_bytes = running, clock, free_bytes
        self._free_look_ms, self._is_full = 0, False
        self._left: set[bytes] = set()  # runs whose blocks have left the disk since it was full
        self._pace, self._copy_pace = Pace(clock), Pace(clock, COPY_SHARE, COPY_BYTES_PER_S)
        self._owned: dict[str, OwnedTask] = {}
        self._walk: Walk[object] | None = None
        self._copying: Walk[object] | None = None
        self.copier = state.block_copier(self._lost)
        self._avoid = avoid
        self._begun = False
        self._lease_ms = 0
        self._uploading, self._bringing = Outage("checkpoints"), Outage("copies of rows")
        self.uploaded = Uploaded()

    # -- the step

    def run_once(self, now_ms: int) -> int:
        self._look_at_disk(now_ms)
        try:
            return min(
                self._unless_away(self._uploading, self._upload_on, now_ms),
                self._unless_away(self._bringing, self._copy_on, now_ms),
            )
        except StateError:  # it is being opened again, say
            self._walk = self._copying = None
            return IDLE_MS

    def _unless_away(self, outage: Outage, work: Callable[[int], int], now_ms: int) -> int:
        """The work in progress starts again after an outage."""
        if now_ms < outage.until_ms:
            return outage.until_ms - now_ms
        try:
            return work(now_ms)
        except (RemoteError, BlocksAway) as error:
            if outage is self._uploading:
                self._walk = None
                for owned in self._owned.values():
                    owned.uploads.term = 0  # a put whose answer was lost may have happened
            else:
                self._copying = None
            return outage.goes_on(error, now_ms)

    def _upload_on(self, now_ms: int) -> int:
        if self._walk is None:
            self._walk = self._leave() if self._is_full else self._next(now_ms)
            if self._walk is None:
                return IDLE_MS
        wait = self._pace.advance(self._walk, now_ms)
        if wait is None:
            self._walk = None
            return 0
        return wait

    def _copy_on(self, now_ms: int) -> int:
        if self._copying is None:
            if not self._begun:
                self._begun, self._copying = True, self.copier.from_start(self._state.committed_stores())
            elif self.copier.missing and not self._is_full:
                self._copying = self._copy()
            else:
                return IDLE_MS
        wait = self._copy_pace.advance(self._copying, now_ms)
        if wait is None:
            self._copying = None
            return IDLE_MS if self.copier.missing else 0  # there is something that cannot be copied
        return wait

    def _lost(self, prefix: bytes, name: str, error: Exception) -> None:
        """Blocks that cannot be read any more. Whoever runs the task takes it apart, and it is restored."""
        self._avoid(name)
        found = self._state.lost.add(prefix, self._state.committed_stores().values())
        if found is not None:
            say(WARNING, "state.remote", f"rows of {found[0]}, partition {found[1]}, come from the changelog: {error}")

    def _copy(self) -> Walk[None]:
        """Leases are renewed meanwhile: a copy may take longer than one holds."""
        yield from self._renew_leases()
        before = self.copier.left_bytes
        for _ in self.copier.copy(self._copy_pace):
            if self.copier.left_bytes != before:
                self._bringing.ends()
            yield
            yield from self._renew_leases()

    def _renew_leases(self) -> Walk[None]:
        now_ms = self._clock.timer_ms()
        if now_ms < self._lease_ms:
            return
        by_folder: dict[str, list[str]] = {}
        for name in sorted(self.copier.objects(set(self.copier.missing))):
            by_folder.setdefault(name.rpartition("/runs/")[0], []).append(name)
        for folder, names in by_folder.items():
            number = self._clock.wall_ms()
            yield from awaited(self._objects.submit(write_lease, self._objects, folder, self._reader, number, names))
        self._lease_ms = now_ms + LEASE_RENEWED_MS  # only now: a renewal that failed is tried again

    # -- what is due

    def _next(self, now_ms: int) -> Walk[object] | None:
        running = self._running()
        for name in self._owned.keys() - set(running):
            del self._owned[name]
        for name in running:
            task = self._state.open_task_of(name)
            if task is None:
                continue
            owned = self._owned.get(name)
            if owned is None or owned.task is not task:
                uploads = TaskUploads(task_folder(self._app, name))
                owned = self._owned[name] = OwnedTask(task, uploads, collect_ms=now_ms + COLLECT_MS)
        # The longest overdue first: a task that is due again at once must not keep others from their turn.
        due = min(self._owned, key=lambda n: min(self._owned[n].due_ms, self._owned[n].collect_ms), default=None)
        if due is None:
            return None
        owned = self._owned[due]
        if now_ms >= owned.collect_ms and owned.collect_ms < owned.due_ms:
            owned.collect_ms = now_ms + COLLECT_MS
            return self._collect(owned)
        if now_ms >= owned.due_ms:
            owned.due_ms = now_ms + LOOK_MS  # if there is nothing new
            return self._checkpoint(due, owned, now_ms)
        return None

    def _checkpoint(self, name: str, owned: OwnedTask, now_ms: int) -> Walk[None]:
        uploads = owned.uploads
        if not self._has_changed(name, uploads):
            return
        stores = [s.entry.prefix(s.partition) for s in owned.task.stores.values()]
        yield from self._fold([p for p in stores if self._state.writer.loose.get(p, 0) >= FOLD_ROWS], now_ms)
        reader, versions = self._state.checkpoint_snapshot()
        try:
            record, entries = stored_task(reader, name, self._state.committed_stores())
            if record is None:
                return
            owned.due_ms = now_ms + INTERVAL_MS
            upload = TaskUpload(self._objects, uploads, reader, self.uploaded, self._pace, name)
            if not uploads.term:
                yield from upload.learn()
            applied = decode_number(reader.get(MARKER), 0)
            yield from upload.upload(record, entries, versions, self._clock.wall_ms())
            uploads.applied = applied
            self._uploading.ends()
        finally:
            reader.close()

    def _has_changed(self, name: str, uploads: TaskUploads) -> bool:
        """Whether the newest manifest lacks something of a task that is whole here."""
        reader, _ = self._state.checkpoint_snapshot()
        try:
            record, entries = stored_task(reader, name, self._state.committed_stores())
            if record is None:
                return False
            positions = [reader.get(e.position_key(record.partition)) for e in entries]
            newest = uploads.newest
            return (
                newest is None or newest.record != record.record() or [s.position for s in newest.stores] != positions
            )
        finally:
            reader.close()

    def _look_at_disk(self, now_ms: int) -> None:
        if now_ms < self._free_look_ms:
            return
        self._free_look_ms = now_ms + FREE_LOOK_MS
        free, was_full = self._free_bytes(), self._is_full
        self._is_full = free < (FREE_ENOUGH_BYTES if was_full else FREE_LEAST_BYTES)
        if not self._is_full:
            self._left.clear()
        elif not was_full:
            say(WARNING, "state.remote", f"the disk has {free >> 20} MB left: rows that the remote store has leave it")

    def _leave(self) -> Walk[object] | None:
        """One run whose blocks can leave the disk, the largest first; the next checkpoint if there is none."""
        found: list[tuple[Run, RunObject]] = []
        for owned in self._owned.values():
            there = (
                {(s.store, r.run): r for s in owned.uploads.newest.stores for r in s.runs}
                if owned.uploads.newest
                else {}
            )
            for store in owned.task.stores.values():
                for run in self.copier.runs_of(store.entry.prefix(store.partition)):
                    known = there.get((store.spec.name, run.name))
                    if known is not None and (known.rows, known.checksum) == (run.head.rows, run.head.checksum):
                        found.append((run, known))
        for run, known in sorted(found, key=lambda r: -r[0].head.size):
            if run.head_key not in self._left:
                self._left.add(run.head_key)
                return self._leave_run(run, known)
        return self._next(self._clock.timer_ms())

    def _leave_run(self, run: Run, known: RunObject) -> Walk[None]:
        url = self._objects.url
        tail = yield from awaited(self._objects.submit(read_tail, url, known.name, known.size, known.tail_bytes))
        if self.copier.leave_in_store(run, RunPlace(url, known.name, tail.sizes, tail.checksums)):
            self.copier.missing.add(run.prefix)

    def _fold(self, prefixes: list[bytes], now_ms: int) -> Walk[None]:
        """Rows in no run become one, beside the commits."""
        wanted = self._state.writer.to_fold
        wanted.update(prefixes)
        while wanted.intersection(prefixes) and self._clock.timer_ms() < now_ms + FOLD_WAIT_MS:
            yield
        wanted.difference_update(prefixes)

    def _collect(self, owned: OwnedTask) -> Walk[None]:
        uploads = owned.uploads
        found = yield from awaited(self._objects.submit(garbage_of, self._objects, uploads.folder, KEPT_MS))
        if uploads.term and found.newest > uploads.term:
            uploads.term = 0  # the task was elsewhere meanwhile: its manifests would not be looked at
        if found.names:
            uploads.forget(found.names)
            yield from awaited(self._objects.submit(self._objects.delete, found.names))

    # -- what is shown

    def status(self) -> dict[str, Any]:
        """How far checkpoints are behind, in all and by query: commits, ms and bytes. Any thread.

        behind_ms: None while a task has no checkpoint. to_copy_bytes: of rows that are not here yet.
        """
        now_ms, done = self._clock.wall_ms(), self.uploaded
        queries: dict[str, dict[str, Any]] = {}
        for name, owned in list(self._owned.items()):
            found = self._behind(name, owned.uploads, now_ms)
            query = queries.setdefault(name.rpartition("/")[0], dict(_CURRENT))
            query["behind_commits"] = max(query["behind_commits"], found["behind_commits"])
            ages = query["behind_ms"], found["behind_ms"]
            query["behind_ms"] = None if None in ages else max(ages)
            query["waiting_bytes"] += found["waiting_bytes"]
            query["stored_bytes"] += found["stored_bytes"]
        return {
            "url": self._objects.url,
            "away": self._uploading.reason or self._bringing.reason or None,
            "queries": queries,
            "waiting_bytes": sum(query["waiting_bytes"] for query in queries.values()),
            "stored_bytes": sum(query["stored_bytes"] for query in queries.values()),
            "uploaded_bytes": done.bytes,
            "requests": done.requests,
            "manifests": done.manifests,
            "to_copy_bytes": self.copier.left_bytes if self.copier.missing else 0,
        }

    def _behind(self, name: str, uploads: TaskUploads, now_ms: int) -> dict[str, Any]:
        newest = uploads.newest
        if newest is None:
            return {**_CURRENT, "behind_ms": None, "waiting_bytes": uploads.waiting_bytes}
        found = {**_CURRENT, "stored_bytes": newest.stored_bytes(), "waiting_bytes": uploads.waiting_bytes}
        record = self._state.local_record(name)
        if record is not None and record.record() != newest.record:
            found["behind_commits"] = max(1, self._state.applied_sequence - uploads.applied)
            found["behind_ms"] = max(0, now_ms - newest.as_of_ms)
        return found
