"""A deployed query on an instance."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from flowql.compiler.plan.topology import QueryPlan
from flowql.runtime.app.query_state import QueryStates
from flowql.runtime.commit.positions import ReaderPosition, readers
from flowql.runtime.log.base import TopicPartition
from flowql.runtime.task.id import TaskId
from flowql.runtime.task.task import Task
from flowql.runtime.topology.query import BuiltQuery


@dataclass(slots=True)
class RunningQuery:
    """A deployed query: its plan and its tasks. Whether it runs is known to `QueryStates`.

    restart_positions: where a suspended query will begin, until it has tasks again. parting: tasks that left with the last cut, which
    may be refused yet. Both under the epoch lock. lacks_tasks: partitions were added to what it reads, for which a single instance makes
    tasks (the members of a group are assigned them); set by the polling thread, cleared by the reconciler.
    """

    plan: QueryPlan
    built: BuiltQuery
    restart_positions: dict[TopicPartition, int] = field(default_factory=dict)
    parting: list[Task] = field(default_factory=list)
    lacks_tasks: bool = False

    def committed_positions(self) -> dict[TopicPartition, int]:
        """Positions of the tasks of the last cut, after their reset to the last commit; 0 without one."""
        return _committed((*self.built.tasks, *self.parting))

    def staying(self, positions: Mapping[TopicPartition, int]) -> dict[TopicPartition, int]:
        """The positions of partitions that have tasks here after the last cut."""
        here = {i.tp for task in self.built.tasks for i in task.logs.values()}
        return {tp: position for tp, position in positions.items() if tp in here}


def _committed(tasks: Iterable[Task]) -> dict[TopicPartition, int]:
    found: dict[TopicPartition, int] = {}
    for task in tasks:
        committed = task.state.metadata.get("positions", {})
        for i in task.logs.values():
            position = i.position_in(committed, 0)
            found[i.tp] = min(position, found.get(i.tp, position))
    return found


def positions_of(queries: Mapping[str, RunningQuery], states: QueryStates) -> dict[TopicPartition, ReaderPosition]:
    """The lowest position for every partition that tasks read. Records of tasks keep those of a stopped query."""
    by_tp: dict[TopicPartition, list[int]] = {}
    tasks: dict[TopicPartition, set[TaskId]] = {}
    for name, q in list(queries.items()):
        for tp, position in q.restart_positions.items():
            by_tp.setdefault(tp, []).append(position)
        if not states.of(name).keeps_tasks:
            continue
        for task in (*q.built.tasks, *q.parting):
            for i in task.logs.values():
                by_tp.setdefault(i.tp, []).append(i.position)
        for task in q.built.tasks:
            for i in task.logs.values():
                tasks.setdefault(i.tp, set()).add(task.id)
    return {tp: ReaderPosition(min(found), readers(tasks.get(tp, ()))) for tp, found in by_tp.items()}
