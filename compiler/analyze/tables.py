"""CREATE TABLE of one's own: its rows are held in a topic of the application, the last record of each key."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from flowql.compiler.analyze.bind import Binder
from flowql.compiler.analyze.certain_failures import refuse_failing
from flowql.compiler.analyze.formats import check_columns
from flowql.compiler.analyze.mistakes import mistake, unsupported
from flowql.compiler.analyze.properties import read_properties
from flowql.compiler.analyze.scope import Scope, ScopeColumn
from flowql.compiler.analyze.sources import RESERVED, resolve_type
from flowql.compiler.analyze.values import assigned
from flowql.compiler.catalog.catalog import Catalog
from flowql.compiler.diagnostics.source import NOWHERE, Span
from flowql.compiler.dialect.ast import AlterSource, Check
from flowql.compiler.dialect.table_statements import CreateTable, TableColumn
from flowql.compiler.functions.registry import lookup
from flowql.compiler.plan.expr import Call, Expr, columns_of, walk
from flowql.compiler.plan.logical import Format, NamedExpr
from flowql.compiler.plan.schema import Field, Schema
from flowql.compiler.plan.tables import HIDDEN, ROW_NUMBER, Identity, TableRules
from flowql.compiler.plan.topology import SourceDef
from flowql.compiler.plan.types import BIGINT, INT, JSONB, SPAN, Kind

FOR_TABLE = frozenset({"PARTITIONS"})
RESULT_PREFIX = "ksql.output.topic.name.prefix"
_NOT_KEYS = (Kind.ARRAY, Kind.MAP, Kind.STRUCT)


def bind_table(statement: CreateTable, catalog: Catalog, session: Mapping[str, str], at: Span) -> SourceDef:
    """The table. Raises CompileError."""
    name = statement.name
    if statement.or_replace:
        title = f"CREATE OR REPLACE of {name}, a local table, is not supported"
        help = f"write  ALTER TABLE {name} ADD COLUMN ..., or DROP TABLE {name} first"
        raise unsupported(title, at, "would lose its rows", help=help)
    fields = _fields(statement, catalog)
    schema = _schema(statement.primary_key, fields)
    for field in schema.key:
        if field.type.kind in _NOT_KEYS or field.type == SPAN:
            title = f"column {field.name} of the PRIMARY KEY of {name} is {field.type}"
            raise mistake("FQ2022", title, at, "cannot be compared as a key", help="use a number, a string or a time")
    if statement.on_duplicate != "error" and not statement.primary_key:
        raise mistake("FQ2022", f"ON CONFLICT of {name} needs a PRIMARY KEY", at, "no PRIMARY KEY")
    for field in fields:
        if field.name in statement.versions and (
            field.type.kind in (*_NOT_KEYS, Kind.DOUBLE) or field.type in (SPAN, JSONB)
        ):
            title = f"column {field.name}, the VERSION COLUMN of {name}, is {field.type}"
            raise mistake(
                "FQ2022", title, at, "cannot be compared as a version", help="use a whole number, a string or a time"
            )
    key_format, value_format = Format("JSON", wrap=False), Format("JSON")
    check_columns("key", "JSON", schema.key, at)
    check_columns("value", "JSON", schema.value, at)
    properties = read_properties(statement.properties, FOR_TABLE, catalog.fold)
    return SourceDef(
        name=name,
        kind="table",
        topic=catalog.naming.made(result_topic(name, session)),
        schema=schema,
        key_format=key_format,
        value_format=value_format,
        partitions=properties.partitions,
        statement=statement.text,
        relation=True,
        columns=tuple(f.name for f in fields),
        rules=TableRules(
            tuple(c.name for c in statement.columns if c.not_null or c.name in statement.primary_key),
            _defaults(statement.columns, fields, catalog),
            statement.append_only,
            statement.on_duplicate,
            _generated(statement, fields, catalog),
            _numbered(statement, fields),
            statement.versions,
            _checks(name, statement.checks, fields, catalog),
            _checks(name, statement.limits, fields, catalog),
        ),
        watermark=statement.watermark,
    )


def result_topic(name: str, session: Mapping[str, str]) -> str:
    """The topic of a result or a local table that names none, without the target's prefix."""
    return session.get(RESULT_PREFIX, "") + name


def _fields(statement: CreateTable, catalog: Catalog) -> list[Field]:
    """Its columns in the order declared, all of role `value`."""
    fields: dict[str, Field] = {}
    for column in statement.columns:
        if column.name in RESERVED or column.name.startswith(HIDDEN):
            title = f"'{column.name}' is a reserved column name and cannot name a column"
            raise mistake("FQ2008", title, column.span, "reserved", help="choose another name")
        if column.name in fields:
            title = f"column {column.name} of {statement.name} is defined twice"
            raise mistake("FQ2004", title, column.span, "defined before")
        fields[column.name] = Field(column.name, resolve_type(column.type, catalog, column.span))
    return [*fields.values()]


def _schema(primary_key: Sequence[str], fields: Sequence[Field]) -> Schema:
    by_name = {f.name: f for f in fields}
    keys = [Field(n, by_name[n].type, "key") for n in primary_key] or [Field(ROW_NUMBER, BIGINT, "key")]
    return Schema((*keys, *(f for f in fields if f.name not in primary_key)))


def _defaults(columns: Sequence[TableColumn], fields: Sequence[Field], catalog: Catalog) -> tuple[NamedExpr, ...]:
    binder = Binder(Scope((), ()), catalog, "DEFAULT")
    found: list[NamedExpr] = []
    for column, field in zip(columns, fields, strict=True):
        if column.default is None:
            continue
        e: Expr = assigned(column.default, binder, field)
        assert not columns_of(e)
        refuse_failing([e])
        found.append(NamedExpr(field.name, e))
    return tuple(found)


def _numbered(statement: CreateTable, fields: Sequence[Field]) -> tuple[str, Identity] | None:
    found = [(c, f) for c, f in zip(statement.columns, fields, strict=True) if c.identity is not None]
    for column, field in found:
        if field.type not in (INT, BIGINT):
            title = f"column {field.name} is {field.type}: an identity column has whole numbers"
            raise mistake("FQ2022", title, column.span, "not a whole number", help="write  BIGINT")
    if len(found) > 1:
        title = f"{statement.name} has more than one identity column"
        raise mistake("FQ2022", title, found[1][0].span, "the second one", help="leave one of them out")
    return next(((f.name, c.identity) for c, f in found if c.identity is not None), None)


def _generated(statement: CreateTable, fields: Sequence[Field], catalog: Catalog) -> tuple[NamedExpr, ...]:
    """Computed from the columns that are not computed themselves, so that there is no order among them."""
    made = {c.name for c in statement.columns if c.generated is not None}
    binder = Binder(_row(statement.name, fields), catalog, "GENERATED")
    found: list[NamedExpr] = []
    for column, field in zip(statement.columns, fields, strict=True):
        if column.generated is None:
            continue
        e = assigned(column.generated, binder, field)
        at = span_of(column.generated, column.span)
        others = sorted(columns_of(e) & made)
        if others:
            title = f"column {field.name} is computed from {others[0]}, which is computed itself"
            raise mistake(
                "FQ2005",
                title,
                at,
                "computed from a computed column",
                help=f"write the expression of {others[0]} instead",
            )
        _refuse_unrepeatable(e, f"column {field.name} is computed", "write  DEFAULT, or give the value in INSERT", at)
        refuse_failing([e])
        found.append(NamedExpr(field.name, e))
    return tuple(found)


def _row(name: str, fields: Sequence[Field]) -> Scope:
    """The columns of a row of the table."""
    return Scope(tuple(ScopeColumn(name, f.name, f.type, f.name, "value") for f in fields), (name,))


def _refuse_unrepeatable(e: Expr, what: str, help: str, at: Span) -> None:
    for call in walk(e):
        function = lookup(call.name) if isinstance(call, Call) else None
        if function is not None and not function.deterministic:
            title = f"{what} by {function.name.upper()}, which gives another value each time"
            raise mistake("FQ2005", title, at, "another value each time", help=help)


def _checks(name: str, checks: Sequence[Check], fields: Sequence[Field], catalog: Catalog) -> tuple[NamedExpr, ...]:
    binder = Binder(_row(name, fields), catalog, "CHECK")
    found: list[NamedExpr] = []
    for check in checks:
        e = binder.condition(check.condition)
        _refuse_unrepeatable(e, "rows are checked", "compare columns with each other and with constants", check.span)
        refuse_failing([e])
        found.append(NamedExpr(check.what, e))
    return tuple(found)


def with_limits(source: SourceDef, statement: AlterSource, catalog: Catalog) -> SourceDef:
    """A source to which columns were added, with what their types say of values in a table of one's own."""
    if source.rules is None:
        return source
    added = [c.limit for c in statement.columns if c.limit is not None]
    limits = _checks(source.name, added, source.schema.fields, catalog)
    return replace(source, rules=replace(source.rules, limits=(*source.rules.limits, *limits)))


def key_of(source: SourceDef) -> tuple[str, ...]:
    """The columns of its PRIMARY KEY; none where rows are told apart by their number."""
    return tuple(f.name for f in source.schema.key if not f.name.startswith(HIDDEN))


def span_of(node: object, otherwise: Span) -> Span:
    """Where a part of a statement stands."""
    at = getattr(node, "span", NOWHERE)
    return at if isinstance(at, Span) and at != NOWHERE else otherwise
