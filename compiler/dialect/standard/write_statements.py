"""Statements of the tree as text."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from decimal import Decimal
from typing import Any

from flowql.compiler.dialect.ast import Property
from flowql.compiler.dialect.standard import statement_tree as st
from flowql.compiler.dialect.standard import tree as t
from flowql.compiler.dialect.standard.expressions import OTHER
from flowql.compiler.dialect.standard.write_expressions import dotted, quoted, text, write_type
from flowql.compiler.dialect.standard.write_queries import (
    WRITER,
    items_sql,
    names,
    query_sql,
    relation_sql,
    rows_sql,
    with_sql,
)

_ROLES = {"value": "", "key": " KEY", "primary_key": " PRIMARY KEY", "header": " HEADERS"}
_CONSTRAINTS = {"REFERENCES": "REFERENCES t", "COLLATE": "COLLATE c"}


def to_sql(node: t.Query | st.Statement) -> str:
    """A statement or a query on one line, without a semicolon."""
    return query_sql(node) if isinstance(node, t.Query) else _RULES[type(node)](node)


def _properties(properties: tuple[Property, ...]) -> str:
    if not properties:
        return ""
    return f" WITH ({', '.join(f'{quoted(p.name)} = {_value(p.value)}' for p in properties)})"


def _value(value: int | float | str | bool | Decimal | None) -> str:
    if isinstance(value, str):
        return text(value)
    if isinstance(value, Decimal):
        return format(value, "f")
    if value is None or isinstance(value, bool):
        return {None: "NULL", True: "TRUE", False: "FALSE"}[value]
    return repr(value)


def _or_replace(s: st.CreateTable | st.CreateView) -> str:
    return "OR REPLACE " if s.or_replace else ""


def _if_not_exists(s: st.CreateTable | st.CreateView | st.CreateIndex | st.CreateType) -> str:
    return "IF NOT EXISTS " if s.if_not_exists else ""


def _column(c: st.ColumnDefinition) -> str:
    role = f" HEADER({text(c.header_key)})" if c.header_key else _ROLES[c.role]
    made = f"{quoted(c.name)} {write_type(c.type)}{role}"
    if c.default is not None:
        made += f" DEFAULT {WRITER.expr(c.default, OTHER)}"
    if c.generated is not None:
        made += f" GENERATED ALWAYS AS ({WRITER.expr(c.generated)}) STORED"
    for constraint in c.constraints:
        made += f" {_CONSTRAINTS.get(constraint, constraint)}"
    return made + "".join(f" {check_sql(check)}" for check in c.checks) + _properties(c.properties)


def check_sql(check: st.Check) -> str:
    """A CHECK with its name."""
    name = f"CONSTRAINT {quoted(check.name)} " if check.name else ""
    return f"{name}CHECK ({WRITER.expr(check.condition)})"


def _create_table(s: st.CreateTable) -> str:
    made = (
        f"CREATE {_or_replace(s)}{'SOURCE ' if s.read_only else ''}{s.kind.upper()} {_if_not_exists(s)}{dotted(s.name)}"
    )
    if s.columns is not None:
        entries = [_column(c) for c in s.columns]
        entries += [f"PRIMARY KEY{names(s.primary_key)}"] if s.primary_key else []
        entries += map(check_sql, s.checks)
        entries += [f"WATERMARK FOR {quoted(w.column)} AS {WRITER.expr(w.bound)}" for w in s.watermarks]
        made += f" ({', '.join(entries)})"
    if s.append_only:
        made += " APPEND ONLY"
    made += _properties(s.properties)
    return f"{made} AS {query_sql(s.query)}" if s.query is not None else made


def _create_view(s: st.CreateView) -> str:
    materialized = "MATERIALIZED " if s.materialized else ""
    head = f"CREATE {_or_replace(s)}{materialized}VIEW {_if_not_exists(s)}{dotted(s.name)}"
    return f"{head}{names(s.columns)}{_properties(s.properties)} AS {query_sql(s.query)}"


def _create_index(s: st.CreateIndex) -> str:
    unique = "UNIQUE " if s.unique else ""
    name = f"{quoted(s.name)} " if s.name else ""
    return f"CREATE {unique}INDEX {_if_not_exists(s)}{name}ON {dotted(s.table)} ({WRITER.exprs(s.items)})"


def _create_type(s: st.CreateType) -> str:
    return f"CREATE TYPE {_if_not_exists(s)}{quoted(s.name)} AS {write_type(s.type)}"


def _drop(s: st.DropObject) -> str:
    exists = "IF EXISTS " if s.if_exists else ""
    tail = (" CASCADE" if s.cascade else "") + (" DELETE TOPIC" if s.delete_topic else "")
    return f"DROP {s.kind.upper()} {exists}{', '.join(map(dotted, s.names))}{tail}"


def _insert(s: st.Insert) -> str:
    query = query_sql(s.query) if s.query is not None else "DEFAULT VALUES"
    head = f"INSERT INTO {dotted(s.target)}{_alias(s)}{names(s.columns)}{_properties(s.properties)} {query}"
    return head + (_conflict(s.on_conflict) if s.on_conflict is not None else "") + _returning(s)


def _conflict(c: st.OnConflict) -> str:
    settings = f"UPDATE SET {_settings(c.assignments)}{_where(c)}" if c.assignments else "NOTHING"
    return f" ON CONFLICT{names(c.columns)} DO {settings}"


def _settings(assignments: Sequence[st.Assignment]) -> str:
    return ", ".join(
        f"{quoted(a.columns[0]) if len(a.columns) == 1 else names(a.columns)} = {WRITER.expr(a.value)}"
        for a in assignments
    )


def _update(s: st.Update) -> str:
    source = f" FROM {relation_sql(s.source)}" if s.source is not None else ""
    return f"{_with(s)}UPDATE {dotted(s.target)}{_alias(s)} SET {_settings(s.assignments)}{source}{_where(s)}{_returning(s)}"


def _delete(s: st.Delete) -> str:
    source = f" USING {relation_sql(s.source)}" if s.source is not None else ""
    return f"{_with(s)}DELETE FROM {dotted(s.target)}{_alias(s)}{source}{_where(s)}{_returning(s)}"


def _with(s: st.Update | st.Delete) -> str:
    return f"{with_sql(s.with_, recursive=s.recursive)} ".lstrip()


def _alias(s: st.Insert | st.Update | st.Delete) -> str:
    return f" AS {quoted(s.alias)}" if s.alias is not None else ""


def _where(s: st.Update | st.Delete | st.OnConflict) -> str:
    return f" WHERE {WRITER.expr(s.where)}" if s.where is not None else ""


def _returning(s: st.Insert | st.Update | st.Delete) -> str:
    return f" RETURNING {items_sql(s.returning)}" if s.returning else ""


def _query(s: st.QueryStatement) -> str:
    return query_sql(s.query)


def _assert_rows(s: st.AssertRows) -> str:
    null = "NULL " if s.deleted else ""
    return f"ASSERT {null}VALUES {quoted(s.target)}{names(s.columns)} VALUES {rows_sql(s.rows)}"


def _add_columns(s: st.AddColumns) -> str:
    added = ", ".join(f"ADD COLUMN {_column(c)}" for c in s.columns)
    return f"ALTER {s.kind.upper()} {quoted(s.name)} {added}"


def _control(s: st.Control) -> str:
    return s.statement.text


_RULES: dict[type, Callable[[Any], str]] = {
    st.CreateTable: _create_table,
    st.CreateView: _create_view,
    st.CreateIndex: _create_index,
    st.CreateType: _create_type,
    st.DropObject: _drop,
    st.Insert: _insert,
    st.Update: _update,
    st.Delete: _delete,
    st.QueryStatement: _query,
    st.AssertRows: _assert_rows,
    st.AddColumns: _add_columns,
    st.Control: _control,
}
