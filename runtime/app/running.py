"""A deployed query on an instance."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from compiler.plan.topology import QueryPlan
from runtime.build.query import BuiltQuery
from runtime.commit.coordinator import lowest
from runtime.log.base import TopicPartition


@dataclass(slots=True)
class RunningQuery:
    """A deployed query: its plan and its tasks."""

    plan: QueryPlan
    built: BuiltQuery
    paused: bool = False
    broken: str = ""  # why it cannot go on before it is deployed anew


def positions_of(queries: Iterable[RunningQuery]) -> dict[TopicPartition, int]:
    """Of every partition that tasks read the lowest position; a broken query's are kept by its tasks' own records."""
    by_tp: dict[TopicPartition, list[int]] = {}
    for q in list(queries):
        for task in () if q.broken else q.built.tasks:
            for i in task.logs.values():
                by_tp.setdefault(i.tp, []).append(i.position)
    return lowest(by_tp)
