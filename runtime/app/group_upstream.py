"""Members of a group: a query that merges its inputs by time waits for the queries that write them, wherever their tasks run.

As `flowql.runtime.app.upstream` for an instance that is alone, but how far the tasks upstream have read is known from the log: from the
committed positions of the group, and where a query that waits shares a partition with one that it waits for, from the tasks' own records. The stages upstream
come one after the other: a stage has read what its inputs held when its turn came, and committed it; then the next one has its turn.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import closing, suppress
from dataclasses import dataclass

from flowql.compiler.plan.topology import QueryPlan
from flowql.runtime.app.coroutines import Coroutine, in_polling
from flowql.runtime.app.hosts import QueryHost
from flowql.runtime.app.planned_tasks import PlannedTasks
from flowql.runtime.app.query_state import FAILED, SUSPENDED
from flowql.runtime.app.upstream import has_begun
from flowql.runtime.commit.positions import readers_in
from flowql.runtime.errors import LogError
from flowql.runtime.events import INFO, WARNING, say
from flowql.runtime.log.base import Position, TopicPartition
from flowql.runtime.state.changelog import WrittenTask
from flowql.runtime.task.id import TaskId
from flowql.runtime.task.position_names import source_named, topic_named
from flowql.runtime.task.repartition import channel_key
from flowql.runtime.topology.upstream import merges, upstream_of

LOOK_MS = 100
# A query that served before goes on when nothing upstream has moved for so long: what keeps it may be at another member, and not end.
STALLED_MS = 300_000
_ROWS, _BYTES = 500, 1 << 20

Ends = Mapping[TopicPartition, int]
Written = Mapping[str, WrittenTask]


@dataclass(slots=True)
class _Waiting:
    """left: the stages that it still waits for, each of tasks of one query. begun: it had read something before.

    ends: of what the first of them reads, as they were when its turn came. positions: where that one was, and since_ms: since when.
    """

    left: list[tuple[TaskId, ...]]
    begun: bool
    ends: Ends | None = None
    positions: Mapping[TopicPartition, Position] | None = None
    since_ms: int = 0


class MemberWaits:
    """Owned by the group step's thread. planned: all tasks of the plan; written: their records, as of now."""

    def __init__(self, host: QueryHost, planned: Callable[[], PlannedTasks], written: Callable[[], Written]) -> None:
        self._host, self._planned, self._written = host, planned, written
        self._group = host.config.application_id
        self._waiting: dict[str, _Waiting] = {}
        self._look_at_ms = 0

    def begin(self, queries: Iterable[str]) -> None:
        """Holds those of these queries that have something to wait for. Their new tasks are made, and do not run yet."""
        for name in sorted(queries):
            query = self._host.queries[name].plan
            stages = self._stages(query) if merges(query) else []
            if stages and self._has_more(query, stages):
                inputs = [i for task in self._host.queries[name].built.tasks for i in task.logs.values()]
                self._waiting[name] = _Waiting(stages, has_begun(self._host.admin, inputs))
                self._tell(name)
                upstream = dict.fromkeys(stage[0].query for stage in stages)
                said = f"until the existing records have been read by {', '.join(upstream)}"
                say(INFO, "query.waits", said, query=name)

    def next(self) -> Coroutine | None:
        """What brings a query that waits a step further, if there is one. After a LogError it is looked again."""
        now_ms = self._host.clock.timer_ms()
        if not self._waiting or now_ms < self._look_at_ms:
            return None
        self._look_at_ms = now_ms + LOOK_MS
        for name, waiting in list(self._waiting.items()):
            if not self._host.query_states.knows(name) or not self._host.queries[name].built.tasks:
                del self._waiting[name]
                self._host.query_states.wait_for(name, "")
                continue
            while waiting.left and self._is_done(name, waiting, now_ms):
                waiting.left.pop(0)
                waiting.ends = waiting.positions = None
                self._tell(name)
            if not waiting.left and self._is_visible(self._host.queries[name].plan):
                return self._released(name)
        return None

    def _released(self, name: str) -> Coroutine:
        yield in_polling(self._host.polling, self._host.polling.refresh_ends)  # no input with records looks idle
        self._waiting.pop(name, None)
        self._host.query_states.wait_for(name, "")

    def _tell(self, name: str) -> None:
        """Of the last stage it is told until its results are visible."""
        if left := self._waiting[name].left:
            self._host.query_states.wait_for(name, left[0][0].query)

    # -- what it waits for

    def _stages(self, query: QueryPlan) -> list[tuple[TaskId, ...]]:
        """Tasks upstream, each stage behind those whose results it reads."""
        upstream, found = self._planned().upstream(), list[tuple[TaskId, ...]]()
        for other in upstream_of(query, self._host.running):
            left = {t for t in upstream if t.query == other.id}
            while left:
                first = {t for t in left if left.isdisjoint(upstream[t].before)}
                assert first, f"repartitions of {other.id} feed each other"
                found.append(tuple(sorted(first)))
                left -= first
        return found

    def _has_more(self, query: QueryPlan, stages: Sequence[Sequence[TaskId]]) -> bool:
        """Whether tasks upstream have not read or committed all that exists, or that is not known yet."""
        tasks = [t for stage in stages for t in stage]
        with suppress(LogError):  # brokers are away, or a commit is under way
            ends = self._ends(tasks)
            return not (self._have_read(tasks, ends, self._positions(tasks)) and self._is_visible(query))
        return True

    def _is_done(self, name: str, waiting: _Waiting, now_ms: int) -> bool:
        """Whether the stage whose turn it is has read up to the ends, or does not go on by itself."""
        planned, host = self._planned(), self._host
        tasks = [t for t in waiting.left[0] if t in planned.reads]
        record = host.query_states.of(waiting.left[0][0].query)
        if not tasks or record.stands_still or (waiting.begun and record.state in (FAILED, SUSPENDED)):
            return True
        if waiting.ends is None:
            waiting.ends = self._ends(tasks)
        positions = self._positions(tasks)
        if positions != waiting.positions:
            waiting.positions, waiting.since_ms = positions, now_ms
        if self._have_read(tasks, waiting.ends, positions):
            return True
        if waiting.begun and now_ms >= waiting.since_ms + STALLED_MS:
            said = f"{tasks[0].query} has read nothing for {STALLED_MS // 1000} s: its table is as it was then"
            say(WARNING, "query.waits", said, query=name)
            return True
        return False

    # -- how far tasks are

    def _ends(self, tasks: Iterable[TaskId]) -> Ends:
        """Of what they read. Of topics that queries write all that is written: committed and visible is not the same."""
        planned, admin = self._planned(), self._host.admin
        inner = {q.topic for q in self._host.running.queries} | planned.writers.keys()
        tps = sorted({tp for t in tasks for tp in planned.reads[t]})
        return admin.end_offsets([tp for tp in tps if tp.topic not in inner]) | {
            tp: admin.written_offset(tp) for tp in tps if tp.topic in inner
        }

    def _positions(self, tasks: Iterable[TaskId]) -> Mapping[TopicPartition, Position]:
        reads = self._planned().reads
        return self._host.admin.stable_positions(self._group, sorted({tp for t in tasks for tp in reads[t]}))

    def _have_read(self, tasks: Iterable[TaskId], ends: Ends, positions: Mapping[TopicPartition, Position]) -> bool:
        """Whether all of them have read up to the ends, and committed that."""
        planned = self._planned()
        readers = planned.readers
        done = {
            tp for tp, p in positions.items() if p.offset >= ends.get(tp, 0) and readers_in(p.metadata) == readers[tp]
        }
        behind = [(t, tp) for t in tasks for tp in sorted(planned.reads[t] - done)]
        if not behind:
            return True
        written = self._written()
        return all(self._has_read(t, tp, ends.get(tp, 0), written) for t, tp in behind)

    def _has_read(self, task: TaskId, tp: TopicPartition, end: int, written: Written) -> bool:
        """By its own record, which does not move over what is no record."""
        plan, there = self._host.running.by_id.get(task.query), written.get(str(task))
        known = {} if there is None else there.record.read()
        if plan is None or known.get("query") != plan.definition:
            known = {}
        at = {name: offset for name, offset in known.get("positions", {}).items() if topic_named(name) == tp.topic}
        if not at:  # it has not begun
            return end <= self._host.admin.begin_offset(tp)
        return min(at.values()) >= end or not self._finds(tp, at, end)

    def _finds(self, tp: TopicPartition, at: Mapping[str, int], end: int) -> bool:
        """Whether there is a record before `end` for one of the inputs at these positions, or that is not to be seen yet."""
        channels = tp.topic in self._planned().writers
        of = {name: channel_key(source_named(name)) if channels else None for name in at}
        with closing(self._host.log.reader(tp, min(at.values()))) as reader:
            while reader.position < end and (batch := reader.read(_ROWS, _BYTES)) is not None:
                offsets, keys = batch.records.column("offset").to_pylist(), batch.records.column("key").to_pylist()
                for offset, key in zip(offsets, keys, strict=True):
                    if offset < end and any(at[n] <= offset and of[n] in (None, key) for n in at):
                        return True
            return reader.position < end

    def _is_visible(self, query: QueryPlan) -> bool:
        """Whether all that has been written to what its tasks read is to be seen."""
        inner = {q.topic for q in self._host.running.queries}
        tps = {i.tp for task in self._host.queries[query.id].built.tasks for i in task.logs.values()}
        read = sorted(tp for tp in tps if tp.topic in inner)
        written, ends = {tp: self._host.admin.written_offset(tp) for tp in read}, self._host.admin.end_offsets(read)
        return all(ends.get(tp, 0) >= offset for tp, offset in written.items())
