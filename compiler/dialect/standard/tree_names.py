"""Names of output columns without an alias: PostgreSQL's."""

from __future__ import annotations

from flowql.compiler.dialect.ast import CastTo, Func, Lit, Name, Star
from flowql.compiler.dialect.standard import tree as t
from flowql.compiler.dialect.standard.words import SPECIAL_VALUES

NAMELESS = "?column?"
_TYPES = {
    "boolean": "bool", "int": "int4", "integer": "int4", "bigint": "int8", "smallint": "int2", "double": "float8", "float": "float8",
    "real": "float4", "decimal": "numeric", "text": "text", "string": "varchar",
}  # fmt: skip


def tree_name(node: t.Expr) -> str:
    """The name of a column that is selected without an alias.

    >>> tree_name(t.Call(("sum",))), tree_name(Func("add", (Name(("x",)), Lit("number", "1"))))
    ('sum', '?column?')
    """
    return _named(node)[0]


def _named(node: t.Expr) -> tuple[str, bool]:
    """A name, and whether it is better than that of a cast or CASE around it."""
    match node:
        case Name():
            return node.parts[-1], True
        case t.Call():
            return node.name[-1], True
        case t.Collate():
            return _named(node.operand)
        case CastTo():
            inner, strong = _named(node.operand)
            return (inner, True) if strong else (_TYPES.get(node.type.name, node.type.name), False)
        case t.TypedText():
            return _TYPES.get(node.type.name, node.type.name), False
        case Lit():
            return ("bool" if node.kind == "bool" else NAMELESS), False
        case t.Exists():
            return "exists", True
        case t.ArrayQuery():
            return "array", True
        case Func():
            return _of_function(node)
        case t.ScalarQuery():
            return _of_query(node.query.body)
    return NAMELESS, False


def _of_function(node: Func) -> tuple[str, bool]:
    match node.name:
        case "field":
            name = node.args[1]
            assert isinstance(name, Lit)
            return str(name.value), True
        case "subscript" | "SLICE":
            return _named(node.args[0])
        case "case" | "case_of":
            has_otherwise = len(node.args) % 2 == (node.name == "case")
            inner, strong = _named(node.args[-1]) if has_otherwise else (NAMELESS, False)
            return (inner, True) if strong else ("case", False)
    named = node.name in SPECIAL_VALUES or node.name in ("EXTRACT", "array", "row", "ROW")
    return (node.name.lower(), True) if named else (NAMELESS, False)


def _of_query(body: t.Body) -> tuple[str, bool]:
    while isinstance(body, (t.Query, t.SetOperation)):
        body = body.body if isinstance(body, t.Query) else body.left
    if isinstance(body, t.Select) and body.items and not isinstance(body.items[0].expr, Star):
        item = body.items[0]
        return (item.alias, True) if item.alias else _named(item.expr)
    return NAMELESS, False
