"""The syntax tree the analyzer reads: few node kinds, every one with its span, names already folded.

Both the SQL text and the structured YAML form produce these. Operators are `Func` nodes with reserved
lower-case names, ordinary functions have upper-case names:

    add sub mul div mod neg  eq ne lt le gt ge  and or not  like not_like (2 or 3 args: escape)
    in not_in (first arg, then the list)  between not_between  is_null is_not_null
    is_distinct is_not_distinct  subscript (base, index)  field (base, Lit name)  case (when, then, ..., else)
    array (elements)  map (k1, v1, k2, v2, ...)  struct (Lit name, value, ...)

`COUNT(*)` is COUNT without arguments; `a || b` is CONCAT (in the standard dialect concat); `CASE x WHEN v` is a case of `x = v`; `DATE '...'` is a
CastTo; the bare unit of `TIMESTAMPADD(DAYS, 3, t)` is a string Lit, upper case as written.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from decimal import Decimal
from typing import Any, ClassVar, Literal

from flowql.compiler.diagnostics.source import NOWHERE, Span
from flowql.compiler.plan.types import SqlType
from flowql.compiler.plan.watermarks import Watermark


class Node:
    """Base of the nodes of expressions, types and queries. Spans do not count in comparisons."""

    __slots__ = ()
    __dataclass_fields__: ClassVar[dict[str, Any]]  # each kind of node is a dataclass
    span: Span


@dataclass(frozen=True, slots=True)
class Name(Node):
    """A column reference: (`col`,) or (`source`, `col`), parts folded unless they were quoted."""

    parts: tuple[str, ...]
    span: Span = field(default=NOWHERE, compare=False)


@dataclass(frozen=True, slots=True)
class Lit(Node):
    """A literal. kind: int, bigint, decimal, double, string, bool, null, interval (value: ms); number: as standard SQL writes it."""

    kind: Literal["number", "int", "bigint", "decimal", "double", "string", "bool", "null", "interval"]
    value: int | float | str | bool | Decimal | None
    span: Span = field(default=NOWHERE, compare=False)


@dataclass(frozen=True, slots=True)
class Func(Node):
    """A function call or operator (see the module docstring)."""

    name: str
    args: tuple[Ast, ...]
    span: Span = field(default=NOWHERE, compare=False)
    distinct: bool = False
    filter: Ast | None = None


@dataclass(frozen=True, slots=True)
class CastTo(Node):
    """CAST(operand AS type) or operand::type; safe: TRY_CAST."""

    operand: Ast
    type: TypeRef
    span: Span = field(default=NOWHERE, compare=False)
    safe: bool = False


@dataclass(frozen=True, slots=True)
class LambdaFn(Node):
    """`x => body` or `(x, y) => body`."""

    params: tuple[str, ...]
    body: Ast
    span: Span = field(default=NOWHERE, compare=False)


@dataclass(frozen=True, slots=True)
class Star(Node):
    """`*` or `source.*` in a select list; `struct_of` for `expr->*` and `(expr).*`; excluded: columns of standard SQL's EXCEPT (...)."""

    qualifier: tuple[str, ...] = ()
    struct_of: Ast | None = None
    excluded: tuple[Name, ...] = ()
    span: Span = field(default=NOWHERE, compare=False)

    @property
    def source(self) -> str | None:
        return self.qualifier[-1] if self.qualifier else None


Ast = Node


@dataclass(frozen=True, slots=True)
class TypeRef(Node):
    """A type as written; `analyze.types` says what it means. known: a type of the plan, which then is its meaning.

    name: in standard SQL in lower case, of one spelling where there are several (`character varying` is `varchar`); in ksqlDB's dialect
    that of a custom type, or of a container with custom types inside. parameters: `numeric(10, 2)`. args: of `array<t>` and
    `map<k, v>`. fields: of `struct<a int>`. `int[][]` is an `array` of an `array`.
    """

    name: str = ""
    parameters: tuple[int, ...] = ()
    args: tuple[TypeRef, ...] = ()
    fields: tuple[tuple[str, TypeRef], ...] = ()
    known: SqlType | None = None
    span: Span = field(default=NOWHERE, compare=False)


@dataclass(frozen=True, slots=True)
class SelectItem(Node):
    """One item of a select list. `alias` is None when none was written."""

    expr: Ast
    alias: str | None = None
    span: Span = field(default=NOWHERE, compare=False)


@dataclass(frozen=True, slots=True)
class TableRef(Node):
    """A source in FROM or JOIN: a named source, or a nested query (standard SQL)."""

    name: str
    alias: str | None = None
    query: Query | None = None
    span: Span = field(default=NOWHERE, compare=False)


@dataclass(frozen=True, slots=True)
class WithinClause:
    """WITHIN of a stream-stream join, in ms; `grace_ms` None when not written."""

    before_ms: int
    after_ms: int
    grace_ms: int | None = None
    span: Span = field(default=NOWHERE, compare=False)


@dataclass(frozen=True, slots=True)
class JoinClause(Node):
    """One JOIN: kind as written, the right side, its ON expression, WITHIN."""

    kind: Literal["inner", "left", "right", "full"]
    right: TableRef
    on: Ast
    within: WithinClause | None = None
    span: Span = field(default=NOWHERE, compare=False)


@dataclass(frozen=True, slots=True)
class WindowClause:
    """WINDOW of a grouped query, in ms. For sessions `size_ms` is the gap."""

    kind: Literal["tumbling", "hopping", "cumulating", "session"]
    size_ms: int
    advance_ms: int | None = None
    grace_ms: int | None = None
    retention_ms: int | None = None
    span: Span = field(default=NOWHERE, compare=False)


@dataclass(frozen=True, slots=True)
class Query(Node):
    """A SELECT. `emit` None when neither CHANGES nor FINAL was written."""

    select: tuple[SelectItem, ...]
    source: TableRef
    joins: tuple[JoinClause, ...] = ()
    where: Ast | None = None
    group_by: tuple[Ast, ...] = ()
    partition_by: tuple[Ast, ...] = ()
    window: WindowClause | None = None
    having: Ast | None = None
    emit: Literal["changes", "final"] | None = None
    limit: int | None = None
    span: Span = field(default=NOWHERE, compare=False)


@dataclass(frozen=True, slots=True)
class Property:
    """One entry of WITH (...): upper-case name, constant value, spans of both."""

    name: str
    value: int | float | str | bool | Decimal | None
    span: Span = field(default=NOWHERE, compare=False)
    value_span: Span = field(default=NOWHERE, compare=False)


@dataclass(frozen=True, slots=True)
class ColumnDef(Node):
    """A column of CREATE STREAM/TABLE. role: value, key, primary_key, header (header_key: `HEADER('x')`). properties: of its WITH."""

    name: str
    type: TypeRef
    role: Literal["value", "key", "primary_key", "header"] = "value"
    header_key: str = ""
    span: Span = field(default=NOWHERE, compare=False)
    properties: tuple[Property, ...] = ()


@dataclass(frozen=True, slots=True)
class Statement:
    """Base of all statements. `text` is the statement as written, without the semicolon."""

    text: str
    span: Span = field(default=NOWHERE, compare=False)


@dataclass(frozen=True, slots=True)
class CreateSource(Statement):
    """CREATE [OR REPLACE] [SOURCE] STREAM|TABLE [IF NOT EXISTS] name (columns) WITH (...)."""

    name: str = ""
    kind: Literal["stream", "table"] = "stream"
    columns: tuple[ColumnDef, ...] = ()
    properties: tuple[Property, ...] = ()
    or_replace: bool = False
    if_not_exists: bool = False
    read_only: bool = False
    watermark: Watermark | None = None  # of standard SQL
    name_span: Span = field(default=NOWHERE, compare=False)


@dataclass(frozen=True, slots=True)
class CreateAs(Statement):
    """CREATE [OR REPLACE] STREAM|TABLE [IF NOT EXISTS] name WITH (...) AS query."""

    name: str = ""
    kind: Literal["stream", "table"] = "stream"
    query: Query | None = None
    properties: tuple[Property, ...] = ()
    or_replace: bool = False
    if_not_exists: bool = False
    name_span: Span = field(default=NOWHERE, compare=False)


@dataclass(frozen=True, slots=True)
class InsertInto(Statement):
    """INSERT INTO target [WITH (QUERY_ID=...)] query."""

    target: str = ""
    query: Query | None = None
    properties: tuple[Property, ...] = ()
    name_span: Span = field(default=NOWHERE, compare=False)


@dataclass(frozen=True, slots=True)
class InsertRow(Statement):
    """INSERT INTO target [(columns)] VALUES (...). `columns` empty: all, in order."""

    target: str = ""
    columns: tuple[str, ...] = ()
    values: tuple[Ast, ...] = ()
    name_span: Span = field(default=NOWHERE, compare=False)


@dataclass(frozen=True, slots=True)
class AssertRow(Statement):
    """ASSERT [NULL] VALUES target [(columns)] VALUES (...): in a test, the next record of a result. deleted: NULL."""

    target: str = ""
    columns: tuple[str, ...] = ()
    values: tuple[Ast, ...] = ()
    deleted: bool = False
    name_span: Span = field(default=NOWHERE, compare=False)


@dataclass(frozen=True, slots=True)
class AssertTopic(Statement):
    """ASSERT [NOT EXISTS] TOPIC name [WITH (...)] [TIMEOUT duration]. timeout_ms: None when not written."""

    topic: str = ""
    exists: bool = True
    properties: tuple[Property, ...] = ()
    timeout_ms: int | None = None
    name_span: Span = field(default=NOWHERE, compare=False)


@dataclass(frozen=True, slots=True)
class AssertSchema(Statement):
    """ASSERT [NOT EXISTS] SCHEMA [SUBJECT name] [ID n] [TIMEOUT duration]; one of subject and id at least."""

    subject: str = ""
    schema_id: int | None = None
    exists: bool = True
    timeout_ms: int | None = None
    name_span: Span = field(default=NOWHERE, compare=False)


@dataclass(frozen=True, slots=True)
class Drop(Statement):
    """DROP STREAM|TABLE|TYPE [IF EXISTS] name [DELETE TOPIC]. view: of standard SQL, a stream or a table that a query makes."""

    name: str = ""
    kind: Literal["stream", "table", "type", "view"] = "stream"
    if_exists: bool = False
    delete_topic: bool = False
    name_span: Span = field(default=NOWHERE, compare=False)


@dataclass(frozen=True, slots=True)
class CreateType(Statement):
    """CREATE TYPE [IF NOT EXISTS] name AS type."""

    name: str = ""
    type: TypeRef | None = None
    if_not_exists: bool = False
    name_span: Span = field(default=NOWHERE, compare=False)


@dataclass(frozen=True, slots=True)
class SetProperty(Statement):
    """SET 'name' = 'value'; UNSET has value None."""

    name: str = ""
    value: str | None = None


@dataclass(frozen=True, slots=True)
class AlterSource(Statement):
    """ALTER STREAM|TABLE name ADD COLUMN column type, ...: statements around it keep their order."""

    name: str = ""
    kind: Literal["stream", "table"] = "stream"
    columns: tuple[ColumnDef, ...] = ()
    name_span: Span = field(default=NOWHERE, compare=False)
    or_replace: bool = True


@dataclass(frozen=True, slots=True)
class QueryControl(Statement):
    """TERMINATE|PAUSE|RESUME query, or ALL of them (query empty)."""

    verb: Literal["terminate", "pause", "resume"] = "pause"
    query: str = ""
    name_span: Span = field(default=NOWHERE, compare=False)


@dataclass(frozen=True, slots=True)
class OtherStatement(Statement):
    """A statement FlowQL knows by name and that defines nothing, or is not supported yet (LIST, PRINT, ...): `verb` names it."""

    verb: str = ""
