"""Decides which tick each stage takes next: for a group at its leader, for an instance that is alone in the instance itself. Nothing here does I/O.

A stage has finished a tick when each of its tasks, at whichever member, has said so. A task says it after a commit in which it stood at its line,
so it is true for whoever owns the task later. Until the leader gives the stage another line no task of it goes on. So the ends of the topics
that it writes, asked for meanwhile, are the ends of the tick in them.

An instance that is alone commits all of its tasks together, so it asks for the ends between two commits, whatever tasks do. There stages that read
sources alone run freely: they go on at the cut that finishes a tick, and have passed the lines of every tick that was drawn before.

Brokers compact without regard to readers. A stage that finishes a tick long after it was drawn may have missed rows of tables that are in no record before
its lines any more: records beyond them have replaced these. So the tick is not whole for this stage, and counts as not finished. The stage goes on to
a tick that is drawn from then on, whose lines are beyond these records.

A leader begins with no stage having finished anything, and with a tick whose number no leader before it has used. Its lines are never behind
those of before: ends of sources and of results only grow.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass, field
from itertools import takewhile

from flowql.runtime.log.base import TopicPartition
from flowql.runtime.ticks.graph import Stage
from flowql.runtime.ticks.numbers import ByTick, aligned, misses_rows
from flowql.runtime.ticks.record import Ends, Line, Lines

Reads = Mapping[tuple[str, int], Mapping[str, Collection[TopicPartition]]]  # by sub-topology and task


@dataclass(slots=True)
class _Progress:
    """The progress of a stage. runs_free: as above. tasks: all, by name. from_sources: partitions that it reads and no stage writes. written: all
    partitions of its topics. done: no tick up to this one is its next.
    left: tasks that have not finished `line.tick`; no line: none is under way. drawn_ms: when the tick of its line was drawn. ends: of its topics, by
    the ticks that it has finished. asks: a finished tick whose ends are not known yet.
    """

    stage: Stage
    runs_free: bool
    tasks: frozenset[str] = frozenset()
    reads: frozenset[TopicPartition] = frozenset()
    from_sources: frozenset[TopicPartition] = frozenset()
    written: tuple[TopicPartition, ...] = ()
    done: int = 0
    line: Line | None = None
    drawn_ms: int = 0
    left: set[str] = field(default_factory=set)
    ends: ByTick[Ends] = field(default_factory=ByTick)
    asks: int | None = None


class Course:
    """The course of ticks for one leader and one plan, or for an instance that is alone. newest: the highest number of a tick that was ever used."""

    def __init__(
        self,
        stages: Iterable[Stage],
        reads: Reads,
        newest: int,
        counts: Mapping[str, int],
        timer_ms: Callable[[], int] = lambda: 0,
        *,
        alone: bool = False,
        is_compacted: bool = True,
    ) -> None:
        """counts: partitions of the topics that stages write. is_compacted: by brokers, which do not know the readers."""
        self._timer_ms, self._alone, self._is_compacted = timer_ms, alone, is_compacted
        self.newest, self.wall_ms = newest, 0  # of the newest tick
        self._sources = ByTick[Ends]()  # those that may be a target
        self._walls: dict[int, int] = {}
        self._drawn_ms: dict[int, int] = {}
        self.sources: list[TopicPartition] = []  # partitions whose ends are a tick
        self._stages: dict[str, _Progress] = {}  # upstream ones first
        self._news: dict[str, Line] = {}
        self._finished: dict[str, int] = {}  # since the last news
        self._learned: dict[str, tuple[int, Ends]] = {}  # likewise: ends of topics
        self.wants_tick = not alone  # a leader does not know what its members have seen
        self.fit(stages, reads, counts)

    def fit(
        self, stages: Iterable[Stage], reads: Reads, counts: Mapping[str, int], same: Collection[str] = ()
    ) -> list[str]:
        """Follows the plan and its tasks. same: stages that go on where they are. Returns those that lose their line, as it lacks an end of what they
        read now: tasks that were made since would finish the tick wherever they are.
        """
        before, self._stages, lost = self._stages, {}, list[str]()
        for stage in stages:
            p = before[stage.topic] if stage.topic in same else None
            if p is None:
                p = _Progress(stage, self._alone and not stage.upstream, done=self.newest if self._alone else 0)
            tasks = {name: tps for sub in stage.subs for name, tps in reads.get(sub, {}).items()}
            p.stage, p.tasks, p.reads = stage, frozenset(tasks), p.reads.union(*tasks.values())
            p.from_sources = frozenset(tp for tp in p.reads if tp.topic in stage.sources)
            p.written = tuple(TopicPartition(t, n) for t in sorted(stage.writes) for n in range(counts.get(t, 0)))
            p.left = set(tasks)
            if p.line is not None and not p.from_sources <= p.line.ends.keys():
                p.line = None
                lost.append(stage.topic)
            self._stages[stage.topic] = p
        self.sources = sorted(frozenset[TopicPartition]().union(*(p.from_sources for p in self._stages.values())))
        return lost

    def draw(self, ends: Ends, wall_ms: int) -> None:
        """A new tick: ends of all sources, of one moment."""
        self.newest, self.wall_ms, self.wants_tick = self.newest + 1, wall_ms, False
        self._sources[self.newest], self._walls[self.newest] = ends, wall_ms
        self._drawn_ms[self.newest] = self._timer_ms()
        self._sources.trim()
        for by_tick in (self._walls, self._drawn_ms):
            for n in by_tick.keys() - self._sources.keys():
                del by_tick[n]
        self.advance()

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
            if p.stage.reads_tables and self._is_compacted and misses_rows(p.drawn_ms, self._timer_ms()):
                p.done, self.wants_tick = self.newest, True
            else:
                self._finished[p.stage.topic] = line.tick
                p.asks = line.tick  # also where no query reads it: subscriptions do
                self._advance(p)

    def to_ask(self) -> dict[str, tuple[TopicPartition, ...]]:
        """Stages of which the ends of these partitions are to be asked."""
        return {name: p.written for name, p in self._stages.items() if p.asks is not None}

    def ask(self, name: str, tick: int) -> None:
        """A stage at rest has written nothing since a tick whose ends are not known, so they are still the ends of its topics."""
        self._stages[name].asks = tick

    def learn(self, name: str, ends: Ends | None) -> None:
        """The ends of what a stage of `to_ask` has written. None: they are not known in time, so no reader takes this tick."""
        p = self._stages[name]
        assert p.asks is not None, f"{name} may have gone on"
        tick, p.asks = p.asks, None
        if ends is not None:
            p.ends[tick] = ends
            p.ends.trim()
            self._learned[name] = tick, ends
        for reader in self._stages.values():
            if reader is p or name in reader.stage.upstream:
                self._advance(reader)

    def news(self, *, everything: bool = False) -> Lines | None:
        """Lines, finished ticks and their ends that came since the last call, or all lines and the newest ends."""
        if everything:
            self._news |= {name: p.line for name, p in self._stages.items() if p.line is not None}
            self._learned |= {name: (max(p.ends), p.ends[max(p.ends)]) for name, p in self._stages.items() if p.ends}
        news, self._news = self._news, {}
        finished, self._finished = self._finished, {}
        learned, self._learned = self._learned, {}
        return Lines(self.newest, news, finished, learned) if news or finished or learned else None

    def advance(self) -> None:
        """Each stage without a line to the next tick that all upstream have finished."""
        for p in self._stages.values():
            self._advance(p)

    def _advance(self, p: _Progress) -> None:
        if p.line is not None or not p.tasks or (p.asks is not None and not p.runs_free):
            return
        newer = takewhile(lambda n: n > p.done, reversed(self._sources))
        upstream = [self._stages[name].ends for name in p.stage.upstream]
        needed = p.from_sources if self._alone else frozenset[TopicPartition]()
        tick = aligned(
            n for n in newer if needed <= self._sources[n].keys() and all(n in finished for finished in upstream)
        )
        if tick is None:
            if p.runs_free:
                p.done = self.newest
            return
        ends = {tp: end for tp, end in self._sources[tick].items() if tp.topic in p.stage.sources}
        for name in p.stage.upstream:
            ends |= self._stages[name].ends[tick]
        # A member reads no other partitions, and its tasks are all known; an instance that is alone may yet make some.
        mine = ends if self._alone else {tp: end for tp, end in ends.items() if tp in p.reads}
        p.line, p.left, p.drawn_ms = Line(tick, self._walls[tick], mine), set(p.tasks), self._drawn_ms[tick]
        self._news[p.stage.topic] = p.line
