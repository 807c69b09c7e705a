"""Statements: one rule per verb, dispatched by `parse_statement`."""

from __future__ import annotations

from collections.abc import Callable, MutableMapping
from typing import Literal

from compiler.dialect.ast import (
    AlterSource,
    AssertRow,
    AssertSchema,
    AssertTopic,
    Ast,
    ColumnDef,
    CreateAs,
    CreateSource,
    CreateType,
    Drop,
    InsertInto,
    InsertRow,
    OtherStatement,
    Query,
    QueryControl,
    SetProperty,
    Statement,
)
from compiler.dialect.cursor import Cursor
from compiler.dialect.elements import check_window_properties, parse_column, parse_columns, parse_properties
from compiler.dialect.expressions import parse_expr
from compiler.dialect.numbers import parse_duration
from compiler.dialect.queries import parse_select
from compiler.dialect.tokens import Tok
from compiler.dialect.type_refs import parse_type_ref
from compiler.dialect.words import OTHER_VERBS, VERBS

Kind = Literal["stream", "table"]
_KIND_HELP = "write  CREATE STREAM name (...) WITH (...)  or  CREATE TABLE name (...) WITH (...)"


def parse_statement(cur: Cursor, variables: MutableMapping[str, str]) -> list[Statement]:
    """One statement up to its end. DEFINE and UNDEFINE act on `variables` and give none; a VALUES list gives one per row."""
    tok = cur.peek()
    if tok.kind != "word":
        cur.expected("a statement", help=_VERB_HELP)
    if cur.at_words("ALTER", "STREAM") or cur.at_words("ALTER", "TABLE"):
        return [_alter(cur, tok)]
    if tok.upper in OTHER_VERBS:
        return [_other(cur, tok)]
    rule = _RULES.get(tok.upper)
    if rule is None:
        cur.expected("a statement", help=_VERB_HELP, words=VERBS)
    statements = rule(cur, tok) if tok.upper not in ("DEFINE", "UNDEFINE") else _variable(cur, variables)
    cur.expect_end()
    return statements


_VERB_HELP = "a statement begins with CREATE, INSERT INTO, DROP, SET, UNSET, DEFINE, UNDEFINE or SELECT"


def _create(cur: Cursor, start: Tok) -> list[Statement]:
    cur.next()
    or_replace = cur.accept_words("OR", "REPLACE")
    if cur.at_word("TYPE"):
        return [_create_type(cur, start)]
    if cur.at_word("SINK", "SOURCE") and cur.at_word("CONNECTOR", ahead=1):
        return [_other(cur, start)]
    if cur.at_word("MATERIALIZED", "VIEW"):
        return [_create_view(cur, start, or_replace=or_replace)]
    read_only = cur.accept_words("SOURCE")
    if not cur.at_word("STREAM", "TABLE"):
        cur.expected("STREAM, TABLE or TYPE after CREATE", help=_KIND_HELP, words=["STREAM", "TABLE", "TYPE"])
    kind: Kind = "stream" if cur.next().upper == "STREAM" else "table"
    if_not_exists = cur.accept_words("IF", "NOT", "EXISTS")
    name_tok = cur.peek()
    name = cur.expect_name(f"the name of the {kind}")
    name_span = cur.span_of(name_tok)
    columns = parse_columns(cur, kind) if cur.at_op("(") else None
    with_start = cur.peek()
    properties = parse_properties(cur) if cur.at_word("WITH") else ()
    if cur.at_word("AS"):
        _refuse_columns(cur, has_columns=columns is not None, read_only=read_only)
        query = _as_query(cur)
        return [
            CreateAs(
                cur.text_since(start),
                cur.span_since(start),
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
    check_window_properties(cur, properties, with_start)
    return [
        CreateSource(
            cur.text_since(start),
            cur.span_since(start),
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


def _refuse_columns(cur: Cursor, *, has_columns: bool, read_only: bool) -> None:
    if has_columns:
        cur.fail(
            "FQ1003",
            "columns are not listed where a query follows",
            label="the query names its columns",
            help="remove the list of columns, and name them in the query: SELECT x AS name",
        )
    if read_only:
        cur.fail("FQ1003", "SOURCE is only for streams and tables over a topic", help="remove SOURCE")


def _as_query(cur: Cursor) -> Query:
    cur.expect_word("AS")
    if not cur.at_word("SELECT", "WITH"):
        cur.expected("SELECT after AS", words=["SELECT"])
    return parse_select(cur)


def _create_view(cur: Cursor, start: Tok, *, or_replace: bool) -> Statement:
    """A view of standard SQL: a stream or a table, as the query gives. What reads tables is known to the analyzer only."""
    at = cur.peek()
    if cur.dialect == "ksql":
        cur.fail(
            "FQ1001",
            f"{at.upper} is not of this dialect",
            help="write CREATE STREAM or CREATE TABLE, or set  dialect: standard",
        )
    cur.accept_words("MATERIALIZED")
    cur.expect_word("VIEW")
    if_not_exists = cur.accept_words("IF", "NOT", "EXISTS")
    name_tok = cur.peek()
    name = cur.expect_name("the name of the view")
    name_span = cur.span_of(name_tok)
    properties = parse_properties(cur) if cur.at_word("WITH") else ()
    query = _as_query(cur)
    return CreateAs(
        cur.text_since(start),
        cur.span_since(start),
        name=name,
        kind="table" if query.group_by else "stream",
        query=query,
        properties=properties,
        or_replace=or_replace,
        if_not_exists=if_not_exists,
        name_span=name_span,
        is_view=True,
    )


def _create_type(cur: Cursor, start: Tok) -> Statement:
    cur.next()
    if_not_exists = cur.accept_words("IF", "NOT", "EXISTS")
    name_tok = cur.peek()
    name = cur.expect_name("the name of the type")
    name_span = cur.span_of(name_tok)
    cur.expect_word("AS", help="write  CREATE TYPE name AS STRUCT<a INT>")
    ref = parse_type_ref(cur)
    return CreateType(
        cur.text_since(start),
        cur.span_since(start),
        name=name,
        type=ref,
        if_not_exists=if_not_exists,
        name_span=name_span,
    )


def _insert(cur: Cursor, start: Tok) -> list[Statement]:
    cur.next()
    cur.expect_word("INTO")
    name_tok = cur.peek()
    target = cur.expect_name("the name of a stream or table")
    name_span = cur.span_of(name_tok)
    columns = _column_names(cur) if cur.at_op("(") else ()
    if cur.at_word("VALUES"):
        return [*_rows(cur, start, name_tok, target, columns)]
    properties = parse_properties(cur) if cur.at_word("WITH") else ()
    if columns or not cur.at_word("SELECT"):
        cur.expected("VALUES" if columns else "SELECT or VALUES", words=["SELECT", "VALUES"])
    query = parse_select(cur)
    text, span = cur.text_since(start), cur.span_since(start)
    return [InsertInto(text, span, target=target, query=query, properties=properties, name_span=name_span)]


def _column_names(cur: Cursor) -> tuple[str, ...]:
    cur.expect_op("(")
    names = [cur.expect_name("the name of a column")]
    while cur.accept_op(","):
        names.append(cur.expect_name("the name of a column"))
    cur.expect_op(")", label="a comma or `)` goes here")
    return tuple(names)


def _rows(cur: Cursor, start: Tok, name_tok: Tok, target: str, columns: tuple[str, ...]) -> list[InsertRow]:
    cur.next()
    rows: list[tuple[Ast, ...]] = []
    while not rows or cur.accept_op(","):
        cur.expect_op("(", help="write  VALUES (1, 'a')")
        row = [] if cur.at_op(")") else [parse_expr(cur)]
        while cur.accept_op(","):
            row.append(parse_expr(cur))
        cur.expect_op(")", label="a comma or `)` goes here")
        rows.append(tuple(row))
    text, span, name_span = cur.text_since(start), cur.span_since(start), cur.span_of(name_tok)
    return [InsertRow(text, span, target=target, columns=columns, values=row, name_span=name_span) for row in rows]


def _drop(cur: Cursor, start: Tok) -> list[Statement]:
    cur.next()
    if cur.at_word("CONNECTOR"):
        return [_other(cur, start)]
    kinds: dict[str, Literal["stream", "table", "type"]] = {"STREAM": "stream", "TABLE": "table", "TYPE": "type"}
    if not cur.at_word(*kinds):
        cur.expected("STREAM, TABLE or TYPE after DROP", words=kinds)
    kind = kinds[cur.next().upper]
    if_exists = cur.accept_words("IF", "EXISTS")
    name_tok = cur.peek()
    name = cur.expect_name(f"the name of the {kind}")
    delete_topic = kind != "type" and cur.accept_words("DELETE", "TOPIC")
    return [
        Drop(
            cur.text_since(start),
            cur.span_since(start),
            name=name,
            kind=kind,
            if_exists=if_exists,
            delete_topic=delete_topic,
            name_span=cur.span_of(name_tok),
        )
    ]


def _alter(cur: Cursor, start: Tok) -> Statement:
    cur.next()
    kind: Kind = "stream" if cur.next().upper == "STREAM" else "table"
    name_tok = cur.peek()
    name = cur.expect_name(f"the name of a {kind}")
    columns: list[ColumnDef] = []
    while not columns or cur.accept_op(","):
        cur.expect_word("ADD", help="columns can be added and nothing else: ADD COLUMN name TYPE")
        cur.accept_words("COLUMN")
        columns.append(parse_column(cur, kind))
    return AlterSource(cur.text_since(start), cur.span_since(start), name, kind, tuple(columns), cur.span_of(name_tok))


def _set(cur: Cursor, start: Tok) -> list[Statement]:
    cur.next()
    name = cur.expect_string("the name of a property in quotes")
    value = None
    if start.upper == "SET":
        cur.expect_op("=", help="write  SET 'name' = 'value'")
        value = cur.expect_string("the value in quotes")
    return [SetProperty(cur.text_since(start), cur.span_since(start), name=name, value=value)]


def _variable(cur: Cursor, variables: MutableMapping[str, str]) -> list[Statement]:
    verb = cur.next().upper
    name_tok = cur.peek()
    name = cur.expect_name("the name of a variable")
    for known in [v for v in variables if v.upper() == name.upper()]:
        del variables[known]
    if verb == "DEFINE":
        cur.expect_op("=", help="write  DEFINE name = 'value'")
        variables[name_tok.text] = cur.expect_string("the value in quotes")
    return []


def _select(cur: Cursor, start: Tok) -> list[Statement]:
    parse_select(cur)  # checked here; running it is for `flowql query`
    return [OtherStatement(cur.text_since(start), cur.span_since(start), verb="SELECT")]


def _assert(cur: Cursor, start: Tok) -> list[Statement]:
    cur.next()
    if cur.at_word("VALUES", "NULL"):
        return _assert_rows(cur, start)
    exists = not cur.accept_words("NOT", "EXISTS")
    if cur.at_word("TOPIC"):
        return [_assert_topic(cur, start, exists=exists)]
    if not cur.at_word("SCHEMA"):
        cur.expected("VALUES, TOPIC or SCHEMA after ASSERT", words=["VALUES", "TOPIC", "SCHEMA"])
    return [_assert_schema(cur, start, exists=exists)]


def _assert_topic(cur: Cursor, start: Tok, *, exists: bool) -> Statement:
    cur.next()
    name_tok = cur.peek()
    topic = _as_written(cur, "the name of a topic")
    properties = parse_properties(cur) if cur.at_word("WITH") else ()
    timeout = _timeout(cur)
    text, span = cur.text_since(start), cur.span_since(start)
    return AssertTopic(text, span, topic, exists, properties, timeout, cur.span_of(name_tok))


def _assert_schema(cur: Cursor, start: Tok, *, exists: bool) -> Statement:
    cur.next()
    name_tok = cur.peek()
    subject = _as_written(cur, "the name of a subject") if cur.accept_words("SUBJECT") else ""
    number: int | None = None
    if cur.accept_words("ID"):
        if cur.peek().kind != "number" or not cur.peek().text.isdigit():
            cur.expected("the id of a schema, a whole number")
        number = int(cur.next().text)
    if not subject and number is None:
        cur.expected("SUBJECT or ID", help="write  ASSERT SCHEMA SUBJECT 'orders-value'", words=["SUBJECT", "ID"])
    timeout = _timeout(cur)
    text, span = cur.text_since(start), cur.span_since(start)
    return AssertSchema(text, span, subject, number, exists, timeout, cur.span_of(name_tok))


def _as_written(cur: Cursor, what: str) -> str:
    """A name that is none of SQL's: it does not fold, and may stand in any quotes, or with dots and dashes in none."""
    start = cur.peek()
    if start.kind not in ("word", "quoted", "string"):
        cur.expected(what, help="write it in single quotes")
    cur.next()
    if start.kind != "word":
        return start.text
    while cur.at_op(".", "-") and cur.peek().start == cur.peek(-1).end:
        cur.next()
        if cur.peek().kind not in ("word", "number"):
            cur.expected(f"the rest of {what}", help="write it in single quotes")
        cur.next()
    return cur.text_since(start)


def _timeout(cur: Cursor) -> int | None:
    return parse_duration(cur, "TIMEOUT") if cur.accept_words("TIMEOUT") else None


def _assert_rows(cur: Cursor, start: Tok) -> list[Statement]:
    deleted = cur.at_word("NULL")
    if deleted:
        cur.next()
    cur.expect_word("VALUES")
    name_tok = cur.peek()
    target = cur.expect_name("the name of a stream or table")
    columns = _column_names(cur) if cur.at_op("(") else ()
    if not cur.at_word("KEY" if deleted else "VALUES", "VALUES"):
        cur.expected("VALUES", words=["VALUES"])
    rows = _rows(cur, start, name_tok, target, columns)
    return [
        AssertRow(
            r.text, r.span, target=target, columns=columns, values=r.values, deleted=deleted, name_span=r.name_span
        )
        for r in rows
    ]


def _control(cur: Cursor, start: Tok) -> list[Statement]:
    verbs: dict[str, Literal["terminate", "pause", "resume"]] = {
        "TERMINATE": "terminate",
        "PAUSE": "pause",
        "RESUME": "resume",
    }
    verb = verbs[cur.next().upper]
    cur.accept_words("QUERY")
    name_tok = cur.peek()
    query = "" if cur.accept_words("ALL") else cur.expect_name("the id of a query, or ALL")
    return [QueryControl(cur.text_since(start), cur.span_since(start), verb, query, cur.span_of(name_tok))]


def _other(cur: Cursor, start: Tok) -> Statement:
    while not cur.at_end():
        cur.next()
    return OtherStatement(cur.text_since(start), cur.span_since(start), verb=start.upper)


_RULES: dict[str, Callable[[Cursor, Tok], list[Statement]]] = {
    "CREATE": _create,
    "INSERT": _insert,
    "DROP": _drop,
    "SET": _set,
    "UNSET": _set,
    "SELECT": _select,
    "ASSERT": _assert,
    "TERMINATE": _control,
    "PAUSE": _control,
    "RESUME": _control,
    "DEFINE": _set,
    "UNDEFINE": _set,
}
