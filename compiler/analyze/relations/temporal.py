"""Temporal joins: `JOIN right FOR SYSTEM_TIME AS OF PROCTIME()`."""

from __future__ import annotations

from collections.abc import Container, Sequence
from dataclasses import replace
from typing import Literal as OneOf

from compiler.analyze.relations.joins import equality
from compiler.analyze.relations.relation import Names, Rel, as_columns
from compiler.dialect.standard import tree as t
from compiler.dialect.standard.refuse import unsupported
from compiler.plan.changes import TemporalJoin
from compiler.plan.expr import Expr, Literal, conjunction
from compiler.plan.logical import Node
from compiler.plan.schema import Schema
from compiler.plan.types import BOOLEAN

NOW = t.Call(("proctime",))


def is_temporal(join: t.Join) -> bool:
    return isinstance(join.right, t.Table) and join.right.as_of is not None


def present(relation: t.Relation, common: Container[str]) -> t.Table:
    """The table or view on the right side of a temporal join. common: names of common table expressions."""
    assert isinstance(relation, t.Table)
    assert relation.as_of is not None
    if relation.as_of != NOW:
        unsupported("FOR SYSTEM_TIME AS OF another time than PROCTIME()", relation.as_of.span, "join as of PROCTIME()")
    if len(relation.name) == 1 and relation.name[0] in common:
        unsupported("FOR SYSTEM_TIME AS OF with a common table expression", relation.span, "make it a view of its own")
    return replace(relation, as_of=None)


def temporally_joined(join: t.Join, left: Rel, right: Rel, conditions: Sequence[Expr], names: Names) -> Rel:
    """Joins each left row with the version of the right relation at its arrival. Columns: those of the left, then of the right.

    All conditions but equalities of both sides are asked when the row arrives, and what was found then is kept.
    """
    if join.kind in ("right", "full"):
        unsupported(f"a {join.kind.upper()} JOIN with FOR SYSTEM_TIME AS OF", join.at, "write a LEFT JOIN")
    found = [(c, equality(c, left.names, right.names)) for c in conditions if c != Literal(BOOLEAN, True)]
    pairs = [e for _, e in found if e is not None and not e.null_safe]
    others = [c for c, e in found if e is None or e.null_safe]
    left, left_keys = as_columns(left, [p.left for p in pairs], names, "key")
    right, right_keys = as_columns(right, [p.right for p in pairs], names, "key")
    kind: OneOf["inner", "left"] = "left" if join.kind == "left" else "inner"
    spec = TemporalJoin(kind, tuple(left_keys), tuple(right_keys), conjunction(others) if others else None)
    fields = [f for s in (left, right) for f in s.node.schema]
    schema = Schema((*(f for f in fields if f.role == "key"), *(f for f in fields if f.role != "key")))
    return Rel(Node(spec, (left.node, right.node), schema, "retract"), (*left.columns, *right.columns))
