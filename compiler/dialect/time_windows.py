"""Windows and bounds of time as FlowQL writes them in every dialect: the WINDOW clause, and WITHIN of a join."""

from __future__ import annotations

from typing import Literal

from flowql.compiler.dialect.ast import WindowClause, WithinClause
from flowql.compiler.dialect.cursor import Cursor
from flowql.compiler.dialect.numbers import parse_duration

KINDS: dict[str, Literal["tumbling", "hopping", "cumulating", "session"]] = {
    "TUMBLING": "tumbling",
    "HOPPING": "hopping",
    "CUMULATING": "cumulating",
    "SESSION": "session",
}
_STEPPED = ("HOPPING", "CUMULATING")


def parse_window_clause(cur: Cursor) -> WindowClause:
    """`[WINDOW] TUMBLING (SIZE 1 HOUR, RETENTION 7 DAYS, GRACE PERIOD 5 MINUTES)` and its kin."""
    start = cur.tok
    cur.accept_words("WINDOW")
    if cur.tok.is_name and cur.tok.upper not in KINDS and cur.after.upper in KINDS:
        cur.next()  # ksqlDB lets a window have a name, without a use for it
    if cur.tok.upper not in KINDS:
        cur.expected(
            "TUMBLING, HOPPING, CUMULATING or SESSION", help="write  WINDOW TUMBLING (SIZE 1 HOUR)", words=KINDS
        )
    kind = cur.next().upper
    cur.expect_op("(")
    if kind != "SESSION":
        cur.expect_word(
            "SIZE", help=f"write  WINDOW {kind} (SIZE 1 HOUR{', ADVANCE BY 5 MINUTES' if kind in _STEPPED else ''})"
        )
    size = _positive(cur, "the gap of the session" if kind == "SESSION" else "the size of the window")
    advance: int | None = None
    if kind in _STEPPED:
        cur.expect_op(",", help=f"a {kind.lower()} window also needs  ADVANCE BY 5 MINUTES")
        cur.expect_word("ADVANCE")
        cur.expect_word("BY")
        advance = _positive(cur, "the advance of the window")
    retention, grace = _window_options(cur)
    cur.expect_op(")", label="a comma or `)` goes here")
    return WindowClause(KINDS[kind], size, advance, grace, retention, cur.span_since(start))


def _window_options(cur: Cursor) -> tuple[int | None, int | None]:
    retention: int | None = None
    grace: int | None = None
    while cur.accept_op(","):
        if retention is None and cur.accept_words("RETENTION"):
            retention = parse_duration(cur, "the retention")
        elif grace is None and cur.accept_words("GRACE", "PERIOD"):
            grace = parse_duration(cur, "the grace period")
        else:
            cur.expected("RETENTION or GRACE PERIOD, each once", words=["RETENTION", "GRACE"])
    return retention, grace


def _positive(cur: Cursor, what: str) -> int:
    start = cur.tok
    ms = parse_duration(cur, what)
    if ms <= 0:
        cur.fail("FQ1009", f"{what} must be longer than zero", at=cur.span_since(start))
    return ms


def parse_within(cur: Cursor) -> WithinClause:
    """`WITHIN 1 HOUR` or `WITHIN (1 HOUR, 5 MINUTES) GRACE PERIOD 1 DAY`."""
    start = cur.next()
    if cur.accept_op("("):
        before = parse_duration(cur, "the time before")
        cur.expect_op(",", help="write  WITHIN (1 HOUR, 5 MINUTES): the time before and the time after")
        after = parse_duration(cur, "the time after")
        cur.expect_op(")")
    else:
        before = after = parse_duration(cur, "WITHIN")
    grace = parse_duration(cur, "the grace period") if cur.accept_words("GRACE", "PERIOD") else None
    return WithinClause(before, after, grace, cur.span_since(start))
