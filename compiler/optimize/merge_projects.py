"""One projection instead of two in a row.

before: Project(B := A + 1, Project(A := X, Scan))     after: Project(B := X + 1, Scan)

Only when no computed column is used twice, so that nothing is computed more often than before.
"""

from __future__ import annotations

from collections import Counter

from flowql.compiler.optimize.push_filter import is_deterministic
from flowql.compiler.plan.expr import Column, Literal, walk
from flowql.compiler.plan.logical import NamedExpr, Node, Project
from flowql.compiler.plan.visit import rule_for, substitute


@rule_for(Project)
def merge_projects(node: Node) -> Node:
    """Rule: see the module."""
    below = node.inputs[0] if node.inputs else None
    if below is None or not isinstance(node.spec, Project) or not isinstance(below.spec, Project):
        return node
    inner = {c.name: c.expr for c in below.spec.columns}
    uses = Counter(x.name for x in walk(*(c.expr for c in node.spec.columns)) if isinstance(x, Column))
    for name, e in inner.items():
        if not isinstance(e, (Column, Literal)) and (uses[name] > 1 or not is_deterministic(e)):
            return node
    columns = tuple(NamedExpr(c.name, substitute(c.expr, inner)) for c in node.spec.columns)
    merged = Project(columns, drop_failed=node.spec.drop_failed or below.spec.drop_failed)
    return Node(merged, below.inputs, node.schema, node.change)
