"""Parts of a query's tree."""

from __future__ import annotations

from flowql.compiler.dialect.ast import Func
from flowql.compiler.dialect.standard import tree as t


def and_parts(node: t.Expr) -> list[t.Expr]:
    if isinstance(node, Func) and node.name == "and":
        return [p for o in node.args for p in and_parts(o)]
    return [node]


def operands(body: t.SetOperation) -> list[t.Body]:
    """Both sides; of a chain of UNION ALL all of them."""
    if body.op != "union" or not body.all or body.corresponding:
        return [body.left, body.right]
    found: list[t.Body] = []
    left: t.Body = body
    while isinstance(left, t.SetOperation) and left.op == "union" and left.all and not left.corresponding:
        found.append(left.right)
        left = left.left
    return [left, *reversed(found)]
