"""Statements without a query, the same in every dialect: settings, variables, types, added columns, assertions, controls of queries."""

from __future__ import annotations

from collections.abc import Callable, Iterable, MutableMapping
from typing import Literal, TypeVar

from flowql.compiler.dialect.ast import (
    AlterSource,
    AssertRow,
    AssertSchema,
    AssertTopic,
    Ast,
    ColumnDef,
    CreateType,
    Drop,
    OtherStatement,
    QueryControl,
    SetProperty,
    Statement,
    TypeRef,
)
from flowql.compiler.dialect.cursor import Cursor, Tok
from flowql.compiler.dialect.elements import parse_properties
from flowql.compiler.dialect.numbers import parse_duration

C = TypeVar("C", bound=Cursor)
Kind = Literal["stream", "table"]


def parse_create_type(cur: C, start: Tok, type_: Callable[[C], TypeRef]) -> list[Statement]:
    """`TYPE [IF NOT EXISTS] name AS type`, behind CREATE."""
    cur.next()
    if_not_exists = cur.accept_words("IF", "NOT", "EXISTS")
    name, name_span = cur.expect_placed("the name of the type")
    cur.expect_word("AS", help="write  CREATE TYPE name AS STRUCT<a INT>")
    made = type_(cur)
    return [CreateType(*cur.written(start), name, made, if_not_exists, name_span)]


def parse_alter(cur: C, start: Tok, column: Callable[[C, Kind], ColumnDef]) -> list[Statement]:
    """`ALTER STREAM|TABLE name ADD [COLUMN] column, ...`. column: reads one from the word ADD on."""
    cur.next()
    kind: Kind = "stream" if cur.next().upper == "STREAM" else "table"
    name, name_span = cur.expect_placed(f"the name of a {kind}")
    columns = cur.listed(lambda cur: column(cur, kind))
    return [AlterSource(*cur.written(start), name, kind, columns, name_span)]


def expect_add(cur: Cursor) -> None:
    """The word ADD of ALTER."""
    cur.expect_word("ADD", help="columns can be added and nothing else: ADD COLUMN name TYPE")


def parse_assert(cur: C, start: Tok, rows: Callable[[C], Iterable[tuple[Ast, ...]]]) -> list[Statement]:
    """ASSERT of rows, a topic or a schema. rows: reads the rows behind VALUES."""
    cur.next()
    if cur.tok.upper not in ("VALUES", "NULL"):
        return [_parse_assertion(cur, start)]
    deleted = cur.accept_words("NULL")
    cur.expect_word("VALUES")
    target, name_span = cur.expect_placed("the name of a stream or table")
    columns = cur.expect_names("the name of a column") if cur.tok.op == "(" else ()
    if cur.tok.upper not in ("KEY" if deleted else "VALUES", "VALUES"):
        cur.expected("VALUES", words=["VALUES"])
    cur.next()
    found = [*rows(cur)]
    text, span = cur.written(start)
    return [AssertRow(text, span, target, columns, row, deleted, name_span) for row in found]


def parse_drop(cur: Cursor, start: Tok) -> list[Statement]:
    """`DROP STREAM|TABLE|TYPE [IF EXISTS] name [DELETE TOPIC]`."""
    cur.next()
    if cur.tok.upper == "CONNECTOR":
        return [parse_other(cur, start)]
    kinds: dict[str, Literal["stream", "table", "type"]] = {"STREAM": "stream", "TABLE": "table", "TYPE": "type"}
    if cur.tok.upper not in kinds:
        cur.expected("STREAM, TABLE or TYPE after DROP", words=kinds)
    kind = kinds[cur.next().upper]
    if_exists = cur.accept_words("IF", "EXISTS")
    name, name_span = cur.expect_placed(f"the name of the {kind}")
    delete_topic = kind != "type" and cur.accept_words("DELETE", "TOPIC")
    return [
        Drop(
            *cur.written(start),
            name=name,
            kind=kind,
            if_exists=if_exists,
            delete_topic=delete_topic,
            name_span=name_span,
        )
    ]


def parse_set(cur: Cursor, start: Tok) -> list[Statement]:
    """`SET 'name' = 'value'` and `UNSET 'name'`."""
    cur.next()
    name = cur.expect_string("the name of a property in quotes")
    value = None
    if start.upper == "SET":
        cur.expect_op("=", help="write  SET 'name' = 'value'")
        value = cur.expect_string("the value in quotes")
    return [SetProperty(*cur.written(start), name=name, value=value)]


def apply_variable(cur: Cursor, variables: MutableMapping[str, str]) -> list[Statement]:
    """DEFINE and UNDEFINE, which act on `variables` and give no statement."""
    verb = cur.next().upper
    name_tok = cur.tok
    name = cur.expect_name("the name of a variable")
    for known in [v for v in variables if v.upper() == name.upper()]:
        del variables[known]
    if verb == "DEFINE":
        cur.expect_op("=", help="write  DEFINE name = 'value'")
        variables[name_tok.text] = cur.expect_string("the value in quotes")
    return []


def _parse_assertion(cur: Cursor, start: Tok) -> Statement:
    exists = not cur.accept_words("NOT", "EXISTS")
    if cur.tok.upper == "TOPIC":
        return _assert_topic(cur, start, exists=exists)
    if cur.tok.upper != "SCHEMA":
        cur.expected("VALUES, TOPIC or SCHEMA after ASSERT", words=["VALUES", "TOPIC", "SCHEMA"])
    return _assert_schema(cur, start, exists=exists)


def _assert_topic(cur: Cursor, start: Tok, *, exists: bool) -> Statement:
    cur.next()
    name_tok = cur.tok
    topic = _as_written(cur, "the name of a topic")
    properties = parse_properties(cur) if cur.tok.upper == "WITH" else ()
    timeout = _timeout(cur)
    text, span = cur.written(start)
    return AssertTopic(text, span, topic, exists, properties, timeout, cur.span_of(name_tok))


def _assert_schema(cur: Cursor, start: Tok, *, exists: bool) -> Statement:
    cur.next()
    name_tok = cur.tok
    subject = _as_written(cur, "the name of a subject") if cur.accept_words("SUBJECT") else ""
    number: int | None = None
    if cur.accept_words("ID"):
        if cur.tok.kind != "number" or not cur.tok.text.isdigit():
            cur.expected("the id of a schema, a whole number")
        number = int(cur.next().text)
    if not subject and number is None:
        cur.expected("SUBJECT or ID", help="write  ASSERT SCHEMA SUBJECT 'orders-value'", words=["SUBJECT", "ID"])
    timeout = _timeout(cur)
    text, span = cur.written(start)
    return AssertSchema(text, span, subject, number, exists, timeout, cur.span_of(name_tok))


def _as_written(cur: Cursor, what: str) -> str:
    """A name that is none of SQL's: it does not fold, and may stand in any quotes, or with dots and dashes in none."""
    start = cur.tok
    if start.kind not in ("word", "quoted", "string"):
        cur.expected(what, help="write it in single quotes")
    cur.next()
    if start.kind != "word":
        return start.text
    while cur.tok.op in (".", "-") and cur.tok.start == cur.peek(-1).end:
        cur.next()
        if cur.tok.kind not in ("word", "number"):
            cur.expected(f"the rest of {what}", help="write it in single quotes")
        cur.next()
    return cur.text_since(start)


def _timeout(cur: Cursor) -> int | None:
    return parse_duration(cur, "TIMEOUT") if cur.accept_words("TIMEOUT") else None


def parse_control(cur: Cursor, start: Tok) -> list[Statement]:
    """TERMINATE, PAUSE and RESUME."""
    verbs: dict[str, Literal["terminate", "pause", "resume"]] = {
        "TERMINATE": "terminate",
        "PAUSE": "pause",
        "RESUME": "resume",
    }
    verb = verbs[cur.next().upper]
    cur.accept_words("QUERY")
    name_tok = cur.tok
    query = "" if cur.accept_words("ALL") else cur.expect_name("the id of a query, or ALL")
    return [QueryControl(*cur.written(start), verb, query, cur.span_of(name_tok))]


def parse_other(cur: Cursor, start: Tok) -> Statement:
    """A statement that is known by its verb only."""
    while cur.tok.kind != "end":
        cur.next()
    return OtherStatement(*cur.written(start), verb=start.upper)
