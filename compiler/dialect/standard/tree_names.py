"""Names of output columns without an alias: PostgreSQL's."""

from __future__ import annotations

from flowql.compiler.dialect.standard import tree as t

NAMELESS = "?column?"
_TYPES = {
    "boolean": "bool", "int": "int4", "integer": "int4", "bigint": "int8", "smallint": "int2", "double": "float8", "float": "float8",
    "real": "float4", "decimal": "numeric", "text": "text", "string": "varchar",
}  # fmt: skip


def tree_name(node: t.Expr) -> str:
    """The name of a column that is selected without an alias.

    >>> tree_name(t.Call(("sum",))), tree_name(t.Binary("+", t.ColumnRef(("x",)), t.Constant("number", "1")))
    ('sum', '?column?')
    """
    return _named(node)[0]


def _named(node: t.Expr) -> tuple[str, bool]:
    """A name, and whether it is better than that of a cast or CASE around it."""
    match node:
        case t.ColumnRef():
            return node.parts[-1], True
        case t.Call():
            return node.name[-1], True
        case t.Field():
            return node.name, True
        case t.Subscript() | t.Slice():
            return _named(node.base)
        case t.Collate():
            return _named(node.operand)
        case t.Cast():
            inner, strong = _named(node.operand)
            return (inner, True) if strong else (_TYPES.get(node.type.name, node.type.name), False)
        case t.Case():
            inner, strong = _named(node.otherwise) if node.otherwise is not None else (NAMELESS, False)
            return (inner, True) if strong else ("case", False)
        case t.TypedText():
            return _TYPES.get(node.type.name, node.type.name), False
        case t.Constant():
            return ("bool" if node.kind == "bool" else NAMELESS), False
        case t.Extract():
            return "extract", True
        case t.Exists():
            return "exists", True
        case t.ArrayItems() | t.ArrayQuery():
            return "array", True
        case t.Row():
            return "row", True
        case t.SpecialValue():
            return node.name.lower(), True
        case t.ScalarQuery():
            return _of_query(node.query.body)
    return NAMELESS, False


def _of_query(body: t.Body) -> tuple[str, bool]:
    while isinstance(body, (t.Query, t.SetOperation)):
        body = body.body if isinstance(body, t.Query) else body.left
    if isinstance(body, t.Select) and body.items and not isinstance(body.items[0].expr, t.Star):
        item = body.items[0]
        return (item.alias, True) if item.alias else _named(item.expr)
    return NAMELESS, False
