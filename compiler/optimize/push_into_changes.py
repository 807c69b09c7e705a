"""Filter below operators over changes, and ask a rank for no more rows than are wanted.

before: Filter(a > 1 AND b = 2, EquiJoin(L(a), R(b)))     after: EquiJoin(Filter(a > 1, L), Filter(b = 2, R))
before: Filter(rank <= 3, TopN(rank))                      after: Filter(rank <= 3, TopN(rank, limit 3))

A condition moves to a side of a join where a row without it would not be shown: never to the side that an outer join fills up with
NULL. It moves below an aggregation where it reads group keys alone, below a rank or a window function where it reads the columns of PARTITION BY alone, and
below UNNEST where it reads none of its columns.

A temporal join looks a left row up once. A right row that fails a condition on right columns is no match at any time, so the condition
may filter the right side: where it is part of ON, for both kinds of the join; where it stands above, for an inner one. Conditions on left
columns filter the left side: those above for both kinds, those of ON for an inner one. A condition that is not deterministic stays where it is.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from flowql.compiler.functions.sql_comparison import PREFIX
from flowql.compiler.optimize.push_filter import below_project, is_deterministic
from flowql.compiler.plan.changes import EquiJoin, GroupAggregate, Over, TemporalJoin, TopN, VersionJoin
from flowql.compiler.plan.expr import Call, Column, Expr, Literal, columns_of, conjunction, conjuncts
from flowql.compiler.plan.logical import Explode, Filter, Node, Project, Union
from flowql.compiler.plan.visit import map_nodes, substitute

_LEFT, _RIGHT = ("inner", "left", "semi", "anti"), ("inner", "right")


def push_into_changes(node: Node) -> Node:
    """Rule: see the module."""
    return map_nodes(node, _push, TemporalJoin, Filter)


def _push(node: Node) -> Node:
    if isinstance(node.spec, TemporalJoin):
        return _from_residual(node, node.spec)
    if not isinstance(node.spec, Filter) or not is_deterministic(node.spec.predicate):
        return node
    below = node.inputs[0]
    match below.spec:
        case Filter():
            both = Filter(conjunction([*conjuncts(below.spec.predicate), *conjuncts(node.spec.predicate)]))
            return _push(replace(node, spec=both, inputs=below.inputs)) if node.change == "retract" else node
        case Project() if node.change == "retract":
            return below_project(node, below, below.spec, _push)
        case EquiJoin() | TemporalJoin() | VersionJoin():
            return _below_join(node, below, below.spec)
        case GroupAggregate():
            keys = {k.name: Column(k.type, c) for k, c in zip(below.schema.key, below.spec.keys, strict=True)}
            return _below_one(node, below, keys) if keys else node
        case TopN():
            return _below_top(node, below, below.spec)
        case Explode(functions) if node.change == "retract":
            made = {f.name for f in functions}
            return _below_one(node, below, {f.name: Column(f.type, f.name) for f in below.schema if f.name not in made})
        case Over(keys):
            fields = {f.name: Column(f.type, f.name) for f in below.schema if f.name in keys}
            return _below_one(node, below, fields) if fields else node
        case Union():
            inputs = tuple(_push(_over(i, conjuncts(node.spec.predicate))) for i in below.inputs)
            return replace(below, inputs=inputs)
    return node


def _over(node: Node, conditions: Sequence[Expr]) -> Node:
    return Node(Filter(conjunction(list(conditions))), (node,), node.schema, node.change) if conditions else node


def _rest(node: Node, kept: Sequence[Expr], below: Node) -> Node:
    return replace(node, spec=Filter(conjunction(list(kept))), inputs=(below,)) if kept else below


def _below_join(node: Node, join: Node, spec: EquiJoin | TemporalJoin | VersionJoin) -> Node:
    assert isinstance(node.spec, Filter)
    left, right = (frozenset(i.schema.names) for i in join.inputs)
    parts = conjuncts(node.spec.predicate)
    to_left = [c for c in parts if spec.kind in _LEFT and columns_of(c) and columns_of(c) <= left]
    to_right = [c for c in parts if spec.kind in _RIGHT and columns_of(c) and columns_of(c) <= right]
    if isinstance(spec, VersionJoin):  # without some of its versions a row would meet an older one
        to_right = []
    if not to_left and not to_right:
        return node
    sides = (_push(_over(join.inputs[0], to_left)), _push(_over(join.inputs[1], to_right)))
    kept = [c for c in parts if c not in to_left and c not in to_right]
    return _rest(node, kept, replace(join, inputs=sides))


def _from_residual(join: Node, spec: TemporalJoin) -> Node:
    """Parts of the residual that read one side, as filters of that side."""
    left, right = (frozenset(i.schema.names) for i in join.inputs)
    parts = [] if spec.residual is None else conjuncts(spec.residual)
    movable = [c for c in parts if columns_of(c) and is_deterministic(c)]
    to_left = [c for c in movable if spec.kind == "inner" and columns_of(c) <= left]
    to_right = [c for c in movable if columns_of(c) <= right]
    if not to_left and not to_right:
        return join
    kept = [c for c in parts if c not in to_left and c not in to_right]
    sides = (_push(_over(join.inputs[0], to_left)), _push(_over(join.inputs[1], to_right)))
    return replace(join, spec=replace(spec, residual=conjunction(kept) if kept else None), inputs=sides)


def _below_one(node: Node, below: Node, columns: Mapping[str, Expr]) -> Node:
    """Below an operator with one input, what reads no other than these columns, in terms of that input."""
    assert isinstance(node.spec, Filter)
    parts = conjuncts(node.spec.predicate)
    moved = [c for c in parts if columns_of(c) and columns_of(c) <= columns.keys()]
    if not moved:
        return node
    lower = _push(_over(below.inputs[0], [substitute(c, dict(columns)) for c in moved]))
    return _rest(node, [c for c in parts if c not in moved], replace(below, inputs=(lower,)))


def _below_top(node: Node, below: Node, spec: TopN) -> Node:
    assert isinstance(node.spec, Filter)
    bounds = [n for c in conjuncts(node.spec.predicate) if (n := _at_most(c, spec.rank)) is not None]
    if spec.rank and bounds and not spec.offset:
        least = max(0, min(bounds if spec.limit is None else [*bounds, spec.limit]))
        if least != spec.limit:
            below = replace(below, spec=replace(spec, limit=least))
            node = replace(node, inputs=(below,))
    fields = {f.name: Column(f.type, f.name) for f in below.schema if f.name in spec.keys}
    return _below_one(node, below, fields) if fields else node


def _at_most(condition: Expr, rank: str) -> int | None:
    """The highest rank for which the condition may be true, if it is a bound: rank <= 3, rank < 4, rank = 1, 3 >= rank."""
    if not isinstance(condition, Call) or not condition.name.startswith(PREFIX) or len(condition.args) != 2:
        return None
    a, b = condition.args
    sign = condition.name.removeprefix(PREFIX)
    if isinstance(a, Literal):
        a, b = b, a
        sign = {"ge": "le", "gt": "lt", "eq": "eq"}.get(sign, "")
    if isinstance(a, Call) and a.name in ("cast", "sql_cast") and len(a.args) == 1:
        a = a.args[0]
    if not (isinstance(a, Column) and a.name == rank and isinstance(b, Literal) and isinstance(b.value, int)):
        return None
    return {"le": b.value, "lt": b.value - 1, "eq": b.value}.get(sign)
