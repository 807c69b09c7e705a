"""Pieces of translated trees, which sqlglot writes as they are."""

from __future__ import annotations

from sqlglot import exp

from flowql.compiler.dialect.foreign.untranslated import Node

DOUBLE = "DOUBLE PRECISION"


def call(name: str, *args: Node) -> Node:
    """A call that is written as it is."""
    return exp.Anonymous(this=name, expressions=list(args))


def constant(value: str) -> Node:
    """A constant text; one with control characters by escapes, as a file may have other line ends when it is read."""
    if value.isprintable():
        return exp.Literal.string(value)
    escaped = "".join(
        c if c.isprintable() and c not in "'\\" else f"\\u{ord(c):04x}" if ord(c) < 0x10000 else c for c in value
    )
    return exp.var(f"E'{escaped}'")


def cast(node: Node, to: str) -> Node:
    """CAST to a type of FlowQL."""
    return exp.Cast(this=node, to=exp.DataType(this=exp.DType.USERDEFINED, kind=to))


def quotient(left: Node, right: Node) -> Node:
    """A division that is written as it is."""
    return exp.Div(this=left, expression=right, typed=True, safe=False)
