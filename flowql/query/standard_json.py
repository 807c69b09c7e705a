"""JSONB in interactive queries of the standard dialect, as macros over DuckDB's JSON (`json_macros`)."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

from flowql.compiler.analyze.relations.expressions import rebuilt
from flowql.compiler.dialect.standard import tree as t
from flowql.compiler.dialect.standard.intervals import read_interval
from flowql.compiler.functions.sql_array_parts import read_array
from flowql.compiler.functions.sql_jsonb import OPERATORS, ROWS
from flowql.query.catalogue import TEXT
from flowql.query.errors import INVALID, QueryError
from flowql.query.json_macros import (
    BESIDE,
    FIELD,
    FIELD_TEXT,
    HOLDS,
    JOINED,
    JSON,
    LIST,
    OBJECT,
    UNSEEN,
    WITHOUT,
    equal_text,
)
from flowql.query.standard_arrays import call, items_of

_JSON = t.TypeName("json")
_TEXTS = t.TypeName("array", args=(t.TypeName("varchar"),))
_MACROS = {"->": FIELD, "->>": FIELD_TEXT}
_GIVES_JSON = (FIELD, JSON, LIST, OBJECT, "to_jsonb", "jsonb_path", "jsonb_set", "jsonb_concat", "jsonb_strip_nulls", "jsonb_of_entries", "jsonb_extract_path")  # fmt: skip


def is_json(node: t.Expr) -> bool:
    """Whether it can be seen that an expression is JSONB."""
    if isinstance(node, t.Cast):
        return node.type.name == "json"
    return isinstance(node, t.Call) and node.name[0] in _GIVES_JSON


def from_text(operand: t.Expr) -> t.Expr:
    """`CAST(text AS JSONB)`."""
    if not _is_text(operand):
        return operand if is_json(operand) else call(JSON, operand)
    assert isinstance(operand, t.Constant)
    try:
        return t.Cast(t.Constant("string", equal_text(operand.value)), _JSON)
    except ValueError as error:
        raise QueryError(str(error), code=INVALID) from error


def _is_text(node: t.Expr) -> bool:
    return isinstance(node, t.Constant) and node.kind == "string"


def _is_key(node: t.Expr) -> bool:
    """Whether it can be subtracted from JSONB alone: it is no number and no interval."""
    return isinstance(node, t.Constant) and node.kind == "string" and read_interval(node.value) is None


def of_operator(node: t.Binary) -> t.Expr | None:
    """An operator of JSONB; None where it cannot be one."""
    left = from_text(node.left) if _is_text(node.left) and node.op in OPERATORS else node.left
    if node.op in _MACROS:
        return call(_MACROS[node.op], left, node.right)
    if node.op in ("#>", "#>>", "?|", "?&"):
        return call(OPERATORS[node.op].lower(), left, _texts(node.right))
    if node.op == "?":
        return call("jsonb_has", left, node.right)
    if node.op in ("@>", "<@"):
        return _holds(node)
    if node.op == "||":
        return _joined(node)
    if node.op == "-" and (is_json(node.left) or _is_key(node.right)):
        return call(WITHOUT, node.left, node.right)
    if node.op in ("=", "<>"):
        return replace(node, left=beside(node.left, node.right), right=beside(node.right, node.left))
    return None


def _joined(node: t.Binary) -> t.Expr | None:
    """Texts, arrays or JSONB, which DuckDB would join as texts."""
    sides = (node.left, node.right)
    if any(map(is_json, sides)):
        return call("jsonb_concat", *(from_text(n) if _is_text(n) else n for n in sides))
    texts = sum(map(_is_text, sides))
    if texts == 2 or any(isinstance(n, t.ArrayItems | t.Query) for s in sides for n in t.walk(s)):
        return None
    return call(JOINED if texts else UNSEEN, *sides)


def beside(node: t.Expr, other: t.Expr) -> t.Expr:
    """A text in quotes beside a value, which may be JSONB."""
    if not isinstance(node, t.Constant) or node.kind != "string" or isinstance(other, t.Constant | t.Row):
        return node
    try:
        meant = equal_text(node.value)
    except ValueError:
        return node
    return node if meant == node.value else call(BESIDE, other, node, t.Constant("string", meant))


def in_list(node: t.InList) -> t.InList:
    """`x IN ('{}', ...)`."""
    return replace(node, items=tuple(beside(i, node.operand) for i in node.items))


def _distinct(node: t.Distinct) -> t.Distinct:
    return replace(node, left=beside(node.left, node.right), right=beside(node.right, node.left))


def _texts(node: t.Expr) -> t.Expr:
    """`'{a,b}'` as an array."""
    if not isinstance(node, t.Constant) or node.kind != "string":
        return node
    try:
        return t.Cast(items_of(read_array(node.value)), _TEXTS)
    except ValueError as error:
        raise QueryError(str(error), code=INVALID, help="ARRAY['a', 'b']") from error


def _holds(node: t.Binary) -> t.Expr | None:
    sides = [node.left, node.right] if node.op == "@>" else [node.right, node.left]
    if any(isinstance(s, t.ArrayItems) for s in sides):
        return None
    for i, side in enumerate(sides):
        if isinstance(side, t.Constant) and side.kind == "string":
            try:
                sides[i] = t.Cast(t.Constant("string", equal_text(side.value)), _JSON)
            except ValueError:
                sides[i] = _texts(side)
    return call(HOLDS, *sides)


def built_object(args: Sequence[t.Expr]) -> t.Expr | None:
    """JSONB_BUILD_OBJECT."""
    if len(args) % 2:
        raise QueryError("jsonb_build_object takes a key and a value by turns", code=INVALID)
    return call(OBJECT, _list(TEXT, args[::2]), _list("flowql_json_text", args[1::2]))


def built_array(args: Sequence[t.Expr]) -> t.Expr | None:
    """JSONB_BUILD_ARRAY."""
    return call(LIST, _list("flowql_json_text", args))


def _list(of: str, items: Sequence[t.Expr]) -> t.Expr:
    return t.Cast(t.ArrayItems(tuple(call(of, i) for i in items)), _TEXTS)


def _alike(name: str) -> Callable[[Sequence[t.Expr]], t.Expr | None]:
    return lambda args: call(name, *_all_beside(args))


def _all_beside(values: Sequence[t.Expr]) -> list[t.Expr]:
    """Values of one type: texts in quotes among them may be JSONB."""
    other = next((v for v in values if not isinstance(v, t.Constant)), None)
    return [beside(v, other) if other is not None else v for v in values]


def _case(node: t.Case) -> t.Case:
    given = [v for _, v in node.whens] + ([node.otherwise] if node.otherwise is not None else [])
    made = _all_beside(given)
    whens = tuple((w, v) for (w, _), v in zip(node.whens, made, strict=False))
    return replace(node, whens=whens, otherwise=made[-1] if node.otherwise is not None else None)


def _set(args: Sequence[t.Expr]) -> t.Expr | None:
    return call("jsonb_set", args[0], _texts(args[1]), *args[2:]) if len(args) in (3, 4) else None


def of_columns(query: t.Query) -> t.Query:
    """The query with `e` in place of `e.value`, where e is a function of JSONB in FROM, whose one column has the name of its alias."""
    made = {
        n.alias.name
        for n in t.walk(query)
        if isinstance(n, t.TableFunction)
        and n.alias is not None
        and not n.alias.columns
        and ROWS.get(n.call.name[0], ((), ()))[1] == ("value",)
    }
    if not made:
        return query

    def rule(node: t.Node) -> t.Node | None:
        if not isinstance(node, t.ColumnRef) or len(node.parts) != 2 or node.parts[1] != "value":
            return None
        return t.ColumnRef((node.parts[0],)) if node.parts[0] in made else None

    found = rebuilt(query, rule)
    assert isinstance(found, t.Query)
    return found


def with_arrows(query: t.Query, columns: frozenset[str]) -> t.Query:
    """The query with `j -> key` of columns of JSONB, which could be fields of structs. columns: their names."""

    def rule(node: t.Node) -> t.Node | None:
        if not isinstance(node, t.Field) or not node.arrow:
            return None
        base = rebuilt(node.base, rule)
        of_json = is_json(base) or (isinstance(base, t.ColumnRef) and base.parts[-1] in columns)
        return call(FIELD, base, t.ColumnRef((node.name,))) if of_json or isinstance(base, t.Binary) else None

    made = rebuilt(query, rule)
    assert isinstance(made, t.Query)
    return made


def rows(node: t.TableFunction) -> t.Node:
    """A function of JSONB in FROM, as a sub-query of its own."""
    if node.call.name[0] not in ROWS:
        return node
    functions, names = ROWS[node.call.name[0]]
    alias = node.alias or t.Alias(node.call.name[0])
    if len(functions) == 1:
        columns = alias.columns or ((alias.name,) if node.alias is not None else names)
        made = call(functions[0].lower(), *node.call.args)
        return replace(node, call=call("unnest", made), alias=t.Alias(alias.name, columns), lateral=False)
    if node.ordinality:
        raise QueryError(f"WITH ORDINALITY of {node.call.name[0]} is not supported", code=INVALID)
    lists = [call("unnest", call(f.lower(), *node.call.args)) for f in functions]
    items = tuple(t.Item(of, n) for of, n in zip(lists, names, strict=True))
    return t.Derived(t.Query(t.Select(items)), alias, lateral=True)


CALLS: dict[str, Callable[[Sequence[t.Expr]], t.Expr | None]] = {
    "jsonb_build_object": built_object,
    "jsonb_build_array": built_array,
    "jsonb_set": _set,
    "coalesce": _alike("coalesce"),
    "nullif": _alike("nullif"),
}
RULES: dict[type, Callable[[Any], Any]] = {t.TableFunction: rows, t.Distinct: _distinct, t.Case: _case}
