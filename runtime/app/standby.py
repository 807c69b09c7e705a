"""Standby copies: rows of tasks that other members run, kept near the owner's last commit by reading their changelogs as they grow.

A copy is a task whose restoration has no end. The state has its restore row, so nothing takes it for whole, and only queries that allow standby
copies see it (KIP-535). Who takes the task over stops following and restores it from the position of the copy, as any rows that are here. Source: KIP-441, without its probing rebalances.

A copy takes a bounded share of one processor and one chunk of memory, whatever their number, and waits for tasks that are to run.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, field

from flowql.compiler.plan.topology import StoreSpec
from flowql.runtime.app.backoff import HEALTHY, Backoff
from flowql.runtime.app.changelog_cursor import ChangelogCursor, cursors_of
from flowql.runtime.app.warm_starts import CheckpointStarts
from flowql.runtime.client.consumer import ConsumerFacade
from flowql.runtime.clock import Clock
from flowql.runtime.log.base import Admin, KeyValues, TopicPartition
from flowql.runtime.state.layout import TaskRecord
from flowql.runtime.state.locks import NamedLock
from flowql.runtime.state.manager import StateManager
from flowql.runtime.state.remote.warm_start import FoundCheckpoint
from flowql.runtime.state.snapshot import SharedSnapshot, StateSnapshot

LOOK_MS = 500  # between two looks for what is new in the changelogs
CHUNK_RECORDS = 5_000
SHARE, SHARE_BEHIND = (
    0.05,
    0.5,
)  # of one processor, of the thread that applies; the second one of a copy that is far behind
BEHIND = 4 * CHUNK_RECORDS
IDLE_MS = 1_000


@dataclass(slots=True)
class StandbyCopy:
    """One task that is followed. openings: of the state, when it began. cursors: None until they are made. lag: offsets, as of the last look.

    looking: for a checkpoint to begin with, until it is adopted.
    """

    task: str
    record: TaskRecord
    specs: Sequence[StoreSpec]
    openings: int
    looking: Future[FoundCheckpoint | None] | None
    cursors: list[ChangelogCursor] | None = None
    backoff: Backoff = HEALTHY
    lag: int | None = None
    removals: list[Future[bool]] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class CopyPosition:
    """The position of the rows of one store of a copy in its changelog, at least. behind: offsets between it and the end at the last look, markers
    of transactions included. age_ms: since the copy was known to have all rows. As text it follows a name.
    """

    offset: int
    behind: int
    age_ms: int

    def __str__(self) -> str:
        behind = f"{self.behind:,} records and {self.age_ms:,} ms behind"
        return f"at changelog offset {self.offset:,}, at most {behind}"


class StandbyCopies:
    """Owned by the restoration thread, but for `follow`, `stop_following`, `lag` and `snapshot`, which any thread may call."""

    def __init__(
        self,
        client: ConsumerFacade,
        admin: Admin,
        state: StateManager,
        application_id: str,
        clock: Clock,
        on_error: Callable[[str, Exception], None],
        starts: CheckpointStarts | None = None,
    ) -> None:
        self._client, self._admin, self._state, self._app = client, admin, state, application_id
        self._clock, self._on_error, self._starts = clock, on_error, starts
        self._lock = NamedLock("standby copies", guards="which tasks are followed, and removals")
        self._copies: dict[str, StandbyCopy] = {}
        self._ends: Future[dict[TopicPartition, int]] | None = None
        self._asked_ms = self._look_at_ms = self._rest_until_ms = 0
        self._chunk: tuple[StandbyCopy, ChangelogCursor, Future[object]] | None = (
            None  # one at a time bounds the memory
        )
        self.wake: Callable[[], None] = lambda: None
        self.records = 0  # applied since the instance started

    # -- called by anyone

    def follow(self, task: str, record: TaskRecord, specs: Sequence[StoreSpec]) -> None:
        """Keep a copy of the stores of a task. `record` is its restore row (`StateManager.rebuild`), and it is not open here.

        It ends by itself if the state is opened again after an I/O error, which may lose rows and that row: `lag` is None then, and the caller
        begins again.
        """
        openings = self._state.openings
        assert task in self._state.restoring(), f"{task} has no restore row"
        looking = None if self._starts is None else self._starts.look(task, record, specs)
        with self._lock:
            assert task not in self._copies, f"{task} is followed already"
            self._copies[task] = StandbyCopy(task, record, specs, openings, looking)
        self.wake()

    def stop_following(self, task: str) -> Future[bool]:
        """When it is done, nothing more is written for the task. False if it was not followed."""
        done: Future[bool] = Future()
        with self._lock:
            copy = self._copies.get(task)
            if copy is None:
                done.set_result(False)
            else:
                copy.removals.append(done)
        self.wake()
        return done

    def lag(self, task: str) -> int | None:
        """Offsets between a copy and the end of its changelogs, as of the last look; None before that, and of a task that is not followed."""
        with self._lock:
            copy = self._copies.get(task)
            return None if copy is None else copy.lag

    def snapshot(self) -> tuple[StateSnapshot, dict[tuple[str, str], CopyPosition]]:
        """The rows of copies as they are now, and their positions by task and store: of copies that have had all rows. Close the snapshot."""
        now_ms = self._clock.wall_ms()
        with self._lock:
            copies = dict(self._copies)
        positions = {t: _positions(c, now_ms) for t, c in copies.items()}  # before the rows, which may be newer
        physical, _ = self._state.checkpoint_snapshot()
        with self._lock:  # a copy that has ended may have been cleared
            kept = {t for t, c in copies.items() if self._copies.get(t) is c and c.openings == self._state.openings}
        records = {t: c.record for t, c in copies.items() if t in kept}
        shared = SharedSnapshot(physical, self._state.committed_stores(), self._state.applied_sequence, records)
        found = {(t, store): at for t in sorted(kept) for store, at in positions[t].items()}
        return StateSnapshot(shared, frozenset(kept)), found

    @property
    def followed(self) -> set[str]:
        """Tasks of which a copy is kept."""
        with self._lock:
            return set(self._copies)

    # -- the restoration thread

    def serve_removals(self) -> None:
        openings = self._state.openings
        with self._lock:
            leaving = [c for c in self._copies.values() if c.removals or c.openings != openings]
            for copy in leaving:
                del self._copies[copy.task]
        for copy in leaving:
            if self._chunk is not None and self._chunk[0] is copy:
                self._chunk = None
            for done in copy.removals:
                done.set_result(True)

    def run_once(self, now_ms: int) -> int:
        """Some of one changelog; ms until it wants to go on."""
        if not self._copies:
            return IDLE_MS
        if now_ms < self._rest_until_ms:
            return self._rest_until_ms - now_ms
        if self._chunk is not None:
            return self._take_chunk(now_ms)
        self._look(now_ms)
        for copy in self._ready(now_ms):
            for cursor in copy.cursors or ():
                if not cursor.done:
                    chunk = self._client.read_key_values(cursor.tp, cursor.position, now_ms, CHUNK_RECORDS)
                    chunk.add_done_callback(lambda _: self.wake())
                    self._chunk = copy, cursor, chunk
                    return LOOK_MS
        return max(1, self._look_at_ms - now_ms)

    def _ready(self, now_ms: int) -> list[StandbyCopy]:
        """Those farthest behind first."""
        with self._lock:
            copies = [c for c in self._copies.values() if now_ms >= c.backoff.retry_at_ms]
        return sorted(copies, key=lambda c: (-(c.lag or 0), c.task))

    def _look(self, now_ms: int) -> None:
        """Where the changelogs end by now, without waiting for the brokers' answer."""
        if self._ends is not None and self._ends.done():
            asked, self._ends = self._ends, None
            try:
                self._learn_ends(asked.result())
            except Exception as error:  # of no copy alone: the next look asks again
                self._on_error("", error)
        if self._ends is None and now_ms >= self._look_at_ms:
            self._look_at_ms, self._asked_ms = now_ms + LOOK_MS, self._clock.wall_ms()
            ready = self._ready(now_ms)
            for copy in ready:
                self._begin(copy, now_ms)
            tps = [c.tp for copy in ready for c in copy.cursors or ()]
            self._ends = self._admin.ask_end_offsets(tps)

    def _begin(self, copy: StandbyCopy, now_ms: int) -> None:
        """Cursors from the position of what is here."""
        if copy.cursors is not None or (copy.looking is not None and not copy.looking.done()):
            return
        try:
            partition = copy.record.partition
            if copy.looking is not None and self._starts is not None:
                self._starts.adopt(copy.task, copy.looking.result(), copy.specs, partition)
                copy.looking = None
            cursors = cursors_of(self._admin, self._state, self._app, copy.specs, partition, self._asked_ms)
            ends = self._admin.end_offsets([c.tp for c in cursors])
            for cursor in cursors:  # what an open transaction hides comes with a later look
                cursor.end = ends.get(cursor.tp, cursor.position)
            copy.cursors = cursors
        except Exception as error:
            self._fail(copy, error, now_ms)

    def _learn_ends(self, ends: dict[TopicPartition, int]) -> None:
        """Learns the committed ends. A copy that has reached them is as of the time of this request."""
        with self._lock:
            copies = list(self._copies.values())
        for copy in copies:
            for cursor in copy.cursors or ():
                if (end := ends.get(cursor.tp)) is not None and end >= cursor.position:
                    cursor.go_on_to(end, self._asked_ms)
            if copy.cursors is not None:
                copy.lag = sum(c.end - c.position for c in copy.cursors)

    def _take_chunk(self, now_ms: int) -> int:
        assert self._chunk is not None
        copy, cursor, chunk = self._chunk
        if not chunk.done():
            return LOOK_MS
        self._chunk, begin_ns = None, self._clock.cpu_ns()
        try:
            found = chunk.result()
            assert isinstance(found, list)
            self._apply(copy, cursor, found)
        except Exception as error:  # this copy's alone: what was applied may be applied again
            self._fail(copy, error, now_ms)
        spent_ms = (self._clock.cpu_ns() - begin_ns) / 1e6
        share = SHARE if (copy.lag or 0) < BEHIND else SHARE_BEHIND
        self._rest_until_ms = now_ms + int(spent_ms * (1 / share - 1))
        return max(1, self._rest_until_ms - now_ms)

    def _apply(self, copy: StandbyCopy, cursor: ChangelogCursor, batches: list[KeyValues]) -> None:
        keys = [key for batch in batches for key in batch.keys]
        values = [value for batch in batches for value in batch.values]
        position = batches[-1].next_offset if batches else cursor.end  # all up to there is committed: markers are left
        self._state.restored.take(
            cursor.spec, cursor.tp.partition, keys, values, cursor.reached(position), openings=copy.openings
        )
        cursor.position = position
        copy.backoff = HEALTHY
        self.records += len(keys)
        copy.lag = sum(max(0, c.end - c.position) for c in copy.cursors or ())

    def _fail(self, copy: StandbyCopy, error: Exception, now_ms: int) -> None:
        copy.cursors, copy.backoff = None, copy.backoff.after_failure(now_ms)
        self._on_error(copy.task.rpartition("/")[0], error)


def _positions(copy: StandbyCopy, now_ms: int) -> dict[str, CopyPosition]:
    """By store. Any thread: `begun_ms` is read before what the other thread changes before it."""
    found = {}
    for cursor in copy.cursors or ():
        as_of_ms = cursor.begun_ms
        offset, end = cursor.position, cursor.end
        if offset < end:
            as_of_ms = 0 if cursor.kept is None else cursor.kept.as_of_ms
        if as_of_ms:
            found[cursor.spec.name] = CopyPosition(offset, max(0, end - offset), max(0, now_ms - as_of_ms))
    return found
