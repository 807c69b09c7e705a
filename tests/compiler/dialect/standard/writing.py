"""Statements of the tree of standard SQL as text."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from flowql.compiler.dialect.ast import Drop, Statement
from flowql.compiler.dialect.standard import statement_tree as st
from flowql.compiler.dialect.standard import tree as t
from flowql.compiler.dialect.standard.expressions import OTHER
from flowql.compiler.dialect.standard.statement_tree import CreateView, QueryStatement
from flowql.compiler.dialect.standard.write_expressions import quoted, text, write_type
from flowql.compiler.dialect.standard.write_queries import WRITER, names, query_sql
from flowql.compiler.dialect.standard.write_statements import change_sql, check_sql, properties_sql

_ROLES = {"value": "", "key": " KEY", "primary_key": " PRIMARY KEY", "header": " HEADERS"}
_CONSTRAINTS = {"REFERENCES": "REFERENCES t", "COLLATE": "COLLATE c"}


def to_sql(node: t.Query | Statement) -> str:
    """A statement or a query on one line, without a semicolon."""
    return query_sql(node) if isinstance(node, t.Query) else _RULES[type(node)](node)


def _or_replace(s: st.CreateTable | CreateView) -> str:
    return "OR REPLACE " if s.or_replace else ""


def _if_not_exists(s: st.CreateTable | CreateView) -> str:
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
    return made + "".join(f" {check_sql(check)}" for check in c.checks) + properties_sql(c.properties)


def _create_table(s: st.CreateTable) -> str:
    made = (
        f"CREATE {_or_replace(s)}{'SOURCE ' if s.read_only else ''}{s.kind.upper()} {_if_not_exists(s)}{quoted(s.name)}"
    )
    if s.columns:
        entries = [_column(c) for c in s.columns]
        entries += [f"PRIMARY KEY{names(s.primary_key)}"] if s.primary_key else []
        entries += map(check_sql, s.checks)
        entries += [f"WATERMARK FOR {quoted(w.column)} AS {WRITER.expr(w.bound)}" for w in s.watermarks]
        made += f" ({', '.join(entries)})"
    if s.append_only:
        made += " APPEND ONLY"
    return made + properties_sql(s.properties)


def _create_view(s: CreateView) -> str:
    kind = "VIEW" if s.columns else s.kind.upper()
    head = f"CREATE {_or_replace(s)}{kind} {_if_not_exists(s)}{quoted(s.name)}"
    return f"{head}{names(s.columns)}{properties_sql(s.properties)} AS {query_sql(s.tree)}"


def _drop(s: Drop) -> str:
    tail = " DELETE TOPIC" if s.delete_topic else ""
    return f"DROP {s.kind.upper()} {'IF EXISTS ' if s.if_exists else ''}{quoted(s.name)}{tail}"


def _query(s: QueryStatement) -> str:
    return query_sql(s.query)


_RULES: dict[type, Callable[[Any], str]] = {
    st.CreateTable: _create_table,
    CreateView: _create_view,
    Drop: _drop,
    st.Insert: change_sql,
    st.Update: change_sql,
    st.Delete: change_sql,
    QueryStatement: _query,
}
