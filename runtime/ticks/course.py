"""Decisions of the leader of a group: which tick each stage takes next. Nothing here does I/O.

A stage has finished a tick when each of its tasks, at whichever member, has said so. A task says it after a commit in which it stood at its line,
so it is true for whoever owns the task later. Until the leader gives the stage another line no task of it goes on. So the ends of the topics
that it writes, asked for meanwhile, are the ends of the tick in them.

Brokers compact without regard to readers. A stage that finishes a tick long after it was drawn may have missed rows of tables that are in no record before
its lines any more: records beyond them have replaced these. So the tick is not whole for this stage, and counts as not finished. The stage goes on to
a tick that is drawn from then on, whose lines are beyond these records.

A leader begins with no stage having finished anything, and with a tick whose number no leader before it has used. Its lines are never behind
those of before: ends of sources and of results only grow.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field

from flowql.runtime.log.base import TopicPartition
from flowql.runtime.ticks.graph import Stage
from flowql.runtime.ticks.numbers import aligned, misses_rows, remembered
from flowql.runtime.ticks.record import Ends, Line, Lines


@dataclass(slots=True)
class _Progress:
    """The progress of a stage. tasks: all, by name. written: all partitions of its topics. left: tasks that have not finished `line.tick`; no line: none is
    under way. drawn_ms: when the tick of its line was drawn. ends: of its topics, by the ticks that it has finished. asks: the ends as of `done` are not known yet.
    """

    stage: Stage
    tasks: frozenset[str]
    reads: tuple[TopicPartition, ...]
    written: tuple[TopicPartition, ...]
    done: int = 0
    line: Line | None = None
    drawn_ms: int = 0
    left: set[str] = field(default_factory=set)
    ends: dict[int, Ends] = field(default_factory=dict)
    asks: bool = False


class Course:
    """The course of ticks for one leader and one plan. newest: the highest number of a tick that was ever used."""

    def __init__(
        self,
        stages: Iterable[Stage],
        reads: Mapping[tuple[str, int], Mapping[str, frozenset[TopicPartition]]],
        newest: int,
        counts: Mapping[str, int],
        timer_ms: Callable[[], int] = lambda: 0,
    ) -> None:
        """reads: of each sub-topology the tasks, and what they read. counts: partitions of the topics that stages write."""
        self._timer_ms = timer_ms
        self.newest = newest
        self._sources: dict[int, Ends] = {}  # by tick, those that may be a target
        self._walls: dict[int, int] = {}
        self._drawn_ms: dict[int, int] = {}
        self._stages: dict[str, _Progress] = {}  # upstream ones first
        self._news: dict[str, Line] = {}
        self._finished: dict[str, int] = {}  # since the last news
        self._learned: dict[str, tuple[int, Ends]] = {}  # likewise: ends of topics
        self.wants_tick = True
        for stage in stages:
            tasks = {name: tps for sub in stage.subs for name, tps in reads.get(sub, {}).items()}
            read = tuple(sorted({tp for tps in tasks.values() for tp in tps}))
            written = tuple(TopicPartition(t, p) for t in sorted(stage.writes) for p in range(counts.get(t, 0)))
            self._stages[stage.name] = _Progress(stage, frozenset(tasks), read, written)

    @property
    def sources(self) -> list[TopicPartition]:
        """Partitions whose ends are a tick."""
        return sorted({tp for p in self._stages.values() for tp in p.reads if tp.topic in p.stage.sources})

    def draw(self, ends: Ends, wall_ms: int) -> None:
        """A new tick: ends of all sources, of one moment."""
        self.newest += 1
        self._sources[self.newest], self._walls[self.newest] = ends, max(wall_ms, *self._walls.values(), 0)
        self._drawn_ms[self.newest] = self._timer_ms()
        self.wants_tick = False
        for progress in self._stages.values():
            self._advance(progress)

    def take(self, done: Mapping[str, int]) -> None:
        """Takes what a member has said of its tasks."""
        for p in self._stages.values():
            line = p.line
            if line is None or not p.left:
                continue
            p.left -= {task for task in p.left if done.get(task) == line.tick}
            if p.left:
                continue
            p.done, p.line = line.tick, None
            if p.stage.reads_tables and misses_rows(p.drawn_ms, self._timer_ms()):
                p.done, self.wants_tick = self.newest, True
            else:
                self._finished[p.stage.name] = line.tick
                p.asks = True  # also where no query reads it: subscriptions do
                self._advance(p)

    def to_ask(self) -> dict[str, tuple[TopicPartition, ...]]:
        """Stages that do not go on before the ends of these partitions are known."""
        return {name: p.written for name, p in self._stages.items() if p.asks}

    def learn(self, name: str, ends: Ends) -> None:
        """The ends of what a stage of `to_ask` has written."""
        p = self._stages[name]
        assert p.asks, f"{name} may have gone on"
        p.asks, p.ends[p.done] = False, ends
        p.ends = {n: p.ends[n] for n in remembered(p.ends)}
        self._learned[name] = p.done, ends
        for progress in self._stages.values():
            self._advance(progress)

    def news(self, *, everything: bool = False) -> Lines | None:
        """Lines, finished ticks and their ends that came since the last call, or all lines and the newest ends."""
        if everything:
            self._news |= {name: p.line for name, p in self._stages.items() if p.line is not None}
            self._learned |= {name: (max(p.ends), p.ends[max(p.ends)]) for name, p in self._stages.items() if p.ends}
        news, self._news = self._news, {}
        finished, self._finished = self._finished, {}
        learned, self._learned = self._learned, {}
        self._sources = {n: self._sources[n] for n in remembered(self._sources)}
        self._walls = {n: self._walls[n] for n in self._sources}
        self._drawn_ms = {n: self._drawn_ms[n] for n in self._sources}
        return Lines(self.newest, news, finished, learned) if news or finished or learned else None

    def _advance(self, p: _Progress) -> None:
        """To the next tick that all upstream have finished."""
        if p.line is not None or p.asks or not p.tasks:
            return
        known = [set(self._sources), *(set(self._stages[name].ends) for name in p.stage.upstream)]
        tick = aligned(n for n in set.intersection(*known) if n > p.done)
        if tick is None:
            return
        ends: dict[TopicPartition, int] = {}
        for made in (
            {tp: end for tp, end in self._sources[tick].items() if tp.topic in p.stage.sources},
            *(self._stages[name].ends[tick] for name in p.stage.upstream),
        ):
            ends |= made
        mine = {tp: end for tp, end in ends.items() if tp in p.reads}
        p.line, p.left, p.drawn_ms = Line(tick, self._walls[tick], mine), set(p.tasks), self._drawn_ms[tick]
        self._news[p.stage.name] = p.line
