"""Window functions: what stands before OVER becomes a column, computed by one operator per window."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from compiler.analyze.relations.expressions import Placeholders, RelBinder, rebuilt
from compiler.analyze.relations.grouping import order_of
from compiler.analyze.relations.relation import Names, Rel, as_columns
from compiler.dialect.standard import tree as t
from compiler.dialect.standard.refuse import fail, unsupported
from compiler.plan.changes import TopN
from compiler.plan.expr import Column
from compiler.plan.logical import Node
from compiler.plan.schema import Field, Schema
from compiler.plan.types import BIGINT

_RANKS: dict[str, Any] = {"row_number": "row_number", "rank": "rank", "dense_rank": "dense_rank"}


def windowed(
    rel: Rel, parts: Any, named: Sequence[t.NamedWindow], binder: RelBinder, names: Names, placeholders: Placeholders
) -> tuple[Rel, Any]:
    """The relation with a column per window function, and the trees with placeholders for them."""
    found = [rel]

    def rule(n: t.Node) -> t.Node | None:
        if not isinstance(n, t.Call) or n.over is None:
            return None
        found[0], column = _computed(found[0], n, _spec(n.over, named), binder, names)
        return placeholders.add(n, column)

    made = rebuilt(parts, rule)
    return found[0], made


def _spec(spec: t.WindowSpec, named: Sequence[t.NamedWindow]) -> t.WindowSpec:
    """The window with what the named one it starts from says."""
    if not spec.base:
        return spec
    base = next((w.spec for w in named if w.name == spec.base), None)
    if base is None:
        fail("FQ2001", f'window "{spec.base}" does not exist', spec.span)
    base = _spec(base, named)
    return t.WindowSpec(
        partition_by=spec.partition_by or base.partition_by,
        order_by=spec.order_by or base.order_by,
        frame=spec.frame or base.frame,
        span=spec.span,
    )


def _computed(rel: Rel, call: t.Call, spec: t.WindowSpec, binder: RelBinder, names: Names) -> tuple[Rel, Column]:
    function = _RANKS.get(call.name[-1].lower())
    if function is None:
        unsupported(f"the window function {call.name[-1].upper()}", call.span)
    rel, keys = as_columns(rel, [binder.bound(e) for e in spec.partition_by], names, "partition")
    orders = [order_of(o, binder) for o in spec.order_by]
    rel, columns = as_columns(rel, [o.expr for o in orders], names, "order")
    sort = tuple(o.key(c) for o, c in zip(orders, columns, strict=True))
    rank = names.fresh(call.name[-1].lower())
    top = TopN(tuple(dict.fromkeys(keys)), sort, None, 0, function, rank)
    schema = Schema((*rel.node.schema, Field(rank, BIGINT)))
    return Rel(Node(top, (rel.node,), schema, "retract"), rel.columns), Column(BIGINT, rank)
