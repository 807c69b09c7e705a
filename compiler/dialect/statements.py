"""Statements: one rule per verb, dispatched by `parse_statement`."""

from __future__ import annotations

from collections.abc import Callable, MutableMapping
from typing import NoReturn

from flowql.compiler.dialect.ast import (
    Ast,
    ColumnDef,
    CreateAs,
    CreateSource,
    InsertInto,
    InsertRow,
    OtherStatement,
    Query,
    Statement,
)
from flowql.compiler.dialect.controls import (
    Kind,
    apply_variable,
    expect_add,
    parse_alter,
    parse_assert,
    parse_control,
    parse_create_type,
    parse_drop,
    parse_other,
    parse_set,
)
from flowql.compiler.dialect.cursor import Cursor, Tok
from flowql.compiler.dialect.elements import check_window_properties, parse_column, parse_columns, parse_properties
from flowql.compiler.dialect.expressions import parse_expr
from flowql.compiler.dialect.queries import parse_select
from flowql.compiler.dialect.refusals import refuse_columns
from flowql.compiler.dialect.type_refs import parse_type_ref
from flowql.compiler.dialect.words import OTHER_VERBS, VERBS

_KIND_HELP = "write  CREATE STREAM name (...) WITH (...)  or  CREATE TABLE name (...) WITH (...)"


def parse_statement(cur: Cursor, variables: MutableMapping[str, str]) -> list[Statement]:
    """One statement up to its end. DEFINE and UNDEFINE act on `variables` and give none; a VALUES list gives one per row."""
    tok = cur.tok
    if tok.kind != "word":
        cur.expected("a statement", help=_VERB_HELP)
    if cur.tok.upper == "ALTER" and cur.after.upper in ("STREAM", "TABLE"):
        return parse_alter(cur, tok, _added_column)
    if tok.upper in OTHER_VERBS:
        return [parse_other(cur, tok)]
    rule = _RULES.get(tok.upper)
    if rule is None:
        cur.expected("a statement", help=_VERB_HELP, words=VERBS)
    statements = rule(cur, tok) if tok.upper not in ("DEFINE", "UNDEFINE") else apply_variable(cur, variables)
    cur.expect_end()
    return statements


_VERB_HELP = "a statement begins with CREATE, INSERT INTO, DROP, SET, UNSET, DEFINE, UNDEFINE or SELECT"


def _create(cur: Cursor, start: Tok) -> list[Statement]:
    cur.next()
    or_replace = cur.accept_words("OR", "REPLACE")
    if cur.tok.upper == "TYPE":
        return parse_create_type(cur, start, parse_type_ref)
    if cur.tok.upper in ("SINK", "SOURCE") and cur.after.upper == "CONNECTOR":
        return [parse_other(cur, start)]
    if cur.tok.upper in ("MATERIALIZED", "VIEW"):
        _refuse_view(cur)
    read_only = cur.accept_words("SOURCE")
    if cur.tok.upper not in ("STREAM", "TABLE"):
        cur.expected("STREAM, TABLE or TYPE after CREATE", help=_KIND_HELP, words=["STREAM", "TABLE", "TYPE"])
    kind: Kind = "stream" if cur.next().upper == "STREAM" else "table"
    if_not_exists = cur.accept_words("IF", "NOT", "EXISTS")
    name, name_span = cur.expect_placed(f"the name of the {kind}")
    columns = parse_columns(cur, kind) if cur.tok.op == "(" else None
    properties = parse_properties(cur) if cur.tok.upper == "WITH" else ()
    if cur.tok.upper == "AS":
        refuse_columns(cur, has_columns=columns is not None, read_only=read_only)
        query = _as_query(cur)
        return [
            CreateAs(
                *cur.written(start),
                name=name,
                kind=kind,
                query=query,
                properties=properties,
                or_replace=or_replace,
                if_not_exists=if_not_exists,
                name_span=name_span,
            )
        ]
    if columns is None and not properties:
        cur.expected(f"columns, WITH or AS after the name of the {kind}", help=_KIND_HELP, words=["WITH", "AS"])
    check_window_properties(cur, properties)
    return [
        CreateSource(
            *cur.written(start),
            name=name,
            kind=kind,
            columns=columns or (),
            properties=properties,
            or_replace=or_replace,
            if_not_exists=if_not_exists,
            read_only=read_only,
            name_span=name_span,
        )
    ]


def _as_query(cur: Cursor) -> Query:
    cur.expect_word("AS")
    if cur.tok.upper not in ("SELECT", "WITH"):
        cur.expected("SELECT after AS", words=["SELECT"])
    return parse_select(cur)


def _refuse_view(cur: Cursor) -> NoReturn:
    cur.fail(
        "FQ1001",
        f"{cur.tok.upper} is not of this dialect",
        help="write CREATE STREAM or CREATE TABLE, or set  dialect: standard",
    )


def _insert(cur: Cursor, start: Tok) -> list[Statement]:
    cur.next()
    cur.expect_word("INTO")
    target, name_span = cur.expect_placed("the name of a stream or table")
    columns = cur.expect_names("the name of a column") if cur.tok.op == "(" else ()
    if cur.tok.upper == "VALUES":
        cur.next()
        rows = _rows(cur)
        text, span = cur.written(start)
        return [InsertRow(text, span, target=target, columns=columns, values=row, name_span=name_span) for row in rows]
    properties = parse_properties(cur) if cur.tok.upper == "WITH" else ()
    if columns or cur.tok.upper != "SELECT":
        cur.expected("VALUES" if columns else "SELECT or VALUES", words=["SELECT", "VALUES"])
    query = parse_select(cur)
    text, span = cur.written(start)
    return [InsertInto(text, span, target=target, query=query, properties=properties, name_span=name_span)]


def _rows(cur: Cursor) -> list[tuple[Ast, ...]]:
    rows: list[tuple[Ast, ...]] = []
    while not rows or cur.accept_op(","):
        cur.expect_op("(", help="write  VALUES (1, 'a')")
        row = () if cur.tok.op == ")" else cur.listed(parse_expr)
        cur.expect_op(")", label="a comma or `)` goes here")
        rows.append(row)
    return rows


def _added_column(cur: Cursor, kind: Kind) -> ColumnDef:
    expect_add(cur)
    cur.accept_words("COLUMN")
    return parse_column(cur, kind)


def _select(cur: Cursor, start: Tok) -> list[Statement]:
    parse_select(cur)  # checked here; running it is for `flowql query`
    return [OtherStatement(*cur.written(start), verb="SELECT")]


def _assert(cur: Cursor, start: Tok) -> list[Statement]:
    return parse_assert(cur, start, _rows)


_RULES: dict[str, Callable[[Cursor, Tok], list[Statement]]] = {
    "CREATE": _create,
    "INSERT": _insert,
    "DROP": parse_drop,
    "SET": parse_set,
    "UNSET": parse_set,
    "SELECT": _select,
    "ASSERT": _assert,
    "TERMINATE": parse_control,
    "PAUSE": parse_control,
    "RESUME": parse_control,
    "DEFINE": parse_set,
    "UNDEFINE": parse_set,
}
