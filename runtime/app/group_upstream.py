"""How far the stages upstream of a query are in a group, wherever their tasks run (`flowql.runtime.app.upstream`).

The log tells: the committed positions of the group, and where a query that waits shares a partition with one that it waits for, the records of
the tasks themselves.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from contextlib import closing

from flowql.compiler.plan.topology import QueryPlan
from flowql.runtime.app.hosts import QueryHost
from flowql.runtime.app.planned_tasks import PlannedTasks
from flowql.runtime.app.upstream import Ends, Look, Stage
from flowql.runtime.commit.positions import readers_in
from flowql.runtime.log.base import Position, TopicPartition
from flowql.runtime.state.changelog import WrittenTask
from flowql.runtime.task.id import TaskId
from flowql.runtime.task.position_names import source_named, topic_named
from flowql.runtime.task.repartition import channel_key
from flowql.runtime.topology.upstream import upstream_of

# A query that served before goes on when nothing upstream has moved for so long: what keeps it may be at another member, and not end.
STALLED_MS = 300_000
_ROWS, _BYTES = 500, 1 << 20

Written = Mapping[str, WrittenTask]


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
