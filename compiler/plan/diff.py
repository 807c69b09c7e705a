"""What changes between two plans, query by query: what `deploy` prints is what the engine does."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from compiler.plan.topology import Plan, QueryPlan

Action = Literal["add", "change", "remove", "priority", "none"]
StateFate = Literal["kept", "rebuilt", "dropped"]


@dataclass(frozen=True, slots=True)
class QueryChange:
    """One query's fate. `state`: what happens to its stores; None when it has none to lose (added)."""

    query: str
    action: Action
    state: StateFate | None


def diff_plans(old: Plan, new: Plan) -> tuple[QueryChange, ...]:
    """Changes in the order of the new plan, removals last. A query is the same while its definition is (DESIGN section 4)."""
    changes = [_fate(old.query(q.id), q) for q in new.queries]
    changes += [QueryChange(q.id, "remove", "dropped") for q in old.queries if new.query(q.id) is None]
    return tuple(changes)


def _fate(old: QueryPlan | None, new: QueryPlan) -> QueryChange:
    if old is None:
        return QueryChange(new.id, "add", None)
    if old.definition != new.definition:
        return QueryChange(new.id, "change", "rebuilt")
    if (old.priority, old.weight, old.latency_target_ms) != (new.priority, new.weight, new.latency_target_ms):
        return QueryChange(new.id, "priority", "kept")
    return QueryChange(new.id, "none", "kept")
