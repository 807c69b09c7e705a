"""Queries: WITH, SELECT, VALUES, set operations by precedence, and the clauses that belong to a whole query."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Literal, TypeVar

from flowql.compiler.diagnostics.edits import Edit
from flowql.compiler.dialect.ast import Func, Lit, Name, Star
from flowql.compiler.dialect.cursor import Tok
from flowql.compiler.dialect.standard.expressions import OTHER, parse_expr
from flowql.compiler.dialect.standard.reader import Reader
from flowql.compiler.dialect.standard.relations import parse_relations
from flowql.compiler.dialect.standard.tree import (
    Body,
    Expr,
    GroupElement,
    Grouping,
    Item,
    NamedWindow,
    OrderItem,
    Query,
    Select,
    SetOperation,
    Table,
    Values,
    With,
)
from flowql.compiler.dialect.time_windows import KINDS, parse_window_clause

T = TypeVar("T")
D = TypeVar("D")
_SET_OPERATIONS: dict[str, Literal["union", "intersect", "except"]] = {
    "UNION": "union",
    "INTERSECT": "intersect",
    "EXCEPT": "except",
}
_CLAUSES = ("FROM", "WHERE", "GROUP", "HAVING", "WINDOW", "ORDER", "LIMIT", "OFFSET", "FETCH")
_ORDER = "the order is FROM, WHERE, GROUP BY, HAVING, WINDOW, ORDER BY, LIMIT, OFFSET"


def parse_query(cur: Reader) -> Query:
    """A query with everything that belongs to it, up to what cannot."""
    cur.enter(2)
    start = cur.tok
    recursive, tables = parse_with(cur)
    body = _body(cur)
    order_by = _optional(cur, parse_order_items, (), "ORDER", "BY")
    limit, offset, ties, emit = _tail(cur)
    cur.leave(2)
    if isinstance(body, Query) and not (tables or order_by or limit or offset or emit):
        return body  # parentheses around a query that needs none
    return Query(body, tables, recursive, order_by, limit, offset, ties, emit, span=cur.span_since(start))


NOT_RECURSIVE = (
    "for numbers write  GENERATE_SERIES(1, 10);  for a hierarchy join the table with itself once for each level"
)


def parse_with(cur: Reader) -> tuple[bool, tuple[With, ...]]:
    """Whether it is RECURSIVE, and the tables of WITH; none without it."""
    if cur.tok.upper != "WITH":
        return False, ()
    cur.next()
    if cur.at_words("MUTUALLY", "RECURSIVE"):
        cur.unsupported("WITH MUTUALLY RECURSIVE", help=NOT_RECURSIVE)
    recursive = cur.accept_words("RECURSIVE")
    return recursive, cur.listed(_common_table)


def _common_table(cur: Reader) -> With:
    start = cur.tok
    name = cur.expect_name("the name of a common table expression")
    columns = cur.expect_names("the name of a column") if cur.tok.op == "(" else ()
    cur.expect_word("AS", help=f"write  WITH {start.text} AS (SELECT ...)")
    if cur.at_words("CHANGELOG", "FROM"):
        cur.unsupported("AS CHANGELOG FROM")
    materialized = None
    if cur.accept_words("NOT", "MATERIALIZED"):
        materialized = False
    elif cur.accept_words("MATERIALIZED"):
        materialized = True
    cur.expect_op("(", help=f"write  WITH {start.text} AS (SELECT ...)")
    if cur.tok.upper in ("INSERT", "UPDATE", "DELETE"):
        cur.unsupported(f"{cur.tok.upper} inside WITH", help="make it a separate statement")
    query = parse_query(cur)
    cur.expect_op(")", label="this `(` group is not closed here")
    return With(name, query, columns, materialized, span=cur.span_since(start))


# --- set operations ---


def _body(cur: Reader) -> Body:
    start = cur.tok
    left = _intersection(cur)
    count = 0
    while cur.tok.upper in ("UNION", "EXCEPT") or cur.at_minus():
        count += 1
        cur.check_chain(count)
        left = _operation(cur, start, left, _intersection)
    return left


def _intersection(cur: Reader) -> Body:
    start = cur.tok
    left = _operand(cur)
    count = 0
    while cur.tok.upper == "INTERSECT":
        count += 1
        cur.check_chain(count)
        left = _operation(cur, start, left, _operand)
    return left


def _operation(cur: Reader, start: Tok, left: Body, operand: Callable[[Reader], Body]) -> SetOperation:
    first = cur.tok
    if first.upper == "MINUS":
        cur.unsupported("MINUS", help="write  EXCEPT", edit=Edit(cur.span_of(first), "EXCEPT"))
    op = _SET_OPERATIONS[cur.next().upper]
    every = cur.tok.upper in ("ALL", "DISTINCT") and cur.next().upper == "ALL"
    at = cur.span_since(first)
    corresponding = cur.accept_words("CORRESPONDING")
    by = cur.expect_names("the name of a column") if corresponding and cur.accept_words("BY") else ()
    return SetOperation(op, left, operand(cur), every, corresponding, by, at, span=cur.span_since(start))


def _operand(cur: Reader) -> Body:
    start = cur.tok
    if cur.tok.upper == "SELECT":
        return _select(cur)
    if cur.accept_op("("):
        query = parse_query(cur)
        cur.expect_op(")", label="this `(` group is not closed here")
        bare = not (query.with_ or query.order_by or query.limit or query.offset or query.emit)
        return query.body if bare else query
    if cur.accept_words("VALUES"):
        return Values(parse_rows(cur), span=cur.span_since(start))
    if cur.accept_words("TABLE"):
        name = cur.expect_dotted("the name of a relation")
        span = cur.span_since(start)
        return Select((Item(Star(span=span), span=span),), Table(name, span=span), span=span)
    cur.expected("SELECT, VALUES or WITH", words=("SELECT", "VALUES", "WITH"))


def parse_rows(cur: Reader) -> tuple[tuple[Expr, ...], ...]:
    """`(1, 'a'), (2, 'b')`, behind VALUES."""
    rows: list[tuple[Expr, ...]] = []
    while not rows or cur.accept_op(","):
        at = cur.tok
        cur.expect_op("(", help="write  VALUES (1, 'a')")
        row = () if cur.tok.op == ")" else cur.listed(parse_expr)
        cur.expect_op(")", label="a comma or `)` goes here")
        if rows and len(row) != len(rows[0]):
            title = f"the rows of VALUES have different lengths: {len(rows[0])} and {len(row)} values"
            cur.fail("FQ1001", title, at=cur.span_since(at), help=f"give this row {len(rows[0])} values")
        rows.append(row)
    return tuple(rows)


# --- SELECT ---


def _select(cur: Reader) -> Select:
    start = cur.next()
    distinct, on = _distinct(cur)
    items = () if cur.tok.upper == "FROM" and not distinct else parse_items(cur)
    source = _optional(cur, parse_relations, None, "FROM")
    window = parse_window_clause(cur) if _at_time_window(cur) else None
    where = _optional(cur, parse_expr, None, "WHERE")
    group_by = _optional(cur, parse_group_by, (), "GROUP", "BY")
    partition_by = _optional(cur, _exprs, (), "PARTITION", "BY")
    having = _optional(cur, parse_expr, None, "HAVING")
    windows = _named_windows(cur) if cur.tok.upper == "WINDOW" else ()
    qualify = _qualify(cur)
    return Select(
        items,
        source,
        distinct,
        on,
        window,
        where,
        group_by,
        partition_by,
        having,
        windows,
        qualify,
        span=cur.span_since(start),
    )


def _optional(cur: Reader, rule: Callable[[Reader], T], otherwise: D, *words: str) -> T | D:
    """Reads a clause with `rule`, behind the words that begin it."""
    return rule(cur) if cur.tok.upper == words[0] and cur.accept_words(*words) else otherwise


def _exprs(cur: Reader) -> tuple[Expr, ...]:
    return cur.listed(parse_expr)


def _qualify(cur: Reader) -> Expr | None:
    if not cur.at_qualify():
        return None
    cur.next()
    return parse_expr(cur)


def _distinct(cur: Reader) -> tuple[bool, tuple[Expr, ...]]:
    if cur.tok.upper not in ("DISTINCT", "ALL") or cur.next().upper == "ALL":
        return False, ()
    if not (cur.tok.upper == "ON" and cur.after.op == "("):
        return True, ()
    cur.next()
    cur.next()
    on = cur.listed(parse_expr)
    cur.expect_op(")", label="a comma or `)` goes here")
    return True, on


def parse_items(cur: Reader) -> tuple[Item, ...]:
    """Comma-separated items of a select list."""
    items = [_item(cur)]
    while cur.accept_op(","):
        if cur.tok.upper == "FROM":
            edit = Edit(cur.span_of(cur.back(1)), "")
            cur.expected("another select item after the comma", help="remove the comma before FROM", edit=edit)
        items.append(_item(cur))
    return tuple(items)


def _item(cur: Reader) -> Item:
    start = cur.tok
    if start.op == "*":
        return Item(_star(cur, Star(span=cur.step())), span=cur.span_since(start))
    expr = parse_expr(cur)
    if isinstance(expr, Star):
        return Item(_star(cur, expr), span=cur.span_since(start))
    alias = None
    if cur.tok.upper == "AS":
        cur.next()
        alias = cur.expect_label("an alias")
    elif cur.at_bare_alias() and not cur.at_clause():
        alias = cur.next().name
    return Item(expr, alias, span=cur.span_since(start))


def _star(cur: Reader, star: Star) -> Star:
    """`* EXCEPT (a, b)`."""
    if cur.tok.upper == "REPLACE" and cur.after.op == "(":
        cur.unsupported("REPLACE behind `*`", help="write  SELECT * EXCEPT (a), a + 1 AS a")
    if not (cur.tok.upper in ("EXCEPT", "EXCLUDE") and cur.after.op == "(") or cur.at_query(1):
        return star
    cur.next()
    start = cur.next()
    excluded = cur.listed(parse_expr)
    cur.expect_op(")", label="a comma or `)` goes here")
    from_columns = tuple(e for e in excluded if isinstance(e, Name))
    if len(from_columns) < len(excluded):
        cur.fail("FQ1001", "EXCEPT behind `*` takes names of columns", at=cur.span_since(start), help="name columns")
    return replace(star, excluded=from_columns)


def _at_time_window(cur: Reader) -> bool:
    return cur.tok.upper == "WINDOW" and (cur.after.upper in KINDS or cur.peek(2).upper in KINDS)


def _named_windows(cur: Reader) -> tuple[NamedWindow, ...]:
    cur.next()
    found: list[NamedWindow] = []
    while not found or cur.accept_op(","):
        start = cur.tok
        name = cur.expect_name("the name of a window")
        cur.expect_word("AS", help=f"write  WINDOW {start.text} AS (PARTITION BY ...)")
        found.append(NamedWindow(name, cur.rules.window(cur), span=cur.span_since(start)))
    return tuple(found)


# --- behind the body ---


def parse_order_items(cur: Reader) -> tuple[OrderItem, ...]:
    """Parses the items after ORDER BY."""
    return cur.listed(_order_item)


def _order_item(cur: Reader) -> OrderItem:
    start = cur.tok
    expr = parse_expr(cur)
    direction: Literal["asc", "desc"] | None = None
    if cur.accept_words("ASC"):
        direction = "asc"
    elif cur.accept_words("DESC"):
        direction = "desc"
    elif cur.tok.upper == "USING":
        cur.unsupported("ORDER BY ... USING", help="write  ASC or DESC")
    nulls: Literal["first", "last"] | None = None
    if cur.accept_words("NULLS"):
        if cur.tok.upper not in ("FIRST", "LAST"):
            cur.expected("FIRST or LAST after NULLS", words=("FIRST", "LAST"))
        nulls = "first" if cur.next().upper == "FIRST" else "last"
    return OrderItem(expr, direction, nulls, span=cur.span_since(start))


def _tail(
    cur: Reader,
) -> tuple[Expr | None, Expr | None, bool, Literal["changes", "final", "on window close"] | None]:
    """LIMIT, OFFSET, FETCH and EMIT, each once and in any order."""
    limit: Expr | None = None
    offset: Expr | None = None
    ties = False
    emit: Literal["changes", "final", "on window close"] | None = None
    seen: set[str] = set()
    while cur.tok.upper in ("LIMIT", "OFFSET", "FETCH") or cur.at_emit():
        start = cur.next()
        clause = "LIMIT" if start.upper == "FETCH" else start.upper
        if clause in seen:
            cur.fail(
                "FQ1003", f"{start.upper} cannot be used here", at=cur.span_of(start), label="given twice", help=_ORDER
            )
        seen.add(clause)
        if start.upper == "LIMIT":
            limit = None if cur.accept_words("ALL") else parse_expr(cur)
        elif start.upper == "OFFSET":
            offset = parse_expr(cur)
            cur.accept_words("ROWS") or cur.accept_words("ROW")
        elif start.upper == "FETCH":
            limit, ties = _fetch(cur, start)
        elif cur.accept_words("CHANGES"):
            emit = "changes"
        elif cur.accept_words("FINAL"):
            emit = "final"
        else:
            cur.accept_words("ON", "WINDOW", "CLOSE")
            emit = "on window close"
    if cur.tok.upper in _CLAUSES:
        word = cur.tok.upper
        if word in ("GROUP", "ORDER") and cur.after.upper != "BY":
            cur.next()
            cur.expect_word("BY", help=f"write  {word} BY")
        cur.fail("FQ1003", f"{word} cannot be used here", label="out of order, or given twice", help=_ORDER)
    if cur.tok.upper == "FOR" and cur.after.upper in ("UPDATE", "SHARE"):
        cur.unsupported(
            f"FOR {cur.after.upper}", help="leave it out: no row is locked by reading", edit=Edit(cur.rest(), "")
        )
    return limit, offset, ties, emit


def _fetch(cur: Reader, start: Tok) -> tuple[Expr, bool]:
    if cur.tok.upper not in ("FIRST", "NEXT"):
        cur.expected("FIRST or NEXT after FETCH", help="write  FETCH FIRST 3 ROWS ONLY", words=("FIRST", "NEXT"))
    cur.next()
    if cur.tok.upper in ("ROW", "ROWS"):
        count: Expr = Lit("number", "1", cur.span_of(start))
    else:
        count = parse_expr(cur, OTHER)
    if cur.tok.upper not in ("ROW", "ROWS"):
        cur.expected("ROWS", help="write  FETCH FIRST 3 ROWS ONLY", words=("ROW", "ROWS"))
    cur.next()
    if cur.accept_words("WITH", "TIES"):
        return count, True
    cur.expect_word("ONLY", help="write  FETCH FIRST 3 ROWS ONLY, or WITH TIES")
    return count, False


# --- GROUP BY: expressions, positions, and GROUPING SETS, ROLLUP and CUBE inside one another ---


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
