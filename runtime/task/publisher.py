"""Publishing as a task sees it: the results of a micro-batch, and the side of the instance that takes them."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Protocol

from flowql.runtime.task.dead_letters import LocatedDeadLetter
from flowql.runtime.task.program import Output

Task = Any  # `flowql.runtime.task.task.Task`, whose module imports this one


@dataclass(slots=True)
class MicroBatchResult:
    """Results of a completed micro-batch, for the epoch."""

    outputs: list[Output]
    dead_letters: list[LocatedDeadLetter]
    source_rows: int  # records of log topics; rows that came through a repartition are not counted again
    late: dict[str, int] = field(default_factory=dict)
    wants_commit: bool = False  # soon
    by_row: dict[str, int] = field(default_factory=dict)


class Publisher(Protocol):
    """The instance's side of publishing: called with the epoch lock held."""

    def publish(self, task: Task, result: MicroBatchResult) -> None: ...

    def has_room(self, task: Task) -> bool:
        """Whether there is room for its output before the next cut. Any thread, without the lock."""
        ...

    def lock(self) -> Any:
        """The epoch lock, a context manager."""
        ...

    def wake(self) -> None:
        """A task may have become runnable without input. Any thread."""
        ...

    def broke(self, task: Task, error: BaseException) -> None:
        """A run is published in part, or its input consumed for nothing: what its query has made since the last cut must not be
        committed. The lock is held.
        """
        ...
