"""The ticks of a member of a group: its tasks stop at the lines that the leader has written, and it says which of them have finished a tick.

A tick begins at this member with a commit, and the commit in which its tasks finish it has nothing of another one, unless it is too large:
lines that arrive while something is published wait for the next cut (`_take_up`), and a cut waits for tasks that are on their way to a line.

Invariants: a task always has a line, from when it is made. A task is told to have finished a tick after a commit whose cut found it at the line of
this tick, with nothing left to do, or when all that it ever published is committed.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence

from flowql.runtime.task.task import Task
from flowql.runtime.ticks.graph import Stage
from flowql.runtime.ticks.host import TickHost
from flowql.runtime.ticks.record import Lines, Report
from flowql.runtime.ticks.ticks import Follower, StageTicks


class MemberTicks(StageTicks):
    """Ticks of one member. `TickStep` gives it the lines, and takes its reports."""

    grace_ms = 200

    def __init__(self, host: TickHost, group: str) -> None:
        super().__init__(host, group)
        self._done: dict[str, int] = {}  # to be reported
        self._said_more: dict[str, int] = {}  # by stage: the tick for which it was told that more waits
        self._newest = 0  # the highest number of a tick that was seen
        self._outruns = False  # the leader gives lower ones
        self._cutting = False  # a cut is about to be made
        self.wake: Callable[[], None] = lambda: None  # there is something to report

    def is_ready(self, now_ms: int) -> bool:
        with self._lock:
            self._refresh()
            if self._asked_ms is None:
                self._asked_ms = now_ms
            self._cutting = self._waits_no_more(now_ms - self._asked_ms)
            return self._cutting

    def at_cut(self) -> list[tuple[str, int]]:
        finished = super().at_cut()
        self._cutting = False
        self._take_up()
        return finished

    def committed(self, finished: Sequence[tuple[str, int]]) -> None:
        if not finished:
            return
        with self._lock:
            for task, tick in finished:
                if self._host.is_refused(task.rpartition("/")[0]):  # it is back at the commit before
                    self._forget(task)
                else:
                    self._done[task] = max(tick, self._done.get(task, 0))
            self._keep_whole(dict(finished))
        self.wake()

    def adopt(self, tasks: Iterable[Task]) -> None:
        made = list(tasks)
        with self._lock.join():
            super().adopt(made)
            for f in self._behind({task.id.query for task in made}):
                self._said_more.pop(f.writers.topic, None)  # a new task may have rows behind the line

    # -- the thread that reads and writes the topic

    @property
    def stages(self) -> list[Stage]:
        with self._lock:
            self._refresh()
            return [f.writers for f in self._followers.values()]

    def learn(self, lines: Lines) -> None:
        """New lines, in the order of the topic."""
        with self._lock:
            self._refresh()
            self._outruns |= lines.newest < self._newest
            self._newest = max(self._newest, lines.newest)
            self._learn(lines)
            self._let_go()
            if not self._host.commit.dirty and not self._cutting:
                self._take_up()

    def report(self) -> Report | None:
        """Tells the leader all that has come since the last report; None if nothing has."""
        with self._lock:
            self._refresh()
            if self._host.commit.idle:  # tasks with nothing to commit have finished at once
                found = dict(self._found_here())
                self._keep_whole(found)
                self._done |= found
            has_more = False
            for name, f in self._followers.items():
                tick = f.tick if f.next is None else f.next.tick
                if self._said_more.get(name) != tick and any(
                    self._waits_for_tick(f, t) for t in self._tasks(f).values()
                ):
                    self._said_more[name], has_more = tick, True
            seen, self._outruns = self._newest if self._outruns else 0, False
            done, self._done = self._done, {}
            return Report(done, has_more, newest=seen) if done or has_more or seen else None

    def unsaid(self, report: Report) -> None:
        """A report could not be written: it is made again."""
        with self._lock:
            self._done = {**report.done, **self._done}
            self._outruns |= bool(report.newest)
            if report.has_more:
                self._said_more.clear()

    # -- all with the epoch lock

    def _refresh(self) -> frozenset[str] | None:
        if (same := super()._refresh()) is not None:
            self._said_more.clear()
        return same

    def _keep_whole(self, finished: Mapping[str, int]) -> None:
        """The last commit has the state of stages of which the last tasks that are here have finished a tick."""
        for f in self._followers.values():
            tasks = self._tasks(f)
            if f.told.issuperset(tasks) and any(finished.get(task) == f.tick for task in tasks):
                with self._host.state.snapshot() as snapshot:
                    self._keep(f, f.tick, snapshot, self._host.clock.timer_ms())

    def _waits_for_tick(self, f: Follower, task: Task) -> bool:
        """Whether records of sources, or timers that are due, wait behind the newest line."""
        line = f.next or f.line
        for i in task.logs.values():
            end = None if line is None else line.ends.get(i.tp)
            if i.tp.topic in f.writers.sources and max(i.end_offset, i.next_fetch) > (
                i.position if end is None else end
            ):
                return True
        due_ms, tick_ms = task.program.due_ms, 0 if line is None else line.wall_ms
        return due_ms is not None and tick_ms < due_ms <= self._host.clock.wall_ms()

    def _forget(self, task: str) -> None:
        super()._forget(task)
        self._done.pop(task, None)
