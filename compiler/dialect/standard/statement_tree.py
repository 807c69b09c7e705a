"""Statements of standard SQL; queries and expressions inside them are those of `tree`, as they were written."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal

from flowql.compiler.diagnostics.source import NOWHERE, Span
from flowql.compiler.dialect.ast import ColumnDef, CreateAs, InsertRow, OtherStatement, Property, Statement
from flowql.compiler.dialect.standard.tree import Expr, Form, Item, Query, Relation, With
from flowql.compiler.plan.tables import CopyFrom


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
class Check(Form):
    """[CONSTRAINT name] CHECK (condition)."""

    condition: Expr
    name: str = ""


@dataclass(frozen=True, slots=True)
class ColumnDefinition(ColumnDef):
    """A column with the constraints of standard SQL. constraints: those without a field of their own, by name, in upper case."""

    default: Expr | None = None
    generated: Expr | None = None
    constraints: tuple[str, ...] = ()
    checks: tuple[Check, ...] = ()


@dataclass(frozen=True, slots=True)
class Watermark(Form):
    """WATERMARK FOR column AS bound."""

    column: str
    bound: Expr


@dataclass(frozen=True, slots=True, kw_only=True)
class CreateTable(Statement):
    """CREATE [OR REPLACE] [SOURCE] TABLE|STREAM [IF NOT EXISTS] name (columns ...) [APPEND ONLY] [WITH (...)].

    primary_key: of the table as a whole. constraints: other ones of the table and clauses behind the
    list, by name, with their spans. versions: columns of RisingWave's WITH VERSION COLUMN. checks: of the table as a whole.
    """

    name: str
    kind: Literal["stream", "table"] = "table"
    columns: tuple[ColumnDefinition, ...] = ()
    primary_key: tuple[str, ...] = ()
    watermarks: tuple[Watermark, ...] = ()
    append_only: bool = False
    constraints: tuple[tuple[str, Span], ...] = field(default=(), compare=False)
    properties: tuple[Property, ...] = ()
    or_replace: bool = False
    if_not_exists: bool = False
    read_only: bool = False
    versions: tuple[str, ...] = field(default=(), compare=False)
    checks: tuple[Check, ...] = ()
    name_span: Span = field(default=NOWHERE, compare=False)


@dataclass(frozen=True, slots=True)
class Assignment(Form):
    """`column = value`, or `(a, b) = value` of an UPDATE."""

    columns: tuple[str, ...]
    value: Expr


@dataclass(frozen=True, slots=True)
class OnConflict(Form):
    """ON CONFLICT [(columns)] DO UPDATE SET ... [WHERE ...]; without assignments DO NOTHING."""

    columns: tuple[str, ...] = ()
    assignments: tuple[Assignment, ...] = ()
    where: Expr | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Insert(Statement):
    """INSERT INTO target [AS alias] [(columns)] query [ON CONFLICT ...] [RETURNING ...].

    query: VALUES is one; None for DEFAULT VALUES. query_text: it as written.
    """

    target: str
    columns: tuple[str, ...] = ()
    query: Query | None = None
    properties: tuple[Property, ...] = ()
    returning: tuple[Item, ...] = ()
    on_conflict: OnConflict | None = None
    alias: str | None = None
    query_text: str = field(default="", compare=False, repr=False)
    name_span: Span = field(default=NOWHERE, compare=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class Change(Statement):
    """[WITH ...] verb target [AS alias] [FROM|USING source] [WHERE ...] [RETURNING ...]: a change of rows that exist."""

    target: str
    alias: str | None = None
    source: Relation | None = None
    where: Expr | None = None
    returning: tuple[Item, ...] = ()
    with_: tuple[With, ...] = ()
    recursive: bool = False
    name_span: Span = field(default=NOWHERE, compare=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class Update(Change):
    """UPDATE ... SET ... FROM."""

    assignments: tuple[Assignment, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Delete(Change):
    """DELETE FROM ... USING."""


@dataclass(frozen=True, slots=True)
class CopyRows(Statement):
    """COPY target [(columns)] FROM a file or a client. columns empty: those that the rows have."""

    target: str = ""
    columns: tuple[str, ...] = ()
    origin: CopyFrom = field(default_factory=lambda: CopyFrom(""))
    name_span: Span = field(default=NOWHERE, compare=False)


def is_row_statement(statement: Statement) -> bool:
    """Whether it changes rows, and defines nothing."""
    return isinstance(statement, InsertRow | Insert | Change | CopyRows)
