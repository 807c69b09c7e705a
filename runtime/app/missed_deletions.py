"""Queries that may have missed deletions of a table stop, with what to do: see `flowql.runtime.task.deletions`.

When a task had read everything is known while it runs. For one that an earlier instance ran it is the time of the application's last
commit, or what the task's metadata says. That is committed as soon as a task begins that was away for too long, and when one is found out.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import closing
from datetime import UTC, datetime
from typing import Any

from flowql.compiler.plan.generations import user_id
from flowql.runtime.app.hosts import QueryHost
from flowql.runtime.app.query_state import STOPPED
from flowql.runtime.clock import Clock
from flowql.runtime.errors import DeletionsMissed
from flowql.runtime.log.base import Log, TopicPartition
from flowql.runtime.state.task_state import ManagedTask
from flowql.runtime.task.deletions import KNOWN, known_times
from flowql.runtime.task.id import TaskId
from flowql.runtime.task.input_buffer import LogInput
from flowql.runtime.task.task import Task

_TAIL = 64  # offsets among which the last record of a partition is looked for


class KnownTimes:
    """When a task that is made had read everything, at the latest.

    away_since_ms: the last commit of the application before this instance; None if there was none. others_ms: the last commit of other members.
    """

    def __init__(
        self,
        clock: Clock,
        away_since_ms: int | None,
        tasks_of: Callable[[str], Sequence[Task]],
        others_ms: Callable[[], int],
    ) -> None:
        self._clock, self._away_since_ms = clock, away_since_ms
        self._tasks_of, self._others_ms = tasks_of, others_ms
        self._made: set[TaskId] = set()

    def of(self, task: TaskId, position: str, metadata: Mapping[str, Any]) -> int:
        """position: the name of the input's position in the metadata of the task."""
        earlier = self._earlier(task)
        if position in earlier:
            return earlier[position]
        made = task in self._made
        self._made.add(task)
        on_record: int | None = metadata.get(KNOWN, {}).get(position)
        if on_record is not None:
            return on_record
        if made or self._away_since_ms is None:
            return self._clock.wall_ms()
        return max(self._away_since_ms, self._others_ms())

    def _earlier(self, task: TaskId) -> Mapping[str, int]:
        """The known times of the inputs of the task with this id, which is about to be replaced."""
        inputs = (i for t in self._tasks_of(task.query) if t.id == task for i in t.logs.values())
        return {i.name: i.deletions.known_ms for i in inputs if i.deletions is not None}


def stop_readers(host: QueryHost, tp: TopicPartition) -> None:
    """Readers that are overdue and lack offsets of the partition. Polling thread.

    A single missing offset may be the marker of a transaction, where the topic's producers write transactions.
    """
    found = [(name, i) for name, r in list(host.queries.items()) for t in r.built.tasks for i in t.logs.values()]
    lacking = {name: i for name, i in found if i.tp == tp and i.deletions is not None and i.deletions.gap}
    if max((i.deletions.gap for i in lacking.values() if i.deletions), default=0) == 1 and ends_with_markers(
        host.log, tp
    ):
        for i in lacking.values():
            assert i.deletions is not None
            i.deletions.gap = 0
        return
    for name, i in lacking.items():
        if host.query_states.of(name).state is not STOPPED:
            host.query_states.stop(name, DeletionsMissed(_said(host, name, i)))
        host.polling.remove_inputs([other for of, other in found if of == name])


def _said(host: QueryHost, name: str, i: LogInput) -> str:
    assert i.deletions is not None
    plan = host.queries[name].plan
    away_ms, query = i.deletions.wall_ms() - i.deletions.known_ms, user_id(plan.id, plan.generation)
    since = datetime.fromtimestamp(i.deletions.known_ms / 1000, UTC).strftime("%Y-%m-%d %H:%M UTC")
    return (
        f"{i.tp} was last read to its end {_span(away_ms)} ago ({since}), the topic keeps deletions for {_span(i.deletions.kept_ms)} "
        f"(delete.retention.ms), and compaction has removed records from offset {i.next_fetch} on: rows of {query} may have been deleted;  "
        f"flowql deploy --full-refresh {query}  recomputes it"
    )


def _span(ms: int) -> str:
    """In the largest unit of which it has two.

    >>> _span(86_400_000), _span(179_999), _span(1_500)
    ('24 h', '2 min', '1 s')
    """
    units = ((3_600_000, "h"), (60_000, "min"))
    return next((f"{ms // size:,} {unit}" for size, unit in units if ms >= 2 * size), f"{ms // 1_000} s")


def ends_with_markers(log: Log, tp: TopicPartition) -> bool:
    """Whether what lies behind the last record of a partition are markers of transactions: compaction never removes the last record."""
    end = log.admin().end_offset(tp)
    last = None
    with closing(log.reader(tp, max(log.admin().begin_offset(tp), end - _TAIL))) as reader:
        while (batch := reader.read(10_000, 1 << 22)) is not None:
            last = batch.last_offset
    return last is None or last + 1 < end


def note(tasks: Iterable[Task]) -> bool:
    """At a cut: the metadata of tasks that do not run says since when they are overdue. True if there are any."""
    found = [(task, known) for task in tasks if (known := known_times(task.logs.values())).get(KNOWN)]
    for task, known in found:
        assert isinstance(task.state, ManagedTask)
        task.state.publish({**task.state.metadata, **known})
    return bool(found)


def unnoted(host: QueryHost) -> list[Task]:
    """Tasks of queries that have stopped for missed deletions, while their metadata does not say so."""
    stopped_queries = [r for name, r in host.queries.items() if host.query_states.of(name).state is STOPPED]
    tasks = [t for r in stopped_queries for t in r.built.tasks]
    return [
        t
        for t in tasks
        if any(i.deletions and i.deletions.gap for i in t.logs.values()) and not t.state.metadata.get(KNOWN)
    ]
