"""Where a task is in its life. Source: the style of `MemberState` in Apache Kafka's consumer."""

from __future__ import annotations

from enum import Enum

from flowql.runtime.errors import RuntimeFailure


class IllegalTransition(RuntimeFailure):
    """A task was about to go where it cannot come from: a mistake in the engine."""


class TaskStatus(Enum):
    """Created by `flowql.runtime.topology`; then in exactly one place: RESTORING at the restoration step, RUNNING at the task manager."""

    CREATED = "created"
    RESTORING = "restoring"
    RUNNING = "running"
    CLOSED = "closed"

    @property
    def previous(self) -> frozenset[TaskStatus]:
        """From where this status is reached."""
        return _PREVIOUS[self]

    def to(self, next_status: TaskStatus) -> TaskStatus:
        """The next status, if it may follow this one."""
        if self not in next_status.previous:
            raise IllegalTransition(f"a {self.value} task cannot become {next_status.value}")
        return next_status


_PREVIOUS = {
    TaskStatus.CREATED: frozenset[TaskStatus](),
    TaskStatus.RESTORING: frozenset({TaskStatus.CREATED}),
    TaskStatus.RUNNING: frozenset({TaskStatus.CREATED, TaskStatus.RESTORING}),
    TaskStatus.CLOSED: frozenset({TaskStatus.CREATED, TaskStatus.RESTORING, TaskStatus.RUNNING}),
}
