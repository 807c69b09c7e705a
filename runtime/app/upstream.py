"""A query that merges its inputs by time waits for the queries that write them, when it begins over existing records.

A join meets the row of a table as of the time of its own row. Where another query writes the table, its records come when that query
has read as far: a join that began at once would have read its other side to the end by then, and have met nothing. So a query that
begins, or goes on after a restart, is held until the stages upstream, one after the other, have read up to the ends that were found when
their turn came, and committed the results.

How far a stage is, its own tasks tell in an instance alone (`LocalProgress`). The tasks of a group run on any member: there the committed positions
tell, and the records of tasks where the query that waits shares a partition with one that it waits for (`CommittedProgress`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import closing, suppress
from dataclasses import dataclass
from typing import NamedTuple, Protocol

from flowql.compiler.plan.topology import QueryPlan
from flowql.runtime.app.coroutines import Coroutine, in_polling
from flowql.runtime.app.hosts import QueryHost
from flowql.runtime.app.planned_tasks import PlannedTasks
from flowql.runtime.app.query_state import FAILED, RUNNING, SUSPENDED
from flowql.runtime.commit.positions import readers_in
from flowql.runtime.errors import LogError
from flowql.runtime.events import INFO, WARNING, say
from flowql.runtime.log.base import Admin, Position, TopicPartition
from flowql.runtime.state.changelog import WrittenTask
from flowql.runtime.task.id import TaskId
from flowql.runtime.task.input_buffer import LogInput
from flowql.runtime.task.position_names import source_named, topic_named
from flowql.runtime.task.remaining import remaining
from flowql.runtime.task.repartition import channel_key
from flowql.runtime.topology.upstream import merges, upstream_of

# Rows between tasks are waited for at most this long: where more come all the time, some are always on their way.
ON_THEIR_WAY_MS = 10_000
# A query that served before goes on when nothing upstream has moved for so long: what keeps it may be at another member, and not end.
STALLED_MS = 300_000
_ROWS, _BYTES = 500, 1 << 20

Ends = Mapping[TopicPartition, int]
Written = Mapping[str, WrittenTask]


class Stage(NamedTuple):
    """Tasks of one query whose turn comes together. tasks: empty for all of the query."""

    query: str
    tasks: tuple[TaskId, ...] = ()


class Look(NamedTuple):
    """read: a stage has read up to the ends. at: differs from the look before while it goes on. patience_ms: how long it may stay there;
    None for however long.
    """

    read: bool
    at: object
    patience_ms: int | None


class UpstreamProgress(Protocol):
    """How far stages are. interval_ms: between two looks. begun: whether the query that waits had read something before, and serves.

    All methods raise LogError while brokers are away.
    """

    interval_ms: int

    def stages(self, query: QueryPlan) -> list[Stage]: ...  # each after those whose results it reads

    def reads(self, stage: Stage) -> Iterable[TopicPartition]: ...

    def look(self, stage: Stage, ends: Ends, *, begun: bool) -> Look: ...

    def is_committed(self, stage: Stage) -> bool: ...  # all that it has read


@dataclass(slots=True)
class _Waiting:
    """left: stages that it still waits for. ends: of what the first of them reads, as of when its turn came. at: see `Look`; since_ms: since when."""

    left: list[Stage]
    begun: bool
    ends: Ends | None = None
    at: object = None
    since_ms: int = 0


class UpstreamWaits:
    """Only the reconciler's thread calls it."""

    def __init__(self, host: QueryHost, progress: UpstreamProgress) -> None:
        self._host, self._progress = host, progress
        self._waiting: dict[str, _Waiting] = {}
        self._look_at_ms = 0

    def begin(self, query: QueryPlan) -> None:
        """Holds a query whose tasks are made and do not run yet, if there is something to wait for."""
        stages = self._progress.stages(query) if merges(query) else []
        if stages and self._has_more(query, stages):
            begun = has_begun(self._host.admin, inputs_of(self._host, query.id))
            self._waiting[query.id] = _Waiting(stages, begun)
            self._host.query_states.wait_for(query.id, stages[0].query)
            upstream = dict.fromkeys(stage.query for stage in stages)
            said = f"until the existing records have been read by {', '.join(upstream)}"
            say(INFO, "query.waits", said, query=query.id)

    def next(self) -> Coroutine | None:
        """The step that a waiting query takes next, if there is one. After a LogError it is looked again."""
        now_ms = self._host.clock.timer_ms()
        if not self._waiting or now_ms < self._look_at_ms:
            return None
        self._look_at_ms = now_ms + self._progress.interval_ms
        for name, waiting in list(self._waiting.items()):
            if not self._host.query_states.knows(name) or not inputs_of(self._host, name):
                self._release(name)
            elif waiting.left:
                if self._is_over(name, waiting, now_ms):
                    return self._step(name, waiting)
            elif self._is_visible(name):
                return self._released(name)
        return None

    def _has_more(self, query: QueryPlan, stages: Sequence[Stage]) -> bool:
        """Whether there are records that a stage has not read, whose results are not committed or visible, or that are not known yet."""
        with suppress(LogError):  # brokers are away, or a commit is under way
            progress = self._progress
            have_read = all(progress.look(s, self._ends(s), begun=False).read for s in stages)
            return not (have_read and all(map(progress.is_committed, stages)) and self._is_visible(query.id))
        return True

    def _is_over(self, name: str, waiting: _Waiting, now_ms: int) -> bool:
        """Whether the first stage is not waited for any more: it has read up to the ends, or does not go on by itself."""
        stage = waiting.left[0]
        record = self._host.query_states.of(stage.query)
        if record.stands_still or (waiting.begun and record.state in (FAILED, SUSPENDED)):
            return True
        if waiting.ends is None:
            waiting.ends = self._ends(stage)
        look = self._progress.look(stage, waiting.ends, begun=waiting.begun)
        if look.at != waiting.at:
            waiting.at, waiting.since_ms = look.at, now_ms
        if look.read or look.patience_ms is None or record.state is not RUNNING:
            return look.read
        if now_ms < waiting.since_ms + look.patience_ms:
            return False
        said = f"it no longer waits for {stage.query}, which got no further for {look.patience_ms // 1000} s"
        say(WARNING, "query.waits", said, query=name)
        return True

    def _step(self, name: str, waiting: _Waiting) -> Coroutine:
        """The next stage has its turn. The last one is named until its results are visible."""
        if not self._progress.is_committed(waiting.left[0]):
            yield self._host.commit.request()
        waiting.left.pop(0)
        waiting.ends = waiting.at = None
        if waiting.left:
            self._host.query_states.wait_for(name, waiting.left[0].query)
        self._look_at_ms = 0

    def _released(self, name: str) -> Coroutine:
        yield in_polling(self._host.polling, self._host.polling.refresh_ends)  # no input with records looks idle
        self._release(name)

    def _release(self, name: str) -> None:
        self._waiting.pop(name, None)
        self._host.query_states.wait_for(name, "")

    def _ends(self, stage: Stage) -> Ends:
        """The ends of what a stage reads. For topics that queries write, these include records that are committed and not visible yet."""
        running, admin = self._host.running, self._host.admin
        tps, outer = set(self._progress.reads(stage)), {s.topic for s in running.sources} - running.writers.keys()
        ends = {tp: admin.written_offset(tp) for tp in sorted(tps) if tp.topic not in outer}
        return ends | admin.end_offsets(sorted(tps - ends.keys()))

    def _is_visible(self, name: str) -> bool:
        """Whether all that has been written to what its tasks read is visible."""
        admin, results = self._host.admin, self._host.running.writers
        read = sorted({i.tp for i in inputs_of(self._host, name) if i.tp.topic in results})
        written, ends = {tp: admin.written_offset(tp) for tp in read}, admin.end_offsets(read)
        return all(ends.get(tp, 0) >= offset for tp, offset in written.items())


class LocalProgress:
    """The progress of stages in a single instance, which has all tasks: each query is one stage."""

    interval_ms = 0

    def __init__(self, host: QueryHost) -> None:
        self._host = host

    def stages(self, query: QueryPlan) -> list[Stage]:
        return [Stage(q.id) for q in upstream_of(query, self._host.running)]

    def reads(self, stage: Stage) -> Iterable[TopicPartition]:
        return (i.tp for i in inputs_of(self._host, stage.query))

    def look(self, stage: Stage, ends: Ends, *, begun: bool) -> Look:
        """Once only rows between tasks are left, those are waited for during `ON_THEIR_WAY_MS`."""
        running = self._host.queries.get(stage.query)
        tasks = [] if running is None else running.built.tasks
        left = remaining(tasks, ends)
        read = bool(tasks) and not left.records
        return Look(read and left.is_nothing, read, ON_THEIR_WAY_MS if read else None)

    def is_committed(self, stage: Stage) -> bool:
        return self._host.commit.idle or not has_begun(self._host.admin, inputs_of(self._host, stage.query))


class CommittedProgress:
    """planned: all tasks of the plan; written: their records, as of now."""

    interval_ms = 100

    def __init__(self, host: QueryHost, planned: Callable[[], PlannedTasks], written: Callable[[], Written]) -> None:
        self._host, self._planned, self._written = host, planned, written

    def stages(self, query: QueryPlan) -> list[Stage]:
        """Each query upstream in as many stages as its repartitions make."""
        upstream, found = self._planned().upstream(), list[Stage]()
        for other in upstream_of(query, self._host.running):
            left = {t for t in upstream if t.query == other.id}
            while left:
                first = {t for t in left if left.isdisjoint(upstream[t].before)}
                assert first, f"repartitions of {other.id} feed each other"
                found.append(Stage(other.id, tuple(sorted(first))))
                left -= first
        return found

    def reads(self, stage: Stage) -> Iterable[TopicPartition]:
        planned = self._planned().reads
        return {tp for t in stage.tasks for tp in planned.get(t, ())}

    def look(self, stage: Stage, ends: Ends, *, begun: bool) -> Look:
        tps = sorted(self.reads(stage))
        positions = self._host.admin.stable_positions(self._host.config.application_id, tps)
        return Look(self._have_read(stage, ends, positions), positions, STALLED_MS if begun else None)

    def is_committed(self, stage: Stage) -> bool:
        """Nothing but commits can be known of other members."""
        return True

    def _have_read(self, stage: Stage, ends: Ends, positions: Mapping[TopicPartition, Position]) -> bool:
        """Whether all tasks have read up to the ends, and committed that. Tasks that are gone do not count."""
        planned = self._planned()
        readers = planned.readers
        done = {
            tp for tp, p in positions.items() if p.offset >= ends.get(tp, 0) and readers_in(p.metadata) == readers[tp]
        }
        behind = [(t, tp) for t in stage.tasks for tp in sorted(planned.reads.get(t, frozenset()) - done)]
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


def inputs_of(host: QueryHost, query: str) -> list[LogInput]:
    """Inputs of the tasks that are here; empty without tasks."""
    running = host.queries.get(query)
    return [] if running is None else [i for task in running.built.tasks for i in task.logs.values()]


def has_begun(admin: Admin, inputs: Sequence[LogInput]) -> bool:
    """Whether one of these inputs has read something."""
    begins: Mapping[TopicPartition, int] = {}
    with suppress(LogError):  # brokers are away
        begins = admin.begin_offsets(sorted({i.tp for i in inputs}))
    return any(i.position > begins.get(i.tp, 0) for i in inputs)
