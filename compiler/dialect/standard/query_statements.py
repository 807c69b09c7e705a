"""Statements of standard SQL that hold a query: it alone, CREATE VIEW, CREATE STREAM and CREATE TABLE ... AS, INSERT ... SELECT."""

from __future__ import annotations

from dataclasses import dataclass, field

from flowql.compiler.diagnostics.source import NOWHERE, Span
from flowql.compiler.dialect.ast import CreateAs, InsertRow, OtherStatement, Property, SelectItem, Statement
from flowql.compiler.dialect.standard.tree import Query
from flowql.compiler.dialect.table_statements import CopyRows, DeleteRows, InsertRows, OnConflict, UpdateRows


@dataclass(frozen=True, slots=True, kw_only=True)
class CreateView(CreateAs):
    """A view; of the kind "stream" it has to be one. columns: names of its first columns."""

    tree: Query
    columns: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class QueryStatement(OtherStatement):
    """A query that stands alone."""

    query: Query


@dataclass(frozen=True, slots=True)
class InsertSelect(Statement):
    """INSERT INTO target [AS alias] [(columns)] [WITH (...)] query. select: the text of the query.

    query: its tree, None for VALUES with sub-queries. Into a stream it is a query that keeps running.
    """

    target: str = ""
    columns: tuple[str, ...] = ()
    select: str = ""
    query: Query | None = None
    on_conflict: OnConflict | None = None
    name_span: Span = field(default=NOWHERE, compare=False)
    alias: str | None = None
    returning: tuple[SelectItem, ...] = ()
    properties: tuple[Property, ...] = ()


def is_row_statement(statement: Statement) -> bool:
    """Whether it changes rows, and defines nothing."""
    return isinstance(statement, InsertRow | InsertRows | InsertSelect | UpdateRows | DeleteRows | CopyRows)
