"""The ticks of a member of a group: its tasks stop at the lines that the leader has written, and it says which of them have finished a tick.

A tick begins at this member with a commit, and the commit in which its tasks finish it has nothing of another one, unless it is too large:
lines that arrive while something is published wait for the next cut (`_take_up`), and a cut waits for tasks that are on their way to a line.

Invariants: a task always has a line, from when it is made, and no input passes it (`LogInput.line`). A task is told to have finished a tick after
a commit whose cut found it at the line of this tick, with nothing left to do, or when all that it ever published is committed. The epoch lock guards everything.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from flowql.runtime.log.base import TopicPartition
from flowql.runtime.state.combined import CombinedSnapshot
from flowql.runtime.task.status import TaskStatus
from flowql.runtime.task.task import Task
from flowql.runtime.ticks.graph import Stage, stages_of
from flowql.runtime.ticks.numbers import cuts_of, remembered, whole_of
from flowql.runtime.ticks.patience import FULL, Patience
from flowql.runtime.ticks.record import Ends, Line, Lines, Report
from flowql.runtime.ticks.ticks import TakenSnapshot, TickHost
from flowql.runtime.ticks.whole_states import STALE_MS, WholeStates

GRACE_MS = 200  # that a commit waits for tasks on their way to the line
FINISHED_MAX = 64  # ticks of a stage that are remembered as finished
CUTS_MAX = 1_024  # ticks whose ends of sources are remembered, as stages far downstream finish them late


@dataclass(slots=True)
class _Lined:
    """The state of a stage on this member. generations: of its queries. line: that its tasks have; next: a newer one, for the next cut. told: tasks that have finished `line.tick`.
    late: a cut did not find them at the line in time. said_more: the tick for which it was told that more waits. finished: ticks that all tasks
    of all members have finished; ends: of its topics as of such ticks; begun_ms: since when it is known. whole: the state of those that are here, by the ticks that they have finished, and when it was committed.
    """

    stage: Stage
    generations: tuple[int, ...]
    begun_ms: int
    line: Line | None = None
    next: Line | None = None
    told: set[str] = field(default_factory=set)
    late: bool = False
    patience: Patience = field(default_factory=Patience)
    said_more: int = -1
    finished: set[int] = field(default_factory=set)
    ends: dict[int, Ends] = field(default_factory=dict)
    whole: WholeStates = field(default_factory=WholeStates)


class MemberTicks:
    """Ticks of one member, as its steps and readers see them."""

    def __init__(self, host: TickHost, group: str) -> None:
        self._host, self._lock, self._group = host, host.state.epoch_lock, group
        self._plan: object = None
        self._stages: dict[str, _Lined] = {}  # upstream ones first
        self._of_sub: dict[tuple[str, int], _Lined] = {}
        self._stores: dict[str, str] = {}  # query and number of the sub-topology of each store
        self._done: dict[str, int] = {}  # to be reported
        self._cuts: dict[int, dict[TopicPartition, int]] = {}  # ends of sources, by ticks that stages may be at
        self._ends_ms: dict[int, int] = {}  # when the first ends as of a tick came
        self._newest, self._outruns = (
            0,
            False,
        )  # the highest number of a tick that was seen, and whether the leader gives lower ones
        self._cutting = False  # a cut is about to be made
        self._asked_ms: int | None = None
        self.free: Callable[[], frozenset[str]] = frozenset  # queries that follow no lines for now: they swap in
        self.wake: Callable[[], None] = lambda: None  # there is something to report

    # -- the commit thread

    def is_ready(self, now_ms: int) -> bool:
        """Whether a commit that is due may be cut: no task is on its way to a line, or it has taken too long."""
        with self._lock:
            self._refresh()
            if self._asked_ms is None:
                self._asked_ms = now_ms
            waited_ms, room = now_ms - self._asked_ms, self._host.publisher
            is_full = room.awaits_cut or (waited_ms >= GRACE_MS and not room.has_reserve())
            late = list[_Lined]()
            for lined in self._stages.values():
                if lined.late or lined.line is None or not any(map(self._is_coming, self._coming(lined))):
                    continue
                if not is_full and not self._is_patience_over(lined, waited_ms):
                    return False
                if is_full:
                    lined.patience.bound = FULL
                late.append(lined)
            for lined in late:
                lined.late = True
            self._cutting = True
            return True

    def wants_cut(self) -> bool:
        """Whether tasks have finished a tick that is not told."""
        with self._lock:
            self._refresh()
            return any(
                self._is_here(task)
                for lined in self._stages.values()
                if lined.line is not None
                for task in self._coming(lined)
            )

    def at_cut(self) -> list[tuple[str, int]]:
        """Tasks that have finished the tick of their line. The epoch lock is held."""
        self._refresh()
        finished = self._found_here()
        self._note_splits()
        self._cutting, self._asked_ms = False, None
        self._take_up()
        return finished

    def committed(self, finished: Sequence[tuple[str, int]]) -> None:
        """The cut that found these is committed and in the state."""
        if not finished:
            return
        with self._lock:
            for task, tick in finished:
                query = task.rpartition("/")[0]
                if self._host.is_refused(query):  # it is back at the commit before
                    self._forget(task)
                else:
                    self._done[task] = max(tick, self._done.get(task, 0))
            self._keep(dict(finished))
        self.wake()

    # -- the thread that builds tasks

    def adopt(self, tasks: Iterable[Task]) -> None:
        """New tasks get their lines before they run."""
        with self._lock.join():
            self._refresh()
            for task in tasks:
                lined = self._of_sub.get((task.id.query, task.id.subtopology))
                if lined is not None:
                    self._forget(str(task.id))
                    lined.said_more = -1
                    self._set_line(lined, task)

    # -- the thread that reads and writes the topic

    @property
    def stages(self) -> list[Stage]:
        with self._lock:
            self._refresh()
            return [lined.stage for lined in self._stages.values()]

    def learn(self, lines: Lines) -> None:
        """New lines, in the order of the topic."""
        with self._lock:
            self._refresh()
            self._outruns |= lines.newest < self._newest
            self._newest = max(self._newest, lines.newest)
            for name, line in lines.stages.items():
                lined = self._stages.get(name)
                if lined is not None:
                    mine = {tp: end for tp, end in line.ends.items() if tp.topic in lined.stage.sources}
                    self._cuts.setdefault(line.tick, {}).update(mine)
                if lined is not None and line.tick > max(x.tick if x else 0 for x in (lined.line, lined.next)):
                    lined.next = line
            for name, tick in lines.done.items():
                if (lined := self._stages.get(name)) is not None:
                    lined.finished = {*sorted(lined.finished)[-FINISHED_MAX:], tick}
            for name, (tick, ends) in lines.ends.items():
                if (lined := self._stages.get(name)) is not None:
                    lined.ends = {n: lined.ends[n] for n in remembered(lined.ends)} | {tick: ends}
                    self._ends_ms.setdefault(tick, self._host.clock.timer_ms())
            self._ends_ms = {n: self._ends_ms[n] for n in remembered(self._ends_ms)}
            for tick in sorted(self._cuts)[:-CUTS_MAX]:
                del self._cuts[tick]
            self._let_go()
            if not self._host.commit.dirty and not self._cutting:
                self._take_up()

    def report(self) -> Report | None:
        """Tells the leader all that has come since the last report; None if nothing has."""
        with self._lock:
            self._refresh()
            if self._host.commit.idle:  # tasks with nothing to commit have finished at once
                found = dict(self._found_here())
                self._keep(found)
                self._done |= found
            has_more = False
            for lined in self._stages.values():
                newest = lined.next or lined.line
                tick = 0 if newest is None else newest.tick
                if lined.said_more != tick and any(self._waits_for_tick(lined, task) for task in self._tasks(lined)):
                    lined.said_more, has_more = tick, True
            seen, self._outruns = self._newest if self._outruns else 0, False
            done, self._done = self._done, {}
            return Report(done, has_more, newest=seen) if done or has_more or seen else None

    def unsaid(self, report: Report) -> None:
        """A report could not be written: it is made again."""
        with self._lock:
            self._done = {**report.done, **self._done}
            self._outruns |= bool(report.newest)
            if report.has_more:
                for lined in self._stages.values():
                    lined.said_more = -1

    # -- readers, and the end of the instance

    def follows(self, query: str) -> bool:
        with self._lock:
            self._refresh()
            return any(query == of for of, _ in self._of_sub)

    def snapshot(
        self, queries: Collection[str], timeout_s: float, look: Callable[[float], None]
    ) -> TakenSnapshot | None:
        """The state of these queries as of the newest tick that all of their tasks have finished, at whichever member; else the last commit and
        why. None if one of them follows no ticks.
        """
        with self._lock:
            self._refresh()
            stages = [x for x in self._stages.values() if not set(x.stage.queries).isdisjoint(queries)]
            if not queries or set(queries) - {q for x in stages for q in x.stage.queries}:
                return None
            for tick in sorted(set.intersection(*(x.finished for x in stages)), reverse=True):
                if (found := self._at(queries, tick)) is not None:
                    return TakenSnapshot(found, is_whole=True, newest=False, tick=tick, cut=self._cuts.get(tick, {}))
        return TakenSnapshot(self._host.state.snapshot(), f"{min(queries)} is between two ticks", cut={})

    def snapshot_at(self, queries: Collection[str], tick: int) -> CombinedSnapshot | None:
        """The state of the tasks that are here as of one tick; None if it is not kept."""
        with self._lock:
            self._refresh()
            return self._at(queries, tick)

    def whole_ends(self, *topics: str) -> dict[TopicPartition, int] | None:
        """As of `Ticks`. All: without stages that others have been ahead of for `STALE_MS`."""
        with self._lock:
            self._refresh()
            since_ms = self._host.clock.timer_ms() - STALE_MS
            stale = max((tick for tick, at_ms in self._ends_ms.items() if at_ms < since_ms), default=0)
            late = {name for name, x in self._stages.items() if max(x.ends, default=0) < stale}
            ends, held = dict[str, Mapping[int, Ends]](), set[str]()
            for name, x in self._stages.items():
                if name in late and (x.stage.upstream & held or not all(map(self._host.may_run, x.stage.queries))):
                    held.add(name)
                if topics and x.stage.writes.isdisjoint(topics):
                    continue
                if name not in late or (x.ends and topics) or x.begun_ms > since_ms:
                    ends[name] = x.ends
            return whole_of(ends, cuts_of(self._cuts, topics), held if topics else ())

    def waits_for(self, query: str) -> tuple[str, ...] | None:
        """The queries that have to finish a tick before this one goes on; None if it has got all that there is, or need not wait."""
        with self._lock:
            found = set[str]()
            for (of, _), lined in self._of_sub.items():
                if of == query and lined.line is not None and not any(True for _ in self._coming(lined)):
                    above = [self._stages[name] for name in lined.stage.upstream]
                    behind = [a for a in above if any(True for _ in self._coming(a))]
                    found.update(q for a in behind for q in a.stage.queries if q != query)
            return tuple(sorted(found)) or None

    def halt(self) -> None:
        """Members that stop leave their tasks where they are."""

    def is_at_rest(self) -> bool:
        return True

    def let_go(self) -> None:
        """The state is closed, or was opened again: snapshots that were taken before cannot be read."""
        with self._lock:
            for lined in self._stages.values():
                lined.whole.forget()

    # -- all with the epoch lock

    def _refresh(self) -> None:
        """Follows the running plan. Lines of stages that it still has hold on: names of topics are names of stages."""
        plan, free = self._host.running, self.free()
        if self._plan is not None and (plan, free) == self._plan:
            return
        before, self._plan = self._stages, (plan, free)
        self._stages = {}
        for stage in stages_of(plan, self._group):
            generations = tuple(plan.by_id[q].generation for q in stage.queries)
            lined = before.get(stage.name) or _Lined(stage, generations, self._host.clock.timer_ms())
            if lined.stage != stage or lined.generations != generations:
                lined.whole.forget()
                lined.finished.clear()
                lined.ends, lined.begun_ms = {}, self._host.clock.timer_ms()
            lined.stage, lined.generations, lined.said_more = stage, generations, -1
            self._stages[stage.name] = lined
        for name in before.keys() - self._stages.keys():
            before[name].whole.forget()
        self._stores = {
            store.name: f"{q.id}/{sub.number}"
            for q in plan.queries
            for sub in q.subtopologies
            for op in sub.operators
            for store in op.stores
        }
        of = {sub: lined for lined in self._stages.values() for sub in lined.stage.subs if sub[0] not in free}
        for sub in self._of_sub.keys() - of.keys():
            for task in self._host.tasks_of(sub[0]):
                for i in task.logs.values():
                    i.line = None
        new, self._of_sub = of.keys() - self._of_sub.keys(), of
        for sub in new:
            for task in (t for t in self._host.tasks_of(sub[0]) if t.id.subtopology == sub[1]):
                self._set_line(of[sub], task)

    def _at(self, queries: Collection[str], tick: int) -> CombinedSnapshot | None:
        stages = [x for x in self._stages.values() if not set(x.stage.queries).isdisjoint(queries)]
        if any(tick not in x.whole and self._tasks(x) for x in stages):
            return None
        of = [(x.stage.subs, x.whole[tick][0]) for x in stages if tick in x.whole]
        kept = {f"{query}/{number}": snapshot.retain() for subs, snapshot in of for query, number in subs}
        return CombinedSnapshot(kept, self._host.state.snapshot(), self._stores)

    def _keep(self, finished: Mapping[str, int]) -> None:
        """The last commit has the state of stages of which the last tasks that are here have finished a tick."""
        for lined in self._stages.values():
            tasks = [str(task.id) for task in self._tasks(lined)]
            tick = 0 if lined.line is None else lined.line.tick
            if lined.told.issuperset(tasks) and any(finished.get(task) == tick for task in tasks):
                lined.whole.keep(tick, self._host.state.snapshot(), self._host.clock.timer_ms())

    def _let_go(self) -> None:
        """No answer will be of a tick before the newest that all stages have finished; and none is kept for long, as the store cannot drop old rows."""
        now_ms = self._host.clock.timer_ms()
        stages = self._stages.values()
        oldest = max(set.intersection(*(x.finished for x in stages)), default=0) if stages else 0
        for lined in stages:
            lined.whole.let_go(oldest, now_ms, max(lined.whole, default=0))

    def _found_here(self) -> list[tuple[str, int]]:
        """Tasks that have finished the tick of their line, and have not told so yet."""
        found = list[tuple[str, int]]()
        for lined in self._stages.values():
            if lined.line is not None:
                here = [str(task.id) for task in self._coming(lined) if self._is_here(task)]
                lined.told.update(here)
                found += [(task, lined.line.tick) for task in here]
        return found

    def _take_up(self) -> None:
        """Nothing that is published is of a tick that has begun: tasks go on to the newest lines."""
        for lined in self._stages.values():
            if lined.next is not None:
                lined.line, lined.next = lined.next, None
                lined.told.clear()
                lined.late = False
                for task in self._tasks(lined):
                    self._set_line(lined, task)
        self._host.manager.signal()

    def _set_line(self, lined: _Lined, task: Task) -> None:
        line = lined.line
        task.tick_ms = None if line is None else line.wall_ms
        for i in task.logs.values():
            i.line = i.position if line is None else line.ends.get(i.tp, i.position)
            if i.queue:
                i.wake()

    def _tasks(self, lined: _Lined) -> list[Task]:
        return [
            task
            for query in lined.stage.queries
            for task in self._host.tasks_of(query)
            if self._of_sub.get((query, task.id.subtopology)) is lined
        ]

    def _coming(self, lined: _Lined) -> Iterable[Task]:
        """Tasks that have not told that they have finished the tick."""
        return (task for task in self._tasks(lined) if str(task.id) not in lined.told)

    def _is_here(self, task: Task) -> bool:
        return task.status is TaskStatus.RUNNING and task.idle_with({})

    def _is_coming(self, task: Task) -> bool:
        """Whether a commit should wait for it."""
        runs = task.status is TaskStatus.RUNNING and self._host.may_run(task.id.query)
        return runs and not task.idle_with({})

    def _is_patience_over(self, lined: _Lined, waited_ms: int) -> bool:
        coming, is_first = list(self._coming(lined)), not any(other.finished for other in self._stages.values())
        return lined.patience.is_over(self._host, lined.stage, coming, waited_ms, GRACE_MS, is_first=is_first)

    def _note_splits(self) -> None:
        """At a cut: it has a part of the tick of these."""
        for lined in self._stages.values():
            lined.patience.begin()
            if lined.line is not None and lined.late:
                coming = list(filter(self._is_coming, self._coming(lined)))
                lined.patience.note_split(lined.stage, coming, lined.line.tick)

    def _waits_for_tick(self, lined: _Lined, task: Task) -> bool:
        """Whether records of sources, or timers that are due, wait behind the newest line."""
        line = lined.next or lined.line
        for i in task.logs.values():
            end = None if line is None else line.ends.get(i.tp)
            if i.tp.topic in lined.stage.sources and max(i.end_offset, i.next_fetch) > (
                i.position if end is None else end
            ):
                return True
        due_ms, tick_ms = task.program.due_ms, 0 if line is None else line.wall_ms
        return due_ms is not None and tick_ms < due_ms <= self._host.clock.wall_ms()

    def _forget(self, task: str) -> None:
        for lined in self._stages.values():
            lined.told.discard(task)
        self._done.pop(task, None)
