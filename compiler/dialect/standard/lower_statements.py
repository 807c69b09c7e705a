"""Statements of the tree as those the analyzer reads."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any, Literal

from flowql.compiler.diagnostics.source import Span
from flowql.compiler.dialect.ast import (
    AlterSource,
    AssertRow,
    ColumnDef,
    CreateSource,
    CreateType,
    Drop,
    OtherStatement,
    Statement,
)
from flowql.compiler.dialect.standard import statement_tree as st
from flowql.compiler.dialect.standard.lower_expressions import lower_expr
from flowql.compiler.dialect.standard.lower_tables import (
    check_key,
    is_own_table,
    limit_of,
    lower_delete,
    lower_insert,
    lower_table,
    lower_update,
)
from flowql.compiler.dialect.standard.lower_types import lower_type
from flowql.compiler.dialect.standard.lower_watermarks import lower_watermark
from flowql.compiler.dialect.standard.names import plain_name
from flowql.compiler.dialect.standard.query_statements import CreateView
from flowql.compiler.dialect.standard.refuse import unsupported
from flowql.compiler.dialect.standard.tree import Query

_CONSTRAINTS = {
    "NOT NULL": "leave it out; a column may be NULL unless it is of the key",
    "UNIQUE": "a table has one key, its PRIMARY KEY",
}


def lower_statement(statement: st.Statement) -> list[Statement]:
    """The statements that mean the same: one, or one per row of VALUES."""
    return _RULES[type(statement)](statement)


# --- CREATE ---


def _create_table(s: st.CreateTable) -> list[Statement]:
    name = plain_name(s.name, s)
    if s.query is not None:
        return [_view(s, s.kind, s.query)]
    if is_own_table(s):
        return [lower_table(s, name)]
    watermark = lower_watermark(s)
    keyed = s.primary_key or any(c.role in ("key", "primary_key") for c in s.columns or ())
    if s.append_only and keyed:
        unsupported("APPEND ONLY of a table over a topic with a PRIMARY KEY", s.name_span, "write  CREATE STREAM")
    kind = "stream" if s.append_only or watermark is not None else s.kind
    for check in (*s.checks, *(c for column in s.columns or () for c in column.checks)):
        unsupported("CHECK of a relation over a topic", check.span, "leave it out, and filter with WHERE")
    for constraint, span in s.constraints:
        unsupported(constraint, span, _CONSTRAINTS.get(constraint, "leave it out"))
    return [
        CreateSource(
            s.text,
            s.span,
            name=name,
            kind=kind,
            columns=_columns(s),
            properties=s.properties,
            or_replace=s.or_replace,
            if_not_exists=s.if_not_exists,
            read_only=s.read_only,
            watermark=watermark,
            name_span=s.name_span,
        )
    ]


def _columns(s: st.CreateTable) -> tuple[ColumnDef, ...]:
    """Those of a key in the order in which it names them, each where it stands."""
    columns = s.columns or ()
    check_key(s)
    return tuple(_column(c, "primary_key" if c.name in s.primary_key else c.role) for c in columns)


def _column(c: st.ColumnDefinition, role: Literal["value", "key", "primary_key", "header"]) -> ColumnDef:
    if c.default is not None:
        unsupported("DEFAULT of a column", c.default.span, "give the value in INSERT")
    if c.generated is not None:
        unsupported("a generated column", c.generated.span, "compute it in a view")
    others = [o for o in c.constraints if not (o == "NOT NULL" and role in ("key", "primary_key"))]
    if others:
        unsupported(f"{others[0]} of a column", c.span, _CONSTRAINTS.get(others[0], "leave it out"))
    return ColumnDef(c.name, lower_type(c.type), role, c.header_key, c.span, c.properties)


def _create_view(s: st.CreateView) -> list[Statement]:
    return [replace(_view(s, "table", s.query), columns=s.columns)]


def _view(s: st.CreateTable | st.CreateView, kind: Literal["stream", "table"], query: Query) -> CreateView:
    return CreateView(
        s.text,
        s.span,
        name=plain_name(s.name, s),
        kind=kind,
        properties=s.properties,
        or_replace=s.or_replace,
        if_not_exists=s.if_not_exists,
        name_span=s.name_span,
        tree=query,
    )


def _create_type(s: st.CreateType) -> list[Statement]:
    made = lower_type(s.type)
    return [CreateType(s.text, s.span, name=s.name, type=made, if_not_exists=s.if_not_exists, name_span=s.name_span)]


def _add_columns(s: st.AddColumns) -> list[Statement]:
    for check in (check for c in s.columns for check in c.checks):
        unsupported("CHECK of a column that is added", check.span, "say it where the table is created")
    columns = tuple(replace(_column(c, c.role), limit=limit_of(c)) for c in s.columns)
    return [AlterSource(s.text, s.span, s.name, s.kind, columns, s.name_span)]


# --- rows ---


def _assert_rows(s: st.AssertRows) -> list[Statement]:
    return [
        AssertRow(
            s.text,
            s.span,
            target=s.target,
            columns=s.columns,
            values=tuple(map(lower_expr, row)),
            deleted=s.deleted,
            name_span=s.name_span,
        )
        for row in s.rows
    ]


# --- the others ---


def _drop(s: st.DropObject) -> list[Statement]:
    kinds: dict[str, Literal["stream", "table", "type", "view"]] = {
        "table": "table",
        "stream": "stream",
        "type": "type",
        "view": "view",
        "materialized view": "view",
    }
    if s.kind == "index":
        unsupported("DROP INDEX", s.name_span, "leave it out: there are no indexes")
    if s.cascade:
        unsupported("DROP ... CASCADE", s.span, "drop what reads it first")
    return [
        Drop(
            s.text,
            s.span,
            name=plain_name(name, s),
            kind=kinds[s.kind],
            if_exists=s.if_exists,
            delete_topic=s.delete_topic,
            name_span=s.name_span,
        )
        for name in s.names
    ]


def _query(s: st.QueryStatement) -> list[Statement]:
    return [OtherStatement(s.text, s.span, verb="SELECT")]  # running it is for `flowql query`


def _control(s: st.Control) -> list[Statement]:
    return [s.statement]


def _refused(named: str, help: str = "") -> Callable[[Any], list[Statement]]:
    def rule(s: st.Statement) -> list[Statement]:
        at: Span = s.name_span
        unsupported(named, at, help)

    return rule


_RULES: dict[type, Callable[[Any], list[Statement]]] = {
    st.CreateTable: _create_table,
    st.CreateView: _create_view,
    st.CreateIndex: _refused("CREATE INDEX", "leave it out: views are kept by their key"),
    st.CreateType: _create_type,
    st.AddColumns: _add_columns,
    st.Insert: lower_insert,
    st.Update: lower_update,
    st.Delete: lower_delete,
    st.DropObject: _drop,
    st.QueryStatement: _query,
    st.AssertRows: _assert_rows,
    st.Control: _control,
}
