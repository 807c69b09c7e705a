"""Statements of standard SQL: one rule per verb, dispatched by `parse_statement`."""

from __future__ import annotations

from collections.abc import Callable, MutableMapping, Sequence
from typing import Literal, NoReturn

from flowql.compiler.diagnostics.edits import Edit
from flowql.compiler.diagnostics.source import Span
from flowql.compiler.dialect.ast import Ast, ColumnDef, Drop, Statement, TypeRef
from flowql.compiler.dialect.controls import (
    Kind,
    apply_variable,
    expect_add,
    parse_alter,
    parse_assert,
    parse_control,
    parse_create_type,
    parse_other,
    parse_set,
)
from flowql.compiler.dialect.cursor import Tok
from flowql.compiler.dialect.elements import check_window_properties, parse_properties
from flowql.compiler.dialect.refusals import refuse_columns
from flowql.compiler.dialect.standard.changes import parse_copy, parse_delete, parse_insert, parse_update
from flowql.compiler.dialect.standard.columns import ColumnList, parse_column, parse_column_list
from flowql.compiler.dialect.standard.connectors import connected, is_connected, parse_encoding
from flowql.compiler.dialect.standard.foreign_statements import (
    refuse_behind_query,
    refuse_cluster,
    refuse_include,
    refuse_object,
    refuse_verb,
    refuse_with_refresh,
)
from flowql.compiler.dialect.standard.over_topics import added_column, is_own_table, over_topic
from flowql.compiler.dialect.standard.queries import parse_query, parse_rows
from flowql.compiler.dialect.standard.reader import Reader, expect_relation
from flowql.compiler.dialect.standard.refuse import check_depth
from flowql.compiler.dialect.standard.statement_tree import CreateTable, CreateView, QueryStatement
from flowql.compiler.dialect.standard.types import parse_type
from flowql.compiler.dialect.standard.words import VERBS
from flowql.compiler.dialect.words import OTHER_VERBS

_VERB_HELP = "a statement begins with CREATE, INSERT INTO, UPDATE, DELETE FROM, COPY, DROP, SET, SELECT, WITH or VALUES"
_DROPPED: dict[str, Literal["stream", "table", "type", "view"]] = {
    "TABLE": "table",
    "STREAM": "stream",
    "VIEW": "view",
    "TYPE": "type",
}
_OBJECTS = ("TABLE", "STREAM", "VIEW", "MATERIALIZED", "INDEX", "TYPE")


def parse_statement(cur: Reader, variables: MutableMapping[str, str]) -> Sequence[Statement]:
    """One statement up to its end. DEFINE and UNDEFINE act on `variables` and give none; DROP and ASSERT give one per name and row."""
    tok = cur.tok
    if cur.tok.op == "(" and cur.at_query():
        return _finished(cur, _query(cur, tok))
    if tok.text.startswith("\\"):
        cur.unsupported("a command of psql", help="write  SHOW TABLES  or  DESCRIBE name")
    if tok.kind != "word":
        cur.expected("a statement", help=_VERB_HELP)
    if tok.upper in ("DEFINE", "UNDEFINE"):
        return _finished(cur, apply_variable(cur, variables))
    if tok.upper == "ALTER" and cur.after.upper in ("STREAM", "TABLE"):
        return _finished(cur, parse_alter(cur, tok, _added_column))
    if tok.upper in OTHER_VERBS:
        return [parse_other(cur, tok)]
    rule = _RULES.get(tok.upper)
    if rule is None:
        refuse_verb(cur, tok)
        cur.expected("a statement", help=_VERB_HELP, words=VERBS)
    return _finished(cur, rule(cur, tok))


def _finished(cur: Reader, statements: Sequence[Statement]) -> Sequence[Statement]:
    cur.expect_end()
    return statements


# --- CREATE ---


def _create(cur: Reader, start: Tok) -> Sequence[Statement]:
    cur.next()
    or_replace = cur.tok.upper == "OR"
    if or_replace and cur.after.upper == "ALTER":
        edit = Edit(cur.span_of(cur.after), "REPLACE")
        cur.fail("FQ1001", "expected `REPLACE` after OR, found `ALTER`", help="write  CREATE OR REPLACE", edit=edit)
    if or_replace:
        cur.next()
        cur.expect_word("REPLACE")
    if cur.tok.upper == "TYPE":
        return parse_create_type(cur, start, _declared_type)
    if cur.tok.upper in ("UNIQUE", "INDEX"):
        _refuse_index(cur)
    if cur.tok.upper == "VIEW" or (cur.tok.upper == "MATERIALIZED" and cur.after.upper == "VIEW"):
        return _create_view(cur, start, or_replace=or_replace)
    read_only = cur.tok.upper == "SOURCE" and cur.after.upper in ("STREAM", "TABLE")
    if read_only:
        cur.next()
    if cur.tok.upper not in ("STREAM", "TABLE"):
        refuse_object(cur, "CREATE", start)
        cur.expected("TABLE, VIEW, MATERIALIZED VIEW, STREAM, INDEX or TYPE after CREATE", words=_OBJECTS)
    return _create_table(cur, start, or_replace=or_replace, read_only=read_only)


def _create_table(cur: Reader, start: Tok, *, or_replace: bool, read_only: bool) -> Sequence[Statement]:
    kind: Literal["stream", "table"] = "stream" if cur.next().upper == "STREAM" else "table"
    if_not_exists = cur.tok.upper == "IF" and cur.accept_words("IF", "NOT", "EXISTS")
    name, name_span = expect_relation(cur, f"the name of the {kind}")
    listed = parse_column_list(cur) if cur.tok.op == "(" else None
    constraints = list(listed.constraints) if listed else []
    versions: list[str] = []
    append_only = _behind_columns(cur, constraints, versions)
    if cur.tok.upper == "INCLUDE":
        refuse_include(cur)
    with_start = cur.tok
    properties = parse_properties(cur) if cur.tok.upper == "WITH" else ()
    append_only = _behind_columns(cur, constraints, versions) or append_only
    encoding = parse_encoding(cur)
    if is_connected(properties, encoding):
        topic = connected(cur, properties, encoding, _key(listed), with_start)
        properties, append_only = topic.properties, append_only or (topic.is_stream and kind == "table")
    if cur.tok.upper == "LIKE":
        cur.unsupported("CREATE TABLE ... LIKE", help="list the columns")
    if cur.tok.upper == "FROM":
        help = "read the topic of its changes:  WITH (KAFKA_TOPIC = '...', VALUE_FORMAT = 'DEBEZIUM')"
        cur.unsupported("CREATE TABLE ... FROM a source", help=help)
    if cur.tok.upper == "AS":
        cur.next()
        refuse_columns(cur, has_columns=listed is not None, read_only=read_only)
        query = parse_query(cur)
        return [
            CreateView(
                *cur.written(start),
                name=name,
                kind=kind,
                properties=properties,
                or_replace=or_replace,
                if_not_exists=if_not_exists,
                name_span=name_span,
                tree=query,
            )
        ]
    if listed is None and not properties:
        cur.expected(f"columns, WITH or AS after the name of the {kind}", words=["WITH", "AS"])
    check_window_properties(cur, properties)
    made = CreateTable(
        *cur.written(start),
        name=name,
        kind=kind,
        columns=tuple(listed.columns) if listed else (),
        primary_key=listed.primary_key if listed else (),
        watermarks=tuple(listed.watermarks) if listed else (),
        append_only=append_only,
        constraints=tuple(constraints),
        properties=properties,
        or_replace=or_replace,
        if_not_exists=if_not_exists,
        read_only=read_only,
        versions=tuple(versions),
        checks=tuple(listed.checks) if listed else (),
        name_span=name_span,
    )
    return [made if is_own_table(made) else over_topic(made)]


def _key(listed: ColumnList | None) -> tuple[str, ...]:
    """The columns of the primary key."""
    if listed is None:
        return ()
    return listed.primary_key or tuple(c.name for c in listed.columns if c.role in ("key", "primary_key"))


def _behind_columns(cur: Reader, constraints: list[tuple[str, Span]], versions: list[str]) -> bool:
    """APPEND ONLY, and ON CONFLICT and WITH VERSION COLUMN of RisingWave. Whether it is append-only."""
    append_only = False
    while cur.tok.upper in ("APPEND", "ON", "WITH"):
        start = cur.tok
        if cur.accept_words("APPEND", "ONLY"):
            append_only = True
        elif cur.accept_words("ON", "CONFLICT"):
            words = ["ON CONFLICT"]
            while cur.tok.upper in ("DO", "NOTHING", "UPDATE", "FULL", "IF", "NOT", "NULL", "OVERWRITE", "IGNORE"):
                words.append(cur.next().upper)
            constraints.append((" ".join(words), cur.span_since(start)))
        elif cur.accept_words("WITH", "VERSION", "COLUMN"):
            versions += cur.expect_names("the name of a column")
            constraints.append(("WITH VERSION COLUMN", cur.span_since(start)))
        else:
            break
    return append_only


def _create_view(cur: Reader, start: Tok, *, or_replace: bool) -> Sequence[Statement]:
    if cur.next().upper == "MATERIALIZED":
        cur.next()
    if_not_exists = cur.tok.upper == "IF" and cur.accept_words("IF", "NOT", "EXISTS")
    name, name_span = expect_relation(cur, "the name of the view")
    columns = cur.expect_names("the name of a column") if cur.tok.op == "(" else ()
    if cur.tok.upper == "IN" and cur.after.upper == "CLUSTER":
        refuse_cluster(cur)
    if cur.tok.upper == "WITH" and cur.peek(2).upper in ("REFRESH", "RETAIN"):
        refuse_with_refresh(cur)
    properties = parse_properties(cur) if cur.tok.upper == "WITH" else ()
    cur.expect_word("AS", help="write  CREATE MATERIALIZED VIEW name AS SELECT ...")
    query = parse_query(cur)
    refuse_behind_query(cur)
    return [
        CreateView(
            *cur.written(start),
            name=name,
            kind="table",
            properties=properties,
            or_replace=or_replace,
            if_not_exists=if_not_exists,
            name_span=name_span,
            tree=query,
            columns=columns,
        )
    ]


def _refuse_index(cur: Reader) -> NoReturn:
    cur.accept_words("UNIQUE")
    cur.expect_word("INDEX")
    cur.accept_words("CONCURRENTLY")
    cur.accept_words("IF", "NOT", "EXISTS")
    at = cur.tok
    if at.upper != "ON":
        cur.expect_name("the name of the index")
    cur.unsupported("CREATE INDEX", at=cur.span_of(at), help="leave it out: views are kept by their key")


def _declared_type(cur: Reader) -> TypeRef:
    if cur.tok.upper in ("ENUM", "RANGE") and cur.after.op == "(":
        cur.unsupported(f"CREATE TYPE ... AS {cur.tok.upper}", help="write  TEXT  as the type of the column")
    if cur.tok.op == "(":
        cur.unsupported("CREATE TYPE ... AS (...)", help="write  CREATE TYPE name AS STRUCT<a INT>")
    made = parse_type(cur)
    check_depth(made)
    return made


# --- the other verbs ---


def _drop(cur: Reader, start: Tok) -> Sequence[Statement]:
    cur.next()
    kind = "VIEW" if cur.accept_words("MATERIALIZED", "VIEW") else cur.tok.upper
    if kind not in _DROPPED and kind != "INDEX":
        refuse_object(cur, "DROP", start)
        cur.expected("TABLE, VIEW, MATERIALIZED VIEW, STREAM, INDEX or TYPE after DROP", words=_OBJECTS)
    if cur.tok.upper == kind:
        cur.next()
    if_exists = cur.accept_words("IF", "EXISTS")
    named = cur.listed(lambda cur: expect_relation(cur, f"the name of the {kind.lower()}"))
    if kind == "INDEX":
        cur.unsupported("DROP INDEX", at=named[0][1], help="leave it out: there are no indexes")
    if cur.accept_words("CASCADE"):
        cur.unsupported("DROP ... CASCADE", at=cur.span_since(start), help="drop what reads it first")
    cur.accept_words("RESTRICT")
    delete_topic = kind != "TYPE" and cur.accept_words("DELETE", "TOPIC")
    text, span = cur.written(start)
    return [Drop(text, span, name, _DROPPED[kind], if_exists, delete_topic, at) for name, at in named]


def _added_column(cur: Reader, kind: Kind) -> ColumnDef:
    if cur.tok.upper in ("RENAME", "DROP", "ALTER", "OWNER", "SET"):
        cur.unsupported(f"ALTER {kind.upper()} ... {cur.tok.upper}", help="columns can be added: ADD COLUMN name TYPE")
    expect_add(cur)
    if cur.tok.upper in ("CONSTRAINT", "PRIMARY", "UNIQUE", "CHECK", "FOREIGN", "WATERMARK"):
        help = "columns can be added: ADD COLUMN name TYPE; what else a table has is said where it is created"
        cur.unsupported(f"ALTER {kind.upper()} ... ADD {cur.tok.upper}", help=help)
    cur.accept_words("COLUMN")
    return added_column(parse_column(cur))


def _query(cur: Reader, start: Tok) -> Sequence[Statement]:
    query = parse_query(cur)
    return [QueryStatement(*cur.written(start), verb="SELECT", query=query)]


_CHANGES = {"INSERT": parse_insert, "UPDATE": parse_update, "DELETE": parse_delete}


def _change(cur: Reader, start: Tok) -> Sequence[Statement]:
    return [_CHANGES[start.upper](cur, start)]


def _copy(cur: Reader, start: Tok) -> Sequence[Statement]:
    return [parse_copy(cur, start)]


def _with(cur: Reader, start: Tok) -> Sequence[Statement]:
    """A query, or a statement that changes rows and may name the tables of WITH."""
    verb = verb_behind_tables(cur)
    if verb in _CHANGES:
        return [_CHANGES[verb](cur, start)]
    if verb:
        cur.unsupported(f"WITH ... {verb}", help=f"write the queries of WITH as sub-queries of the {verb}")
    return _query(cur, start)


def verb_behind_tables(cur: Reader) -> str:
    """The verb of a statement that changes rows, behind the tables of WITH; empty where a query follows them."""
    depth = at = 0
    while (tok := cur.peek(at)).kind != "end":
        depth += (tok.text == "(") - (tok.text == ")") if tok.kind == "op" else 0
        if depth == 0 and tok.upper in ("INSERT", "UPDATE", "DELETE", "MERGE") and cur.peek(at - 1).text == ")":
            return tok.upper
        if depth == 0 and tok.upper in ("SELECT", "VALUES"):
            break
        at += 1
    return ""


def _assert(cur: Reader, start: Tok) -> Sequence[Statement]:
    return parse_assert(cur, start, _asserted_rows)


def _asserted_rows(cur: Reader) -> list[tuple[Ast, ...]]:
    rows = parse_rows(cur)
    for value in (value for row in rows for value in row):
        check_depth(value)
    return [*rows]


def _set(cur: Reader, start: Tok) -> Sequence[Statement]:
    if cur.after.kind == "word":
        help = "write a property of FlowQL in quotes:  SET 'name' = 'value'"
        cur.unsupported(f"{start.upper} {cur.after.text}", help=help)
    return parse_set(cur, start)


_RULES: dict[str, Callable[[Reader, Tok], Sequence[Statement]]] = {
    "CREATE": _create,
    "INSERT": _change,
    "UPDATE": _change,
    "DELETE": _change,
    "COPY": _copy,
    "DROP": _drop,
    "SET": _set,
    "UNSET": _set,
    "SELECT": _query,
    "WITH": _with,
    "VALUES": _query,
    "TABLE": _query,
    "ASSERT": _assert,
    "TERMINATE": parse_control,
    "PAUSE": parse_control,
    "RESUME": parse_control,
}
