"""Continues a query with a new text: its operators are replaced, and its positions, state and results stay.

The query is drained first: every record that it has read has gone through all operators of the old text. Its
tasks end, their results are committed, and one more commit has the record of the deployment; then the new text gets tasks with the
same names. After a crash before that commit the old text continues, after it the new one, from the same positions.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace

from flowql.compiler.plan.deployed import Deployed, Forward
from flowql.runtime.app.consistent_snapshot import TaskSet
from flowql.runtime.app.coroutines import Coroutine
from flowql.runtime.app.draining import drained, task_set
from flowql.runtime.app.hosts import QueryHost
from flowql.runtime.app.query_state import STOPPED, SUSPENDED
from flowql.runtime.errors import ForwardUnsupported
from flowql.runtime.log.base import TopicPartition
from flowql.runtime.state.layout import TaskRecord
from flowql.runtime.task.position_names import topic_named
from flowql.runtime.task.status import TaskStatus
from flowql.runtime.task.task import Task

REST_MS = 5_000  # for so long a query may take to process what is between its tasks


def forwarded(after: Deployed) -> list[str]:
    """Queries, by the names under which they run, that get a new text with this deployment and are not rebuilt."""
    return [f.query for f in after.forwards if f.deployment == after.id]


def refuse_forward(after: Deployed) -> None:
    """ForwardUnsupported if many instances would have to exchange a query's operators."""
    if names := forwarded(after):
        raise ForwardUnsupported(
            f"{', '.join(names)} cannot change without a rebuild while many instances share the application (instances: many): "
            "all of them would have to change at one position. Give the changed result another name, or run one instance for the change"
        )


def tasks_of(host: QueryHost, names: Iterable[str]) -> list[Task]:
    return [task for name in names if name in host.queries for task in host.queries[name].built.tasks]


def at_rest(host: QueryHost, names: Sequence[str]) -> Coroutine:
    """Holds these queries once no row is in transit between their tasks. Raises ForwardUnsupported if that fails, without having changed anything."""
    limit_ms = host.clock.timer_ms() + REST_MS
    try:
        for name in names:
            if len({task.id.subtopology for task in tasks_of(host, [name])}) < 2:
                host.query_states.hold_for_swap([name])
            elif host.query_states.of(name).may_run:
                yield from _drained(host, name, limit_ms)
            else:
                _check_empty(host, name)
                host.query_states.hold_for_swap([name])
    except BaseException:
        host.query_states.release_after_swap(names)
        raise


def _drained(host: QueryHost, name: str, limit_ms: int) -> Coroutine:
    """Waits until no row is in transit between the tasks of a running query, whose tasks stay the same until then."""
    tasks = _task_set(host, name)

    def check() -> None:
        _check_time(host, name, limit_ms)

    return drained(host, [name], lambda: tasks, running=check, held=check)


def _task_set(host: QueryHost, name: str) -> TaskSet:
    return task_set({name: tasks_of(host, [name])})


def _check_time(host: QueryHost, name: str, limit_ms: int) -> None:
    record = host.query_states.of(name)
    if record.reason:
        raise ForwardUnsupported(f"{name} does not run, and rows are between its tasks: {record.reason}")
    if any(task.status is TaskStatus.RESTORING for task in tasks_of(host, [name])):
        raise ForwardUnsupported(f"the state of {name} is being restored: deploy again when it runs")
    if host.clock.timer_ms() > limit_ms:
        raise ForwardUnsupported(f"rows are between the tasks of {name} after {REST_MS // 1000} s: deploy again")


def _check_empty(host: QueryHost, name: str) -> None:
    """Raises ForwardUnsupported if rows are in transit between the tasks of a query that does not run."""
    record = host.query_states.of(name)
    with host.state.epoch_lock:
        together = _task_set(host, name).together
    if record.state in (SUSPENDED, STOPPED) or not together:
        why = record.reason or "it is paused"
        raise ForwardUnsupported(
            f"{name} does not run ({why}), and rows are between its tasks: let it run, and deploy again"
        )


def recorded(host: QueryHost, after: Deployed) -> Deployed:
    """The deployment record with the offsets at which the new definitions begin. The old tasks have ended, and their results are committed.

    Raises ForwardUnsupported if the log has rejected the results of a query: rows between its tasks are in transit again.
    """
    begun = [_recorded(host, f) if f.deployment == after.id else f for f in after.forwards]
    return replace(after, forwards=tuple(begun))


def _recorded(host: QueryHost, forward: Forward) -> Forward:
    """The start offsets of a new definition, from the last commit: results of the tasks after it are dropped."""
    if len({task.id.subtopology for task in tasks_of(host, [forward.query])}) > 1:
        _check_empty(host, forward.query)
    reads: dict[TopicPartition, int] = {}
    for record in _committed(host, forward.query):
        for name, at in record.read().get("positions", {}).items():
            tp = TopicPartition(topic_named(name), record.partition)
            reads[tp] = min(at, reads.get(tp, at))
    query = host.running.by_id.get(forward.query)
    assert query is not None, "it has served until now"
    topic, admin = query.topic, host.admin
    ends = [admin.end_offset(TopicPartition(topic, p)) for p in range(admin.topics()[topic].partitions)]
    results = tuple((topic, p, end) for p, end in enumerate(ends))
    return replace(forward, reads=tuple((*tp, at) for tp, at in sorted(reads.items())), results=results)


def _committed(host: QueryHost, query: str) -> list[TaskRecord]:
    """The records of its tasks, whether their rows are here or still come from changelogs."""
    names = [t for t in host.state.committed_tasks() if t.rpartition("/")[0] == query]
    restoring = host.state.restoring()
    found = [restoring.get(name) or host.state.local_record(name) for name in names]
    return [record for record in found if record is not None]
