"""The ticks of an instance: all its views take the same cuts through the sources, and those that read other views read whole ticks.

A tick is a number and an end of every source partition, all of one moment, so that it never cuts a transaction of the embedded log. It is
drawn when a commit is due. Until then queries that read sources alone go on freely; then they go on to the ends and stop there for the
cut, which shows all of them after the same records. Who is far behind is not waited for: its line stays where it is until it gets there,
and it takes the next one by `aligned`. A query that reads results of others always has a line: the ends of their topics as of the newest
commit for which all of them had finished one tick.

Invariants: no input passes its line (`LogInput.line`); the ends of a topic as of tick n are taken after the commit that finishes n and before
its writers go on; a snapshot is kept as "of tick n" for a query only if the cut found all its tasks at the line of n, with nothing between them.

Ticks are not stored. After a restart each query is somewhere in a tick, and the first tick that it finishes is whole again, since those
that read it wait for that. The epoch lock guards everything; `is_ready` and `committed` take it.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Protocol

from flowql.compiler.plan.topology import Plan, stores_of
from flowql.runtime.clock import Clock
from flowql.runtime.commit.coordinator import CommitStep
from flowql.runtime.errors import LogError
from flowql.runtime.log.base import Admin, Log, TopicPartition
from flowql.runtime.scheduler.manager import TaskManager
from flowql.runtime.state.combined import CombinedSnapshot
from flowql.runtime.state.manager import StateManager
from flowql.runtime.state.snapshot import StateSnapshot
from flowql.runtime.state.store import Snapshot
from flowql.runtime.task.id import TaskId
from flowql.runtime.task.status import TaskStatus
from flowql.runtime.task.task import Task
from flowql.runtime.ticks.graph import Writers, writers_of
from flowql.runtime.ticks.numbers import aligned, cuts_of, misses_rows, whole_of, worth_keeping
from flowql.runtime.ticks.patience import FULL, UNKNOWN, Patience
from flowql.runtime.ticks.whole_states import STALE_MS, WholeStates

GRACE_MS = 20  # that a commit waits for queries on their way to the line
LOOKS_PER_MS = 2  # at least so many looks are a ms, for a clock that stands still
LOOK_S = 0.001

Ends = Mapping[TopicPartition, int]


class Lines(Protocol):
    """The polling step."""

    def ask_line(self, partitions: Callable[[], Sequence[TopicPartition]], take: Callable[[Ends], None]) -> None: ...


class Room(Protocol):
    """Bounds what is not committed."""

    @property
    def awaits_cut(self) -> bool:
        """Whether a task cannot publish before the next commit."""
        ...

    def has_reserve(self) -> bool:
        """Whether at least half of the room is free."""
        ...


class TickHost(Protocol):
    """The instance as ticks see it."""

    state: StateManager
    commit: CommitStep
    manager: TaskManager
    admin: Admin
    log: Log
    clock: Clock
    running: Plan

    @property
    def polling(self) -> Lines: ...

    @property
    def publisher(self) -> Room: ...

    def tasks_of(self, query: str) -> Sequence[Task]: ...

    def may_run(self, query: str) -> bool: ...

    def is_refused(self, query: str) -> bool:
        """Whether the log has refused what the query made, and it is back at the last commit."""
        ...


@dataclass(slots=True)
class Follower:
    """How far the writers of one topic are. done: the last tick that they had finished at a cut; target: the one that they are on the way to.

    lines: of their inputs; None while they go on freely. begun_ms: when it was first seen. tick_ms: the wall clock of the tick that the lines are of. late: a cut found
    them on the way. rested: the last cut found them at the end of `done`.
    ends: of the topic, by tick; whole: the state, by tick, and when it was committed.
    """

    writers: Writers
    lines: dict[TopicPartition, int] | None
    begun_ms: int
    done: int = 0
    target: int | None = None
    tick_ms: int | None = None
    late: bool = False
    patience: Patience = field(default_factory=Patience)
    rested: bool = False
    ends: dict[int, Ends] = field(default_factory=dict)
    whole: WholeStates = field(default_factory=WholeStates)


@dataclass(frozen=True, slots=True)
class TakenSnapshot:
    """State for an answer. reason: why queries are not at one place of their inputs; empty if they are, or if nobody has looked.
    is_whole: it is of one tick. newest: it is that of the last commit. tick: of a member, the tick that others are asked for; else 0. cut: ends
    of sources as of the tick; {}: it is of none; None: the queries follow no ticks.
    """

    snapshot: Snapshot
    reason: str = ""
    is_whole: bool = False
    newest: bool = True
    tick: int = 0
    cut: Ends | None = None


class Ticks:
    """The ticks of an instance that is alone, as its steps and readers see them. Of a member of a group: `flowql.runtime.ticks.member`."""

    def __init__(self, host: TickHost) -> None:
        self._host, self._lock = host, host.state.epoch_lock
        self._plan: Plan | None = None
        self._followers: dict[str, Follower] = {}  # by topic, upstream ones first
        self._of_query: dict[str, Follower] = {}
        self._stores: dict[str, str] = {}  # the query of each store
        self._sources: dict[int, Ends] = {}  # by tick, those that may be a target
        self._walls: dict[int, int] = {}  # the wall clock of these, in ms
        self._drawn_ms: dict[int, int] = {}  # the timer at these
        self._is_compacted = not host.log.supports_redo  # by brokers, which do not know the readers
        self._newest = 0
        self._drawn = False  # since the last cut
        self._asked_ms: int | None = None
        self._looks = 0
        self._halts = False
        self._here = set[str]()  # topics of those that were found at their lines since the last cut

    # -- the commit thread

    def is_ready(self, now_ms: int) -> bool:
        """Whether a commit that is due may be cut: all that can be at the line in a moment are there."""
        with self._lock:
            self._refresh()
            if not self._followers:
                return True
            begins = self._asked_ms is None
            if self._asked_ms is None:
                self._asked_ms, self._looks = now_ms, 0
        if begins:
            if not self._drawn:
                self._host.polling.ask_line(self._source_partitions, self._draw)
            return False
        self._looks += 1
        waited_ms = max(now_ms - self._asked_ms, self._looks // LOOKS_PER_MS)
        room = self._host.publisher
        if room.awaits_cut or (waited_ms >= GRACE_MS and not (self._drawn and room.has_reserve())):
            bound = UNKNOWN if room.has_reserve() and not room.awaits_cut else FULL
            for f in self._coming():
                f.patience.bound = bound
            return True
        return self._drawn and all(self._is_patience_over(f, waited_ms) for f in self._coming())

    def wants_cut(self) -> bool:
        """Whether a query is at its line of which no cut has said so, as it may have got there without a row, or one that stays at its line
        has timers that are due.
        """
        with self._lock:
            self._refresh()
            return any(self._is_here(f) if f.target is not None else self._is_due(f) for f in self._followers.values())

    def at_cut(self) -> list[tuple[str, int]]:
        """Those that are at a line: topics and ticks. They go on to the next one if it is known. The epoch lock is held."""
        self._asked_ms, self._drawn = None, False
        self._here.clear()
        finished, now_ms = list[tuple[str, int]](), self._host.clock.timer_ms()
        for topic, f in self._followers.items():
            f.patience.begin()
            here = self._is_here(f)
            f.rested = here and (f.target is not None or f.lines is not None)
            if f.target is None:
                continue
            if not here:
                f.late = True
                f.patience.note_split(f.writers, self._tasks(f), f.target)
                continue
            f.done, f.target, f.late = f.target, None, False
            is_whole = not (
                f.writers.reads_tables and self._is_compacted and misses_rows(self._drawn_ms[f.done], now_ms)
            )
            if not is_whole:  # it goes on to a tick that is drawn from now on
                f.done, f.rested, self._host.commit.dirty = self._newest, False, True
            if not f.writers.upstream:
                self._go_on(f)
            finished += [(topic, f.done)] if is_whole else []
        return finished

    def committed(self, finished: Sequence[tuple[str, int]]) -> None:
        """The cut that found these is committed and in the state."""
        ends = self._ends_of([topic for topic, _ in finished])
        with self._lock:
            snapshot, now_ms = self._host.state.snapshot(), self._host.clock.timer_ms()
            for topic, tick in finished:
                f = self._followers.get(topic)
                if f is None or f.done != tick:
                    continue
                if any(map(self._host.is_refused, f.writers.queries)):
                    f.rested = False
                    if f.lines is not None:
                        f.target = tick
                    continue
                if topic in ends:
                    f.ends[tick] = ends[topic]
            for f in self._followers.values():
                if f.rested and f.done:  # nothing of it has changed: the newest snapshot shows the same
                    self._keep(f, f.done, snapshot, now_ms)
                if f.writers.upstream and f.target is None:
                    self._advance(f, snapshot, now_ms)
            self._let_go(now_ms)
            snapshot.close()
            # A slow query may finish a tick, and show it, when others have taken many more.
            asked = {n for f in self._followers.values() for n in (*f.whole, f.done, f.target)}
            worth = worth_keeping(self._sources)
            self._sources = {n: ends for n, ends in self._sources.items() if n in worth or n in asked}
            self._walls = {n: self._walls[n] for n in self._sources}
            self._drawn_ms = {n: self._drawn_ms[n] for n in self._sources}
        self._host.manager.signal()

    # -- the polling and the reconciler's thread

    def adopt(self, tasks: Iterable[Task]) -> None:
        """New tasks get the lines of their queries before they run."""
        with self._lock.join():
            self._refresh()
            for task in tasks:
                f = self._of_query.get(task.id.query)
                if f is None:
                    continue
                if f.target is not None and not _reads(f, [task]) <= self._sources[f.target].keys():
                    f.target, f.tick_ms, f.rested = None, None, False  # a later tick will have them
                    f.lines = {} if f.writers.upstream else None
                    _set_lines(f, self._tasks(f))
                if f.writers.upstream and f.target is None:
                    f.rested = False
                    self._choose(f)
                    # A tick has to be drawn: queries upstream may have nothing to do, and have finished none since the start.
                    self._host.commit.dirty = True
                _set_lines(f, [task])

    def _draw(self, ends: Ends) -> None:
        with self._lock:
            self._newest, self._drawn = self._newest + 1, True
            self._sources[self._newest], self._walls[self._newest] = ends, self._host.clock.wall_ms()
            self._drawn_ms[self._newest] = self._host.clock.timer_ms()
            for f in self._followers.values():
                if f.lines is None and _reads(f, self._tasks(f)) <= ends.keys():
                    f.target, f.lines = self._newest, {}
                    self._move(f, self._newest)
            here = next(self._coming(), None) is None
        self._host.manager.signal()
        if here:
            self._host.commit.wake()

    # -- the end of the instance

    def halt(self) -> None:
        """From now on no query goes on beyond the line of the tick that all come to. Any thread."""
        with self._lock:
            self._halts = True

    def is_at_rest(self) -> bool:
        """After `halt`: whether all that can are at the end of one tick, and committed."""
        with self._lock:
            self._refresh()
            coming = dict[str, Follower]()
            for topic, f in self._followers.items():
                if (
                    not f.late
                    and all(map(self._host.may_run, f.writers.queries))
                    and f.writers.upstream <= coming.keys()
                ):
                    coming[topic] = f
            return all(f.target is None and f.lines is not None and f.done == self._newest for f in coming.values())

    def let_go(self) -> None:
        """The state is closed, or was opened again: snapshots that were taken before cannot be read, or keep it from being opened."""
        with self._lock:
            for f in self._followers.values():
                f.whole.forget()

    def follows(self, query: str) -> bool:
        with self._lock:
            self._refresh()
            return query in self._of_query

    # -- readers

    def snapshot(
        self, queries: Collection[str], timeout_s: float, look: Callable[[float], None]
    ) -> TakenSnapshot | None:
        """The state of these queries as of one tick, the newest that all have finished; else the last commit and why. None if one of them
        follows no ticks. Waits for the first tick only, no longer than `timeout_s`.
        """
        for _ in range(max(1, int(timeout_s / LOOK_S))):
            with self._lock:
                self._refresh()
                followers = {q: self._of_query.get(q) for q in queries}
                if not followers or None in followers.values():
                    return None
                found = self._combined({q: f for q, f in followers.items() if f is not None})
            if found is not None:
                return found
            if any(f is not None and f.late for f in followers.values()):
                break
            look(LOOK_S)
        late = (q for q, f in followers.items() if f is not None and (f.late or not f.whole))
        behind = min(late, default=min(queries))
        return TakenSnapshot(self._host.state.snapshot(), f"{behind} is between two ticks", cut={})

    def _combined(self, followers: Mapping[str, Follower]) -> TakenSnapshot | None:
        common = set.intersection(*(set(f.whole) for f in followers.values()))
        if not common:
            return None
        tick = max(common)
        at_rest = all(f.rested and f.done == tick for f in followers.values())
        newest = self._host.state.snapshot()
        if at_rest:
            return TakenSnapshot(newest, is_whole=True, cut=self._sources[tick])
        by_query = {q: f.whole[tick][0].retain() for q, f in followers.items()}
        combined = CombinedSnapshot(by_query, newest, self._stores)
        return TakenSnapshot(combined, is_whole=True, newest=False, cut=self._sources[tick])

    def whole_ends(self, *topics: str) -> dict[TopicPartition, int] | None:
        """The ends of the results as of the newest tick that all queries have finished, without those that are far behind; {} if none remain, None
        if they will only have finished one in a moment. A reader of several topics up to these ends sees views that fit together. topics: only of
        these, as of the newest tick that their writers have finished; sources among them end where this tick does. Writers that are held are not waited for.
        """
        with self._lock:
            self._refresh()
            since_ms = self._host.clock.timer_ms() - STALE_MS
            if not topics:
                recent = {t: f for t, f in self._followers.items() if f.whole or f.begun_ms > since_ms}
                return whole_of({t: {n: f.ends[n] for n in f.whole.keys() & f.ends.keys()} for t, f in recent.items()})
            named = {t: f for t, f in self._followers.items() if t in topics and (f.ends or f.begun_ms > since_ms)}
            ends = {topic: f.ends for topic, f in named.items()}
            return whole_of(ends, cuts_of(self._sources, topics), self._held(since_ms))

    def waits_for(self, query: str) -> tuple[str, ...] | None:
        """The queries that have to finish a tick before this one goes on; None if it has got all that there is, or need not wait."""
        with self._lock:
            f = self._of_query.get(query)
            if f is None or not f.writers.upstream or f.target is not None or f.done == self._newest:
                return None
            above = [self._followers[topic] for topic in f.writers.upstream]
            return tuple(sorted(q for a in above if a.done <= f.done for q in a.writers.queries))

    # -- all with the epoch lock

    def _refresh(self) -> None:
        """Follows the running plan."""
        plan = self._host.running
        if plan is self._plan:
            return
        before, old, self._plan = self._followers, self._plan, plan
        self._followers = {}
        for writers in writers_of(plan):
            known = before.get(writers.topic)
            if known is not None and old is not None and _are_same(known.writers, old, writers, plan):
                known.writers = writers
            else:
                known = Follower(writers, {} if writers.upstream else None, self._host.clock.timer_ms())
            self._followers[writers.topic] = known
        for topic, f in before.items():
            if self._followers.get(topic) is not f:
                f.whole.forget()
        self._stores = {store.name: q.id for q, store in stores_of(plan)}
        self._of_query = {q: f for f in self._followers.values() for q in f.writers.queries}
        self._host.commit.dirty |= bool(self._followers)

    def _source_partitions(self) -> list[TopicPartition]:
        with self._lock:
            return sorted(set[TopicPartition]().union(*(_reads(f, self._tasks(f)) for f in self._followers.values())))

    def _go_on(self, f: Follower) -> None:
        """Queries that read sources alone go on freely from the newest tick, and to the next line from an older one. A tick that brings them no
        rows is finished by the same cut: else the commit that it asked for would draw another one, and so on for ever.
        """
        while f.done < self._newest and self._choose(f):
            assert f.target is not None
            if not self._is_here(f):
                return
            f.done, f.target = f.target, None
        if not self._halts:
            f.lines = f.tick_ms = None
            _set_lines(f, self._tasks(f))

    def _advance(self, f: Follower, snapshot: StateSnapshot, now_ms: int) -> None:
        """To the next tick that all upstream have finished. One that brings no rows is finished by it, if the end of the topic is known."""
        ends = f.ends.get(f.done)
        while self._choose(f):
            if not (f.rested and self._is_here(f)) or (ends is None and f.writers.is_read):
                return
            assert f.target is not None
            f.done, f.target = f.target, None
            if ends is not None:
                f.ends[f.done] = ends
            self._keep(f, f.done, snapshot, now_ms)

    def _choose(self, f: Follower) -> bool:
        """Sets the next target and the lines of it, if it is known."""
        known = [self._sources, *(self._followers[t].ends for t in f.writers.upstream)]
        reads = _reads(f, self._tasks(f))
        later = (n for n in set.intersection(*map(set, known)) if n > f.done)
        target = aligned(n for n in later if reads <= self._sources[n].keys())
        if target is None:
            return False
        f.target = target
        self._move(f, target)
        return True

    def _keep(self, f: Follower, tick: int, snapshot: StateSnapshot, now_ms: int) -> None:
        """Its state as of a tick is that of this commit."""
        f.whole.keep(tick, snapshot.retain(), now_ms)

    def _let_go(self, now_ms: int) -> None:
        """Snapshots older than the newest tick that all have finished: no answer will be of them."""
        finished = [set(f.whole) for f in self._followers.values() if f.whole]
        oldest = max(set.intersection(*finished), default=0) if finished else 0
        for f in self._followers.values():
            f.whole.let_go(oldest, now_ms)
            f.ends = {n: f.ends[n] for n in worth_keeping(f.ends)}

    def _move(self, f: Follower, tick: int) -> None:
        lines = {tp: end for tp, end in self._sources.get(tick, {}).items() if tp.topic in f.writers.sources}
        for topic in f.writers.upstream:
            lines |= self._followers[topic].ends[tick]
        f.lines, f.tick_ms = lines, self._walls[tick]
        _set_lines(f, self._tasks(f))

    def _coming(self) -> Iterator[Follower]:
        """Those that a cut waits for and that are not at their lines."""
        for topic, f in self._followers.items():
            if f.target is None or f.late or topic in self._here:
                continue
            if self._is_here(f):
                self._here.add(topic)  # and stays there until the cut
            elif all(map(self._host.may_run, f.writers.queries)):
                yield f

    def _is_patience_over(self, f: Follower, waited_ms: int) -> bool:
        is_first = not any(other.done for other in self._followers.values())
        return f.patience.is_over(self._host, f.writers, self._tasks(f), waited_ms, GRACE_MS, is_first=is_first)

    def _held(self, since_ms: int) -> set[str]:
        """Topics that have stayed behind a tick since then because a query does not run: their writer, or one upstream."""
        found = set[str]()
        for topic, f in self._followers.items():
            is_held = not all(map(self._host.may_run, f.writers.queries)) or bool(f.writers.upstream & found)
            last = max(f.ends, default=0)
            if is_held and any(n > last and drawn_ms < since_ms for n, drawn_ms in self._drawn_ms.items()):
                found.add(topic)
        return found

    def _is_here(self, f: Follower) -> bool:
        known: dict[TaskId, bool] = {}
        tasks = self._tasks(f)
        return bool(tasks) and all(t.status is TaskStatus.RUNNING and t.idle_with(known) for t in tasks)

    def _is_due(self, f: Follower) -> bool:
        """Whether it waits for a tick to take a timer by the wall clock into account."""
        if f.tick_ms is None or self._halts:
            return False
        now_ms = self._host.clock.wall_ms()
        due = (task.program.due_ms for task in self._tasks(f) if self._host.may_run(task.id.query))
        return any(ms is not None and ms <= now_ms for ms in due)

    def _tasks(self, f: Follower) -> list[Task]:
        return [task for query in f.writers.queries for task in self._host.tasks_of(query)]

    def _ends_of(self, topics: Iterable[str]) -> dict[str, Ends]:
        """The ends of these topics. The commit thread calls it before their writers go on."""
        read = [t for t in topics if t in self._followers]
        if not read:
            return {}
        with suppress(LogError):  # brokers are away: the next tick will do
            known = self._host.admin.topics()
            tps = [TopicPartition(t, p) for t in read if t in known for p in range(known[t].partitions)]
            ends = self._host.admin.end_offsets(tps)
            return {t: {tp: end for tp, end in ends.items() if tp.topic == t} for t in read if t in known}
        return {}


def _are_same(old: Writers, old_plan: Plan, new: Writers, plan: Plan) -> bool:
    """Whether they read the same and keep the same state: ticks that they have finished hold on."""
    if (old.queries, old.sources, old.upstream) != (new.queries, new.sources, new.upstream):
        return False
    return all(old_plan.by_id[q].subtopologies == plan.by_id[q].subtopologies for q in new.queries)


def _reads(f: Follower, tasks: Iterable[Task]) -> set[TopicPartition]:
    """The partitions of sources that these tasks read. A tick without the end of one was drawn before they were made: they would finish it wherever
    they are.
    """
    return {i.tp for task in tasks for i in task.logs.values() if i.tp.topic in f.writers.sources}


def _set_lines(f: Follower, tasks: Iterable[Task]) -> None:
    for task in tasks:
        task.tick_ms = f.tick_ms
        for i in task.logs.values():
            i.line = None if f.lines is None else f.lines.get(i.tp, i.position)
            if i.queue:
                i.wake()
