"""What tasks still have to do up to given ends of their inputs: the lag of a query and whether it has caught up are both read from it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from flowql.runtime.log.base import TopicPartition
from flowql.runtime.task.input_buffer import LogInput
from flowql.runtime.task.status import TaskStatus
from flowql.runtime.task.task import Task

Committed = Mapping[str, Mapping[str, Any]]  # id of a task -> its metadata as of the last commit


@dataclass(frozen=True, slots=True)
class Remaining:
    """records: of inputs, without results that are committed; an estimate that is 0 only where there are none. between: rows on their way
    between tasks. calls: rows that wait for calls of asynchronous functions. unsure: tasks that are restored, have to start, or do not
    know yet which rows wait in them.
    """

    records: int = 0
    between: int = 0
    calls: int = 0
    unsure: int = 0

    @property
    def lag(self) -> int:
        return self.records + self.between


NOTHING = Remaining()


def remaining(
    tasks: Iterable[Task], ends: Mapping[TopicPartition, int], committed: Committed | None = None
) -> Remaining:
    """ends: partitions without one count as read to the end. committed: None where all that is processed counts as committed."""
    tasks = list(tasks)
    facts = [f for t in tasks for f in t.program.waiting]
    return Remaining(
        records=sum(records_left(t, i, ends.get(i.tp, 0), committed) for t in tasks for i in tuple(t.logs.values())),
        between=sum(x.rows for t in tasks for x in t.exchanges.values()),
        calls=sum(f.rows for f in facts),
        unsure=sum(_is_unsure(t) for t in tasks),
    )


def records_left(task: Task, i: LogInput, end: int, committed: Committed | None) -> int:
    """Records of an input up to the offset `end` that are not processed, and those that are processed and not committed."""
    unread = max(1, i.lag(end)) if i.position < end else 0
    return unread + (0 if committed is None else _uncommitted(i, committed.get(str(task.id), {}).get("positions", {})))


def _uncommitted(i: LogInput, positions: Mapping[str, int]) -> int:
    """Records that are processed and follow the committed position of the input, estimated as in `LogInput.lag`."""
    begun = i.next_fetch - i.seen[0]  # where nothing of it is committed
    behind = i.position - i.position_in(positions, begun)
    return i.records_in(behind) if behind > 0 else 0


def _is_unsure(task: Task) -> bool:
    return task.status is TaskStatus.RESTORING or task.must_start or not all(f.is_known for f in task.program.waiting)
