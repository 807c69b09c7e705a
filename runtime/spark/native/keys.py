"""Which types Spark groups and joins by as the reference does. No pyspark."""

from __future__ import annotations

from flowql.compiler.plan.types import Kind, SqlType


def groups(t: SqlType) -> bool:
    """Whether Spark groups and joins values of the type as the reference does."""
    if t.kind in (Kind.DOUBLE, Kind.MAP):
        return False
    return all(map(groups, (*t.args, *(f for _, f in t.fields))))
