"""INSERT, UPDATE and DELETE."""

from __future__ import annotations

from dataclasses import replace
from typing import Literal

from flowql.compiler.dialect.cursor import Tok
from flowql.compiler.dialect.elements import parse_properties
from flowql.compiler.dialect.standard.expressions import parse_expr
from flowql.compiler.dialect.standard.queries import parse_items, parse_query, parse_with
from flowql.compiler.dialect.standard.reader import Reader, expect_relation
from flowql.compiler.dialect.standard.relations import parse_relations
from flowql.compiler.dialect.standard.statement_tree import (
    Assignment,
    CopyRows,
    Delete,
    Insert,
    OnConflict,
    Update,
)
from flowql.compiler.dialect.standard.tree import Item
from flowql.compiler.plan.tables import CopyFrom, RowFormat


def parse_insert(cur: Reader, start: Tok) -> Insert:
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
    on_conflict, returning = _on_conflict(cur), _returning(cur)
    return Insert(
        *cur.written(start),
        target=target,
        columns=columns,
        query=query,
        properties=properties,
        returning=returning,
        on_conflict=on_conflict,
        alias=alias,
        query_text=query_text,
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


def parse_update(cur: Reader, start: Tok) -> Update:
    """`[WITH ...] UPDATE target SET column = value, ... [FROM ...] [WHERE ...] [RETURNING ...]`."""
    recursive, tables = parse_with(cur)
    cur.next()
    target, name_span = expect_relation(cur, "the name of a stream or table")
    alias = _alias(cur)
    cur.expect_word("SET", help="write  UPDATE table SET column = value WHERE condition")
    assignments = cur.listed(_assignment)
    source = parse_relations(cur) if cur.accept_words("FROM") else None
    where = parse_expr(cur) if cur.accept_words("WHERE") else None
    returning = _returning(cur)
    return Update(
        *cur.written(start),
        target=target,
        assignments=assignments,
        alias=alias,
        source=source,
        where=where,
        returning=returning,
        with_=tables,
        recursive=recursive,
        name_span=name_span,
    )


def _assignment(cur: Reader) -> Assignment:
    start = cur.tok
    columns = (
        cur.expect_names("the name of a column") if cur.tok.op == "(" else (cur.expect_name("the name of a column"),)
    )
    cur.expect_op("=", help=f"write  {columns[0]} = value")
    return Assignment(columns, parse_expr(cur), span=cur.span_since(start))


def parse_delete(cur: Reader, start: Tok) -> Delete:
    """`[WITH ...] DELETE FROM target [USING ...] [WHERE ...] [RETURNING ...]`."""
    recursive, tables = parse_with(cur)
    cur.next()
    cur.expect_word("FROM", help="write  DELETE FROM table WHERE condition")
    target, name_span = expect_relation(cur, "the name of a stream or table")
    alias = _alias(cur)
    source = parse_relations(cur) if cur.accept_words("USING") else None
    where = parse_expr(cur) if cur.accept_words("WHERE") else None
    returning = _returning(cur)
    return Delete(
        *cur.written(start),
        target=target,
        alias=alias,
        source=source,
        where=where,
        returning=returning,
        with_=tables,
        recursive=recursive,
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


# --- COPY ... FROM: loads a file, or rows that a client sends, into a table ---


_FORMATS: dict[str, RowFormat] = {
    "CSV": "csv",
    "TEXT": "text",
    "BINARY": "binary",
    "JSON": "json",
    "JSONL": "json",
    "PARQUET": "parquet",
}
_OPTIONS = ("FORMAT", "HEADER", "DELIMITER", "NULL", "ENCODING", "QUOTE", "ESCAPE")
_ON, _OFF = ("TRUE", "ON", "1"), ("FALSE", "OFF", "0")
_FIXED = {"ENCODING": ("utf8", "utf-8"), "QUOTE": ('"',), "ESCAPE": ('"',)}


def parse_copy(cur: Reader, start: Tok) -> CopyRows:
    """`COPY target [(columns)] FROM 'file' | STDIN [[WITH] (option [value], ...)]`; options may have no parentheses, as in PostgreSQL 8."""
    cur.next()
    if cur.tok.op == "(":
        _refuse_to(cur)
    target, name_span = expect_relation(cur, "the name of a table")
    columns = cur.expect_names("the name of a column") if cur.tok.op == "(" else ()
    if cur.tok.upper == "TO":
        _refuse_to(cur)
    cur.expect_word("FROM", help="write  COPY t FROM 'file.csv'")
    path = ""
    if cur.tok.kind == "string":
        path = cur.next().text
        if not path:
            cur.expected("the name of a file")
    elif not cur.accept_words("STDIN"):
        if cur.tok.upper == "PROGRAM":
            cur.unsupported("COPY FROM PROGRAM", help="write its output into a file")
        cur.expected("the name of a file in quotes", help="write  COPY t FROM 'file.csv'", words=["STDIN"])
    made = _options(cur, CopyFrom(path))
    if made.format == "binary" and (made.header != "no" or made.delimiter is not None or made.null is not None):
        cur.fail(
            "FQ2090", "COPY in binary format has neither HEADER nor DELIMITER nor NULL", help="leave the option out"
        )
    if cur.tok.upper == "WHERE":
        cur.unsupported("WHERE of COPY", help="write  INSERT INTO t SELECT ... FROM read_csv('file.csv') WHERE ...")
    return CopyRows(*cur.written(start), target, columns, made, name_span)


def _refuse_to(cur: Reader) -> None:
    cur.unsupported("COPY ... TO", help="write  flowql query 'SELECT ...' -o file.csv")


def _options(cur: Reader, made: CopyFrom) -> CopyFrom:
    cur.accept_words("WITH")
    closed = cur.tok.op == "("
    if closed:
        cur.next()
    while cur.tok.kind == "word" and cur.tok.upper != "WHERE":
        made = _option(cur, made)
        if closed and cur.tok.op != ")":
            cur.expect_op(",", label="a comma or `)` goes here")
    if closed:
        cur.expect_op(")")
    return made


def _option(cur: Reader, made: CopyFrom) -> CopyFrom:
    at = cur.next()
    name = at.upper
    if name in _FORMATS and name != "FORMAT":
        return replace(made, format=_FORMATS[name])
    if name not in _OPTIONS:
        cur.unsupported(
            f"the option {at.text} of COPY", at=cur.span_of(at), help=f"options are {', '.join(_OPTIONS[:4])}"
        )
    if name == "HEADER":
        return replace(made, header=_header(cur))
    cur.accept_words("AS")
    tok = cur.tok
    value = cur.next().text if tok.kind in ("string", "word", "quoted") else None
    if value is None:
        cur.expected(f"the value of {name}", help=f"write  {name} 'value'")
    if name == "FORMAT":
        found = _FORMATS.get(value.upper())
        if found is None:
            cur.unsupported(
                f"the format {value} of COPY", at=cur.span_of(tok), help="formats are csv, text, json and parquet"
            )
        return replace(made, format=found)
    if name in _FIXED:
        if value.casefold() not in _FIXED[name]:
            cur.unsupported(
                f"COPY with {name} {value}", at=cur.span_of(tok), help=f"only {_FIXED[name][0]} is supported"
            )
        return made
    if name == "NULL":
        return replace(made, null=value)
    if len(value.encode()) != 1 or value in '"\n\r\\':
        cur.fail("FQ2090", f"the delimiter of COPY is one ASCII character, not {value!r}", help="write  DELIMITER ';'")
    return replace(made, delimiter=value)


def _header(cur: Reader) -> Literal["no", "yes", "match"]:
    word = cur.tok.text.upper() if cur.tok.kind in ("word", "number", "string") else ""
    if word == "MATCH" or word in (*_ON, *_OFF):
        cur.next()
        return "match" if word == "MATCH" else "yes" if word in _ON else "no"
    return "yes"
