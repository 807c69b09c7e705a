"""Aggregates that are written with others.

JSONB_AGG and JSONB_OBJECT_AGG are JSONB made of the array of all values of a group; JSON_AGG and JSON_OBJECT_AGG are the same. A percentile of
several fractions is the array of the percentiles of each. APPROX_PERCENTILE is what a sketch holds the percentile as.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TypeVar

from flowql.compiler.analyze.mistakes import mistake
from flowql.compiler.dialect import walks
from flowql.compiler.dialect.ast import CastTo, Func, Lit, TypeRef
from flowql.compiler.dialect.standard import tree as t
from flowql.compiler.dialect.standard.tree_names import tree_name

N = TypeVar("N", bound=t.Node)
_TEXT = TypeRef("text")
_ARRAYS, _OBJECTS = (("jsonb_agg",), ("json_agg",)), (("jsonb_object_agg",), ("json_object_agg",))
_PERCENTILES, _APPROXIMATE = (("percentile_cont",), ("percentile_disc",)), ("approx_percentile",)
_DOUBLE, _ERROR = TypeRef("double"), "0.01"


def of_others(query: N) -> N:
    """The query with other aggregates in place of these; items of it that have no alias keep their names."""
    made = walks.rebuilt(query, _rule, t.Item, t.Call) if any(map(_is_ours, walks.walk(query))) else query
    assert isinstance(made, type(query))
    return made


def _rule(node: t.Node) -> t.Node | None:
    if isinstance(node, t.Item) and any(map(_is_ours, walks.walk(node))):
        return replace(node, expr=walks.rebuilt(node.expr, _of_call, t.Call), alias=node.alias or tree_name(node.expr))
    return _of_call(node)


def _is_ours(node: t.Node) -> bool:
    if not isinstance(node, t.Call):
        return False
    return node.name in (*_ARRAYS, *_OBJECTS, _APPROXIMATE) or (
        node.name in _PERCENTILES and bool(_fractions(node)) and len(node.within_group) == 1
    )


def _of_call(node: t.Node) -> t.Node | None:
    if not isinstance(node, t.Call) or not _is_ours(node):
        return None
    if node.name in _ARRAYS:
        return t.Call(("to_jsonb",), (replace(node, name=("array_agg",)),), span=node.span)
    if node.name in _PERCENTILES:
        return _of_each(node)
    if node.name == _APPROXIMATE:
        return _approximate(node)
    if len(node.args) != 2:
        return None
    key, value = node.args
    row = Func("ROW", (CastTo(key, _TEXT, key.span), value), node.span)
    return t.Call(("jsonb_of_entries",), (replace(node, name=("array_agg",), args=(row,)),), span=node.span)


def _approximate(node: t.Call) -> t.Expr:
    if len(node.args) not in (1, 2) or len(node.within_group) != 1:
        title = "APPROX_PERCENTILE takes a fraction and a relative error, and WITHIN GROUP (ORDER BY one expression)"
        raise mistake("FQ2005", title, node.span)
    fraction, *error = node.args
    (order,) = node.within_group
    of = replace(order, expr=CastTo(order.expr, _DOUBLE, node.span))
    exact = replace(node, name=("percentile_disc",), args=(fraction,), within_group=(of,))
    return t.Call(("ddsketch_value",), (exact, *(error or (Lit("number", _ERROR, node.span),))), span=node.span)


def _fractions(node: t.Call) -> tuple[t.Expr, ...]:
    listed = node.args[0] if len(node.args) == 1 else None
    return listed.args if isinstance(listed, Func) and listed.name == "array" else ()


def _of_each(node: t.Call) -> t.Expr:
    """NULL if there are no values."""
    each = Func("array", tuple(replace(node, args=(f,)) for f in _fractions(node)), node.span)
    count = t.Call(("count",), (node.within_group[0].expr,), filter=node.filter, span=node.span)
    none = Lit("number", "0", node.span)
    return Func("case", (Func("gt", (count, none), node.span), each), node.span)
