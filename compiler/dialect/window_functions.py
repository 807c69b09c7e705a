"""Windows in the standard form: `FROM TABLE(TUMBLE(TABLE bids, DESCRIPTOR(ts), INTERVAL '1' MINUTE))`.

Such a query is the same as one with a WINDOW clause, and becomes one here: window_start and window_end leave GROUP BY, as
the window is part of the group already, and in the select list they are the bounds as a TIMESTAMP. Flink's table functions
and their named arguments (DATA, TIMECOL, SIZE, SLIDE, STEP, GAP) are taken, and the short `TUMBLE(bids, ts, ...)`; a further
argument, GRACE, is ours.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Literal

from flowql.compiler.diagnostics.diagnostic import Diagnostic, ParseError
from flowql.compiler.diagnostics.source import Span
from flowql.compiler.dialect.ast import Ast, CastTo, Func, Lit, Name, SelectItem, WindowClause
from flowql.compiler.dialect.cursor import Cursor
from flowql.compiler.dialect.numbers import parse_interval
from flowql.compiler.dialect.tokens import Tok

START, END, TIME = "window_start", "window_end", "window_time"
_BOUNDS = {START: "WINDOWSTART", END: "WINDOWEND", TIME: "WINDOWEND"}
WINDOW_KEY = "window_key"


@dataclass(frozen=True, slots=True)
class _Function:
    """A table function: the window it makes, and its durations in order of their places."""

    kind: Literal["tumbling", "hopping", "cumulating", "session"]
    durations: tuple[str, ...]


FUNCTIONS = {
    "TUMBLE": _Function("tumbling", ("SIZE",)),
    "HOP": _Function("hopping", ("SLIDE", "SIZE")),
    "CUMULATE": _Function("cumulating", ("STEP", "SIZE")),
    "SESSION": _Function("session", ("GAP",)),
}


def at_window_function(cur: Cursor) -> bool:
    """Whether `TABLE(TUMBLE(` or `TUMBLE(` is next."""
    if cur.tok.upper == "TABLE" and cur.peek(1).op == "(":
        return True
    return cur.tok.upper in FUNCTIONS and cur.peek(1).op == "("


def parse_window_function(cur: Cursor) -> tuple[str, WindowClause]:
    """The name of the source and the window over it."""
    wrapped = cur.accept_words("TABLE")
    if wrapped:
        cur.expect_op("(")
    start = cur.tok
    if cur.tok.upper not in FUNCTIONS:
        cur.expected("TUMBLE, HOP, CUMULATE or SESSION", words=FUNCTIONS)
    function = FUNCTIONS[cur.next().upper]
    cur.expect_op("(")
    name, time, durations = _arguments(cur, function, start)
    cur.expect_op(")")
    if wrapped:
        cur.expect_op(")")
    return name, _clause(cur, function, time, durations, start)


def _arguments(cur: Cursor, function: _Function, start: Tok) -> tuple[str, Name, dict[str, int]]:
    places = ["DATA", "TIMECOL", *function.durations]
    name: str | None = None
    time: Name | None = None
    durations: dict[str, int] = {}
    for i in range(len(places) + 1):  # and GRACE
        if i and not cur.accept_op(","):
            break
        place = _named(cur) or (places[i] if i < len(places) else "GRACE")
        if place == "DATA":
            name = _table(cur)
        elif place == "TIMECOL":
            time = _time_column(cur)
        elif place in function.durations or place == "GRACE":
            durations[place] = _duration(cur, place)
        else:
            cur.expected(f"one of {', '.join(places)} and GRACE", words=[*places, "GRACE"])
    missing = [p for p in places if p not in durations and not (p == "DATA" and name) and not (p == "TIMECOL" and time)]
    if missing or name is None or time is None:
        cur.fail(
            "FQ1009",
            f"the window function lacks {', '.join(missing)}",
            at=cur.span_since(start),
            help="write  TUMBLE(TABLE source, DESCRIPTOR(time_column), INTERVAL '1' MINUTE)",
        )
    return name, time, durations


def _named(cur: Cursor) -> str | None:
    if cur.peek(1).op != "=>":
        return None
    word = cur.next().upper
    cur.next()
    return word


def _table(cur: Cursor) -> str:
    cur.accept_words("TABLE")
    name = cur.expect_name("the name of a stream")
    if cur.at_words("PARTITION", "BY"):
        cur.fail(
            "FQ1009",
            "a session window is kept per group",
            label="not here",
            help="leave PARTITION BY out; name these columns in GROUP BY",
        )
    return name


def _time_column(cur: Cursor) -> Name:
    wrapped = cur.accept_words("DESCRIPTOR")
    if wrapped:
        cur.expect_op("(")
    start = cur.tok
    name = Name((cur.expect_name("the time column"),), cur.span_of(start))
    if wrapped:
        cur.expect_op(")")
    return name


def _duration(cur: Cursor, what: str) -> int:
    if cur.tok.upper != "INTERVAL":
        cur.expected(f"{what} as an interval", help="write  INTERVAL '1' MINUTE")
    start = cur.tok
    value = parse_interval(cur).value
    assert isinstance(value, int)
    if value <= 0 and what != "GRACE":
        cur.fail("FQ1009", f"{what} must be longer than nothing", at=cur.span_since(start))
    return value


def _clause(cur: Cursor, function: _Function, time: Name, durations: dict[str, int], start: Tok) -> WindowClause:
    size = durations.get("SIZE", durations.get("GAP", 0))
    advance = durations.get("SLIDE", durations.get("STEP"))
    return WindowClause(function.kind, size, advance, durations.get("GRACE"), None, cur.span_since(start), time)


def grouped(
    window: WindowClause, items: Sequence[SelectItem], group_by: Sequence[Ast], span: Span, *, key: str
) -> tuple[tuple[SelectItem, ...], tuple[Ast, ...]]:
    """The select list and GROUP BY of the same query with a WINDOW clause. key: what the key of a group of the window alone is called."""
    bounds = {b for g in group_by if (b := _bound(g))}
    needed = {START, END} if window.kind != "session" else {START}
    if not bounds or (window.kind == "cumulating" and not needed <= bounds):
        raise ParseError(
            Diagnostic(
                "FQ1014",
                "rows of a window function are to be grouped by their window",
                window.span,
                label="not grouped by window",
                why="a row without its group belongs to a window that is still growing",
                help=f"add GROUP BY {START}, {END}",
            )
        )
    keys = tuple(g for g in group_by if not _bound(g))
    selected = [_item(s, window) for s in items]
    if not keys:  # a group needs a key beside its window: the same one for all
        keys = (Lit("int", 0, window.span),)
        selected.append(SelectItem(keys[0], key, span))
    return tuple(selected), keys


def _bound(node: Ast) -> str:
    found = node.parts[-1].lower() if isinstance(node, Name) else ""
    return found if found in _BOUNDS else ""


def _item(item: SelectItem, window: WindowClause) -> SelectItem:
    alias = item.expr.parts[-1] if isinstance(item.expr, Name) and _bound(item.expr) else None
    return replace(item, expr=_bounds_as_times(item.expr, window), alias=item.alias or alias)


def _bounds_as_times(node: Ast, window: WindowClause) -> Ast:
    """Bounds as the TIMESTAMPs they are in standard SQL; WINDOWSTART and WINDOWEND are milliseconds."""
    if bound := _bound(node):
        ms = _shifted(Name((_BOUNDS[bound],), node.span), _beyond(bound, window))
        return Func("from_millis", (ms,), node.span)
    if isinstance(node, Func):
        return replace(node, args=tuple(_bounds_as_times(a, window) for a in node.args))
    return replace(node, operand=_bounds_as_times(node.operand, window)) if isinstance(node, CastTo) else node


def _beyond(bound: str, window: WindowClause) -> int:
    """Milliseconds from WINDOWSTART or WINDOWEND to the bound. ksqlDB's sessions end with their last row, those of the
    standard a gap later; window_time is the last moment that belongs to a window.
    """
    gap = window.size_ms if window.kind == "session" and bound != START else 0
    return gap - (1 if bound == TIME else 0)


def _shifted(ms: Name, by: int) -> Ast:
    if not by:
        return ms
    return Func("add" if by > 0 else "sub", (ms, Lit("int", abs(by), ms.span)), ms.span)
