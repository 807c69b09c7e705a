"""Keys as Spark groups and joins by them: which types as the reference does, and which keys it need not look at. No pyspark."""

from __future__ import annotations

from flowql.compiler.functions.spark_sql import lower
from flowql.compiler.plan.expr import Column, Literal
from flowql.compiler.plan.logical import Node, Project, Rekey
from flowql.compiler.plan.types import Kind, SqlType


def groups(t: SqlType) -> bool:
    """Whether Spark groups and joins values of the type as the reference does."""
    if t.kind in (Kind.DOUBLE, Kind.MAP):
        return False
    return all(map(groups, (*t.args, *(f for _, f in t.fields))))


def constants(node: Node) -> dict[str, str]:
    """Spark SQL of the key columns that are the same in all rows, and not NULL."""
    if not isinstance(node.spec, Rekey):
        return {}
    projected = node.inputs[0].spec
    before = {c.name: c.expr for c in projected.columns} if isinstance(projected, Project) else {}
    found: dict[str, str] = {}
    for key in node.spec.keys:
        expr = before.get(key.expr.name, key.expr) if isinstance(key.expr, Column) else key.expr
        lowered = lower(expr) if isinstance(expr, Literal) and expr.value is not None else None
        if lowered is not None:
            found[key.name] = lowered.sql
    return found
