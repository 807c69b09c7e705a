"""Which queries have rows that depend on which of their inputs comes first, and what those inputs are made of."""

from __future__ import annotations

from flowql.compiler.plan.changes import TemporalJoin, VersionJoin
from flowql.compiler.plan.generations import topics_read
from flowql.compiler.plan.logical import Join, Node, walk_nodes
from flowql.compiler.plan.topology import Plan, QueryPlan

BY_KEY = ("table-table", "foreign-key")  # joins that end with the same rows, whichever side comes first


def merges(query: QueryPlan) -> bool:
    """Whether its rows depend on which of its inputs comes first."""
    return any(map(_by_time, walk_nodes(query.logical)))


def _by_time(node: Node) -> bool:
    if isinstance(node.spec, Join):
        return node.spec.shape not in BY_KEY
    return isinstance(node.spec, TemporalJoin | VersionJoin)


def upstream_of(query: QueryPlan, plan: Plan) -> tuple[QueryPlan, ...]:
    """Queries that make what it reads, each behind those that it reads itself. None that reads what `query` writes, however far."""
    return tuple(q for q in _made_of(query, plan, {}) if query.id not in {u.id for u in _made_of(q, plan, {})})


def _made_of(query: QueryPlan, plan: Plan, found: dict[str, QueryPlan]) -> list[QueryPlan]:
    """found: gets them in their order; those that are being looked at are in it from the beginning."""
    order: list[QueryPlan] = []
    for other in plan.queries:
        if other.topic in topics_read(query) and other.id not in found:
            found[other.id] = other
            order += [*_made_of(other, plan, found), other]
    return order
