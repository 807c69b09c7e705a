"""Calls of functions, with what may stand inside and behind their parentheses, and the windows of OVER."""

from __future__ import annotations

from dataclasses import replace
from typing import Literal

from flowql.compiler.diagnostics.edits import Edit
from flowql.compiler.dialect.ast import LambdaFn
from flowql.compiler.dialect.cursor import Tok
from flowql.compiler.dialect.standard.reader import Reader
from flowql.compiler.dialect.standard.tree import (
    Bound,
    Call,
    Expr,
    Frame,
    Named,
    OrderItem,
    TableArgument,
    WindowSpec,
)

_BEHIND = ("WITHIN", "FILTER", "IGNORE", "RESPECT", "OVER")  # the words of clauses behind a call
_FRAMES: dict[str, Literal["rows", "range", "groups"]] = {"ROWS": "rows", "RANGE": "range", "GROUPS": "groups"}
_EXCLUSIONS: tuple[Literal["current row", "group", "ties", "no others"], ...] = (
    "current row",
    "group",
    "ties",
    "no others",
)


def parse_call(cur: Reader) -> Call:
    """`name(arguments)` with WITHIN GROUP, FILTER, IGNORE NULLS and OVER."""
    start = cur.tok
    name = cur.next().name
    cur.expect_op("(")
    star = cur.tok.op == "*" and cur.after.op == ")"
    if star:
        cur.next()
    distinct = cur.tok.upper in ("DISTINCT", "ALL") and cur.next().upper == "DISTINCT"
    args = () if cur.tok.op == ")" else _arguments(cur)
    order_by = _order_by(cur)
    cur.expect_op(")", label="a comma or `)` goes here")
    made = Call((name,), args, star, distinct, order_by, span=cur.span_since(start))
    return _behind(cur, start, made) if cur.tok.upper in _BEHIND else made


def _behind(cur: Reader, start: Tok, made: Call) -> Call:
    within_group: tuple[OrderItem, ...] = ()
    if cur.accept_words("WITHIN", "GROUP"):
        cur.expect_op("(")
        within_group = _order_by(cur)
        if not within_group:
            cur.expected("ORDER BY", words=["ORDER"])
        cur.expect_op(")")
    condition = _filter(cur)
    nulls = _nulls(cur)
    over = _over(cur)
    span = cur.span_since(start)
    return replace(made, within_group=within_group, filter=condition, nulls=nulls, over=over, span=span)


def _arguments(cur: Reader) -> tuple[Expr, ...]:
    found = [_argument(cur)]
    while cur.accept_op(","):
        if cur.tok.op == ")":
            edit = Edit(cur.span_of(cur.back(1)), "")
            cur.expected("another value after the comma", help="remove the comma before it", edit=edit)
        found.append(_argument(cur))
    return tuple(found)


def _argument(cur: Reader) -> Expr:
    start = cur.tok
    if cur.tok.upper == "TABLE" and cur.after.op != "(":
        cur.next()
        return TableArgument(cur.expect_dotted("the name of a relation"), _partition(cur), span=cur.span_since(start))
    if cur.tok.is_name and cur.after.upper == "PARTITION" and cur.peek(2).upper == "BY":
        return TableArgument((cur.next().name,), _partition(cur), span=cur.span_since(start))
    if start.kind in ("word", "quoted") and cur.after.op == "=>":
        name = cur.next().name
        cur.next()
        return Named(name, _argument(cur), span=cur.span_since(start))
    parameters = cur.accept_lambda() if cur.tok.op == "(" else None
    if parameters is not None:
        return LambdaFn(parameters, cur.rules.expr(cur), cur.span_since(start))
    return cur.rules.expr(cur)


def _order_by(cur: Reader) -> tuple[OrderItem, ...]:
    return cur.rules.order_items(cur) if cur.tok.upper == "ORDER" and cur.accept_words("ORDER", "BY") else ()


def _partition(cur: Reader) -> tuple[Expr, ...]:
    if not cur.accept_words("PARTITION", "BY"):
        return ()
    found = [cur.rules.expr(cur)]
    while cur.tok.op == "," and not (cur.after.kind in ("word", "quoted") and cur.peek(2).op in ("=>", "(")):
        cur.next()
        found.append(cur.rules.expr(cur))
    return tuple(found)


def _filter(cur: Reader) -> Expr | None:
    if not (cur.tok.upper == "FILTER" and cur.after.op == "("):
        return None
    cur.next()
    cur.next()
    cur.expect_word("WHERE", help="write  FILTER (WHERE condition)")
    condition = cur.rules.expr(cur)
    cur.expect_op(")")
    return condition


def _nulls(cur: Reader) -> Literal["", "ignore", "respect"]:
    if cur.accept_words("IGNORE", "NULLS"):
        return "ignore"
    return "respect" if cur.accept_words("RESPECT", "NULLS") else ""


def _over(cur: Reader) -> WindowSpec | None:
    if not cur.accept_words("OVER"):
        return None
    start = cur.tok
    if cur.tok.op == "(":
        return cur.rules.window(cur)
    return WindowSpec(cur.expect_name("the name of a window"), bare=True, span=cur.span_since(start))


def parse_window(cur: Reader) -> WindowSpec:
    """`([base] [PARTITION BY ...] [ORDER BY ...] [frame])`."""
    start = cur.tok
    cur.expect_op("(")
    frames = cur.tok.upper in _FRAMES or cur.at_words("SESSION", "WITH")
    named = cur.tok.is_name and not frames and not cur.at_words("PARTITION", "BY")
    base = cur.next().name if named else ""
    partition = cur.listed(cur.rules.expr) if cur.accept_words("PARTITION", "BY") else ()
    order_by = _order_by(cur)
    session = cur.at_words("SESSION", "WITH")
    frame = _session(cur) if session else _frame(cur) if cur.tok.upper in _FRAMES else None
    cur.expect_op(")", label="not expected in a window")
    return WindowSpec(base, partition, order_by, frame, span=cur.span_since(start))


def _frame(cur: Reader) -> Frame:
    start = cur.tok
    unit = _FRAMES[cur.next().upper]
    between = cur.accept_words("BETWEEN")
    first = _bound(cur)
    last = None
    if between:
        cur.expect_word("AND", help=f"write  {unit.upper()} BETWEEN UNBOUNDED PRECEDING AND CURRENT ROW")
        last = _bound(cur)
    exclude: Literal["", "current row", "group", "ties", "no others"] = ""
    if cur.accept_words("EXCLUDE"):
        found = next((e for e in _EXCLUSIONS if cur.accept_words(*e.upper().split())), None)
        if found is None:
            cur.expected("CURRENT ROW, GROUP, TIES or NO OTHERS after EXCLUDE")
        exclude = found
    made = Frame(unit, first, last, exclude, span=cur.span_since(start))
    if first.kind == "unbounded following" or (last is not None and last.kind == "unbounded preceding"):
        cur.fail("FQ1003", "the frame ends before it begins", at=made.span, help="write  BETWEEN start AND end")
    return made


def _session(cur: Reader) -> Frame:
    """`SESSION WITH GAP gap`."""
    start = cur.tok
    cur.accept_words("SESSION", "WITH")
    cur.expect_word("GAP", help="write  SESSION WITH GAP INTERVAL '10' MINUTE")
    at = cur.tok
    gap = cur.rules.expr(cur)
    end = Bound("following", gap, span=cur.span_since(at))
    return Frame("session", Bound("unbounded preceding", span=cur.span_since(start)), end, span=cur.span_since(start))


def _bound(cur: Reader) -> Bound:
    start = cur.tok
    if cur.accept_words("CURRENT", "ROW"):
        return Bound("current row", span=cur.span_since(start))
    if cur.accept_words("UNBOUNDED"):
        if cur.accept_words("PRECEDING"):
            return Bound("unbounded preceding", span=cur.span_since(start))
        cur.expect_word("FOLLOWING")
        return Bound("unbounded following", span=cur.span_since(start))
    offset = cur.rules.expr(cur)
    if cur.accept_words("PRECEDING"):
        return Bound("preceding", offset, span=cur.span_since(start))
    cur.expect_word("FOLLOWING", help="a bound ends in PRECEDING or FOLLOWING")
    return Bound("following", offset, span=cur.span_since(start))
