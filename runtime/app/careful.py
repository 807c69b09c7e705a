"""Careful mode: after a commit has rejected results of a query, each micro-batch of the query is checked before it is published.

State is normally encoded once per commit, for many micro-batches together, because encoding costs as much as the commit itself. At that time the
record that caused an unencodable value is no longer known. So the query returns to the last commit, and until it is beyond the cut that failed,
each of its micro-batches is checked alone; the record that cannot be committed is then isolated (`flowql.runtime.task.isolate`).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime

from flowql.runtime.errors import RecordAhead, RecordRefused
from flowql.runtime.events import INFO, say
from flowql.runtime.log.base import TopicPartition, largest_record, latest_record
from flowql.runtime.state.changelog import changelog_topic
from flowql.runtime.state.frozen import UnwritableState
from flowql.runtime.state.manager import StateManager
from flowql.runtime.task.batch_ipc import encode_batch
from flowql.runtime.task.program import ExchangeRows, Output
from flowql.runtime.task.task import Task


@dataclass(slots=True)
class _Careful:
    """until: positions by task and input at the time of the rejected commit. bytes_max, time_max_ms: by topic, the size of the largest record and the
    latest time that it accepts, as far as they are known. new: tasks have been built since. channels: how far each channel was filled when all tasks existed.
    """

    until: Mapping[tuple[str, str], int]
    bytes_max: dict[str, int] = field(default_factory=dict)
    time_max_ms: dict[str, int] = field(default_factory=dict)
    new: bool = False
    channels: dict[tuple[str, int, int], int] = field(default_factory=dict)


class CarefulQueries:
    """The queries in careful mode. The commit thread calls `begin` and `look`; the thread that builds tasks calls `attach`."""

    def __init__(self, state: StateManager, application_id: str) -> None:
        self._state, self._id = state, application_id
        self._of: dict[str, _Careful] = {}

    def begin(self, query: str, tasks: Iterable[Task], error: Exception) -> bool:
        """Called after a commit has rejected results of the query. False if no record can be left out for it, or the search has already failed.

        The epoch lock is held.
        """
        bytes_max, time_max_ms = _limits(error)
        unwritable = isinstance(error, UnwritableState) and error.of_values
        if not (unwritable or bytes_max or time_max_ms):
            return False
        before = self._of.get(query, _Careful({}))
        reached = {(str(t.id), i.name): i.position for t in tasks for i in t.logs.values()}
        made = self._of[query] = _Careful(
            {**before.until, **reached}, {**before.bytes_max, **bytes_max}, {**before.time_max_ms, **time_max_ms}
        )
        say(INFO, "query.careful", str(error), query=query)
        known = made.bytes_max == before.bytes_max and made.time_max_ms == before.time_max_ms
        return not (before.new and known)

    def attach(self, tasks: Iterable[Task]) -> None:
        """Called with new tasks, which begin at the last commit."""
        for task in tasks:
            careful = self._of.get(task.id.query)
            if careful is not None:
                task.check = self._check
                careful.new = True

    def look(self, tasks_of: Mapping[str, Sequence[Task]]) -> None:
        """Called after a commit. tasks_of: tasks of the queries that are not suspended."""
        for query, careful in list(self._of.items()):
            tasks = tasks_of.get(query, ())
            if careful.new and tasks and _beyond(careful, tasks):
                del self._of[query]
                for task in tasks:
                    task.check = None
                say(INFO, "query.careful.over", query=query)

    def bytes_max(self, query: str, topic: str) -> int | None:
        """The size of the largest record that a topic accepts, if a commit of the query has shown it."""
        careful = self._of.get(query)
        return None if careful is None else careful.bytes_max.get(topic)

    def _check(self, task: Task, outputs: Sequence[Output]) -> None:
        """Raises the error with which a commit would reject these outputs and this state."""
        careful = self._of.get(task.id.query)
        limits = {} if careful is None else careful.bytes_max
        times = {} if careful is None else careful.time_max_ms
        for name, (keys, values) in self._state.batch_of(str(task.id)).items():
            limit = limits.get(changelog_topic(self._id, name))
            if limit is not None:
                _refuse_larger(
                    name, limit, max((len(k) + len(v or b"") for k, v in zip(keys, values, strict=True)), default=0)
                )
        for output in outputs:
            if isinstance(output, ExchangeRows):
                for _, batch in output.parts:
                    try:
                        encode_batch(batch)
                    except Exception as error:
                        raise UnwritableState(str(task.id), output.topic, error) from error
                continue
            for p, records in output.parts if output.topic in limits or output.topic in times else ():
                where = str(TopicPartition(output.topic, p))
                if output.topic in limits:
                    _refuse_larger(where, limits[output.topic], largest_record(records))
                if output.topic in times:
                    _refuse_later(where, times[output.topic], latest_record(records))


def _refuse_larger(what: str, limit: int, size: int) -> None:
    if size > limit:
        raise RecordRefused(f"a record of {size} bytes for {what}, which takes {limit}")


def _refuse_later(what: str, limit_ms: int, time_ms: int) -> None:
    if time_ms > limit_ms:
        raise RecordAhead(
            f"the time {_utc(time_ms)} of a record for {what} is further ahead of the brokers' clock than the topic takes (until {_utc(limit_ms)}): "
            "see its setting message.timestamp.after.max.ms"
        )


def _utc(time_ms: int) -> str:
    """As text, also beyond the years of Python.

    >>> _utc(0), _utc(1 << 62)
    ('1970-01-01 00:00:00 UTC', '4611686018427387904 ms')
    """
    try:
        return datetime.fromtimestamp(time_ms / 1000, UTC).strftime("%Y-%m-%d %H:%M:%S UTC")
    except (ValueError, OverflowError, OSError):
        return f"{time_ms} ms"


def _limits(error: Exception) -> tuple[dict[str, int], dict[str, int]]:
    """By topic: bytes of its largest record, and the latest time, where the rejection says them."""
    if not isinstance(error, RecordRefused) or error.partition is None:
        return {}, {}
    topic = error.partition[0]
    return (
        {} if error.bytes_max is None else {topic: error.bytes_max},
        {} if error.time_max_ms is None else {topic: error.time_max_ms},
    )


def _beyond(careful: _Careful, tasks: Sequence[Task]) -> bool:
    """All tasks are where they were when the commit was refused, and so is what they have sent each other since."""
    if any(i.position < careful.until.get((str(t.id), i.name), 0) for t in tasks for i in t.logs.values()):
        return False
    channels = [x for t in tasks for x in t.exchanges.values()]
    if not careful.channels:
        careful.channels = {(x.topic, x.partition, x.source): x.first + len(x.queue) for x in channels}
    return all(x.first >= careful.channels.get((x.topic, x.partition, x.source), 0) for x in channels)
