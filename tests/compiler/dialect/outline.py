"""Syntax trees as short text: every node with the source text under its span, so one line checks both."""

from __future__ import annotations

from flowql.compiler.diagnostics.source import SourceText, Span
from flowql.compiler.dialect.ast import Ast, CastTo, Func, LambdaFn, Lit, Name
from flowql.compiler.dialect.generator import type_sql
from flowql.compiler.dialect.parser import parse_expression


def under(span: Span, text: str) -> str:
    """The characters of `text` that `span` covers."""
    lines = text.split("\n")
    start = sum(len(line) + 1 for line in lines[: span.line - 1]) + span.column - 1
    return text[start : start + span.length]


def outline(ast: Ast, text: str) -> list[str]:
    """One line per node, depth first: indentation, what it is, the source under its span."""
    what, children = _parts(ast)
    lines = [f"{what:<16}{under(ast.span, text)}".rstrip()]
    for child in children:
        lines.extend("  " + line for line in outline(child, text))
    return lines


def check(text: str, expected: str, dialect: str = "ksql") -> None:
    ast = parse_expression(SourceText("x.sql", text), "ksql" if dialect == "ksql" else "standard")
    want = [line for line in expected.split("\n") if line.strip()]
    indent = min(len(line) - len(line.lstrip()) for line in want)
    assert outline(ast, text) == [line[indent:].rstrip() for line in want]


def _parts(ast: Ast) -> tuple[str, tuple[Ast, ...]]:
    if isinstance(ast, Func):
        return ast.name, ast.args
    if isinstance(ast, Name):
        return "name " + ".".join(ast.parts), ()
    if isinstance(ast, Lit):
        return f"{ast.kind} {ast.value}", ()
    if isinstance(ast, CastTo):
        return f"cast {type_sql(ast.type)}", (ast.operand,)
    if isinstance(ast, LambdaFn):
        return f"lambda {' '.join(ast.params)}", (ast.body,)
    return "star", ()
