"""Names of output columns in standard SQL, where no alias is given: PostgreSQL's.

A column keeps its name, a call has that of its function, a CAST that of what is cast or else of the type, CASE that of its ELSE. What has
none of these is `?column?`.
"""

from __future__ import annotations

from flowql.compiler.dialect.ast import Ast, CastTo, Func, Lit, Name
from flowql.compiler.plan.types import Kind

NAMELESS = "?column?"
_TYPES = {
    Kind.BOOLEAN: "bool",
    Kind.INT: "int4",
    Kind.BIGINT: "int8",
    Kind.DOUBLE: "float8",
    Kind.DECIMAL: "numeric",
    Kind.STRING: "varchar",
    Kind.BYTES: "bytea",
}
# Forms that are functions by another writing.
_FORMS = {"row": "row", "array": "array", "struct": "row", "map": "map"}


def output_name(node: Ast) -> str:
    """The name of a column that is selected without an alias.

    >>> output_name(Func("SUM", (Name(("x",)),))), output_name(Func("add", (Name(("x",)), Lit("int", 1))))
    ('sum', '?column?')
    """
    return _named(node)[0]


def _named(node: Ast) -> tuple[str, bool]:
    """A name, and whether it is better than that of a cast or CASE around it."""
    if isinstance(node, Name):
        return node.parts[-1], True
    if isinstance(node, CastTo):
        inner, strong = _named(node.operand)
        return (inner, True) if strong else (_type_name(node), False)
    if isinstance(node, Lit):
        return ("bool" if node.kind == "bool" else NAMELESS), False
    return _of_call(node) if isinstance(node, Func) else (NAMELESS, False)


def _of_call(node: Func) -> tuple[str, bool]:
    if node.name == "case":
        inner, strong = _named(node.args[-1]) if len(node.args) % 2 else (NAMELESS, False)
        return (inner, True) if strong else ("case", False)
    if node.name == "field" and isinstance(node.args[1], Lit):
        return str(node.args[1].value), True
    if node.name == "subscript":
        return _named(node.args[0])
    if node.name in _FORMS:
        return _FORMS[node.name], True
    return (node.name.lower(), True) if not node.name.islower() else (NAMELESS, False)


def _type_name(node: CastTo) -> str:
    if node.type.known is None:
        return node.type.custom or NAMELESS
    kind = node.type.known.kind
    return _TYPES.get(kind, kind.value.lower())
