"""Statements about tables of one's own, whose rows are inserted, updated and deleted.

In these trees None in the place of a value is DEFAULT. normal: a statement's text without comments and in one spelling.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from flowql.compiler.diagnostics.source import NOWHERE, Span
from flowql.compiler.dialect.ast import Ast, Check, InsertRow, Property, SelectItem, Statement, TypeRef
from flowql.compiler.plan.tables import CopyFrom, Identity, OnDuplicate
from flowql.compiler.plan.watermarks import Watermark


@dataclass(frozen=True, slots=True)
class TableColumn:
    """A column. default: None when none is written. generated: what it is computed from, if it is. identity: whether it is one."""

    name: str
    type: TypeRef
    not_null: bool = False
    default: Ast | None = None
    generated: Ast | None = None
    identity: Identity | None = None
    span: Span = field(default=NOWHERE, compare=False)


@dataclass(frozen=True, slots=True)
class CreateTable(Statement):
    """CREATE TABLE [IF NOT EXISTS] name (columns) [APPEND ONLY] [ON CONFLICT ...] [WITH (PARTITIONS=n)].

    primary_key: in the order in which the constraint names it. on_duplicate: what INSERT does with a key that exists, where the
    statement does not say. versions: columns that tell whether the row inserted is the newer one. limits: checks by the types of columns.
    """

    name: str = ""
    columns: tuple[TableColumn, ...] = ()
    primary_key: tuple[str, ...] = ()
    append_only: bool = False
    watermark: Watermark | None = None
    on_duplicate: OnDuplicate = "error"
    versions: tuple[str, ...] = ()
    checks: tuple[Check, ...] = ()
    limits: tuple[Check, ...] = ()
    properties: tuple[Property, ...] = ()
    or_replace: bool = False
    if_not_exists: bool = False
    name_span: Span = field(default=NOWHERE, compare=False)


@dataclass(frozen=True, slots=True)
class Setting:
    """`column = value` of an UPDATE."""

    column: str
    value: Ast | None
    span: Span = field(default=NOWHERE, compare=False)


@dataclass(frozen=True, slots=True)
class OnConflict:
    """ON CONFLICT [(columns)] DO NOTHING | DO UPDATE SET ... [WHERE ...] of an INSERT."""

    columns: tuple[str, ...] = ()
    settings: tuple[Setting, ...] = ()
    where: Ast | None = None
    span: Span = field(default=NOWHERE, compare=False)


@dataclass(frozen=True, slots=True)
class InsertRows(Statement):
    """INSERT INTO target [AS alias] [(columns)] VALUES ... or DEFAULT VALUES (one row without values). columns empty: all, in order."""

    target: str = ""
    columns: tuple[str, ...] = ()
    rows: tuple[tuple[Ast | None, ...], ...] = ()
    on_conflict: OnConflict | None = None
    name_span: Span = field(default=NOWHERE, compare=False)
    normal: str = field(default="", compare=False)
    alias: str | None = None
    returning: tuple[SelectItem, ...] = ()


@dataclass(frozen=True, slots=True)
class Beside:
    """A relation of FROM or USING. name: empty where it is not a relation with columns of its own name, as a sub-query."""

    alias: str
    name: str
    span: Span = field(default=NOWHERE, compare=False)


@dataclass(frozen=True, slots=True)
class RowsQuery:
    """Where rows of other relations decide what an UPDATE or DELETE changes: the query whose rows say it.

    settings: for each value behind the columns that tell rows apart, the column that gets it. text: of the query, given
    the columns that tell rows apart, and the alias and the name of each column of FROM that is selected behind all values.
    beside: the relations of FROM or USING.
    """

    settings: tuple[Setting, ...]
    text: Callable[[Sequence[str], Sequence[tuple[str, str]]], str] = field(compare=False)
    beside: tuple[Beside, ...] = ()


@dataclass(frozen=True, slots=True)
class UpdateRows(Statement):
    """UPDATE target [alias] SET ... [FROM ...] [WHERE ...]. query: in place of a condition; settings are then those with DEFAULT."""

    target: str = ""
    alias: str | None = None
    settings: tuple[Setting, ...] = ()
    where: Ast | None = None
    name_span: Span = field(default=NOWHERE, compare=False)
    normal: str = field(default="", compare=False)
    query: RowsQuery | None = None
    returning: tuple[SelectItem, ...] = ()


@dataclass(frozen=True, slots=True)
class DeleteRows(Statement):
    """DELETE FROM target [alias] [USING ...] [WHERE ...]. query: in place of a condition."""

    target: str = ""
    alias: str | None = None
    where: Ast | None = None
    name_span: Span = field(default=NOWHERE, compare=False)
    normal: str = field(default="", compare=False)
    query: RowsQuery | None = None
    returning: tuple[SelectItem, ...] = ()


@dataclass(frozen=True, slots=True)
class CopyRows(Statement):
    """COPY target [(columns)] FROM a file or a client. columns empty: those that the rows have."""

    target: str = ""
    columns: tuple[str, ...] = ()
    origin: CopyFrom = field(default_factory=lambda: CopyFrom(""))
    name_span: Span = field(default=NOWHERE, compare=False)


def row_statements(s: InsertRows) -> list[InsertRow] | None:
    """One statement per row, as ksqlDB has it; None where a value is DEFAULT."""
    rows = [tuple(v for v in row if v is not None) for row in s.rows]
    if not all(s.rows) or any(len(a) < len(b) for a, b in zip(rows, s.rows, strict=True)):
        return None
    return [InsertRow(s.text, s.span, s.target, s.columns, row, s.name_span) for row in rows]
