"""Statements of the tree as those the analyzer reads."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any, Literal

from flowql.compiler.dialect.ast import ColumnDef, CreateSource, Statement
from flowql.compiler.dialect.standard import statement_tree as st
from flowql.compiler.dialect.standard.lower_tables import (
    check_key,
    is_own_table,
    limit_of,
    lower_delete,
    lower_insert,
    lower_table,
    lower_update,
    lower_watermark,
)
from flowql.compiler.dialect.standard.lower_types import lower_type
from flowql.compiler.dialect.standard.refuse import check_depth, unsupported

_CONSTRAINTS = {
    "NOT NULL": "leave it out; a column may be NULL unless it is of the key",
    "UNIQUE": "a table has one key, its PRIMARY KEY",
}


def lower_statement(statement: st.StandardStatement) -> Statement:
    """The statement that means the same."""
    return _RULES[type(statement)](statement) if isinstance(statement, st.Statement) else statement


def _create_table(s: st.CreateTable) -> Statement:
    if is_own_table(s):
        return lower_table(s)
    watermark = lower_watermark(s)
    keyed = s.primary_key or any(c.role in ("key", "primary_key") for c in s.columns or ())
    if s.append_only and keyed:
        unsupported("APPEND ONLY of a table over a topic with a PRIMARY KEY", s.name_span, "write  CREATE STREAM")
    kind = "stream" if s.append_only or watermark is not None else s.kind
    for check in (*s.checks, *(c for column in s.columns or () for c in column.checks)):
        unsupported("CHECK of a relation over a topic", check.span, "leave it out, and filter with WHERE")
    for constraint, span in s.constraints:
        unsupported(constraint, span, _CONSTRAINTS.get(constraint, "leave it out"))
    return CreateSource(
        s.text,
        s.span,
        name=s.name,
        kind=kind,
        columns=_columns(s),
        properties=s.properties,
        or_replace=s.or_replace,
        if_not_exists=s.if_not_exists,
        read_only=s.read_only,
        watermark=watermark,
        name_span=s.name_span,
    )


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


def added_column(c: st.ColumnDefinition) -> ColumnDef:
    """A column of ALTER. Raises CompileError."""
    check_depth(c)
    for check in c.checks:
        unsupported("CHECK of a column that is added", check.span, "say it where the table is created")
    return replace(_column(c, c.role), limit=limit_of(c))


_RULES: dict[type[st.Statement], Callable[[Any], Statement]] = {
    st.CreateTable: _create_table,
    st.Insert: lower_insert,
    st.Update: lower_update,
    st.Delete: lower_delete,
}
