"""How far an instance has come: lag, caught up, status facts. Reads counters and positions; `caught_up` may ask for a commit."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from contextlib import closing, suppress
from typing import Any

from flowql.runtime.app.instance import Instance
from flowql.runtime.app.polling import END_UNKNOWN
from flowql.runtime.app.query_state import FAILED, STOPPED, SUSPENDED
from flowql.runtime.app.running import RunningQuery
from flowql.runtime.commit.positions import readers_in
from flowql.runtime.errors import LogDenied, LogIOError, LogUnavailable, TopicMissing
from flowql.runtime.log.base import TopicPartition
from flowql.runtime.log.embedded.log import skipped_records
from flowql.runtime.operators.base import AsyncFacts
from flowql.runtime.task.lost import losses_of
from flowql.runtime.task.remaining import Committed, Remaining, held_in, remaining
from flowql.runtime.task.status import TaskStatus
from flowql.runtime.task.task import TIMERS, Task

AWAY = (LogUnavailable, LogDenied, LogIOError)  # the log does not answer just now


def source_ends(instance: Instance) -> dict[TopicPartition, int]:
    """Written end offsets of the partitions that queries read and no query of this instance writes.

    Written, not visible: Kafka acknowledges a commit before readers see it, and `run` after an import has to include these records.
    """
    written = {s.topic for s in instance.plan.sources if s.query is not None}
    written |= {q.topic for q in instance.running.queries}  # INSERT INTO, and staging topics
    if instance.group is not None:
        tps = set(instance.group.planned.partitions)
        written |= instance.group.planned.writers.keys()
    else:
        tps = {i.tp for q in _whole(instance) for t in q.built.tasks for i in t.logs.values()}
    ends = {}
    for tp in sorted(tp for tp in tps if tp.topic not in written):
        with suppress(TopicMissing):
            ends[tp] = instance.admin.written_offset(tp)
    return ends


def caught_up(instance: Instance, ends: Mapping[TopicPartition, int]) -> bool:
    """Everything up to `ends` of outside sources, and all that follows from it, is processed and committed, and nothing is rebuilt.

    Ends of inside topics are read before the epoch lock is taken (the log may be waiting for a disk); if a commit moved them
    meanwhile the answer is "not yet".
    """
    if not instance.deployer.at_rest or _suspended(instance):  # what is suspended has results to make again
        return False
    if instance.group is not None:
        return _group_caught_up(instance, ends, instance.group.planned.readers)
    commits, tasks = instance.metrics.commits, [task for q in _whole(instance) for task in q.built.tasks]
    if not remaining(tasks, ends).is_nothing:  # mostly so: neither the log nor the lock is needed to tell
        return False
    try:
        now = instance.admin.end_offsets(sorted({i.tp for t in tasks for i in t.logs.values() if i.tp not in ends}))
    except AWAY:  # not known
        return False
    with instance.state.epoch_lock:  # positions move and the epoch gets dirty in one step
        if not remaining(tasks, {**now, **ends}).is_nothing:
            return False
        if not instance.commit.idle:  # it alone is left to be waited for
            instance.commit.hurry()
            return False
        return instance.metrics.commits == commits


def _group_caught_up(
    instance: Instance, ends: Mapping[TopicPartition, int], readers: Mapping[TopicPartition, str]
) -> bool:
    """The same for all members together, by their committed positions, as far as those are of all tasks: one that has just been
    deployed, or begins again after a swap or a move to another member, is not where the others are that read the same partition.

    Against what is written to inside topics, be it committed or not: what was derived from a position is written before that
    position is committed, so nothing can be on its way that is not seen here.
    """
    if not remaining((task for q in list(instance.queries.values()) for task in q.built.tasks), {}).is_nothing:
        return False
    admin, tps, inside = instance.admin, sorted(readers), [tp for tp in sorted(readers) if tp not in ends]
    try:
        before = {tp: admin.written_offset(tp) for tp in inside}
        positions = admin.stable_positions(instance.config.application_id, tps)
        if any(tp not in positions or positions[tp].offset < end for tp, end in (*before.items(), *ends.items())):
            return False
        if any(readers_in(positions[tp].metadata) != of for tp, of in readers.items()):
            return False
        return before == {tp: admin.written_offset(tp) for tp in inside} and instance.commit.idle
    except AWAY:  # brokers are away, or another member commits just now
        return False


def _whole(instance: Instance) -> list[RunningQuery]:
    """Queries that can go on; one that is paused, or reads what is gone, never catches up."""
    found = [(q, instance.query_states.of(name)) for name, q in list(instance.queries.items())]
    return [q for q, record in found if record.state is not STOPPED and not record.paused]


def _suspended(instance: Instance) -> bool:
    """Some query has results to make again."""
    return any(not instance.query_states.of(name).paused for name in instance.query_states.having(SUSPENDED))


def ends_of(instance: Instance, queries: Collection[RunningQuery]) -> dict[TopicPartition, int]:
    """Current ends of what these queries read, with one look at the log; partitions that are gone are left out."""
    inputs = [i for q in queries for t in q.built.tasks for i in t.logs.values()]
    try:
        return instance.admin.end_offsets(sorted({i.tp for i in inputs}))
    except AWAY:  # as it was when they were last seen
        return {i.tp: max(i.end_offset, i.next_fetch) for i in inputs if i.end_offset != END_UNKNOWN}


def committed_of(instance: Instance) -> Committed | None:
    """The committed positions of tasks; None if all processed records are committed. Reads state only while a commit is due."""
    if instance.commit.idle and not instance.commit.blocked:
        return None
    with closing(instance.snapshot()) as snapshot:
        return snapshot.tasks()


def remaining_of(instance: Instance, query: RunningQuery) -> Remaining:
    """The work of a query up to the current ends of its sources. For a broken query, only existing sources count."""
    committed = committed_of(instance)  # before the ends: what is committed meanwhile is left at most
    return remaining(query.built.tasks, ends_of(instance, [query]), committed)


def state_of(instance: Instance, query_id: str, query: RunningQuery | None = None) -> str:
    """running, paused, hung (its function did not return on a member), restoring, failed (waiting for its restart), blocked (commits
    do not get through) or error.

    restoring: also while the tasks of a deployed query are being made, as at the end of a swap. error: what it reads is gone or
    damaged, or the instance is broken. query: as of `DeployedQueries`, where it is known.
    """
    record = instance.query_states.of(query_id)
    known = instance.query_states.knows(query_id)
    if instance.fatal is not None or (known and record.state is STOPPED):
        return "error"
    if record.paused:
        return "paused"
    if record.hung:
        return "hung"
    tasks = (query or instance.queries[query_id]).built.tasks
    if not known or any(task.status is TaskStatus.RESTORING for task in tasks):
        return "restoring"
    if record.state in (FAILED, SUSPENDED):
        return "failed"
    if not tasks and instance.group is None:  # those of a member may be elsewhere
        return "restoring"
    return "blocked" if instance.commit.blocked else "running"


def query_status(
    instance: Instance,
    query_id: str,
    query: RunningQuery | None = None,
    left: Remaining | None = None,
) -> dict[str, Any]:
    """The fields of progress in an entry of `status` (its shape is public). `restored` is there only while the query is restored, `waiting` where it
    calls asynchronous functions or rows have waited for a time, `now` where its clock stands still.

    query: as of `DeployedQueries`, left: what it has to do; where they are known.
    """
    q, m = query or instance.queries[query_id], instance.metrics.query(query_id)
    left = left or remaining_of(instance, q)
    status = {
        "id": query_id,
        "state": state_of(instance, query_id, q),
        "priority": q.plan.priority,
        "weight": q.plan.weight,
        "engine": "runtime",
        "lag": left.lag,
        "records_in": m.records_in,
        "records_out": m.records_out,
        "rows_by_row": dict(m.rows_by_row),
        "ahead": ahead_of_clock(q.built.tasks, instance.clock.wall_ms()),
        **losses_of((t.id.partition, t.losses) for t in q.built.tasks).to_data(),
        "skipped_records": skipped_records(instance.log, _positions(q)),
        "errors": m.errors,
        "last_error": _last_error(instance, instance.query_states.of(query_id).hung or m.last_error),
    }
    if waiting := waiting_of(left.calls, held_in(t.state.metadata for t in q.built.tasks)):
        status["waiting"] = waiting
    if held := held_moment(q.built.tasks, instance.clock.wall_ms()):
        status["now"] = held
    restoring = instance.restoration.progress().get(query_id)
    if restoring is not None:
        status["restored"] = {"records": restoring.done, "total": restoring.total}
    return status


def waiting_of(calls: AsyncFacts | None, held: int | None) -> dict[str, Any]:
    """Rows that wait for calls of asynchronous functions and for a time (`held_in`); empty where a query has neither. oldest_ms: row time of the
    first that waits for a call.
    """
    if calls is None:
        return {} if held is None else {"calls": 0, "windows": held}
    facts = {"parked": calls.parked, "in_flight": calls.in_flight, "oldest_ms": calls.oldest_ms}
    return {"calls": calls.rows, "windows": held or 0} | facts


def _positions(q: RunningQuery) -> dict[TopicPartition, int]:
    positions: dict[TopicPartition, int] = {}
    for i in (i for t in q.built.tasks for i in t.logs.values()):
        positions[i.tp] = min(i.position, positions.get(i.tp, i.position))
    return positions


def _last_error(instance: Instance, of_query: str) -> str | None:
    """The error to show for a query; an error of the whole instance comes first."""
    fatal = f"{type(instance.fatal).__name__}: {instance.fatal}" if instance.fatal is not None else ""
    return fatal or instance.commit.blocked or instance.commit.state_trouble or of_query or None


AHEAD_MS_MIN = 60_000  # clocks of machines differ


def ahead_of_clock(tasks: Iterable[Task], wall_ms: int) -> list[dict[str, Any]]:
    """Each partition whose stream time is ahead, with `partition`, `stream_time`, `ahead_ms` (their names are public).

    A record with a time far in the future makes all later ones of its partition late.
    """
    times: dict[int, int] = {}
    for task in tasks:
        known = task.state.metadata.get("stream_times", {})
        found = [ms for name, ms in known.items() if not name.endswith("#due")]  # that is what a join waits for
        times[task.id.partition] = max([times.get(task.id.partition, 0), *found])
    return [
        {"partition": partition, "stream_time": ms, "ahead_ms": ms - wall_ms}
        for partition, ms in sorted(times.items())
        if ms - wall_ms > AHEAD_MS_MIN
    ]


def held_moment(tasks: Iterable[Task], wall_ms: int) -> dict[str, int]:
    """`moment_ms` and `ahead_ms` of a query with `NOW()` whose clock was set back; else empty (their names are public).

    The moment of a view never goes back: no row comes or goes until the clock has reached it again.
    """
    known = (of for task in tasks for of in task.state.metadata.get(TIMERS, {}).values())
    moment = max((ms for ms in known if isinstance(ms, int)), default=wall_ms)
    return {"moment_ms": moment, "ahead_ms": moment - wall_ms} if moment - wall_ms > AHEAD_MS_MIN else {}
