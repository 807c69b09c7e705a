"""ARRAY(SELECT ...) as the array of all values of a sub-query; of no rows it is empty."""

from __future__ import annotations

from dataclasses import replace

from flowql.compiler.analyze.relations.grouping import has_aggregates
from flowql.compiler.dialect import walks
from flowql.compiler.dialect.ast import Lit, Name, Star
from flowql.compiler.dialect.standard import tree as t
from flowql.compiler.dialect.standard.tree_names import tree_name

_SOURCE, _COLUMN = "array_query", "element"


def as_aggregates(query: t.Query) -> t.Query:
    """The query with ARRAY_AGG in place of ARRAY(...); items of it that have no alias keep their names."""
    made = walks.rebuilt(query, _rule, t.Item, t.ArrayQuery) if walks.contains(query, t.ArrayQuery) else query
    assert isinstance(made, t.Query)
    return made


def _rule(node: t.Node) -> t.Node | None:
    if isinstance(node, t.Item) and node.alias is None and isinstance(node.expr, t.ArrayQuery):
        return replace(node, expr=walks.rebuilt(node.expr, _rule, t.Item, t.ArrayQuery), alias=tree_name(node.expr))
    return _of_query(node) if isinstance(node, t.ArrayQuery) else None


def _of_query(node: t.ArrayQuery) -> t.Expr | None:
    query = as_aggregates(node.query)
    select = query.body
    if isinstance(select, t.Select) and _is_plain(query, select):
        (item,) = select.items
        order = tuple(replace(o, expr=_ordered(o.expr, item)) for o in query.order_by)
        values = t.Call(("array_agg",), (item.expr,), order_by=order, span=node.span)
        query = replace(query, body=replace(select, items=(t.Item(values, span=node.span),)), order_by=())
    elif query.order_by:
        return None
    else:
        values = t.Call(("array_agg",), (Name((_SOURCE, _COLUMN), span=node.span),), span=node.span)
        source = t.Derived(query, t.Alias(_SOURCE, (_COLUMN,)), span=node.span)
        query = t.Query(t.Select((t.Item(values, span=node.span),), source, span=node.span), span=node.span)
    null, one = Lit("null", None, node.span), Lit("number", "1", node.span)
    longer = t.Call(("array_append",), (t.ScalarQuery(query, span=node.span), null), span=node.span)
    return t.Call(("trim_array",), (longer, one), span=node.span)  # an array, also where the aggregate has no rows


def _is_plain(query: t.Query, select: t.Select) -> bool:
    """Whether its rows are those that are aggregated, in the order of ORDER BY."""
    changed = select.distinct or select.group_by or select.having is not None or select.qualify is not None
    limited = query.limit is not None or query.offset is not None or query.with_
    one = len(select.items) == 1 and not isinstance(select.items[0].expr, Star)
    windowed = any(isinstance(n, t.Call) and n.over is not None for i in select.items for n in walks.walk(i))
    return not changed and not limited and one and not windowed and not has_aggregates(select.items[0].expr)


def _ordered(e: t.Expr, item: t.Item) -> t.Expr:
    """The expression that ORDER BY names by position or alias."""
    place = t.number_text(e) == "1"
    named = isinstance(e, Name) and e.parts == (item.alias,)
    return item.expr if place or named else e
