"""GROUP BY: expressions, positions, and GROUPING SETS, ROLLUP and CUBE inside one another."""

from __future__ import annotations

from typing import Literal

from flowql.compiler.dialect.ast import Func
from flowql.compiler.dialect.cursor import Tok
from flowql.compiler.dialect.standard.expressions import parse_expr
from flowql.compiler.dialect.standard.reader import Reader
from flowql.compiler.dialect.standard.tree import GroupElement, Grouping


def parse_group_by(cur: Reader) -> tuple[GroupElement, ...]:
    """Parses the elements after GROUP BY. `(a, b)` is a set of both."""
    if cur.tok.upper == "DISTINCT" or (cur.tok.upper == "ALL" and not _ends(cur)):
        if cur.tok.upper == "DISTINCT":
            cur.unsupported("GROUP BY DISTINCT", help="leave out grouping sets that repeat others")
        cur.next()
    elif cur.tok.upper == "ALL":
        cur.unsupported("GROUP BY ALL", help="name the columns to group by")
    return cur.listed(_element)


def _ends(cur: Reader) -> bool:
    after = cur.after
    return after.kind == "end" or cur.after.op in (")", ";")


def _element(cur: Reader) -> GroupElement:
    start = cur.tok
    if cur.tok.upper == "GROUPING" and cur.after.upper == "SETS":
        cur.next()
        cur.next()
        return _sets(cur, start, "sets")
    if cur.tok.upper in ("ROLLUP", "CUBE") and cur.after.op == "(":
        return _sets(cur, start, "rollup" if cur.next().upper == "ROLLUP" else "cube")
    if cur.tok.op == "(" and cur.after.op == ")":
        cur.next()
        cur.next()
        return Grouping("set", (), span=cur.span_since(start))
    expr = parse_expr(cur)
    if isinstance(expr, Func) and expr.name == "row":
        return Grouping("set", expr.args, span=expr.span)
    return expr


def _sets(cur: Reader, start: Tok, kind: Literal["sets", "rollup", "cube"]) -> Grouping:
    cur.enter()
    cur.expect_op("(")
    elements = cur.listed(_element)
    cur.expect_op(")", label="a comma or `)` goes here")
    cur.leave()
    return Grouping(kind, elements, span=cur.span_since(start))
