"""The ticks of an instance: all its views take the same cuts through the sources, and those that read other views read whole ticks.

A tick is a number and an end of every source partition, all of one moment. `Course` decides which tick a stage takes next, and its tasks stop at the
*line* of this tick: the ends of their inputs as of it. A cut that finds a task at its line, with nothing left to do, tells that it has finished the
tick. `StageTicks` is this state machine. Who draws ticks and gives lines, and how a finished tick becomes known, depends on the log: see its classes.

Invariants: no input passes its line (`LogInput.line`); the ends of a topic as of tick n are taken after the commit that finishes n and before
its writers commit more; state is kept as of tick n only if the cut found all tasks of the stage here at the line of n, with nothing between them.

Ticks are not stored. After a restart each query is somewhere in a tick, and the first tick that it finishes is whole again, since those
that read it wait for that. The epoch lock guards everything; `is_ready` and `committed` take it.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from operator import is_not

from flowql.compiler.plan.topology import Plan
from flowql.runtime.log.base import TopicPartition
from flowql.runtime.state.combined import CombinedSnapshot
from flowql.runtime.state.snapshot import StateSnapshot
from flowql.runtime.task.channels import Known
from flowql.runtime.task.status import TaskStatus
from flowql.runtime.task.task import Task
from flowql.runtime.ticks.course import Course
from flowql.runtime.ticks.graph import Stage, stages_of
from flowql.runtime.ticks.host import TickHost, ends_of
from flowql.runtime.ticks.numbers import ByTick, cuts_of, whole_of
from flowql.runtime.ticks.patience import FULL, UNKNOWN, Patience
from flowql.runtime.ticks.record import Ends, Line, Lines
from flowql.runtime.ticks.whole_states import STALE_MS, TakenSnapshot, WholeStates

LOOKS_PER_MS = 2  # at least so many looks are a ms, for a clock that stands still
LOOK_S = 0.001
FINISHED_MAX = 64  # ticks of a stage that are remembered as finished


@dataclass(slots=True)
class Follower:
    """A stage at this instance. plans: those of its queries. begun_ms: since when it is known. tasks: those here, by name; made_of: its queries' tasks.

    line: of its tasks; None before the first one, and while they run freely. next: a newer one, for the next cut. told: tasks that have finished `line.tick`.
    here: tasks that a look has found at the line since the last cut. late: a cut did not find all tasks at the line in time. done: the last tick that
    all tasks here have finished; rested: the last cut found them there.
    finished: ticks that all tasks of all instances have finished; ends: of its topics, by such ticks; whole: the state of the tasks here, by tick.
    """

    writers: Stage
    plans: tuple[object, ...]
    begun_ms: int
    runs_free: bool
    line: Line | None = None
    next: Line | None = None
    told: set[str] = field(default_factory=set)
    here: set[str] = field(default_factory=set)
    late: bool = False
    patience: Patience = field(default_factory=Patience)
    done: int = 0
    rested: bool = False
    finished: set[int] = field(default_factory=set)
    ends: ByTick[Ends] = field(default_factory=ByTick)
    whole: WholeStates = field(default_factory=WholeStates)
    tasks: Mapping[str, Task] = field(default_factory=dict)
    made_of: Sequence[Sequence[Task]] = ()

    @property
    def tick(self) -> int:
        """The tick of its line; 0 if it has none."""
        return 0 if self.line is None else self.line.tick


class StageTicks(ABC):
    """Ticks as the steps and the readers of an instance see them."""

    grace_ms = 20  # that a commit waits for queries on their way to the line

    def __init__(self, host: TickHost, group: str | None) -> None:
        """group: the application, if other instances may have tasks of it."""
        self._host, self._lock, self._group = host, host.state.epoch_lock, group
        self._plan: tuple[Plan, frozenset[str]] | None = None
        self._followers: dict[str, Follower] = {}  # by topic, upstream ones first
        self._of_sub: dict[tuple[str, int], Follower] = {}
        self._stores: dict[str, str] = {}  # query and number of the sub-topology of each store
        self._cuts = ByTick[dict[TopicPartition, int]]()  # ends of sources, by ticks that stages may be at
        self._known_ms = ByTick[int]()  # since when it is known that it can be finished
        self._asked_ms: int | None = None
        self.free: Callable[[], frozenset[str]] = frozenset  # queries that follow no lines for now: they swap in

    # -- the commit thread

    @abstractmethod
    def is_ready(self, now_ms: int) -> bool:
        """Whether a commit that is due may be cut: all that can be at the line in a moment are there."""

    def wants_cut(self) -> bool:
        """Whether tasks have finished a tick, and no cut has said so: they may have got there without a row."""
        with self._lock.join():
            self._refresh()
            known = Known()
            return any(self._is_here(t, known) for f in self._followers.values() for _, t in self._coming(f))

    def at_cut(self) -> list[tuple[str, int]]:
        """Tasks that have finished the tick of their line. The epoch lock is held."""
        self._refresh()
        self._asked_ms = None
        finished = self._found_here()
        for f in self._followers.values():
            f.here.clear()
            f.patience.begin()
            if f.late and any(t.status is TaskStatus.RUNNING and self._may_run(t) for _, t in self._coming(f)):
                f.patience.note_split(f.writers, list(self._tasks(f).values()), f.tick)
        return finished

    @abstractmethod
    def committed(self, finished: Sequence[tuple[str, int]]) -> None:
        """The cut that found these is committed and in the state."""

    # -- the threads that make tasks, and the end of the instance

    def adopt(self, tasks: Iterable[Task]) -> None:
        """New tasks get the lines of their stages before they run."""
        with self._lock.join():
            self._refresh()
            for task in tasks:
                if (f := self._of_sub.get((task.id.query, task.id.subtopology))) is not None:
                    self._forget(str(task.id))
                    self._set_line(f, task)

    def halt(self) -> None:  # noqa: B027 - members that stop leave their tasks where they are
        """From now on no query goes on beyond the line of the tick that all come to. Any thread."""

    def is_at_rest(self) -> bool:
        """After `halt`: whether all that can are at the end of one tick, and committed."""
        return True

    def let_go(self) -> None:
        """The state is closed, or was opened again: snapshots that were taken before cannot be read, or keep it from being opened."""
        with self._lock:
            for f in self._followers.values():
                f.whole.forget()

    # -- readers

    def follows(self, query: str) -> bool:
        with self._lock:
            self._refresh()
            return any(query == of for of, _ in self._of_sub)

    def snapshot(
        self, queries: Collection[str], timeout_s: float, look: Callable[[float], None]
    ) -> TakenSnapshot | None:
        """The state of these queries as of one tick, the newest that all of their tasks have finished, wherever they are; else the last commit and
        why. None if one of them follows no ticks. Waits for the first tick only, no longer than `timeout_s`.
        """
        for _ in range(max(1, int(timeout_s / LOOK_S))):
            with self._lock:
                self._refresh()
                stages = self._behind(queries)
                if not queries or set(queries) - {q for f in stages for q in f.writers.queries}:
                    return None
                for tick in sorted(set.intersection(*map(self._shown, stages)), reverse=True):
                    if (found := self._taken(queries, tick)) is not None:
                        return found
            if self._group is not None or any(f.late for f in stages):
                break
            look(LOOK_S)
        late = (q for f in stages if f.late or not f.whole for q in f.writers.queries if q in queries)
        reason = f"{min(late, default=min(queries))} is between two ticks"
        return TakenSnapshot(self._host.state.snapshot(), reason, cut={})

    def snapshot_at(self, queries: Collection[str], tick: int) -> CombinedSnapshot | None:
        """The state of the tasks that are here as of one tick; None if it is not kept."""
        with self._lock.join():
            self._refresh()
            stages = self._behind(queries)
            if any(tick not in f.whole and self._tasks(f) for f in stages):
                return None
            of = [(f.writers.subs, f.whole[tick][0]) for f in stages if tick in f.whole]
            kept = {f"{query}/{number}": snapshot.retain() for subs, snapshot in of for query, number in subs}
            return CombinedSnapshot(kept, self._host.state.snapshot(), self._stores)

    def ends_at(self, queries: Collection[str], tick: int) -> Ends | None:
        """The ends of the results of these queries as of one tick; None if they are not known."""
        with self._lock.join():
            stages = self._behind(queries)
            if any(tick not in f.ends for f in stages):
                return None
            return {tp: end for f in stages for tp, end in f.ends[tick].items()}

    def whole_ends(self, *topics: str) -> dict[TopicPartition, int] | None:
        """The ends of the results as of the newest tick that all queries have finished, without those that others have been ahead of for `STALE_MS`; {}
        if none remain, None if they will only have finished one in a moment. A reader of several topics up to these ends sees views that fit
        together. topics: only of these, as of the newest tick that their writers have finished; sources among them end where this tick does.
        Writers that are late because a query does not run are not waited for.
        """
        with self._lock:
            self._refresh()
            since_ms = self._host.clock.timer_ms() - STALE_MS
            stale = max((tick for tick, at_ms in self._known_ms.items() if at_ms < since_ms), default=0)
            ends, held = dict[str, Mapping[int, Ends]](), set[str]()
            for name, f in self._followers.items():
                late = max(f.ends, default=0) < stale
                if late and (f.writers.upstream & held or not all(map(self._host.may_run, f.writers.queries))):
                    held.add(name)
                if topics and f.writers.writes.isdisjoint(topics):
                    continue
                if not late or (f.ends and topics) or f.begun_ms > since_ms:
                    ends[name] = f.ends
            return whole_of(ends, cuts_of(self._cuts, topics), held if topics else ())

    def waits_for(self, query: str) -> tuple[str, ...] | None:
        """The queries that have to finish a tick before this one goes on; None if it has got all that there is, or need not wait."""
        with self._lock:
            found = set[str]()
            for (of, _), f in self._of_sub.items():
                if of == query and (f.line is None or self._is_there(f)):
                    behind = (a for name in f.writers.upstream if any(self._coming(a := self._followers[name])))
                    found.update(q for a in behind for q in a.writers.queries)
            return tuple(sorted(found - {query})) or None

    # -- all with the epoch lock

    def _refresh(self) -> frozenset[str] | None:
        """Follows the running plan. Returns the stages that it has as before; None if it is the same plan."""
        plan, free = self._host.running, self.free()
        if self._plan is not None and plan is self._plan[0] and free == self._plan[1]:
            return None
        before, self._plan, now_ms = self._followers, (plan, free), self._host.clock.timer_ms()
        self._followers, same = {}, set[str]()
        for stage in stages_of(plan, self._group):
            plans = tuple((q.generation, q.subtopologies) for q in map(plan.by_id.__getitem__, stage.queries))
            f = before.get(stage.topic)
            if f is not None and (f.writers, f.plans) == (stage, plans):
                same.add(stage.topic)
            else:  # lines of a group hold on: they never go back
                line, later = (None, None) if f is None or self._group is None else (f.line, f.next)
                f = Follower(stage, plans, now_ms, self._group is None and not stage.upstream, line, later)
            self._followers[stage.topic] = f
        for name in before.keys() - same:
            before[name].whole.forget()
        subs = [(f"{q.id}/{sub.number}", sub) for q in plan.queries for sub in q.subtopologies]
        self._stores = {store.name: part for part, sub in subs for op in sub.operators for store in op.stores}
        old, stages = self._of_sub, self._followers.values()
        self._of_sub = {sub: f for f in stages for sub in f.writers.subs if sub[0] not in free}
        for f in stages:
            f.made_of = ()
        for sub in old.keys() ^ self._of_sub.keys():
            for task in (t for t in self._host.tasks_of(sub[0]) if t.id.subtopology == sub[1]):
                self._set_line(self._of_sub.get(sub), task)
        return frozenset(same)

    def _learn(self, lines: Lines) -> None:
        """New lines, in their order: `next` of their stages; and which ticks have been finished."""
        now_ms = self._host.clock.timer_ms()
        for name, line in lines.stages.items():
            if (f := self._followers.get(name)) is not None:
                mine = {tp: end for tp, end in line.ends.items() if tp.topic in f.writers.sources}
                self._cuts.setdefault(line.tick, {}).update(mine)
                if line.tick > max(x.tick if x else 0 for x in (f.line, f.next)):
                    f.next = line
        for name, tick in lines.done.items():
            if (f := self._followers.get(name)) is not None:
                f.finished.add(tick)
                if len(f.finished) > FINISHED_MAX:
                    f.finished.remove(min(f.finished))
        for name, (tick, ends) in lines.ends.items():
            if (f := self._followers.get(name)) is not None:
                f.ends.trim([f.whole])
                f.ends[tick] = ends
                self._known_ms.setdefault(tick, now_ms)
        self._known_ms.trim()
        stages = self._followers.values()
        self._cuts.trim(numbers for f in stages for numbers in (f.whole, f.ends, f.finished, (f.tick,)))

    def _take_up(self) -> None:
        """Nothing that is published is of a tick that has begun: tasks go on to the newest lines."""
        for f in self._followers.values():
            if f.next is not None:
                f.line, f.next = f.next, None
                self._begin(f)
        self._host.manager.signal()

    def _begin(self, f: Follower) -> None:
        """Tasks of a stage go on to another line."""
        f.told.clear()
        f.here.clear()
        f.late = False
        for task in self._tasks(f).values():
            self._set_line(f, task)

    def _set_line(self, f: Follower | None, task: Task) -> None:
        """f: the stage of the task; None if it follows no lines."""
        line = None if f is None else f.line
        task.tick_ms = None if line is None else line.wall_ms
        for i in task.logs.values():
            held = None if f is None or f.runs_free else i.position
            i.line = held if line is None else line.ends.get(i.tp, i.position)
            if i.queue:
                i.wake()

    def _tasks(self, f: Follower) -> Mapping[str, Task]:
        """By name, and kept: each look asks for them, and a host replaces the tasks of a query as a whole."""
        made_of = [self._host.tasks_of(query) for query in f.writers.queries]
        if len(made_of) != len(f.made_of) or any(map(is_not, made_of, f.made_of)):
            mine = (t for made in made_of for t in made if self._of_sub.get((t.id.query, t.id.subtopology)) is f)
            f.made_of, f.tasks = made_of, {str(task.id): task for task in mine}
        return f.tasks

    def _coming(self, f: Follower) -> Iterator[tuple[str, Task]]:
        """Tasks that have not told that they have finished the tick of their line, by name."""
        return (item for item in (() if f.line is None else self._tasks(f).items()) if item[0] not in f.told)

    def _is_there(self, f: Follower) -> bool:
        """Whether all tasks have finished the tick of their line."""
        return f.line is not None and bool(self._tasks(f)) and not any(self._coming(f))

    def _is_here(self, task: Task, known: Known) -> bool:
        return task.status is TaskStatus.RUNNING and task.idle_with(known)

    def _may_run(self, task: Task) -> bool:
        return self._host.may_run(task.id.query)

    def _is_on_its_way(self, f: Follower, known: Known) -> bool:
        """Whether a commit should wait for a stage."""
        for name, task in () if f.late else self._coming(f):
            if task.status is TaskStatus.RUNNING and name not in f.here:
                if task.idle_with(known):
                    f.here.add(name)  # and stays there until the cut
                elif self._may_run(task):
                    return True
        return False

    def _found_here(self) -> list[tuple[str, int]]:
        """Tasks that have finished the tick of their line, and have not told so yet."""
        found, known = list[tuple[str, int]](), Known()
        for f in self._followers.values():
            here = [name for name, task in self._coming(f) if self._is_here(task, known)]
            f.told.update(here)
            found += [(task, f.tick) for task in here]
        return found

    def _waits_no_more(self, waited_ms: int, bound: str = "") -> bool:
        """Whether a commit that has waited so long is cut: nobody is on the way to a line, or it takes too long. bound: why it waits for nobody."""
        room, late, known = self._host.publisher, list[Follower](), Known()
        if room.awaits_cut or (waited_ms >= self.grace_ms and not room.has_reserve()):
            bound = FULL
        is_first = not any(f.finished for f in self._followers.values())
        for f in self._followers.values():
            if not self._is_on_its_way(f, known):
                continue
            tasks = [task for _, task in self._coming(f)]
            if bound:
                f.patience.bound = bound
            elif not f.patience.is_over(self._host, f.writers, tasks, waited_ms, self.grace_ms, is_first=is_first):
                return False
            late.append(f)
        for f in late:
            f.late = True
        return True

    def _forget(self, task: str) -> None:
        """A task is made anew, or is back at the last commit."""
        for f in self._followers.values():
            f.told.discard(task)
            f.here.discard(task)

    def _shown(self, f: Follower) -> set[int]:
        """Ticks that an answer may be of."""
        return set(f.whole) if self._group is None else f.finished

    def _behind(self, queries: Collection[str]) -> list[Follower]:
        return [f for f in self._followers.values() if not set(f.writers.queries).isdisjoint(queries)]

    def _taken(self, queries: Collection[str], tick: int) -> TakenSnapshot | None:
        """An answer as of a tick that all have finished; None if its state is not kept here, or the ends of its topics are not known."""
        cut, ends = self._cuts.get(tick, {}), self.ends_at(queries, tick)
        if ends is None:
            return None
        if all(f.rested and f.done == tick and tick in f.whole for f in self._behind(queries)):
            return TakenSnapshot(self._host.state.snapshot(), is_whole=True, cut=cut, ends=ends)
        if (found := self.snapshot_at(queries, tick)) is None:
            return None
        of_members = 0 if self._group is None else tick
        return TakenSnapshot(found, is_whole=True, newest=False, tick=of_members, cut=cut, ends=ends)

    def _keep(self, f: Follower, tick: int, snapshot: StateSnapshot, now_ms: int) -> None:
        """The state of a stage as of a tick is that of this commit."""
        f.whole.keep(tick, snapshot.retain(), now_ms)

    def _let_go(self) -> None:
        """No answer will be of a tick before the newest that all stages have finished; and none is kept for long, as the store cannot drop old rows."""
        now_ms, is_alone = self._host.clock.timer_ms(), self._group is None
        finished = [self._shown(f) for f in self._followers.values() if f.whole or not is_alone]
        oldest = max(set.intersection(*finished), default=0) if finished else 0
        for f in self._followers.values():
            f.whole.let_go(oldest, now_ms, 0 if is_alone else max(f.whole, default=0))


class Ticks(StageTicks):
    """The ticks of an instance that is alone. It draws them when a commit is due, and its course is in memory.

    Between two ticks, queries that read sources alone run freely. A tick is drawn in the polling thread, so no input has passed its ends. A tick that
    brings a stage no rows is finished by the cut or the commit before: else it would ask for a commit, which draws another tick, and so on.
    """

    def __init__(self, host: TickHost) -> None:
        super().__init__(host, None)
        is_compacted = not host.log.supports_redo
        self._course = Course((), {}, 0, {}, host.clock.timer_ms, alone=True, is_compacted=is_compacted)
        self._drawn = False  # since the last cut
        self._asked: list[TopicPartition] = []  # whose ends the next tick has
        self._fitted: list[Task] = []  # tasks that the course knows
        self._looks = 0
        self._halts = False

    def is_ready(self, now_ms: int) -> bool:
        with self._lock:
            self._refresh()
            if not self._followers:
                return True
            if self._asked_ms is not None:
                self._looks += 1
                waited_ms = max(now_ms - self._asked_ms, self._looks // LOOKS_PER_MS)
                if self._drawn:
                    return self._waits_no_more(waited_ms)
                is_over = waited_ms >= self.grace_ms or self._host.publisher.awaits_cut
                return is_over and self._waits_no_more(waited_ms, UNKNOWN)
            self._asked_ms, self._looks = now_ms, 0
        if not self._drawn:
            self._host.polling.ask_line(self._source_partitions, self._draw)
        return False

    def wants_cut(self) -> bool:
        """As of the base; also if a stage that stays at its line has timers that are due."""
        with self._lock.join():
            return super().wants_cut() or (not self._halts and any(map(self._is_due, self._followers.values())))

    def at_cut(self) -> list[tuple[str, int]]:
        finished = super().at_cut()
        for topic in self._course.to_ask():  # the commit of the cut before never came: tasks start over
            self._course.learn(topic, None)
        self._drawn = False
        for f in self._followers.values():
            f.rested = self._is_there(f)
            f.late |= f.line is not None and not f.rested
        self._finish(there := [f for f in self._followers.values() if f.rested])
        for f in (f for f in there if f.rested and f.done not in f.ends):
            self._course.ask(f.writers.topic, f.done)  # for the first time, or brokers were away
        self._finish_empty()
        for f in there:
            if f.runs_free and self._is_there(f) and not self._halts:
                f.line = None
                self._begin(f)
        return finished

    def committed(self, finished: Sequence[tuple[str, int]]) -> None:
        with self._lock:
            asked = self._course.to_ask()
        found = ends_of(self._host.admin, asked)
        with self._lock:
            ends, stages = found or {}, self._behind({task.rpartition("/")[0] for task, _ in finished})
            for f in (f for f in stages if any(map(self._host.is_refused, f.writers.queries))):
                f.told.clear()  # it is back at the commit before
                if f.writers.topic in asked:
                    f.rested, _ = False, ends.pop(f.writers.topic, None)
                    f.finished.discard(f.done)
            for topic in self._course.to_ask():
                self._course.learn(topic, ends.get(topic))
            self._course.wants_tick |= found is None
            snapshot, now_ms = self._host.state.snapshot(), self._host.clock.timer_ms()
            for f in self._followers.values():
                if f.rested:  # nothing of it has changed: the newest snapshot shows the same
                    self._keep(f, f.done, snapshot, now_ms)
            self._follow()
            self._finish_empty(snapshot, now_ms)
            self._let_go()
            snapshot.close()
            self._host.commit.dirty |= self._course.wants_tick and bool(self._followers)
        self._host.manager.signal()

    def adopt(self, tasks: Iterable[Task]) -> None:
        made = list(tasks)
        with self._lock.join():
            super().adopt(made)
            self._fit(made)
            for f in self._behind({task.id.query for task in made}):
                f.rested = False
                # A tick has to be drawn: no row may come, and a tick that was drawn before the tasks were made may lack their partitions.
                self._host.commit.dirty = self._course.wants_tick = True

    def halt(self) -> None:
        with self._lock:
            self._halts = True

    def is_at_rest(self) -> bool:
        with self._lock:
            self._refresh()
            coming = dict[str, Follower]()
            for topic, f in ((t, f) for t, f in self._followers.items() if not f.late):
                if f.writers.upstream <= coming.keys() and all(map(self._host.may_run, f.writers.queries)):
                    coming[topic] = f
            return all(self._is_there(f) and f.done == self._course.newest for f in coming.values())

    def _draw(self, ends: Ends) -> None:
        """A new tick. The polling thread."""
        with self._lock:
            self._drawn = True
            self._fit()
            self._course.draw(ends, self._host.clock.wall_ms())
            self._course.wants_tick = self._course.sources != self._asked  # tasks were made meanwhile
            self._known_ms[self._course.newest] = self._host.clock.timer_ms()
            self._cuts[self._course.newest] = dict(ends)
            self._follow()
            known = Known()
            here = not any(self._is_on_its_way(f, known) for f in self._followers.values())
        self._host.manager.signal()
        if here:
            self._host.commit.wake()

    def _refresh(self) -> frozenset[str] | None:
        if (same := super()._refresh()) is not None:
            self._fit(same=same)
            self._host.commit.dirty |= bool(self._followers)
        return same

    def _fit(self, made: Iterable[Task] = (), same: frozenset[str] | None = None) -> None:
        """The course follows the plan and its tasks. made: tasks that the host does not know yet. same: stages that go on; None: all."""
        tasks = [*(task for f in self._followers.values() for task in self._tasks(f).values()), *made]
        if same is not None or tasks != self._fitted:
            self._fitted = tasks
            reads: dict[tuple[str, int], dict[str, set[TopicPartition]]] = {}
            for task in tasks:
                tps = {i.tp for i in task.logs.values()}
                reads.setdefault((task.id.query, task.id.subtopology), {})[str(task.id)] = tps
            stages = [f.writers for f in self._followers.values()]
            for topic in self._course.fit(stages, reads, {}, self._followers.keys() if same is None else same):
                f = self._followers[topic]
                f.line, f.rested = None, False  # a later tick will have them
                self._begin(f)
        self._course.advance()
        self._follow()

    def _source_partitions(self) -> list[TopicPartition]:
        with self._lock:
            self._asked = self._course.sources
            return self._asked

    def _follow(self) -> None:
        """Stages go on to the lines that the course has for them."""
        if (lines := self._course.news()) is not None:
            self._learn(lines)
            self._take_up()

    def _is_due(self, f: Follower) -> bool:
        tasks, now_ms = () if f.line is None else self._tasks(f).values(), self._host.clock.wall_ms()
        due = (t for t in tasks if (ms := t.program.due_ms) is not None and ms <= now_ms)
        return any(map(self._may_run, due)) and self._is_there(f)

    def _finish(self, stages: Sequence[Follower]) -> None:
        """All tasks of these have finished the ticks of their lines."""
        for f in stages:
            f.done = f.tick
        self._course.take({name: f.tick for f in stages for name in self._tasks(f)})
        self._follow()
        for f in stages:
            f.rested = f.done in f.finished

    def _finish_empty(self, snapshot: StateSnapshot | None = None, now_ms: int = 0) -> None:
        """Stages that the cut found at rest finish the ticks that bring them no rows, and their topics end where they did. snapshot: of the commit; None:
        at the cut, for stages that run freely, whose ends are asked for later.
        """
        free = snapshot is None
        while here := self._empty(free=free):
            last = {f.writers.topic: f.ends.get(f.done) for f in here}
            for f in here:
                f.told.update(self._tasks(f))
            self._finish(here)
            if snapshot is not None:
                for topic in self._course.to_ask():
                    self._course.learn(topic, last.get(topic))
                for f in (f for f in here if f.rested):
                    self._keep(f, f.done, snapshot, now_ms)
                self._follow()

    def _empty(self, *, free: bool) -> list[Follower]:
        """Stages that the cut found at rest, and that are at their next line already."""
        stages, known = self._followers.values(), Known()
        read = {topic for f in stages for topic in f.writers.upstream}
        return [
            f
            for f in stages
            if f.runs_free is free and f.rested and f.tick > f.done
            # The next commit asks for ends that are not known, if they are needed.
            if free or f.done in f.ends or f.writers.topic not in read
            if all(self._is_here(task, known) for task in self._tasks(f).values())
        ]
