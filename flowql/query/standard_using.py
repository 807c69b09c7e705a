"""Columns of USING and NATURAL in interactive queries of the standard dialect: of the common type of both sides, where DuckDB takes that of one."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from flowql.compiler.analyze.relations.expressions import rebuilt
from flowql.compiler.dialect.standard import tree as t
from flowql.compiler.plan.types import SqlType

Columns = Mapping[str, SqlType]
_ALWAYS = t.Constant("bool", "true")


@dataclass(frozen=True, slots=True)
class _Side:
    """A relation of FROM. columns: None where they are not known. merged: those of joins by name, where they are not plain columns."""

    name: str
    columns: Columns | None
    merged: Mapping[str, t.Expr]


def with_common_types(query: t.Query, relations: Mapping[str, Columns]) -> t.Query:
    """The query with a computed value in the place of each column of USING or NATURAL whose sides may have different types.

    relations: the columns of each, by its name; empty where none are known, and the query stays as it is.
    """
    if not relations:
        return query

    def rule(node: t.Node) -> t.Node | None:
        made = t.with_children(node, lambda child: rebuilt(child, rule))
        if not isinstance(made, t.Select) or not isinstance(made.source, t.Join):
            return made
        merged = _side(made.source, relations).merged
        return _select(made, merged) if merged else made

    found = rule(query)
    assert isinstance(found, t.Query)
    return found


def _select(select: t.Select, merged: Mapping[str, t.Expr]) -> t.Select:
    """The clauses of a SELECT, not its FROM nor queries in it."""

    def rule(node: t.Node) -> t.Node | None:
        if isinstance(node, t.Query):
            return node
        if isinstance(node, t.ColumnRef) and len(node.parts) == 1:
            return merged.get(node.parts[0])
        return None

    items: list[t.Item] = []
    for item in select.items:
        expr = item.expr
        if isinstance(expr, t.Star) and not expr.qualifier and expr.of is None and not expr.excluded:
            items += [t.Item(value, alias=name) for name, value in merged.items()]
            items.append(replace(item, expr=replace(expr, excluded=tuple(t.ColumnRef((n,)) for n in merged))))
        elif isinstance(expr, t.ColumnRef) and len(expr.parts) == 1 and item.alias is None and expr.parts[0] in merged:
            items.append(replace(item, expr=merged[expr.parts[0]], alias=expr.parts[0]))
        else:
            items.append(rebuilt(item, rule))
    rest = replace(select, items=(), source=None)
    return replace(rebuilt(rest, rule), items=tuple(items), source=select.source)


def _side(relation: t.Relation, relations: Mapping[str, Columns]) -> _Side:
    if not isinstance(relation, t.Join):
        alias = relation.alias
        table = relation.name[-1] if isinstance(relation, t.Table) else ""
        known = relations.get(table.casefold()) if alias is None or not alias.columns else None
        return _Side(alias.name if alias is not None else table, known, {})
    left, right = _side(relation.left, relations), _side(relation.right, relations)
    merged = {**left.merged, **right.merged}
    for name in _names(relation, left, right):
        made = _value(name, relation.kind, left, right)
        if made is not None:
            merged[name] = made
    columns = None if left.columns is None or right.columns is None else {**right.columns, **left.columns}
    return _Side("", columns, merged)


def _names(join: t.Join, left: _Side, right: _Side) -> Sequence[str]:
    if not join.natural:
        return join.using
    return [] if left.columns is None or right.columns is None else [n for n in left.columns if n in right.columns]


def _value(name: str, kind: str, left: _Side, right: _Side) -> t.Expr | None:
    """None where the column has the type of both sides, and where a side has no name to call its column by."""
    types = [None if s.columns is None else s.columns.get(name) for s in (left, right)]
    if types[0] is not None and types[0] == types[1] and name not in left.merged and name not in right.merged:
        return None
    sides = [s.merged.get(name) or (t.ColumnRef((s.name, name)) if s.name else None) for s in (left, right)]
    if sides[0] is None or sides[1] is None:
        return None
    if kind == "full":
        return t.Call(("coalesce",), (sides[0], sides[1]))
    chosen, other = (sides[1], sides[0]) if kind == "right" else (sides[0], sides[1])
    return t.Case(None, ((_ALWAYS, chosen),), other)
