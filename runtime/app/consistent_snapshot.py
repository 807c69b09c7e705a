"""Snapshots in which queries that read the same input have read the same of it.

A commit takes every task at its current position (rule R1). Two tables that are computed from one topic may therefore be at different positions
of it within the same commit. An interactive query that needs them to agree requests a consistent snapshot; only the queries behind these tables wait
for it. They are brought to the same offsets in the partitions they share, a commit is cut there, and they continue at the cut, before it is on disk.

- A query whose tasks read one partition each stops at the offset of the query that is furthest ahead (`LogInput.stop_at`).
- Other queries merge inputs by time, and rows in their exchanges cannot be processed before earlier rows that may still arrive. They
  stop at a *read-up-to time*: they process all rows up to that time and none after it. Stopping does not change the order of rows, and so no result.

Offsets are compared again at every look: a micro-batch may end beyond them, and then the other queries follow. Not possible for tables fed by
a topic that another of the queries writes from the same input, since its records become visible only after a commit.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, field

import numpy as np

from flowql.runtime.clock import Clock
from flowql.runtime.commit.coordinator import CommitStep
from flowql.runtime.errors import RuntimeFailure
from flowql.runtime.log.base import TopicPartition
from flowql.runtime.scheduler.manager import TaskManager
from flowql.runtime.state.manager import StateManager
from flowql.runtime.state.store import Snapshot
from flowql.runtime.task.input_buffer import LogInput
from flowql.runtime.task.read_up_to import ReadUpTo
from flowql.runtime.task.task import Task

TIMEOUT_S = 1.0  # how long a query may hold the others up
LOOK_S = 0.001
COMMIT_S = 30.0  # after the cut no query is held up any longer
GAP_ROWS_MAX = 100_000  # a query that is further behind does not catch up within the timeout
REST = 10  # after a failure queries are not held up again for this many times the time they were held up
BEGINNING = -(1 << 63)
REFUSED = "refused by the log"  # the trouble of a query that goes back to the last commit


@dataclass(frozen=True, slots=True)
class ConsistentSnapshot:
    """The snapshot of a commit. reason: why the queries are not at the same offsets in it; empty if they are."""

    snapshot: Snapshot
    reason: str = ""

    @property
    def consistent(self) -> bool:
        return not self.reason


class OffsetsDiffer(RuntimeFailure):
    """A query processed more records between the last look and the cut."""


@dataclass(slots=True)
class TaskSet:
    """Tasks by query, and by partition those of their inputs that are brought to the same offset."""

    tasks: dict[str, list[Task]]
    shared: dict[TopicPartition, list[tuple[str, LogInput]]]

    @property
    def together(self) -> bool:
        """Whether all are at the same offsets, with no row in an exchange. The epoch lock is held."""
        if any(channel.has_rows for tasks in self.tasks.values() for t in tasks for channel in t.exchanges.values()):
            return False
        return all(len({i.at for _, i in readers}) == 1 for readers in self.shared.values())


@dataclass(slots=True)
class StoppedInputs:
    """The inputs that are stopped now, at an offset or at a read-up-to time. Called under the epoch lock, except for `lift`."""

    read_up_to: ReadUpTo = field(default_factory=ReadUpTo)
    stopped: list[LogInput] = field(default_factory=list)

    def move(self, group: TaskSet) -> bool:
        """Stops all queries at the offset of the one furthest ahead. True if that offset has changed."""
        changed, ms = False, self.read_up_to.ms if self.read_up_to.ms is not None else BEGINNING
        merging = {q for q, tasks in group.tasks.items() if any(len(t.inputs) > 1 or t.exchanges for t in tasks)}
        for readers in group.shared.values():
            place = max(i.at for _, i in readers)
            for query, i in readers:
                if query in merging:
                    ms = max(ms, _latest_before(i, place))
                elif i.stop_at != place:
                    i.stop_at, changed = place, True
                    self.stopped.append(i)
        for query in sorted(merging):
            for task in group.tasks[query]:
                task.read_up_to = self.read_up_to
                ms = max([ms, *(int(b.rowtime.max()) for x in task.exchanges.values() for b in x.queue if len(b))])
        if merging and ms != self.read_up_to.ms:
            self.read_up_to.ms, changed = ms, True  # one write, after all tasks have it
        return changed

    def lift(self) -> None:
        for i in self.stopped:
            i.stop_at = None
        self.read_up_to.ms = None


def _latest_before(source: LogInput, place: int) -> int:
    """The time of the latest known row that the query has to process to come to `place`."""
    decoded = source.decoded
    if decoded is None or decoded.raw is None or source.at >= place:
        return BEGINNING
    offsets = decoded.raw.records.column(0).to_numpy()
    end = int(np.searchsorted(decoded.origin, int(np.searchsorted(offsets, place))))
    times = decoded.batch.rowtime[decoded.cursor : end]
    return int(times.max()) if len(times) else BEGINNING


@dataclass(slots=True)
class _PendingSnapshot:
    """A snapshot on its way from the commit thread to the requesting thread, which may have timed out. `lock` guards all fields."""

    snapshot: Snapshot | None = None
    cut: bool = False
    given_up: bool = False
    without: list[str] = field(default_factory=list)
    lock: threading.Lock = field(default_factory=threading.Lock)


class ConsistentSnapshots:
    """Consistent snapshots of an instance. Any thread but its own; one at a time."""

    def __init__(
        self,
        state: StateManager,
        commit: CommitStep,
        manager: TaskManager,
        clock: Clock,
        *,
        tasks: Callable[[str], Sequence[Task]],
        trouble: Callable[[str], str],
        look: Callable[[float], None],
    ) -> None:
        """tasks: of a query, none if there is no such query. trouble: why it does not run, or nothing. look: wait a bit."""
        self._state, self._commit, self._manager, self._clock = state, commit, manager, clock
        self._tasks, self._trouble, self._look = tasks, trouble, look
        self._turn = threading.Lock()
        self._rest_until_ms: dict[frozenset[str], int] = {}

    def snapshot(
        self,
        queries: Collection[str],
        timeout_s: float = TIMEOUT_S,
        *,
        stay: bool = False,
        take: Callable[[], Snapshot] | None = None,
    ) -> ConsistentSnapshot:
        """A commit, no older than the newest, in which `queries` are at one place in what they share; or the newest and why not.

        Pauses no query for longer than `timeout_s`. stay: the queries stay paused if it succeeds. take: returns a snapshot of the last
        commit; default: `StateManager.snapshot`.
        """
        take = take or self._state.snapshot
        if not self._turn.acquire(timeout=timeout_s):
            return ConsistentSnapshot(take(), "too many ask for it at once")
        try:
            names, start = frozenset(queries), self._clock.timer_ms()
            if start < self._rest_until_ms.get(names, start):
                return ConsistentSnapshot(take(), "a moment ago it took too long")
            found = self._bring_together(names, timeout_s, take, stay=stay)
            if not isinstance(found, str):
                return ConsistentSnapshot(found)
            self._rest_until_ms = {n: t for n, t in self._rest_until_ms.items() if t > start}
            self._rest_until_ms[names] = self._clock.timer_ms() + REST * (self._clock.timer_ms() - start)
            return ConsistentSnapshot(take(), found)
        finally:
            self._turn.release()

    def _bring_together(
        self, names: frozenset[str], timeout_s: float, take: Callable[[], Snapshot], *, stay: bool
    ) -> Snapshot | str:
        """The snapshot, or the reason why there is none."""
        barrier, limit_ms, found = StoppedInputs(), self._clock.timer_ms() + int(timeout_s * 1000), None
        try:
            for number in range(max(1, int(timeout_s / LOOK_S))):
                with self._state.epoch_lock:
                    group = self._group(names)
                    at_rest = group.together and self._commit.idle
                    moved = False
                    if group.shared:
                        if reason := self._hopeless(group):
                            return reason
                        if at_rest and not number and not stay and take == self._state.snapshot:
                            return take()  # as it is
                        moved, together = barrier.move(group), group.together
                        if stay and together:
                            together = not self._in_a_slice(group)
                if not group.shared:
                    return take()
                if moved:
                    self._manager.signal()
                if together:
                    found = self._cut(names, barrier, limit_ms, take, stay=stay)
                    if found is not None:
                        return found
                if self._clock.timer_ms() > limit_ms:
                    break
                self._look(LOOK_S)
            return f"they did not come together within {timeout_s:g} s"
        finally:
            if not stay or found is None or isinstance(found, str):
                barrier.lift()
                self._manager.signal()

    def _group(self, names: frozenset[str]) -> TaskSet:
        """The epoch lock is held."""
        tasks = {q: list(self._tasks(q)) for q in sorted(names)}
        readers: dict[TopicPartition, list[tuple[str, LogInput]]] = {}
        for q, its in tasks.items():
            for task in its:
                for i in task.logs.values():
                    readers.setdefault(i.tp, []).append((q, i))
        shared = {tp: found for tp, found in readers.items() if len({q for q, _ in found}) > 1}
        involved = {q for found in shared.values() for q, _ in found}
        return TaskSet({q: tasks[q] for q in sorted(involved)}, shared)

    def _hopeless(self, group: TaskSet) -> str:
        """Why no query should be held up for this snapshot; empty if nothing speaks against it."""
        troubles = {query: trouble for query in group.tasks if (trouble := self._trouble(query))}
        if group.together:
            troubles = {
                q: t for q, t in troubles.items() if t == REFUSED
            }  # its results since the last commit are withdrawn
        for query, trouble in troubles.items():
            return f"{query} is {trouble}"
        if group.together:
            return ""
        for readers in group.shared.values():
            place = max(i.at for _, i in readers)
            for query, i in readers:
                if place - i.at > GAP_ROWS_MAX:
                    return f"{query} is {place - i.at} records behind in {i.tp.topic}"
        return ""

    def _in_a_slice(self, group: TaskSet) -> bool:
        """Whether a processing thread holds a task of the group. Its run may have begun before the barrier was set, and then ends beyond it."""
        return not group.tasks.keys().isdisjoint(self._manager.at_work())

    def _cut(
        self, names: frozenset[str], barrier: StoppedInputs, limit_ms: int, take: Callable[[], Snapshot], *, stay: bool
    ) -> Snapshot | str | None:
        """Commit what is together now; None if it no longer was at the cut."""
        taken = _PendingSnapshot()

        def at_the_cut() -> None:
            with taken.lock:
                if taken.given_up:
                    return
                if not self._group(names).together:
                    raise OffsetsDiffer("a query went on")
                taken.cut = True
            if not stay:
                barrier.lift()
                self._manager.signal()

        def committed() -> None:
            with taken.lock:
                taken.without = [
                    q for q in sorted(names) if self._trouble(q) == REFUSED
                ]  # it was taken out of this commit
                if not taken.given_up and not taken.without:
                    taken.snapshot = take()

        done = self._commit.request(at_the_cut, committed)
        for _ in range(int(COMMIT_S / LOOK_S)):
            over_ms = self._clock.timer_ms() - limit_ms
            if done.done() or over_ms > (COMMIT_S * 1000 if taken.cut else 0):
                break
            self._look(LOOK_S)
        with taken.lock:
            taken.given_up = True
        if done.done() and isinstance(done.exception(), OffsetsDiffer):
            return None
        if done.done():
            done.result()
        if taken.without:
            return f"{taken.without[0]} is {REFUSED}"
        return taken.snapshot or "the commit does not get through"
