"""A small reader of examples (`CONCAT('a', 'b') -> 'ab'`): Python's parser after two textual changes."""

from __future__ import annotations

import ast
import re
from collections.abc import Sequence
from decimal import Decimal
from typing import Any

from flowql.compiler.functions import builtin
from flowql.compiler.functions.coercion import convert, unify
from flowql.compiler.functions.registry import lookup
from flowql.compiler.functions.signatures import lambda_type
from flowql.compiler.plan.expr import Call, Expr, Lambda, LambdaVar, Literal
from flowql.compiler.plan.types import BOOLEAN, DOUBLE, INT, NULL, STRING, SqlType, array, decimal

assert builtin.FAMILIES
_OPERATORS = {ast.Add: "add", ast.Sub: "sub", ast.Mult: "mul", ast.Lt: "lt", ast.Gt: "gt"}
_RENAMED = {"and_": "and", "or_": "or", "not_": "not", "in_": "in"}


def literal(value: Any) -> Literal:
    kinds: dict[type, SqlType] = {bool: BOOLEAN, int: INT, str: STRING, float: DOUBLE, type(None): NULL}
    if isinstance(value, Decimal):
        return Literal(decimal(len(value.as_tuple().digits), -int(value.as_tuple().exponent)), value)
    return Literal(kinds[type(value)], value)


def parse_example(example: str) -> tuple[Expr, Any]:
    sql, _, shown = example.partition(" -> ")
    text = re.sub(r"(\w+) => ", r"lambda \1: ", sql)
    text = re.sub(r"\((\w+), (\w+)\) => ", r"lambda \1, \2: ", text)
    text = re.sub(r"\b(in|not)\(", r"\1_(", text)
    return _bind(ast.parse(text, mode="eval").body, {}), eval(shown, {"NULL": None, "TRUE": True})


def call(name: str, args: Sequence[Expr]) -> Call:
    """A call bound as the analyzer binds it."""
    function = lookup(name)
    assert function is not None, name
    found = function.resolve(tuple(lambda_type(a.type) if isinstance(a, Lambda) else a.type for a in args))
    coerced = [a if isinstance(a, Lambda) else convert(a, t) for a, t in zip(args, found.args, strict=True)]
    result = found.result
    if name == "field":
        result = args[0].type.field(args[1].value)  # type: ignore[assignment, attr-defined]
    return Call(result, name, tuple(coerced))


def _bind(node: ast.AST, scope: dict[str, SqlType]) -> Expr:
    if isinstance(node, ast.Constant):
        return literal(node.value)
    if isinstance(node, ast.UnaryOp):
        return literal(-node.operand.value)  # type: ignore[attr-defined]
    if isinstance(node, ast.Name):
        return (
            LambdaVar(scope[node.id], node.id) if node.id in scope else literal({"NULL": None, "TRUE": True}[node.id])
        )
    if isinstance(node, ast.BinOp):
        return call(_OPERATORS[type(node.op)], [_bind(node.left, scope), _bind(node.right, scope)])
    if isinstance(node, ast.Compare):
        return call(_OPERATORS[type(node.ops[0])], [_bind(node.left, scope), _bind(node.comparators[0], scope)])
    if isinstance(node, ast.Subscript):
        items = node.slice.elts if isinstance(node.slice, ast.Tuple) else [node.slice]
        element, args = unify([_bind(i, scope) for i in items])
        return Call(array(element), "array", args)
    assert isinstance(node, ast.Call), ast.dump(node)
    name = node.func.id  # type: ignore[attr-defined]
    return _call(_RENAMED.get(name, name), node.args, scope)


def _call(name: str, nodes: list[ast.expr], scope: dict[str, SqlType]) -> Expr:
    args: list[Expr] = []
    for i, n in enumerate(nodes):
        if isinstance(n, ast.Lambda):
            function = lookup(name)
            assert function is not None
            assert function.lambda_params is not None
            params = [a.arg for a in n.args.args]
            types = function.lambda_params(tuple(a.type for a in args), i)
            body = _bind(n.body, {**scope, **dict(zip(params, types, strict=True))})
            args.append(Lambda(body.type, tuple(params), body))
        else:
            args.append(_bind(n, scope))
    if name == "cast":
        return Call(INT, "cast", tuple(args))
    return call(name, args)
