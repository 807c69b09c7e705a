"""The restoration step: reads changelogs of tasks whose rows are not here, applies them in bulk, gives the tasks back whole.

A task is here or at the task manager, never at both. It comes with `add`; when all its changelogs are read to their ends it leaves
through `hand_over`, which lets the polling thread take it. Source: `DefaultStateUpdater` of Apache Kafka Streams.

Tasks of the queries with most weight come first. While a query of far more weight has work, they get a small share of one processor: records
of changelogs are applied in Python, which holds the interpreter lock.

Standby copies (`standbys`) are read beside, when no task waits here.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from dataclasses import dataclass

from flowql.compiler.plan.topology import StoreSpec
from flowql.runtime.app.backoff import HEALTHY, Backoff
from flowql.runtime.app.changelog_cursor import ChangelogCursor, cursors_of
from flowql.runtime.app.restore_process import RestoreProcess
from flowql.runtime.app.standby import StandbyCopies
from flowql.runtime.app.warm_starts import CheckpointStarts
from flowql.runtime.client.consumer import ConsumerFacade
from flowql.runtime.clock import Clock
from flowql.runtime.log.base import Admin, KeyValues, TopicPartition
from flowql.runtime.state.layout import TaskRecord
from flowql.runtime.state.manager import StateManager
from flowql.runtime.state.remote.warm_start import FoundCheckpoint
from flowql.runtime.state.restore import RowFile
from flowql.runtime.task.status import TaskStatus
from flowql.runtime.task.task import Task

IDLE_MS = 20
RESTING_MS = 1_000  # without tasks, until one comes
TASKS_MAX = 4  # restored side by side: bounds how many chunks are in memory
CHUNK_RECORDS = 20_000
# The share of one processor for tasks of a query that has to yield. With none they would never finish beside a query that is always at work.
YIELDING_SHARE = 0.05
# Sizes from which another process makes files: below the first it would cost more than it saves (it takes 0.5 s to start, and 100 MB).
FILES_FROM_RECORDS, FILE_RECORDS, FILES_MS = 300_000, 32_000, 5


@dataclass(slots=True)
class RestoringTask:
    """A task in the care of this step. looking: for a checkpoint that it begins with; cursors are made after that."""

    task: Task
    specs: list[StoreSpec]
    cursors: list[ChangelogCursor]
    looking: Future[FoundCheckpoint | None] | None = None
    backoff: Backoff = HEALTHY
    removal: Future[bool] | None = None


@dataclass(slots=True)
class RestoreProgress:
    """Changelog records of a query: applied, and how many there are (by offsets, so gaps count)."""

    done: int = 0
    total: int = 0


class RestorationStep:
    """Owned by the restoration thread, but for `add`, `remove`, `owns`, `places` and `progress`, which any thread may call.

    weight_of: of a query; the tasks of the queries with most weight come first, others wait. has_to_yield: whether a query of far more than
    this weight has work now. on_error: a changelog cannot be read or applied; it is tried again, later and later, while other tasks go on.
    process: reads what is much, if there is one. starts: looks for checkpoints in a remote store, if there is one.
    """

    def __init__(
        self,
        client: ConsumerFacade,
        admin: Admin,
        state: StateManager,
        application_id: str,
        *,
        weight_of: Callable[[str], int],
        has_to_yield: Callable[[int], bool],
        hand_over: Callable[[Task], None],
        on_error: Callable[[str, Exception], None],
        clock: Clock,
        process: RestoreProcess | None = None,
        starts: CheckpointStarts | None = None,
    ) -> None:
        self._client, self._admin, self._state, self._app = client, admin, state, application_id
        self._weight_of, self._has_to_yield = weight_of, has_to_yield
        self._hand_over, self._on_error = hand_over, on_error
        self._clock, self._process, self._starts = clock, process, starts
        self.standbys = StandbyCopies(client, admin, state, application_id, clock, on_error, starts)
        self._lock = threading.Lock()  # guards the two fields below and removals
        self._tasks: dict[str, RestoringTask] = {}
        self._finished: dict[str, RestoreProgress] = {}  # by query, of its tasks that have left
        self.wake: Callable[[], None] = lambda: None  # set when threads run: ends the restoration thread's wait
        self.records = 0  # applied since the instance started
        self._rest_until_ms = 0  # while another query needs the time

    # -- called by anyone

    def add(self, task: Task, record: TaskRecord) -> None:
        """Take a task; the state manager holds `record` as its restore row."""
        assert task.status is TaskStatus.RESTORING, f"{task.id} is {task.status.value}"
        specs = [task.state.store(name).spec for name in record.stores]
        looking = None if self._starts is None else self._starts.look(str(task.id), record, specs)
        cursors = self._cursors(task, specs) if looking is None else []
        with self._lock:
            name = str(task.id)
            assert name not in self._tasks, f"task {name} is already here"
            self._tasks[name] = RestoringTask(task, specs, cursors, looking)
        self.wake()

    def _cursors(self, task: Task, specs: Sequence[StoreSpec]) -> list[ChangelogCursor]:
        return cursors_of(self._admin, self._state, self._app, specs, task.id.partition, self._clock.wall_ms())

    def remove(self, task: Task) -> Future[bool]:
        """Give the task up as it is; False if it is not here (any more)."""
        future: Future[bool] = Future()
        with self._lock:
            entry = self._tasks.get(str(task.id))
            if entry is None:
                future.set_result(False)
            else:
                entry.removal = future
        self.wake()
        return future

    def owns(self, task: Task) -> bool:
        with self._lock:
            return str(task.id) in self._tasks

    def places(self) -> dict[TopicPartition, int]:
        """The next offset to read of each changelog that is not read to its end."""
        with self._lock:
            return {c.tp: c.position for e in self._tasks.values() for c in e.cursors if not c.done}

    def progress(self) -> dict[str, RestoreProgress]:
        """Queries with tasks here."""
        out: dict[str, RestoreProgress] = {}
        with self._lock:
            for entry in self._tasks.values():
                query = entry.task.id.query
                if query not in out:
                    left = self._finished.get(query, RestoreProgress())
                    out[query] = RestoreProgress(left.done, left.total)
                out[query].done += sum(c.position - c.begin for c in entry.cursors)
                out[query].total += sum(c.end - c.begin for c in entry.cursors)
        return out

    # -- the step

    def run_once(self, now_ms: int) -> int:
        progress = self._serve_removals()
        self.standbys.serve_removals()
        process = self._process
        if process is not None and process.running:
            progress |= process.poll()
            if not self._tasks:
                process.close()
        entries = self._next(now_ms)
        if entries and self._has_to_yield(self._weight_of(entries[0].task.id.query)):  # all have the same weight
            if now_ms < self._rest_until_ms:
                return 0 if progress else min(self._rest_until_ms - now_ms, IDLE_MS)
            del entries[1:]
        begin_ns = self._clock.cpu_ns()
        for entry in entries:
            progress |= self._advance(entry, now_ms)
        spent_ms = (self._clock.cpu_ns() - begin_ns) / 1e6
        self._rest_until_ms = now_ms + int(spent_ms * (1 / YIELDING_SHARE - 1))
        if progress:
            return 0
        if process is not None and process.running:
            return FILES_MS
        return IDLE_MS if self._tasks else min(RESTING_MS, self.standbys.run_once(now_ms))

    def close(self) -> None:
        """End the other process, after the thread of this step."""
        if self._process is not None:
            self._process.close()

    def _serve_removals(self) -> bool:
        with self._lock:
            leaving = [e for e in self._tasks.values() if e.removal is not None]
            for entry in leaving:
                self._drop(entry)
        for entry in leaving:
            assert entry.removal is not None
            entry.removal.set_result(True)
        return bool(leaving)

    def _next(self, now_ms: int) -> list[RestoringTask]:
        """Tasks of the weightiest queries, a few at a time, always in the same order."""
        with self._lock:
            ready = [e for e in self._tasks.values() if now_ms >= e.backoff.retry_at_ms]
        if not ready:
            return []
        weights = {q: self._weight_of(q) for q in sorted({e.task.id.query for e in ready})}
        top = max(weights.values())
        return sorted((e for e in ready if weights[e.task.id.query] == top), key=lambda e: e.task.id)[:TASKS_MAX]

    def _advance(self, entry: RestoringTask, now_ms: int) -> bool:
        """Apply what has arrived and ask for more; True if something moved."""
        progress = False
        try:
            if entry.looking is not None:
                return self._begin(entry)
            for cursor in entry.cursors:
                progress |= self._read(cursor, now_ms)
            if all(c.done for c in entry.cursors):
                progress |= self._finish(entry)
        except Exception as error:  # this task's alone: what was applied may be applied again
            self._fail(entry, error, now_ms)
        return progress

    def _begin(self, entry: RestoringTask) -> bool:
        """With the checkpoint that was found, or with nothing. True once that is known."""
        assert self._starts is not None
        assert entry.looking is not None
        if not entry.looking.done():
            return False
        task = entry.task
        self._starts.adopt(str(task.id), entry.looking.result(), entry.specs, task.id.partition)
        cursors = self._cursors(task, entry.specs)
        with self._lock:
            entry.cursors, entry.looking = cursors, None
        return True

    def _read(self, cursor: ChangelogCursor, now_ms: int) -> bool:
        if cursor.done:
            return False
        chunk = cursor.chunk
        if chunk is None:
            self._ask(cursor, cursor.position, now_ms)
            return True
        if not chunk.done():
            return False
        cursor.chunk = None
        found = chunk.result()
        if isinstance(found, RowFile):
            return self._take_file(cursor, found, chunk, now_ms)
        assert isinstance(found, list)
        if not found:
            return self._at_rest(cursor)
        self._ask_ahead(cursor, found[-1].next_offset, now_ms)
        self._apply(cursor, found)
        return True

    def _take_file(self, cursor: ChangelogCursor, file: RowFile, chunk: Future[object], now_ms: int) -> bool:
        if file.next_offset == cursor.position:
            return self._at_rest(cursor)
        assert cursor.entry is not None
        reached = cursor.reached(file.next_offset)
        if not self._state.restored.take_file(cursor.entry, cursor.tp.partition, file, reached):
            cursor.chunk = chunk
            return False
        self._ask_ahead(cursor, file.next_offset, now_ms)
        self.records += file.records
        cursor.position = file.next_offset
        return True

    def _at_rest(self, cursor: ChangelogCursor) -> bool:
        """Whether the rest of the partition, of which nothing arrived, holds only transaction markers. It may hold records if not all was visible
        when the chunk was requested: an open transaction hides the records behind it.
        """
        if cursor.in_sight:
            cursor.position = cursor.end
        else:
            cursor.in_sight = self._admin.end_offset(cursor.tp) >= cursor.end
        return cursor.in_sight

    def _ask_ahead(self, cursor: ChangelogCursor, offset: int, now_ms: int) -> None:
        """Prefetches while applying."""
        if offset < cursor.end:
            self._ask(cursor, offset, now_ms)

    def _ask(self, cursor: ChangelogCursor, offset: int, now_ms: int) -> None:
        process = self._process
        if process is not None and not process.lost and (process.running or self._left() >= FILES_FROM_RECORDS):
            if cursor.entry is None:
                cursor.entry = self._state.restored.expect_files(cursor.spec, cursor.tp.partition)
            over_runs = self._state.restored.has_runs(cursor.entry, cursor.tp.partition)
            cursor.chunk = process.ask(cursor.tp, offset, FILE_RECORDS, cursor.entry.record(), over_runs=over_runs)
            return
        cursor.chunk = self._client.read_key_values(cursor.tp, offset, now_ms, CHUNK_RECORDS)
        cursor.chunk.add_done_callback(lambda _: self.wake())

    def _left(self) -> int:
        """Records that are still to be read."""
        with self._lock:
            return sum(c.end - c.position for e in self._tasks.values() for c in e.cursors)

    def _apply(self, cursor: ChangelogCursor, batches: list[KeyValues]) -> None:
        keys: list[bytes] = []
        values: list[bytes | None] = []
        for batch in batches:
            keys += batch.keys
            values += batch.values
        reached = cursor.reached(batches[-1].next_offset)
        self._state.restored.take(cursor.spec, cursor.tp.partition, keys, values, reached)
        self.records += len(keys)
        cursor.position = batches[-1].next_offset

    def _finish(self, entry: RestoringTask) -> bool:
        """Ends the restoration; False while the task has a commit under way. A new task may publish its metadata (`missed_deletions`)."""
        ends = {c.spec.name: reached for c in entry.cursors if (reached := c.reached(c.position)) is not None}
        if not self._state.end_restore(str(entry.task.id), ends):
            return False
        with self._lock:
            removal = entry.removal
            self._drop(entry)
            if removal is None:  # under the lock: `remove` answers False only once the hand-over has been asked for
                self._hand_over(entry.task)
        if removal is not None:  # requested during the restoration: the task leaves with complete state
            removal.set_result(True)
        return True

    def _drop(self, entry: RestoringTask) -> None:
        """Forget a task. The lock is held."""
        query = entry.task.id.query
        del self._tasks[str(entry.task.id)]
        if any(e.task.id.query == query for e in self._tasks.values()):
            left = self._finished.setdefault(query, RestoreProgress())
            left.done += sum(c.position - c.begin for c in entry.cursors)
            left.total += sum(c.end - c.begin for c in entry.cursors)
        else:
            self._finished.pop(query, None)

    def _fail(self, entry: RestoringTask, error: Exception, now_ms: int) -> None:
        for cursor in entry.cursors:
            cursor.chunk = None
        entry.backoff = entry.backoff.after_failure(now_ms)
        self._on_error(entry.task.id.query, error)
