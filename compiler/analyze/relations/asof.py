"""ASOF JOIN: each row of the left side with the one row of the right side that an inequality of ON is nearest to.

It is made of operators that there are: all pairs for which ON is true, of which the first one of each left row is kept. So rows of either side
may be inserted, updated and deleted, and state holds the pairs.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from flowql.compiler.analyze.mistakes import mistake
from flowql.compiler.analyze.relations.dependent import check_repeatable, same
from flowql.compiler.analyze.relations.joins import equality, joined
from flowql.compiler.analyze.relations.relation import Names, Rel, as_columns, column_of, copied, with_identity
from flowql.compiler.dialect.standard import tree as t
from flowql.compiler.dialect.standard.refuse import unsupported
from flowql.compiler.functions.sql_comparison import PREFIX
from flowql.compiler.plan.changes import SortKey, TopN
from flowql.compiler.plan.expr import Call, Column, Expr, columns_of
from flowql.compiler.plan.logical import Node
from flowql.compiler.plan.visit import substitute

_HELP = "write  ASOF JOIN b ON a.k = b.k AND a.t >= b.t"
_FLIPPED = {"lt": "gt", "le": "ge", "gt": "lt", "ge": "le"}


def is_asof(join: t.Join) -> bool:
    return join.variant == "ASOF"


def asof_joined(join: t.Join, left: Rel, right: Rel, conditions: Sequence[Expr], names: Names) -> Rel:
    """The pairs of an ASOF JOIN or an ASOF LEFT JOIN. conditions: of ON. Of rows that are equally near any one is taken, always the same."""
    if join.kind not in ("inner", "left"):
        unsupported(f"ASOF {join.kind.upper()} JOIN", join.at, "write  ASOF JOIN  or  ASOF LEFT JOIN")
    nearest = [found for c in conditions if (found := _nearest(c, left, right)) is not None]
    if len(nearest) != 1 or len(conditions) != 1 + sum(
        equality(c, left.names, right.names) is not None for c in conditions
    ):
        title = "ON of ASOF JOIN is equalities of both sides and one of <, <=, > and >="
        raise mistake("FQ2005", title, join.at, "not of this form", help=_HELP)
    if len(conditions) == 1:
        raise mistake("FQ2005", "ON of ASOF JOIN has no equality of both sides", join.at, "no key", help=_HELP)
    left = Rel(with_identity(left.node, names), left.columns)
    ((value, descending),) = nearest
    if join.kind == "inner":
        return _first(left, right, conditions, (value, descending), names)
    check_repeatable(left.node, join.left.span)
    again, keys = copied(left, names), left.node.schema.key
    renamed = {c.column: copy.expr() for c, copy in zip(left.columns, again.columns, strict=True)}
    pairs = _first(again, right, [substitute(c, renamed) for c in conditions], (value, descending), names)
    same_row = [
        same(Column(f.type, f.name), column_of(copy)) for f, copy in zip(keys, again.node.schema.key, strict=True)
    ]
    made = joined("left", left, pairs, same_row, names)
    return replace(made, columns=(*left.columns, *right.columns))


def _first(left: Rel, right: Rel, conditions: Sequence[Expr], nearest: tuple[Expr, bool], names: Names) -> Rel:
    pairs = joined("inner", left, right, conditions, names)
    value, descending = nearest
    made, (column,) = as_columns(pairs, [value], names, "nearest")
    keys = tuple(f.name for f in left.node.schema.key)
    spec = TopN(keys, (SortKey(column, descending, nulls_first=False),), 1)
    return Rel(Node(spec, (made.node,), made.node.schema, "retract"), pairs.columns)


def _nearest(condition: Expr, left: Rel, right: Rel) -> tuple[Expr, bool] | None:
    """The right side of `left >= right`, and whether the largest one counts; None if the condition is no inequality of both sides."""
    if not isinstance(condition, Call) or condition.name.removeprefix(PREFIX) not in _FLIPPED:
        return None
    a, b = condition.args
    op = condition.name.removeprefix(PREFIX)
    if columns_of(a) <= right.names and columns_of(b) <= left.names:
        a, b, op = b, a, _FLIPPED[op]
    if not (columns_of(a) and columns_of(b) and columns_of(a) <= left.names and columns_of(b) <= right.names):
        return None
    return b, op in ("gt", "ge")
