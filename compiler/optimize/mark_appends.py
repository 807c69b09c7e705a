"""Tell operators over changes that the rows of their inputs only ever come.

before: GroupAggregate(MIN(a), AppendOnly)      after: GroupAggregate(MIN(a), AppendOnly, appends)

Which inputs those are: `flowql.compiler.analyze.relations.records.only_adds`. A group then keeps its least and greatest values and not all of them, a rank the rows that it shows, a
join need not look for the rows that come, and a temporal join keeps nothing of its left rows.
"""

from __future__ import annotations

from dataclasses import replace

from flowql.compiler.analyze.relations.records import only_adds
from flowql.compiler.plan.changes import Consolidate, EquiJoin, GroupAggregate, TemporalJoin, TopN
from flowql.compiler.plan.logical import Node
from flowql.compiler.plan.visit import rule_for


@rule_for(GroupAggregate, Consolidate, TopN, TemporalJoin, EquiJoin)
def mark_appends(node: Node) -> Node:
    """Rule: see the module."""
    match node.spec:
        case GroupAggregate() | Consolidate() if only_adds(node.inputs[0]):
            return replace(node, spec=replace(node.spec, appends=True))
        case TopN(function="row_number", limit=int(limit)) if limit and only_adds(node.inputs[0]):
            return replace(node, spec=replace(node.spec, appends=True))
        case TemporalJoin() if only_adds(node.inputs[0]):
            return replace(node, spec=replace(node.spec, appends=True))
        case EquiJoin(kind="inner") if all(map(only_adds, node.inputs)):
            return replace(node, spec=replace(node.spec, appends=True))
    return node
