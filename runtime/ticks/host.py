"""The instance as ticks see it."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from typing import Protocol

from flowql.compiler.plan.topology import Plan
from flowql.runtime.clock import Clock
from flowql.runtime.commit.coordinator import CommitStep
from flowql.runtime.errors import LogError
from flowql.runtime.log.base import Admin, Log, TopicPartition
from flowql.runtime.scheduler.manager import TaskManager
from flowql.runtime.state.manager import StateManager
from flowql.runtime.task.task import Task
from flowql.runtime.ticks.record import Ends


class Lines(Protocol):
    """The polling step."""

    def ask_line(self, partitions: Callable[[], Sequence[TopicPartition]], take: Callable[[Ends], None]) -> None: ...


class Room(Protocol):
    """Bounds what is not committed."""

    @property
    def awaits_cut(self) -> bool:
        """Whether a task cannot publish before the next commit."""
        ...

    def has_reserve(self) -> bool:
        """Whether at least half of the room is free."""
        ...


class TickHost(Protocol):
    """An instance."""

    state: StateManager
    commit: CommitStep
    manager: TaskManager
    admin: Admin
    log: Log
    clock: Clock
    running: Plan

    @property
    def polling(self) -> Lines: ...

    @property
    def publisher(self) -> Room: ...

    def tasks_of(self, query: str) -> Sequence[Task]: ...

    def may_run(self, query: str) -> bool: ...

    def is_refused(self, query: str) -> bool:
        """Whether the log has refused what the query made, and it is back at the last commit."""
        ...


def ends_of(admin: Admin, topics: Collection[str]) -> dict[str, Ends] | None:
    """The ends of those topics that exist. None: brokers are away. The commit thread calls it before their writers go on."""
    if not topics:
        return {}
    try:
        counts = admin.partition_counts(list(topics))
        tps = [TopicPartition(topic, p) for topic, count in counts.items() for p in range(count)]
        ends = admin.end_offsets(tps) if tps else {}
    except LogError:
        return None
    return {topic: {tp: end for tp, end in ends.items() if tp.topic == topic} for topic in counts}
