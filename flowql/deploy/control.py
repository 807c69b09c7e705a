"""Changes of what runs that no project says: priorities and pauses. Each gives the plan that is to run from now on."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from flowql.compiler.plan.priorities import PRIORITY_WEIGHTS, Priority
from flowql.compiler.plan.topology import Plan, QueryPlan
from flowql.deploy.selection import find_query


@dataclass(frozen=True, slots=True)
class NewPriority:
    """weight: None for that of the class. latency_target_ms: None leaves it, 0 takes it away."""

    query: str
    priority: Priority
    weight: int | None = None
    latency_target_ms: int | None = None


def with_priority(plan: Plan, wanted: NewPriority) -> Plan:
    """CommandError for a query that does not run."""
    query = find_query(plan, wanted.query)
    target = query.latency_target_ms if wanted.latency_target_ms is None else wanted.latency_target_ms or None
    weight = PRIORITY_WEIGHTS[wanted.priority] if wanted.weight is None else wanted.weight
    changed = replace(query, priority=wanted.priority, weight=weight, latency_target_ms=target)
    return replace(plan, queries=tuple(changed if q is query else q for q in plan.queries))


def with_paused(plan: Plan, names: Sequence[str], *, paused: bool) -> tuple[Plan, list[str]]:
    """The plan, and the ids of the queries meant. CommandError for one that does not run."""
    meant = [find_query(plan, name).id for name in names]
    wanted = {*plan.paused, *meant} if paused else set(plan.paused) - set(meant)
    return replace(plan, paused=tuple(q.id for q in plan.queries if q.id in wanted)), list(dict.fromkeys(meant))


def priority_of(query: QueryPlan) -> dict[str, Any]:
    """The public JSON of a query's priority."""
    return {
        "id": query.id,
        "priority": query.priority,
        "weight": query.weight,
        "latency_target_ms": query.latency_target_ms,
    }
