"""Rewriting of expressions and of plans. Nodes are immutable: a rewrite shares what it does not change."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from functools import wraps

from flowql.compiler.plan.asynchronous import AsyncMap
from flowql.compiler.plan.changes import Consolidate, EquiJoin, GroupAggregate, SetOperation, TemporalJoin
from flowql.compiler.plan.expr import Call, Column, Expr, Lambda, columns_of, walk
from flowql.compiler.plan.logical import (
    Aggregate,
    Explode,
    Filter,
    Join,
    NamedExpr,
    Node,
    Project,
    Rekey,
    Sink,
    Spec,
    walk_nodes,
)
from flowql.compiler.plan.processors import CALL, Process

ExprRule = Callable[[Expr], Expr]
NodeRule = Callable[[Node], Node]
_PASSING = (Sink, Consolidate, Filter)  # they pass each column on


def map_expr(e: Expr, rule: ExprRule, *kinds: type[Expr]) -> Expr:
    """`e` with `rule` applied to every expression in it, or to those of the kinds, innermost first."""
    if isinstance(e, Call):
        args = tuple(map_expr(a, rule, *kinds) for a in e.args)
        e = e if all(a is b for a, b in zip(args, e.args, strict=True)) else replace(e, args=args)
    elif isinstance(e, Lambda):
        body = map_expr(e.body, rule, *kinds)
        e = e if body is e.body else replace(e, body=body)
    return rule(e) if not kinds or isinstance(e, kinds) else e


def substitute(e: Expr, columns: Mapping[str, Expr]) -> Expr:
    """`e` with columns replaced by expressions; names that are not in the mapping stay."""
    return map_expr(e, lambda x: columns.get(x.name, x) if isinstance(x, Column) else x, Column)


def map_nodes(node: Node, rule: NodeRule, *kinds: type) -> Node:
    """`node` with `rule` applied to every node of the tree, or to those with specs of the kinds, inputs first."""
    inputs = tuple(map_nodes(i, rule, *kinds) for i in node.inputs)
    if any(a is not b for a, b in zip(inputs, node.inputs, strict=True)):
        node = replace(node, inputs=inputs)
    return rule(node) if not kinds or isinstance(node.spec, kinds) else node


def rule_for(*kinds: type) -> Callable[[NodeRule], NodeRule]:
    """Makes a rule for plans of one for nodes with specs of the kinds: see `map_nodes`."""

    def over_plan(rule: NodeRule) -> NodeRule:
        @wraps(rule)
        def applied(root: Node) -> Node:
            return map_nodes(root, rule, *kinds)

        return applied

    return over_plan


def map_spec(spec: Spec, rule: ExprRule) -> Spec:
    """A spec with `rule` applied to each of its expressions (not inside them)."""
    match spec:
        case Project(columns):
            return replace(spec, columns=_named(columns, rule))
        case Filter(predicate):
            return Filter(rule(predicate))
        case Explode(functions):
            return replace(spec, functions=_named(functions, rule))
        case Rekey(keys):
            return replace(spec, keys=_named(keys, rule))
        case Aggregate(aggregates):
            return replace(spec, aggregates=tuple(replace(a, args=tuple(rule(x) for x in a.args)) for a in aggregates))
        case Join() if spec.foreign_key is not None:
            return replace(spec, foreign_key=rule(spec.foreign_key))
        case EquiJoin() | TemporalJoin() if spec.residual is not None:
            return replace(spec, residual=rule(spec.residual))
    return spec


def map_exprs(root: Node, rule: ExprRule, *kinds: type[Expr]) -> Node:
    """A plan tree with `rule` applied to every expression in it, or to those of the kinds, innermost first."""

    def mapped(node: Node) -> Node:
        spec = map_spec(node.spec, lambda e: map_expr(e, rule, *kinds))
        return node if spec == node.spec else replace(node, spec=spec)

    return map_nodes(root, mapped)


def _named(columns: tuple[NamedExpr, ...], rule: ExprRule) -> tuple[NamedExpr, ...]:
    return tuple(NamedExpr(c.name, rule(c.expr)) for c in columns)


def exprs_of(spec: Spec) -> tuple[Expr, ...]:
    """All expressions of a spec, in order."""
    found: list[Expr] = []

    def keep(e: Expr) -> Expr:
        found.append(e)
        return e

    map_spec(spec, keep)
    return tuple(found)


def exprs_in(root: Node) -> list[Expr]:
    """All expressions of all specs of a plan tree, inputs first."""
    return [e for node in walk_nodes(root) for e in exprs_of(node.spec)]


def calls_in(root: Node) -> list[Call]:
    """All calls of functions in all expressions of a plan tree."""
    return [e for e in walk(*exprs_in(root)) if isinstance(e, Call)]


def columns_read(spec: Spec) -> frozenset[str]:
    """Names of the input columns that the expressions of a spec read."""
    return columns_of(*exprs_of(spec))


def functions_called(root: Node) -> set[str]:
    """Names of the functions, operators, aggregates and topologies of processors that a plan tree calls."""
    nodes = walk_nodes(root)
    aggregates = {call.function for node in nodes if isinstance(node.spec, Aggregate) for call in node.spec.aggregates}
    aggregates |= {call.function for node in nodes if isinstance(node.spec, GroupAggregate) for call in node.spec.calls}
    topologies = {node.spec.topology for node in nodes if isinstance(node.spec, Process)}
    calls = [call.function for node in nodes if isinstance(node.spec, AsyncMap) for call in node.spec.calls]
    asynchronous = {name.partition(CALL)[0] for name in calls}
    exprs = walk(*(e for node in nodes for e in exprs_of(node.spec)))
    return {e.name for e in exprs if isinstance(e, Call)} | aggregates | topologies | asynchronous


def origin(node: Node, column: str) -> tuple[int, str]:
    """Where a column of the node comes from, as (depth, name): equal for columns that are always equal because one is the other."""
    depth = 0
    while node.inputs and len(node.inputs) == 1:
        if isinstance(node.spec, Project):
            e = next((c.expr for c in node.spec.columns if c.name == column), None)
            if not isinstance(e, Column):
                break
            column = e.name
        elif not isinstance(node.spec, _PASSING):
            break
        (node,), depth = node.inputs, depth + 1
    if isinstance(node.spec, SetOperation):  # its key is the values of its columns
        values = zip((f.name for f in node.schema.key), (f.name for f in node.schema.value), strict=False)
        column = dict(values).get(column, column)
    return depth, column


def visible_keys(node: Node, key: Iterable[str], visible: Sequence[str]) -> dict[str, str]:
    """Hidden key columns of a view, each with the visible column that always equals it, where there is one. node: its root."""
    shown = {origin(node, name): name for name in reversed(visible)}
    return {name: n for name in key if (n := shown.get(origin(node, name)))}
