"""INSERT, UPDATE and DELETE."""

from __future__ import annotations

from dataclasses import replace

from flowql.compiler.dialect.cursor import Tok
from flowql.compiler.dialect.elements import parse_properties
from flowql.compiler.dialect.standard.expressions import parse_expr
from flowql.compiler.dialect.standard.names import expect_relation
from flowql.compiler.dialect.standard.queries import parse_items, parse_query, parse_with
from flowql.compiler.dialect.standard.reader import Reader
from flowql.compiler.dialect.standard.relations import parse_relations
from flowql.compiler.dialect.standard.statement_tree import Assignment, Delete, Insert, OnConflict, Statement, Update
from flowql.compiler.dialect.standard.tree import Item


def parse_insert(cur: Reader, start: Tok) -> Statement:
    """`[WITH ...] INSERT INTO target [AS alias] [(columns)] [WITH (...)] query | DEFAULT VALUES [RETURNING ...]`."""
    recursive, tables = parse_with(cur)
    with_text = cur.text_since(start) if tables else ""
    cur.next()
    if cur.tok.upper == "OVERWRITE":
        help = "write  DELETE FROM t  before it, or  ON CONFLICT (key) DO UPDATE SET ...  behind it"
        cur.unsupported("INSERT OVERWRITE", help=help)
    cur.expect_word("INTO")
    target, name_span = expect_relation(cur, "the name of a stream or table")
    alias = cur.expect_name("an alias") if cur.accept_words("AS") else None
    columns = cur.expect_names("the name of a column") if cur.tok.op == "(" and not cur.at_query() else ()
    properties = parse_properties(cur) if cur.tok.upper == "WITH" and cur.after.op == "(" else ()
    query, query_text = None, ""
    if not cur.accept_words("DEFAULT", "VALUES"):
        if not cur.at_query():
            cur.expected("SELECT or VALUES", words=["SELECT", "VALUES"])
        at = cur.tok
        query = parse_query(cur)
        query_text = cur.text_since(at)
        if tables and query.with_:
            cur.unsupported("WITH before INSERT and in its query", help="write one WITH", at=cur.span_of(at))
        if tables:
            query = replace(query, with_=tables, recursive=recursive)
            query_text = f"{with_text} {query_text}"
    on_conflict = _on_conflict(cur)
    return Insert(
        target,
        columns,
        query,
        properties,
        _returning(cur),
        on_conflict,
        alias,
        query_text,
        text=cur.text_since(start),
        span=cur.span_since(start),
        name_span=name_span,
    )


def _on_conflict(cur: Reader) -> OnConflict | None:
    start = cur.tok
    if cur.at_words("ON", "DUPLICATE", "KEY"):
        cur.unsupported("ON DUPLICATE KEY", help="write  ON CONFLICT (key) DO UPDATE SET column = EXCLUDED.column")
    if not cur.accept_words("ON", "CONFLICT"):
        return None
    columns = cur.expect_names("the name of a column") if cur.tok.op == "(" else ()
    if cur.at_words("ON", "CONSTRAINT"):
        cur.unsupported("ON CONFLICT ON CONSTRAINT", help="name the columns of the key:  ON CONFLICT (id)")
    cur.expect_word("DO", help="write  ON CONFLICT DO NOTHING")
    if cur.accept_words("NOTHING"):
        return OnConflict(columns, span=cur.span_since(start))
    if not cur.accept_words("UPDATE"):
        cur.expected("NOTHING or UPDATE SET", words=["NOTHING", "UPDATE"])
    cur.expect_word("SET", help="write  DO UPDATE SET column = EXCLUDED.column")
    assignments = cur.listed(_assignment)
    where = parse_expr(cur) if cur.accept_words("WHERE") else None
    return OnConflict(columns, assignments, where, span=cur.span_since(start))


def parse_update(cur: Reader, start: Tok) -> Statement:
    """`[WITH ...] UPDATE target SET column = value, ... [FROM ...] [WHERE ...] [RETURNING ...]`."""
    recursive, tables = parse_with(cur)
    cur.next()
    target, name_span = expect_relation(cur, "the name of a stream or table")
    alias = _alias(cur)
    cur.expect_word("SET", help="write  UPDATE table SET column = value WHERE condition")
    assignments = cur.listed(_assignment)
    source = parse_relations(cur) if cur.accept_words("FROM") else None
    where = parse_expr(cur) if cur.accept_words("WHERE") else None
    return Update(
        target,
        assignments,
        alias,
        source,
        where,
        _returning(cur),
        tables,
        recursive,
        text=cur.text_since(start),
        span=cur.span_since(start),
        name_span=name_span,
    )


def _assignment(cur: Reader) -> Assignment:
    start = cur.tok
    columns = (
        cur.expect_names("the name of a column") if cur.tok.op == "(" else (cur.expect_name("the name of a column"),)
    )
    cur.expect_op("=", help=f"write  {columns[0]} = value")
    return Assignment(columns, parse_expr(cur), span=cur.span_since(start))


def parse_delete(cur: Reader, start: Tok) -> Statement:
    """`[WITH ...] DELETE FROM target [USING ...] [WHERE ...] [RETURNING ...]`."""
    recursive, tables = parse_with(cur)
    cur.next()
    cur.expect_word("FROM", help="write  DELETE FROM table WHERE condition")
    target, name_span = expect_relation(cur, "the name of a stream or table")
    alias = _alias(cur)
    source = parse_relations(cur) if cur.accept_words("USING") else None
    where = parse_expr(cur) if cur.accept_words("WHERE") else None
    return Delete(
        target,
        alias,
        source,
        where,
        _returning(cur),
        tables,
        recursive,
        text=cur.text_since(start),
        span=cur.span_since(start),
        name_span=name_span,
    )


def _alias(cur: Reader) -> str | None:
    if cur.accept_words("AS"):
        return cur.expect_name("an alias")
    if cur.tok.is_name and cur.tok.upper != "SET":
        return cur.next().name
    return None


def _returning(cur: Reader) -> tuple[Item, ...]:
    return parse_items(cur) if cur.accept_words("RETURNING") else ()
