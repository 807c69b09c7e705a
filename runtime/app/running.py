"""A deployed query on an instance."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

from compiler.plan.topology import QueryPlan
from runtime.build.query import BuiltQuery
from runtime.commit.coordinator import lowest
from runtime.log.base import TopicPartition
from runtime.task.task import Task


@dataclass(slots=True)
class RunningQuery:
    """A deployed query: its plan and its tasks."""

    plan: QueryPlan
    built: BuiltQuery
    paused: bool = False
    broken: str = ""  # why it cannot go on before it is deployed anew
    refused: str = ""  # why the log does not take its results; it is tried again
    refused_at: dict[TopicPartition, int] = field(default_factory=dict)  # where that will begin, until there are tasks
    parting: list[Task] = field(default_factory=list)  # left with the last cut, which may be refused yet

    def committed_positions(self) -> dict[TopicPartition, int]:
        """Of the tasks of the last cut, after they were sent back to the last commit; 0 where there was none."""
        found: dict[TopicPartition, int] = {}
        for task in (*self.built.tasks, *self.parting):
            committed = task.state.metadata.get("positions", {})
            for i in task.logs.values():
                position = committed.get(i.name, 0)
                found[i.tp] = min(position, found.get(i.tp, position))
        return found


def positions_of(queries: Iterable[RunningQuery]) -> dict[TopicPartition, int]:
    """Of every partition that tasks read the lowest position; a broken query's are kept by its tasks' own records."""
    by_tp: dict[TopicPartition, list[int]] = {}
    for q in list(queries):
        for tp, position in q.refused_at.items():
            by_tp.setdefault(tp, []).append(position)
        for task in () if q.broken or q.refused else (*q.built.tasks, *q.parting):
            for i in task.logs.values():
                by_tp.setdefault(i.tp, []).append(i.position)
    return lowest(by_tp)
