"""Standard SQL: a row for which an expression fails is left out, where ksqlDB has NULL in the place of the value.

before: Project(q := 10 / x, Scan)      after: Project(q := 10 / x, drop_failed, Scan)

A condition that fails is not true in both dialects, so filters and residuals of joins need no mark.
"""

from __future__ import annotations

from dataclasses import replace

from flowql.compiler.plan.expr import Call, Expr, walk
from flowql.compiler.plan.logical import Explode, NamedExpr, Node, Project
from flowql.compiler.plan.visit import map_nodes


def without_failed_rows(node: Node) -> Node:
    """The plan of a query of standard SQL, whose projections and lists drop the rows that they fail for."""
    return map_nodes(node, _marked, Project, Explode)


def _marked(node: Node) -> Node:
    match node.spec:
        case Project(columns) if any(_computes(c.expr) for c in columns):
            return replace(node, spec=replace(node.spec, drop_failed=True))
        case Explode(functions) if any(_fails(f) for f in functions):
            return replace(node, spec=replace(node.spec, drop_failed=True))
    return node


def _fails(function: NamedExpr) -> bool:
    """Whether a list may fail: EXPLODE of a column or of constants does not."""
    args = function.expr.args if isinstance(function.expr, Call) else ()
    return any(isinstance(e, Call) and e.name not in ("array", "sql_places") for a in args for e in walk(a))


def _computes(e: Expr) -> bool:
    return isinstance(e, Call)
