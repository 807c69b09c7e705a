"""Temporal joins: `JOIN right FOR SYSTEM_TIME AS OF PROCTIME()`, and `AS OF left.time` over versions."""

from __future__ import annotations

from collections.abc import Container, Sequence
from dataclasses import replace
from typing import Literal as OneOf

from flowql.compiler.analyze.mistakes import mistake
from flowql.compiler.analyze.relations.closing import followed
from flowql.compiler.analyze.relations.joins import Equality, equality
from flowql.compiler.analyze.relations.relation import Names, Rel, as_columns, filtered
from flowql.compiler.dialect.ast import Name
from flowql.compiler.dialect.standard import tree as t
from flowql.compiler.dialect.standard.refuse import unsupported
from flowql.compiler.plan.changes import TemporalJoin, VersionJoin
from flowql.compiler.plan.expr import Column, Expr, Literal, conjunction
from flowql.compiler.plan.logical import Node
from flowql.compiler.plan.schema import Schema
from flowql.compiler.plan.topology import SourceDef
from flowql.compiler.plan.types import BOOLEAN

NOW = t.Call(("proctime",))


def is_temporal(join: t.Join) -> bool:
    return isinstance(join.right, t.Table) and join.right.as_of is not None


def as_of_time(join: t.Join) -> t.Expr | None:
    """The time of the left side as of which the right one is joined; None for PROCTIME() and joins that are not temporal."""
    as_of = join.right.as_of if isinstance(join.right, t.Table) else None
    if as_of is None or as_of == NOW:
        return None
    if not isinstance(as_of, Name):
        unsupported(
            "FOR SYSTEM_TIME AS OF another time than PROCTIME() or a column",
            as_of.span,
            "name a column of the left side",
        )
    return as_of


def present(relation: t.Relation, common: Container[str]) -> t.Table:
    """The table or view on the right side of a temporal join. common: names of common table expressions."""
    assert isinstance(relation, t.Table)
    assert relation.as_of is not None
    if len(relation.name) == 1 and relation.name[0] in common:
        unsupported("FOR SYSTEM_TIME AS OF with a common table expression", relation.span, "make it a separate view")
    return replace(relation, as_of=None)


def temporally_joined(join: t.Join, left: Rel, right: Rel, conditions: Sequence[Expr], names: Names) -> Rel:
    """Joins each left row with the version of the right relation at its arrival. Columns: those of the left, then of the right.

    All conditions but equalities of both sides are asked when the row arrives, and what was found then is kept.
    """
    kind = _kind(join)
    pairs, others = _equalities(left, right, conditions)
    left, left_keys = as_columns(left, [p.left for p in pairs], names, "key")
    right, right_keys = as_columns(right, [p.right for p in pairs], names, "key")
    spec = TemporalJoin(kind, tuple(left_keys), tuple(right_keys), conjunction(others) if others else None)
    return _joined(spec, left, right)


def version_joined(
    join: t.Join, left: Rel, right: Rel, conditions: Sequence[Expr], names: Names, time: Expr, versions: SourceDef
) -> Rel:
    """Joins each left row with the version of the right relation at `time`, a column of the left. versions: the source on the right.

    Rows of the source that are equal in the columns of the equalities are versions of one thing. Raises CompileError.
    """
    kind = _kind(join)
    assert isinstance(join.right, t.Table)
    assert join.right.as_of is not None
    _, following = followed(left.node, names.windows)
    if not isinstance(time, Column) or time.name not in following:
        raise mistake(
            "FQ2055",
            "FOR SYSTEM_TIME AS OF a time that follows no watermark",
            join.right.as_of.span,
            "when is it over?",
            why="a row is joined when the watermark has passed its time, so that its version cannot change any more",
            help="name the column of the left side that has a WATERMARK, or write  AS OF PROCTIME()",
        )
    _, of_right = followed(right.node, names.windows)
    of_versions = next((c for c in right.columns if c.column in of_right), None)
    if of_versions is None or versions.watermark is None:
        raise mistake(
            "FQ2055",
            f"FOR SYSTEM_TIME AS OF a time, and the versions of {versions.name} have none",
            join.right.span,
            "no WATERMARK of a TIMESTAMP",
            why="the version of a time is the newest row that is not after it",
            help=f"declare WATERMARK FOR the time of {versions.name}, or write  AS OF PROCTIME()",
        )
    pairs, others = _equalities(left, right, conditions)
    if not pairs or any(e is not None and e.null_safe for e in (equality(c, left.names, right.names) for c in others)):
        unsupported(
            "FOR SYSTEM_TIME AS OF a time without  ON left.key = right.key",
            join.at,
            "write it in ON and with  = : it says what the rows of the right side are versions of",
        )
    if others and kind == "left":
        unsupported(
            "a condition other than equalities in a LEFT JOIN AS OF a time", join.at, "put it into a separate view"
        )
    left, left_keys = as_columns(left, [p.left for p in pairs], names, "key")
    right, right_keys = as_columns(right, [p.right for p in pairs], names, "key")
    if of_versions.column in right_keys:
        unsupported("an equality of the time in a JOIN AS OF a time", join.at, "join without FOR SYSTEM_TIME")
    after = max(following[time.name], 1)  # a version of the watermark itself is not late
    spec = VersionJoin(kind, tuple(left_keys), tuple(right_keys), time.name, of_versions.column, after)
    return filtered(_joined(spec, left, right), others)


def _kind(join: t.Join) -> OneOf["inner", "left"]:
    if join.kind in ("right", "full"):
        unsupported(f"a {join.kind.upper()} JOIN with FOR SYSTEM_TIME AS OF", join.at, "write a LEFT JOIN")
    return "left" if join.kind == "left" else "inner"


def _equalities(left: Rel, right: Rel, conditions: Sequence[Expr]) -> tuple[list[Equality], list[Expr]]:
    """The equalities between both sides, and the other conditions."""
    found = [(c, equality(c, left.names, right.names)) for c in conditions if c != Literal(BOOLEAN, True)]
    pairs = [e for _, e in found if e is not None and not e.null_safe]
    return pairs, [c for c, e in found if e is None or e.null_safe]


def _joined(spec: TemporalJoin | VersionJoin, left: Rel, right: Rel) -> Rel:
    fields = [f for s in (left, right) for f in s.node.schema]
    schema = Schema((*(f for f in fields if f.role == "key"), *(f for f in fields if f.role != "key")))
    return Rel(Node(spec, (left.node, right.node), schema, "retract"), (*left.columns, *right.columns))
