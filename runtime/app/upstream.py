"""A query that merges its inputs by time waits for the queries that write them, when it begins over existing records.

A join meets the row of a table as of the time of its own row. Where another query writes the table, its records come when that query
has read as far: a join that began at once would have read its other side to the end by then, and have met nothing. So a query that
begins, or goes on after a restart, is held until all that its inputs are made of has been read up to the ends that were found then, one
query upstream after the other, and committed. Of members of a group: `flowql.runtime.app.group_upstream`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass

from flowql.compiler.plan.topology import QueryPlan
from flowql.runtime.app.coroutines import Coroutine, in_polling
from flowql.runtime.app.hosts import QueryHost
from flowql.runtime.app.query_state import FAILED, SUSPENDED
from flowql.runtime.errors import LogError
from flowql.runtime.events import INFO, say
from flowql.runtime.log.base import Admin, TopicPartition
from flowql.runtime.task.input_buffer import LogInput
from flowql.runtime.task.remaining import remaining
from flowql.runtime.topology.upstream import merges, upstream_of

# That rows between tasks are waited for: where more come all the time some are always on their way.
ON_THEIR_WAY_MS = 10_000


@dataclass(slots=True)
class _Waiting:
    """left: queries that it still waits for, in their order. begun: it had read something before.

    ends: of what the first of them reads, as they were when its turn came. read_ms: when it had read up to them.
    """

    left: list[str]
    begun: bool
    ends: Mapping[TopicPartition, int] | None = None
    read_ms: int | None = None


def has_begun(admin: Admin, inputs: Sequence[LogInput]) -> bool:
    """Whether one of these inputs has read something."""
    begins: Mapping[TopicPartition, int] = {}
    with suppress(LogError):  # brokers are away
        begins = admin.begin_offsets(sorted({i.tp for i in inputs}))
    return any(i.position > begins.get(i.tp, 0) for i in inputs)


class UpstreamWaits:
    """Only the reconciler's thread calls it."""

    def __init__(self, host: QueryHost) -> None:
        self._host = host
        self._waiting: dict[str, _Waiting] = {}

    def begin(self, query: QueryPlan) -> None:
        """Holds a query whose tasks are made and do not run yet, if there is something to wait for."""
        host = self._host
        upstream = [q.id for q in upstream_of(query, host.running)] if merges(query) else []
        if any(map(self._has_more, upstream)):
            self._waiting[query.id] = _Waiting(upstream, self._has_begun(query.id))
            host.query_states.wait_for(query.id, upstream[0])
            said = f"until the existing records have been read by {', '.join(upstream)}"
            say(INFO, "query.waits", said, query=query.id)

    def _has_more(self, query: str) -> bool:
        """Whether there are records that it has not read, or whose results are not committed, or that is not known yet."""
        tasks = self._host.queries[query].built.tasks if query in self._host.queries else []
        if not tasks or (self._host.commit.dirty and self._has_begun(query)):
            return True
        with suppress(LogError):  # brokers are away
            ends = self._host.admin.end_offsets(sorted({i.tp for i in self._inputs(query)}))
            return not remaining(tasks, ends).is_nothing
        return True

    def _has_begun(self, query: str) -> bool:
        return has_begun(self._host.admin, self._inputs(query))

    def next(self) -> Coroutine | None:
        """What brings a query that waits a step further, if there is one."""
        for query, waiting in list(self._waiting.items()):
            if not waiting.left or not self._host.query_states.knows(query):
                del self._waiting[query]
                self._host.query_states.wait_for(query, "")
            elif self._is_done(waiting):
                return self._step(query, waiting)
        return None

    def _is_done(self, waiting: _Waiting) -> bool:
        """Whether the query whose turn it is has read up to the ends, or does not go on by itself."""
        name = waiting.left[0]
        record = self._host.query_states.of(name)
        if name not in self._host.queries or record.stands_still:
            return True
        if record.state in (FAILED, SUSPENDED):
            return waiting.begun
        inputs = self._inputs(name)
        if waiting.ends is None:
            waiting.ends = self._host.admin.end_offsets(sorted({i.tp for i in inputs}))
        tasks, now_ms = self._host.queries[name].built.tasks, self._host.clock.timer_ms()
        left = remaining(tasks, waiting.ends)
        if not tasks or left.records:
            return False
        waiting.read_ms = now_ms if waiting.read_ms is None else waiting.read_ms
        return left.is_nothing or now_ms >= waiting.read_ms + ON_THEIR_WAY_MS

    def _step(self, query: str, waiting: _Waiting) -> Coroutine:
        yield self._host.commit.request()  # then its results are visible to those that read them,
        yield in_polling(self._host.polling, self._host.polling.refresh_ends)  # and no input of theirs looks idle
        waiting.left.pop(0)
        waiting.ends = waiting.read_ms = None
        if waiting.left:
            self._host.query_states.wait_for(query, waiting.left[0])

    def _inputs(self, query: str) -> list[LogInput]:
        return [i for task in self._host.queries[query].built.tasks for i in task.logs.values()]
