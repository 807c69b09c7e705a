"""Arrays and rows in interactive queries of the standard dialect, as DuckDB reads them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

from flowql.compiler.dialect.standard import tree as t
from flowql.compiler.functions.numeric import INT_MAX
from flowql.compiler.functions.sql_array_parts import read_array
from flowql.compiler.functions.sql_jsonb import ROWS
from flowql.query.errors import INVALID, QueryError


def call(name: str, *args: t.Expr) -> t.Call:
    """A call of a function."""
    return t.Call((name,), args)


def number(value: int) -> t.Constant:
    """A whole number."""
    return t.Constant("number", str(value))


def constant(node: t.Expr) -> int | None:
    """A whole number as it is written."""
    if isinstance(node, t.Unary) and node.op == "-":
        inner = constant(node.operand)
        return -inner if inner is not None else None
    return int(node.value) if isinstance(node, t.Constant) and node.kind == "number" and node.value.isdigit() else None


def from_text(text: str, node: t.Cast) -> t.Expr:
    """`'{1,NULL}'::int[]` with its elements written one by one."""
    try:
        return t.Cast(items_of(read_array(text)), node.type)
    except ValueError as error:
        raise QueryError(str(error), code=INVALID, help="ARRAY[1, 2]") from error


def items_of(values: list[Any]) -> t.ArrayItems:
    """`ARRAY['a', NULL]`."""
    return t.ArrayItems(tuple(map(_item, values)))


def _item(value: Any) -> t.Expr:
    if isinstance(value, list):
        return items_of(value)
    return t.Constant("null", "null") if value is None else t.Constant("string", value)


def holds(node: t.Binary) -> t.Expr:
    """Whether one array has all elements of another one; NULL is equal to none."""
    sides = (node.left, node.right) if node.op == "@>" else (node.right, node.left)
    return call("flowql_holds", *sides)


def _quantified(node: t.Quantified) -> t.Expr:
    """A quantified comparison, whose result for a NULL array is NULL; DuckDB takes NULL for an empty array."""
    if isinstance(node.of, t.Constant) and node.of.kind == "string":  # '{1,2}'
        try:
            node = replace(node, of=items_of(read_array(node.of.value)))
        except ValueError as error:
            raise QueryError(str(error), code=INVALID, help="ARRAY[1, 2]") from error
    if isinstance(node.of, t.Query | t.ArrayItems):
        return node
    return t.Case(None, ((t.IsTest(node.of, "null"), t.Constant("null", "null")),), node)


def _slice(node: t.Slice) -> t.Expr:
    """A slice, whose positions count from the beginning only."""
    for place in (node.low, node.high):
        if place is not None and abs(constant(place) or 0) > INT_MAX:
            raise QueryError("a position in an array is an INT", code=INVALID, help="positions count from 1")
    return replace(node, low=_at_least(node.low, 1), high=_at_least(node.high, 0))


def _at_least(place: t.Expr | None, least: int) -> t.Expr | None:
    return place if place is None or (constant(place) or 0) > 0 else call("greatest", place, number(least))


def _subscript(node: t.Subscript) -> t.Expr:
    index = constant(node.index)
    return replace(node, index=number(0)) if index is not None and index < 0 else node


def _is_test(node: t.IsTest) -> t.Expr:
    """A row is NULL if all of its values are, and is not if none is."""
    if node.test != "null" or not isinstance(node.operand, t.Row) or len(node.operand.items) < 2:
        return node
    return t.Logical("and", tuple(replace(node, operand=i) for i in node.operand.items))


def _item_of_select(node: t.Item) -> t.Item:
    """A series that is selected is rows; DuckDB's is an array."""
    made = node.expr
    if not isinstance(made, t.Call) or made.name[0] not in ("generate_series", *ROWS):
        return node
    if made.name == ("generate_series",):
        return replace(node, expr=call("unnest", made))
    functions = ROWS[made.name[0]][0]
    if len(functions) > 1:
        raise QueryError(
            f"{made.name[0]} in a SELECT list is not supported",
            code=INVALID,
            help=f"FROM t, {made.name[0]}(j) AS e(k, v)",
        )
    return replace(node, expr=call("unnest", call(functions[0].lower(), *made.args)))


RULES: dict[type, Callable[[Any], Any]] = {
    t.Quantified: _quantified,
    t.Slice: _slice,
    t.Subscript: _subscript,
    t.IsTest: _is_test,
    t.Item: _item_of_select,
}
