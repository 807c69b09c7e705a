"""JSONB_AGG and JSONB_OBJECT_AGG, as JSONB made of the array of all values of a group; JSON_AGG and JSON_OBJECT_AGG are the same."""

from __future__ import annotations

from dataclasses import replace
from typing import TypeVar

from flowql.compiler.dialect.standard import tree as t
from flowql.compiler.dialect.standard import walks
from flowql.compiler.dialect.standard.tree_names import tree_name

N = TypeVar("N", bound=t.Node)
_TEXT = t.TypeName("text")
_ARRAYS, _OBJECTS = (("jsonb_agg",), ("json_agg",)), (("jsonb_object_agg",), ("json_object_agg",))


def of_arrays(query: N) -> N:
    """The query with ARRAY_AGG in place of these aggregates; items of it that have no alias keep their names."""
    made = walks.rebuilt(query, _rule, t.Item, t.Call)
    assert isinstance(made, type(query))
    return made


def _rule(node: t.Node) -> t.Node | None:
    if isinstance(node, t.Item) and any(map(_is_ours, walks.walk(node))):
        return replace(node, expr=walks.rebuilt(node.expr, _of_call, t.Call), alias=node.alias or tree_name(node.expr))
    return _of_call(node)


def _is_ours(node: t.Node) -> bool:
    return isinstance(node, t.Call) and node.name in (*_ARRAYS, *_OBJECTS)


def _of_call(node: t.Node) -> t.Node | None:
    if not isinstance(node, t.Call) or not _is_ours(node):
        return None
    if node.name in _ARRAYS:
        return t.Call(("to_jsonb",), (replace(node, name=("array_agg",)),), span=node.span)
    if len(node.args) != 2:
        return None
    key, value = node.args
    row = t.Row((t.Cast(key, _TEXT, span=key.span), value), explicit=True, span=node.span)
    return t.Call(("jsonb_of_entries",), (replace(node, name=("array_agg",), args=(row,)),), span=node.span)
