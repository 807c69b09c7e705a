"""SELECT with its sources, joins, windows and trailing clauses."""

from __future__ import annotations

from typing import Literal

from compiler.dialect.ast import Ast, JoinClause, Query, SelectItem, Star, TableRef, WindowClause, WithinClause
from compiler.dialect.cursor import Cursor
from compiler.dialect.expressions import parse_expr, parse_select_expr, parse_value
from compiler.dialect.numbers import parse_duration
from compiler.dialect.tokens import Tok
from compiler.dialect.window_functions import at_window_function, grouped, parse_window_function

JoinKind = Literal["inner", "left", "right", "full"]
_KINDS: dict[str, JoinKind] = {"LEFT": "left", "RIGHT": "right", "FULL": "full"}
_WINDOWS: dict[str, Literal["tumbling", "hopping", "cumulating", "session"]] = {
    "TUMBLING": "tumbling",
    "HOPPING": "hopping",
    "CUMULATING": "cumulating",
    "SESSION": "session",
}
_STEPPED = ("HOPPING", "CUMULATING")
_CLAUSES = ("FROM", "WINDOW", "WHERE", "GROUP", "PARTITION", "HAVING", "EMIT", "LIMIT")


def parse_select(cur: Cursor) -> Query:
    """A query: `SELECT items FROM source [joins] [WINDOW] [WHERE] [GROUP BY] [PARTITION BY] [HAVING] [EMIT] [LIMIT]`."""
    start = cur.peek()
    if cur.at_word("WITH"):
        cur.unsupported("WITH ... AS (a common table expression)", help="make it a stream or table of its own")
    cur.expect_word("SELECT")
    if cur.at_word("DISTINCT"):
        cur.unsupported("SELECT DISTINCT", help="group by the columns instead")
    items = parse_items(cur)
    if not cur.at_word("FROM"):
        cur.expected("`,` or `FROM` after a select item", words=["FROM"])
    cur.next()
    function: WindowClause | None = None
    if at_window_function(cur):
        source, function = _windowed_source(cur)
    else:
        source = parse_source(cur)
    joins: list[JoinClause] = []
    while _at_join(cur):
        joins.append(parse_join_clause(cur))
    _refuse_other_sources(cur)
    window = parse_window_clause(cur) if _at_window(cur) else function
    where = parse_expr(cur) if cur.accept_words("WHERE") else None
    group_by = _keys(cur) if cur.accept_words("GROUP", "BY") else ()
    partition_by = _keys(cur) if cur.accept_words("PARTITION", "BY") else ()
    having = parse_expr(cur) if cur.accept_words("HAVING") else None
    if function is not None:
        items, group_by = grouped(cur, function, items, group_by, start)
    emit = _emit(cur)
    limit = _limit(cur)
    _check_tail(cur)
    return Query(
        select=items,
        source=source,
        joins=tuple(joins),
        where=where,
        group_by=group_by,
        partition_by=partition_by,
        window=window,
        having=having,
        emit=emit,
        limit=limit,
        span=cur.span_since(start),
    )


def parse_items(cur: Cursor) -> tuple[SelectItem, ...]:
    """Comma-separated select items."""
    items = [_item(cur)]
    while cur.accept_op(","):
        if cur.at_word("FROM"):
            cur.expected("another select item after the comma", help="remove the comma before FROM")
        items.append(_item(cur))
    return tuple(items)


def _item(cur: Cursor) -> SelectItem:
    start = cur.peek()
    expr = parse_select_expr(cur)
    alias = None
    if isinstance(expr, Star):
        return SelectItem(expr, None, cur.span_since(start))
    if cur.accept_words("AS"):
        alias = cur.expect_name("an alias")
    elif cur.at_name():
        alias = cur.fold(cur.next())
    return SelectItem(expr, alias, cur.span_since(start))


def parse_source(cur: Cursor) -> TableRef:
    """A source in FROM or JOIN, with its alias."""
    start = cur.peek()
    query = None
    if cur.dialect == "standard" and cur.accept_op("("):
        cur.enter()
        query = parse_select(cur)
        cur.leave()
        cur.expect_op(")")
        name = ""
    else:
        name = cur.expect_name("the name of a stream or table")
        if cur.at_op("("):
            _refuse_function(cur, start)
    if cur.at_words("FOR", "SYSTEM_TIME"):
        cur.unsupported("FOR SYSTEM_TIME AS OF (a temporal join)")
    alias = None
    if cur.accept_words("AS"):
        alias = cur.expect_name("an alias")
    elif cur.at_name() and not _at_clause(cur):
        alias = cur.fold(cur.next())
    return TableRef(name, alias, query, cur.span_since(start))


def _windowed_source(cur: Cursor) -> tuple[TableRef, WindowClause]:
    start = cur.peek()
    name, window = parse_window_function(cur)
    alias = None
    if cur.accept_words("AS"):
        alias = cur.expect_name("an alias")
    elif cur.at_name() and not _at_clause(cur):
        alias = cur.fold(cur.next())
    return TableRef(name, alias, None, cur.span_since(start)), window


def _refuse_function(cur: Cursor, name: Tok) -> None:
    if cur.dialect == "standard":
        cur.unsupported(f"the table function {name.text}(...) in FROM", at=cur.span_of(name))
    cur.fail(
        "FQ1010",
        f"`{name.text}(...)` is a function call, and FROM takes the name of a stream or table",
        at=cur.span_of(name),
        help=f"call {name.text} in the select list: SELECT {name.text}(...) FROM source",
    )


def _at_clause(cur: Cursor) -> bool:
    """Whether an unreserved word here begins a clause rather than being an alias."""
    return (
        cur.at_words("PARTITION", "BY")
        or cur.at_words("EMIT", "CHANGES")
        or cur.at_words("EMIT", "FINAL")
        or (cur.at_word("CROSS") and cur.at_word("JOIN", ahead=1))
        or cur.at_words("ORDER", "BY")
    )


def _at_join(cur: Cursor) -> bool:
    return cur.at_word("JOIN", "INNER", "LEFT", "RIGHT", "FULL")


def parse_join_clause(cur: Cursor) -> JoinClause:
    """`[INNER | LEFT | RIGHT | FULL [OUTER]] JOIN source [WITHIN ...] ON condition`."""
    start = cur.peek()
    kind: JoinKind = "inner"
    if not cur.accept_words("INNER") and cur.at_word(*_KINDS):
        kind = _KINDS[cur.next().upper]
        cur.accept_words("OUTER")
    cur.expect_word("JOIN")
    right = parse_source(cur)
    within = _within(cur) if cur.at_word("WITHIN") else None
    if not cur.at_word("ON"):
        cur.expected("`ON` with the condition of the join", help="write  JOIN other ON this.key = other.key")
    cur.next()
    on = parse_expr(cur)
    if cur.at_word("WITHIN"):
        cur.fail("FQ1003", "WITHIN stands before ON", help="write  JOIN other WITHIN 1 HOUR ON ...")
    return JoinClause(kind, right, on, within, cur.span_since(start))


def _within(cur: Cursor) -> WithinClause:
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


def _refuse_other_sources(cur: Cursor) -> None:
    if cur.at_op(","):
        cur.fail("FQ1003", "FROM takes one source", label="a second one", help="write  JOIN other ON ...")
    if cur.at_word("CROSS"):
        cur.unsupported("CROSS JOIN", help="join on a key")


def _at_window(cur: Cursor) -> bool:
    return cur.at_word("WINDOW")


def parse_window_clause(cur: Cursor) -> WindowClause:
    """`[WINDOW] TUMBLING (SIZE 1 HOUR, RETENTION 7 DAYS, GRACE PERIOD 5 MINUTES)` and its kin."""
    start = cur.peek()
    cur.accept_words("WINDOW")
    kinds = ("TUMBLING", "HOPPING", "CUMULATING", "SESSION")
    if cur.at_name() and not cur.at_word(*kinds) and cur.at_word(*kinds, ahead=1):
        cur.next()  # ksqlDB lets a window have a name, without a use for it
    if not cur.at_word(*kinds):
        cur.expected(
            "TUMBLING, HOPPING, CUMULATING or SESSION", help="write  WINDOW TUMBLING (SIZE 1 HOUR)", words=kinds
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
    return WindowClause(_WINDOWS[kind], size, advance, grace, retention, cur.span_since(start))


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
    start = cur.peek()
    ms = parse_duration(cur, what)
    if ms <= 0:
        cur.fail("FQ1009", f"{what} must be longer than nothing", at=cur.span_since(start))
    return ms


def _keys(cur: Cursor) -> tuple[Ast, ...]:
    """The list of GROUP BY and PARTITION BY, which may be in parentheses as a whole."""
    if cur.at_words("GROUPING", "SETS"):
        cur.unsupported("GROUPING SETS")
    if cur.dialect == "standard" and cur.at_word("ROLLUP", "CUBE") and cur.at_op("(", ahead=1):
        cur.unsupported(f"GROUP BY {cur.peek().upper}")
    parse = parse_value if cur.dialect == "ksql" else parse_expr
    before = cur.pos
    keys: list[Ast] = []
    if cur.accept_op("("):
        if not cur.at_op(")"):
            keys.append(parse_expr(cur))
            while cur.accept_op(","):
                keys.append(parse(cur))
        if cur.accept_op(")") and _ends_keys(cur):
            return tuple(keys)
        cur.pos = before  # the parentheses belong to the first key only
    keys = [parse(cur)]
    while cur.accept_op(","):
        keys.append(parse(cur))
    return tuple(keys)


def _ends_keys(cur: Cursor) -> bool:
    return cur.at_end() or cur.at_op(")", ";") or cur.at_word(*_CLAUSES)


def _emit(cur: Cursor) -> Literal["changes", "final"] | None:
    if not cur.accept_words("EMIT"):
        return None
    if cur.accept_words("CHANGES"):
        return "changes"
    if cur.accept_words("FINAL"):
        return "final"
    cur.expected("CHANGES or FINAL after EMIT", words=["CHANGES", "FINAL"])


def _limit(cur: Cursor) -> int | None:
    if not cur.accept_words("LIMIT"):
        return None
    if cur.peek().kind != "number" or not cur.peek().text.isdigit():
        cur.expected("a whole number after LIMIT")
    return int(cur.next().text)


def _check_tail(cur: Cursor) -> None:
    """Name the mistake when a clause follows that had to come earlier."""
    if cur.at_word("UNION", "INTERSECT", "EXCEPT"):
        cur.unsupported(cur.peek().upper, help="INSERT INTO a stream from each query")
    if cur.at_words("ORDER", "BY"):
        cur.unsupported("ORDER BY")
    if cur.at_word(*_CLAUSES):
        word = cur.peek().text.upper()
        cur.fail(
            "FQ1003",
            f"{word} cannot stand here",
            label="out of order, or given twice",
            help="the order is FROM, WINDOW, WHERE, GROUP BY, PARTITION BY, HAVING, EMIT, LIMIT",
        )
