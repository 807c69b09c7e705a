"""Statements that change rows, as text in one spelling."""

from __future__ import annotations

from collections.abc import Sequence
from decimal import Decimal

from flowql.compiler.dialect.ast import Property
from flowql.compiler.dialect.standard import statement_tree as st
from flowql.compiler.dialect.standard.write_expressions import quoted, text
from flowql.compiler.dialect.standard.write_queries import (
    WRITER,
    items_sql,
    names,
    query_sql,
    relation_sql,
    with_sql,
)


def change_sql(s: st.Insert | st.Change) -> str:
    """A statement on one line, without a semicolon."""
    return _insert(s) if isinstance(s, st.Insert) else _change(s)


def properties_sql(properties: tuple[Property, ...]) -> str:
    """WITH and its properties; empty without them."""
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


def check_sql(check: st.Check) -> str:
    """A CHECK with its name."""
    name = f"CONSTRAINT {quoted(check.name)} " if check.name else ""
    return f"{name}CHECK ({WRITER.expr(check.condition)})"


def _insert(s: st.Insert) -> str:
    query = query_sql(s.query) if s.query is not None else "DEFAULT VALUES"
    head = f"INSERT INTO {quoted(s.target)}{_alias(s)}{names(s.columns)}{properties_sql(s.properties)} {query}"
    return head + (_conflict(s.on_conflict) if s.on_conflict is not None else "") + _returning(s)


def _conflict(c: st.OnConflict) -> str:
    settings = f"UPDATE SET {_settings(c.assignments)}{_where(c)}" if c.assignments else "NOTHING"
    return f" ON CONFLICT{names(c.columns)} DO {settings}"


def _settings(assignments: Sequence[st.Assignment]) -> str:
    return ", ".join(
        f"{quoted(a.columns[0]) if len(a.columns) == 1 else names(a.columns)} = {WRITER.expr(a.value)}"
        for a in assignments
    )


def _change(s: st.Change) -> str:
    head, word = f"DELETE FROM {quoted(s.target)}{_alias(s)}", "USING"
    if isinstance(s, st.Update):
        head, word = f"UPDATE {quoted(s.target)}{_alias(s)} SET {_settings(s.assignments)}", "FROM"
    source = f" {word} {relation_sql(s.source)}" if s.source is not None else ""
    with_ = f"{with_sql(s.with_, recursive=s.recursive)} ".lstrip()
    return f"{with_}{head}{source}{_where(s)}{_returning(s)}"


def _alias(s: st.Insert | st.Change) -> str:
    return f" AS {quoted(s.alias)}" if s.alias is not None else ""


def _where(s: st.Change | st.OnConflict) -> str:
    return f" WHERE {WRITER.expr(s.where)}" if s.where is not None else ""


def _returning(s: st.Insert | st.Change) -> str:
    return f" RETURNING {items_sql(s.returning)}" if s.returning else ""
