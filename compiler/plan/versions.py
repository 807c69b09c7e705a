"""Which inputs a query reads record by record, so that a record that a later one of its key has replaced counts as well."""

from __future__ import annotations

from flowql.compiler.plan.changes import TemporalJoin
from flowql.compiler.plan.logical import Join, Node, Scan, walk_nodes
from flowql.compiler.plan.topology import QueryPlan


def topics_read_by_version(query: QueryPlan) -> tuple[str, ...]:
    """Topics of which a query reads every record: streams, and tables that rows are joined with as of their own time.

    Of other tables the last row of each key is all that its result depends on.
    """
    streams = [n.spec.topic for n in walk_nodes(query.logical) if isinstance(n.spec, Scan) and n.spec.kind == "stream"]
    tables = [
        below.spec.topic
        for node in walk_nodes(query.logical)
        if _looks_up_versions(node)
        for below in walk_nodes(node.inputs[1])
        if isinstance(below.spec, Scan)
    ]
    return tuple(dict.fromkeys([*streams, *tables]))


def _looks_up_versions(node: Node) -> bool:
    return isinstance(node.spec, TemporalJoin) or (isinstance(node.spec, Join) and node.spec.shape == "stream-table")
