"""The columns of a query that are texts in quotes or NULL: as in PostgreSQL they have the type of the column that they are written to."""

from __future__ import annotations

from flowql.compiler.diagnostics.diagnostic import CompileError
from flowql.compiler.diagnostics.source import SourceText
from flowql.compiler.dialect.ast import Lit, Star
from flowql.compiler.dialect.standard import tree as t
from flowql.compiler.dialect.standard.parser import parse_trees
from flowql.compiler.dialect.standard.query_statements import QueryStatement


def literal_columns(sql: str) -> frozenset[int]:
    """The places of these columns, from 0; none of a query that cannot be read, or whose columns are not counted.

    >>> sorted(literal_columns("SELECT id, '2024-05-01', NULL FROM t"))
    [1, 2]
    """
    try:
        found, mistakes = parse_trees(SourceText("", sql))
    except CompileError:
        return frozenset()
    if mistakes or len(found) != 1 or not isinstance(found[0], QueryStatement):
        return frozenset()
    body = found[0].query.body
    while isinstance(body, t.Query):
        body = body.body
    if not isinstance(body, t.Select) or any(isinstance(i.expr, Star) for i in body.items):
        return frozenset()
    return frozenset(n for n, i in enumerate(body.items) if _is_bare(i.expr))


def _is_bare(expr: t.Expr) -> bool:
    return isinstance(expr, Lit) and expr.kind in ("string", "null")
