"""Refusals by the log: of queries whose results it rejects or whose input is gone, and of tasks that are to be made.

The cause may be removed while the instance runs: a topic is made again, its limit is raised, a right is given. Then the
reconciler makes the tasks of a suspended query anew from the last commit, later and later (rule R1), and it goes on.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import contextmanager, suppress

from flowql.compiler.plan.topology import Plan, QueryPlan
from flowql.runtime.app.hosts import QueryHost
from flowql.runtime.app.missed_deletions import stop_readers
from flowql.runtime.app.query_state import STOPPED
from flowql.runtime.errors import (
    DeletionsMissed,
    KeysMisplaced,
    LogDenied,
    LogError,
    LogUnavailable,
    OffsetAboveEnd,
    OffsetOutOfRange,
    PartitionsChanged,
    PartitionsUneven,
    TimesReplaced,
    TopicMissing,
    TopicReplaced,
)
from flowql.runtime.log.base import TopicPartition
from flowql.runtime.state.changelog import changelog_topic
from flowql.runtime.task.id import TaskId
from flowql.runtime.task.input_buffer import LogInput
from flowql.runtime.topology.log_facts import LogFacts
from flowql.runtime.topology.query import (
    BuiltQuery,
    build_query,
    check_outputs,
    check_times,
    ensure_changelogs,
    is_partitioned_by_key,
    partitions_changed,
)

_OFFSET_MAX = 1 << 63


def suspend(host: QueryHost, queries: Collection[str], error: Exception) -> dict[TopicPartition, int]:
    """The log does not take what these queries have made. They are as of the last commit; the commit thread, at a cut.

    Where they will begin again.
    """
    positions: dict[TopicPartition, int] = {}
    denied = error.partition[0] if isinstance(error, LogDenied) and error.partition is not None else ""
    for name in sorted(queries & host.queries.keys()):
        running = host.queries[name]
        isolated = host.careful.begin(name, running.built.tasks, error)
        host.query_states.suspend(name, error, at_once=isolated)
        host.exchanges.put_aside(x for task in running.built.tasks for x in task.exchanges.values())
        at = {tp: o for tp, o in running.committed_positions().items() if tp.topic != denied}
        # Partitions that left with this cut have no tasks in the next one, so only this query would still report their positions.
        running.restart_positions = running.staying(at)
        for tp, position in at.items():
            positions[tp] = min(position, positions.get(tp, position))
    return positions


def unreadable(host: QueryHost, tp: TopicPartition, error: LogError) -> None:
    """The input of queries is gone, denied, below the log's start, above its end or of another topic: they stop where they are, the others go on. Polling thread.

    Rights may be given again, for all of a topic: then its readers go on.
    """
    if isinstance(error, DeletionsMissed):
        with suppress(LogError):  # brokers are away: it will be said again
            stop_readers(host, tp)
        return
    if isinstance(error, PartitionsChanged):
        _more_partitions(host, tp.topic, error.partitions)
        return
    readable = range(0)  # others, that are beyond the gap or not so far, go on
    try:
        if isinstance(error, OffsetAboveEnd):
            readable = range(host.admin.end_offset(tp) + 1)
        elif isinstance(error, TopicReplaced):
            readable = range(_OFFSET_MAX)
        elif isinstance(error, OffsetOutOfRange) and (begin := host.admin.begin_offset(tp)):
            readable = range(begin, _OFFSET_MAX)
    except LogError:  # brokers are away as well: it will be said again
        return
    for name, running in list(host.queries.items()):
        inputs = [i for task in running.built.tasks for i in task.logs.values()]
        if host.query_states.of(name).state is STOPPED:
            continue
        if isinstance(error, LogDenied):
            if any(i.tp.topic == tp.topic for i in inputs):
                host.polling.set_back(name, f"{type(error).__name__}: {error}", inputs)
        elif any(i.tp == tp and (i.next_fetch not in readable or _of_another(i, error)) for i in inputs):
            host.query_states.stop(name, error)
            host.polling.remove_inputs(inputs)


def misplaced(host: QueryHost, query: str, error: KeysMisplaced) -> None:
    """Records of one key come to different tasks of a query: it stops where it is. Polling thread."""
    if query in host.queries:
        host.query_states.stop(query, error)
        host.polling.remove_inputs([i for task in host.queries[query].built.tasks for i in task.logs.values()])


def _more_partitions(host: QueryHost, topic: str, now: int) -> None:
    """Readers whose results depend on where keys are stop; others get tasks for the partitions that were added."""
    for name, running in list(host.queries.items()):
        inputs = [i for task in running.built.tasks for i in task.logs.values()]
        of_topic = [i for i in inputs if i.tp.topic == topic and i.partitions not in (0, now)]
        if not of_topic or host.query_states.of(name).state is STOPPED:
            continue
        before = min(i.partitions for i in of_topic)
        if is_partitioned_by_key(running.plan) or now < before:
            host.query_states.stop(name, partitions_changed(running.plan, topic, before, now))
            host.polling.remove_inputs(inputs)
        else:
            for i in of_topic:
                i.partitions = now
            running.lacks_tasks = True


def _of_another(i: LogInput, error: LogError) -> bool:
    """A reader that began with the topic that is in the log goes on."""
    return isinstance(error, TopicReplaced) and i.topic_id not in ("", error.topic_id)


def changelog_is_gone(host: QueryHost, query: str) -> bool:
    """Stops a suspended query if a changelog with rows of it is gone, whatever it was suspended for: an empty one must not take its place. True if one is.

    A changelog that has had a commit, or that a deployment to a group has made. Brokers also report a topic as missing just after their restart:
    they are asked twice. LogError without brokers.
    """
    if not host.config.changelogs:
        return False
    begun = host.config.shared or any(t.rpartition("/")[0] == query for t in host.state.committed_tasks())
    operators = [op for sub in host.queries[query].plan.subtopologies for op in sub.operators] if begun else []
    topics = {changelog_topic(host.config.application_id, store.name) for op in operators for store in op.stores}
    unlisted = topics - host.admin.topics().keys()
    gone = sorted(unlisted - host.admin.partition_counts(unlisted).keys())
    if gone:
        error = TopicMissing(f"there is no topic {', '.join(gone)}, which held rows of {query}")
        host.query_states.stop(query, error)
    return bool(gone)


def build(
    host: QueryHost,
    queries: Sequence[QueryPlan],
    plan: Plan,
    only: Callable[[TaskId], bool] = lambda _: True,
    *,
    retried: bool = False,
) -> dict[str, BuiltQuery]:
    """Tasks of queries, by query id. A query is left out if it cannot be built now (it is suspended) or ever (it is stopped).

    only: which tasks to build. retried: whether LogUnavailable suspends a query; otherwise it is raised, and no task stays open.
    """
    facts, built = LogFacts(host.admin, host.config.application_id, queries), dict[str, BuiltQuery]()
    try:
        for query in queries:
            with _left_out(host, query, built, retried=retried):
                try:
                    check_outputs(query, facts.topics)
                    check_times(query, facts)
                except (TopicMissing, TimesReplaced) as error:
                    host.query_states.suspend(query.id, error)
                    continue
                built[query.id] = build_query(query, plan, host, facts, only)
        if host.config.changelogs and not host.config.shared:
            _ensure_changelogs(host, [q for q in queries if q.id in built], facts, built, retried=retried)
    except Exception:
        for made in built.values():
            _close(host, made)
        raise
    for made in built.values():
        host.careful.attach(made.tasks)
    return built


def _ensure_changelogs(
    host: QueryHost, queries: Sequence[QueryPlan], facts: LogFacts, built: dict[str, BuiltQuery], *, retried: bool
) -> None:
    try:
        ensure_changelogs(queries, host, facts)
    except LogError:  # perhaps only one query fails: the others go on
        for query in queries:
            with _left_out(host, query, built, retried=retried):
                ensure_changelogs([query], host, facts)


@contextmanager
def _left_out(host: QueryHost, query: QueryPlan, built: dict[str, BuiltQuery], *, retried: bool) -> Iterator[None]:
    """Suspends or stops a query that cannot be built, and leaves it out."""
    try:
        yield
    except (LogDenied, PartitionsChanged, PartitionsUneven, TopicMissing, TopicReplaced) as error:
        host.query_states.cannot_read(query.id, error)
    except LogUnavailable as error:
        if not retried:
            raise
        host.query_states.suspend(query.id, error)
    else:
        return
    if query.id in built:
        _close(host, built.pop(query.id))


def _close(host: QueryHost, built: BuiltQuery) -> None:
    for task in built.tasks:
        host.state.close_task(str(task.id))
