"""SELECT with its sources, joins, windows and trailing clauses."""

from __future__ import annotations

from typing import Literal

from flowql.compiler.dialect.ast import Ast, JoinClause, Query, SelectItem, Star, TableRef
from flowql.compiler.dialect.cursor import Cursor, Tok
from flowql.compiler.dialect.expressions import parse_expr, parse_select_expr, parse_value
from flowql.compiler.dialect.refusals import (
    at_no_alias,
    refuse_clause,
    refuse_join,
    refuse_lateral,
    refuse_set_operation,
)
from flowql.compiler.dialect.time_windows import parse_window_clause, parse_within

JoinKind = Literal["inner", "left", "right", "full"]
_KINDS: dict[str, JoinKind] = {"LEFT": "left", "RIGHT": "right", "FULL": "full"}
_WINDOWS = {
    "TUMBLE": "TUMBLING (SIZE 1 HOUR)",
    "HOP": "HOPPING (SIZE 1 HOUR, ADVANCE BY 5 MINUTES)",
    "CUMULATE": "CUMULATING (SIZE 1 DAY, ADVANCE BY 1 HOUR)",
    "SESSION": "SESSION (5 MINUTES)",
}
_CLAUSES = ("FROM", "WINDOW", "WHERE", "GROUP", "PARTITION", "HAVING", "EMIT", "LIMIT")


def parse_select(cur: Cursor) -> Query:
    """A query: `SELECT items FROM source [joins] [WINDOW] [WHERE] [GROUP BY] [PARTITION BY] [HAVING] [EMIT] [LIMIT]`."""
    start = cur.tok
    if cur.tok.upper == "WITH":
        cur.unsupported("WITH ... AS (a common table expression)", help="make it a separate stream or table")
    cur.expect_word("SELECT")
    if cur.tok.upper == "DISTINCT":
        cur.unsupported("SELECT DISTINCT", help="group by the columns instead")
    items = parse_items(cur)
    if cur.tok.upper != "FROM":
        cur.expected("`,` or `FROM` after a select item", words=["FROM"])
    cur.next()
    source = parse_source(cur)
    joins: list[JoinClause] = []
    refuse_join(cur)
    while cur.tok.upper in ("JOIN", "INNER", "LEFT", "RIGHT", "FULL"):
        joins.append(parse_join_clause(cur))
        refuse_join(cur)
    _refuse_other_sources(cur)
    window = parse_window_clause(cur) if cur.tok.upper == "WINDOW" else None
    where = parse_expr(cur) if cur.accept_words("WHERE") else None
    group_by = _keys(cur) if cur.accept_words("GROUP", "BY") else ()
    partition_by = _keys(cur) if cur.accept_words("PARTITION", "BY") else ()
    having = parse_expr(cur) if cur.accept_words("HAVING") else None
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
        if cur.tok.upper == "FROM":
            cur.expected("another select item after the comma", help="remove the comma before FROM")
        items.append(_item(cur))
    return tuple(items)


def _item(cur: Cursor) -> SelectItem:
    start = cur.tok
    expr = parse_select_expr(cur)
    alias = None
    if isinstance(expr, Star):
        return SelectItem(expr, None, cur.span_since(start))
    if cur.accept_words("AS"):
        alias = cur.expect_name("an alias")
    elif cur.tok.is_name:
        alias = cur.next().name
    return SelectItem(expr, alias, cur.span_since(start))


def parse_source(cur: Cursor) -> TableRef:
    """A source in FROM or JOIN, with its alias."""
    start = cur.tok
    refuse_lateral(cur)
    name = cur.expect_name("the name of a stream or table")
    if cur.tok.op == "(":
        _refuse_function(cur, start)
    return TableRef(name, _alias(cur), None, cur.span_since(start))


def _alias(cur: Cursor) -> str | None:
    """`[AS] alias` of a source. Without AS a word that begins a clause or names a kind of join is none."""
    if cur.accept_words("AS"):
        return cur.expect_name("an alias")
    if cur.tok.is_name and not _at_clause(cur):
        return cur.next().name
    return None


def _refuse_function(cur: Cursor, name: Tok) -> None:
    window = _WINDOWS.get(name.text.upper())
    called = f"call {name.text} in the select list: SELECT {name.text}(...) FROM source"
    cur.fail(
        "FQ1010",
        f"`{name.text}(...)` is a function call, and FROM takes the name of a stream or table",
        at=cur.span_of(name),
        help=f"write  FROM source WINDOW {window}" if window else called,
    )


def _at_clause(cur: Cursor) -> bool:
    """Whether an unreserved word here begins a clause rather than being an alias."""
    return (
        cur.at_words("PARTITION", "BY")
        or cur.at_words("EMIT", "CHANGES")
        or cur.at_words("EMIT", "FINAL")
        or cur.at_words("ORDER", "BY")
        or at_no_alias(cur)
    )


def parse_join_clause(cur: Cursor) -> JoinClause:
    """`[INNER | LEFT | RIGHT | FULL [OUTER]] JOIN source [WITHIN ...] ON condition`."""
    start = cur.tok
    kind: JoinKind = "inner"
    if not cur.accept_words("INNER") and cur.tok.upper in _KINDS:
        kind = _KINDS[cur.next().upper]
        cur.accept_words("OUTER")
    cur.expect_word("JOIN")
    right = parse_source(cur)
    refuse_clause(cur)
    within = parse_within(cur) if cur.tok.upper == "WITHIN" else None
    if cur.tok.upper != "ON":
        cur.expected("`ON` with the condition of the join", help="write  JOIN other ON this.key = other.key")
    cur.next()
    on = parse_expr(cur)
    if cur.tok.upper == "WITHIN":
        cur.fail("FQ1003", "WITHIN comes before ON", help="write  JOIN other WITHIN 1 HOUR ON ...")
    return JoinClause(kind, right, on, within, cur.span_since(start))


def _refuse_other_sources(cur: Cursor) -> None:
    if cur.tok.op == ",":
        cur.fail("FQ1003", "FROM takes one source", label="a second one", help="write  JOIN other ON ...")
    refuse_clause(cur)
    if cur.tok.is_name and cur.after.upper == "JOIN":
        cur.fail(
            "FQ1001",
            f"{cur.tok.shown()} is not a kind of join",
            label="before JOIN",
            help="the kinds are INNER, LEFT, RIGHT and FULL",
        )


def _keys(cur: Cursor) -> tuple[Ast, ...]:
    """The list of GROUP BY and PARTITION BY, which may be in parentheses as a whole."""
    if cur.at_words("GROUPING", "SETS"):
        cur.unsupported("GROUPING SETS")
    before = cur.pos
    keys: list[Ast] = []
    if cur.accept_op("("):
        if cur.tok.op != ")":
            keys.append(parse_expr(cur))
            while cur.accept_op(","):
                keys.append(parse_value(cur))
        if cur.accept_op(")") and _ends_keys(cur):
            return tuple(keys)
        cur.pos = before  # the parentheses belong to the first key only
    return cur.listed(parse_value)


def _ends_keys(cur: Cursor) -> bool:
    return cur.tok.kind == "end" or cur.tok.op in (")", ";") or cur.tok.upper in _CLAUSES


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
    if cur.tok.kind != "number" or not cur.tok.text.isdigit():
        cur.expected("a whole number after LIMIT")
    return int(cur.next().text)


def _check_tail(cur: Cursor) -> None:
    """Name the mistake when a clause follows that had to come earlier."""
    refuse_set_operation(cur)
    if cur.at_words("ORDER", "BY"):
        cur.unsupported("ORDER BY")
    if cur.tok.upper in _CLAUSES:
        word = cur.tok.text.upper()
        cur.fail(
            "FQ1003",
            f"{word} cannot be used here",
            label="out of order, or given twice",
            help="the order is FROM, WINDOW, WHERE, GROUP BY, PARTITION BY, HAVING, EMIT, LIMIT",
        )
