"""The remaining work of tasks up to given ends of their inputs: the lag of a query and whether it has caught up are both read from it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from flowql.runtime.log.base import TopicPartition
from flowql.runtime.operators.base import HELD, AsyncFacts
from flowql.runtime.task.status import TaskStatus

if TYPE_CHECKING:  # what `status` of a stopped instance needs loads no task
    from flowql.runtime.task.input_buffer import LogInput
    from flowql.runtime.task.task import Task

Committed = Mapping[str, Mapping[str, Any]]  # id of a task -> its metadata as of the last commit


@dataclass(frozen=True, slots=True)
class Remaining:
    """records: of inputs, without results that are committed; an estimate that is 0 only where there are none. between: rows on their way
    between tasks. unsure: tasks that are restored or have to start. calls: rows that wait for calls of asynchronous functions; None where
    tasks make none. Rows that wait for a time are no work (`held_in`).
    """

    records: int = 0
    between: int = 0
    unsure: int = 0
    calls: AsyncFacts | None = None

    @property
    def is_nothing(self) -> bool:
        """There is no work."""
        calls = self.calls is not None and (self.calls.rows or not self.calls.is_known)
        return not (self.records or self.between or self.unsure or calls)

    @property
    def lag(self) -> int:
        return self.records + self.between


def remaining(
    tasks: Iterable[Task], ends: Mapping[TopicPartition, int], committed: Committed | None = None
) -> Remaining:
    """ends: partitions without one count as read to the end. committed: None where all that is processed counts as committed."""
    tasks = list(tasks)
    return Remaining(
        records=sum(records_left(t, i, ends.get(i.tp, 0), committed) for t in tasks for i in tuple(t.logs.values())),
        between=sum(t.channels.rows for t in tasks),
        unsure=sum(t.status is TaskStatus.RESTORING or t.must_start for t in tasks),
        calls=_calls([f for t in tasks for f in t.program.waiting]),
    )


def held_in(tasks: Iterable[Mapping[str, Any]]) -> int | None:
    """Rows that wait for a time, which later rows or the clock bring, by the metadata of tasks; None where none has waited."""
    held = [rows for metadata in tasks for rows in metadata.get(HELD, {}).values()]
    return sum(held) if held else None


def records_left(task: Task, i: LogInput, end: int, committed: Committed | None) -> int:
    """Records of an input up to the offset `end` that are not processed, and those that are processed and not committed."""
    unread = max(1, i.lag(end)) if i.position < end else 0
    return unread + (0 if committed is None else _uncommitted(i, committed.get(str(task.id), {}).get("positions", {})))


def _uncommitted(i: LogInput, positions: Mapping[str, int]) -> int:
    """Records that are processed and follow the committed position of the input, estimated as in `LogInput.lag`."""
    begun = i.next_fetch - i.seen[0]  # where nothing of it is committed
    behind = i.position - i.position_in(positions, begun)
    return i.records_in(behind) if behind > 0 else 0


def _calls(facts: Sequence[AsyncFacts]) -> AsyncFacts | None:
    """Facts of all operators together."""
    if not facts:
        return None
    return AsyncFacts(
        is_known=all(f.is_known for f in facts),
        rows=sum(f.rows for f in facts),
        in_flight=sum(f.in_flight for f in facts),
        parked=sum(f.parked for f in facts),
        oldest_ms=min((f.oldest_ms for f in facts if f.oldest_ms is not None), default=None),
    )
