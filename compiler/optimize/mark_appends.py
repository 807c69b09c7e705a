"""Tell operators over changes that the rows of their inputs only ever come.

before: GroupAggregate(MIN(a), AppendOnly)      after: GroupAggregate(MIN(a), AppendOnly, appends)

So do those of a source to which rows are added, and what is made of them by projections, filters, UNNEST, UNION ALL, DISTINCT, and inner joins
of two such inputs. A group then keeps its least and greatest values and not all of them, a rank the rows that it shows, and a
join need not look for the rows that come.
"""

from __future__ import annotations

from dataclasses import replace

from flowql.compiler.plan.changes import Consolidate, EquiJoin, GroupAggregate, SetOperation, TopN
from flowql.compiler.plan.logical import Explode, Filter, Node, Project, Union
from flowql.compiler.plan.visit import map_nodes
from flowql.compiler.plan.watermarks import AppendOnly


def mark_appends(node: Node) -> Node:
    """Rule: see the module."""
    return map_nodes(node, _marked)


def only_adds(node: Node) -> bool:
    """Whether no row that a node has given ever leaves again."""
    match node.spec:
        case AppendOnly():
            return True
        case EquiJoin(kind="inner", appends=True) | Consolidate(appends=True):
            return True
        case SetOperation(kind="distinct", all=False):
            return only_adds(node.inputs[0])
        case Project() | Filter() | Explode() | Union():
            return node.change == "retract" and all(map(only_adds, node.inputs))
    return False


def _marked(node: Node) -> Node:
    match node.spec:
        case GroupAggregate() | Consolidate() if only_adds(node.inputs[0]):
            return replace(node, spec=replace(node.spec, appends=True))
        case TopN(function="row_number", limit=int(limit)) if limit and only_adds(node.inputs[0]):
            return replace(node, spec=replace(node.spec, appends=True))
        case EquiJoin(kind="inner") if all(map(only_adds, node.inputs)):
            return replace(node, spec=replace(node.spec, appends=True))
    return node
