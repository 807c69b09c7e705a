"""Types as written, as those of the plan: each dialect has names of its own, and both have types that CREATE TYPE defines."""

from __future__ import annotations

from dataclasses import replace

from flowql.compiler.analyze import mistakes
from flowql.compiler.catalog.catalog import Catalog
from flowql.compiler.catalog.names import correction, did_you_mean
from flowql.compiler.diagnostics.edits import renamed
from flowql.compiler.diagnostics.source import NOWHERE, Span
from flowql.compiler.dialect.ast import TypeRef
from flowql.compiler.dialect.standard.refuse import fail, unsupported
from flowql.compiler.functions.sql_calendar import DIGITS, finer
from flowql.compiler.plan import types as t
from flowql.compiler.plan.types import Kind, SqlType

ANY_DIGITS = -1
_KNOWN: dict[str, SqlType] = {
    **dict.fromkeys(("boolean", "bool"), t.BOOLEAN),
    **dict.fromkeys(("tinyint", "smallint", "int2", "int", "integer", "int4"), t.INT),
    **dict.fromkeys(("bigint", "int8"), t.BIGINT),
    **dict.fromkeys(("double", "float", "float8", "real", "float4"), t.DOUBLE),
    **dict.fromkeys(("string", "varchar", "text", "char"), t.STRING),
    **dict.fromkeys(("bytes", "bytea", "blob", "varbinary"), t.BYTES),
    "date": t.DATE,
    "time": t.TIME,
    "timestamp": t.TIMESTAMP,
    "timestamptz": t.TIMESTAMPTZ,
    "jsonb": t.JSONB,
    "uuid": t.UUID,
    "interval": t.SPAN,
}
_SPELLINGS = (*_KNOWN, "decimal", "numeric", "array", "map", "struct")
# Types of other systems -> the nearest type of FlowQL.
_FOREIGN = {
    "number": "numeric", "varchar2": "varchar", "nvarchar": "varchar", "nvarchar2": "varchar", "nchar": "char", "datetime": "timestamp",
    "datetime2": "timestamp", "smalldatetime": "timestamp", "timestamp_ltz": "timestamptz", "mediumint": "int", "hugeint": "numeric",
    "uniqueidentifier": "uuid", "tinytext": "text", "mediumtext": "text", "longtext": "text", "clob": "text", "bit": "boolean", "binary": "bytea", "image": "bytea",
}  # fmt: skip
_MISSING = {"timetz": "time", "json": "jsonb", "variant": "jsonb"}
_NUMERIC = t.decimal(38, 18)  # given neither precision nor scale
_MILLIS = 3  # digits of a second that TIMESTAMP and TIME have
_DECIMALS = ("decimal", "dec", "numeric")
# Types of PostgreSQL that are missing, with what to write; a type of the user's own may have such a name.
_MISSING_UNLESS_DECLARED = {
    "money": "write  NUMERIC(12, 2)",
    **dict.fromkeys(("inet", "cidr", "macaddr", "xml", "tsvector", "tsquery", "enum", "citext"), "write  TEXT"),
    **dict.fromkeys(("point", "line", "box", "path", "polygon", "circle"), "write  two columns of  DOUBLE PRECISION"),
    **dict.fromkeys(
        ("int4range", "int8range", "numrange", "tsrange", "tstzrange", "daterange"), "write  two columns, for its ends"
    ),
}


def resolve_type(ref: TypeRef, catalog: Catalog, span: Span = NOWHERE) -> SqlType:
    """The type that is written. span: for messages, where the reference has none. Raises CompileError."""
    if ref.known is not None:
        return ref.known
    at = ref.span if ref.span != NOWHERE else span
    if ref.args:
        inner = [resolve_type(a, catalog, at) for a in ref.args]
        return t.array(*inner) if len(inner) == 1 else t.map_of(*inner)
    name = ref.name if catalog.standard else ""
    if ref.fields or name == "struct":
        return t.struct(*((n, resolve_type(of, catalog, at)) for n, of in ref.fields))
    if name in ("array", "map"):
        shape = "ARRAY<INT>" if name == "array" else "MAP<TEXT, INT>"
        fail("FQ1007", f"{name} needs the types inside", at, help=f"write  {shape}")
    if name in _DECIMALS:
        return _decimal(ref, at)
    if (other := _MISSING.get(name) or _FOREIGN.get(name)) is not None:
        help = f"write  {other.upper() if name in _MISSING else other}"
        unsupported(f"the type {name.upper()}", at, help, edit=renamed(at, name, other, first=True))
    known = _KNOWN.get(name)
    if known is not None:
        return _moment(ref, known, at) if ref.parameters and known.kind in (Kind.TIMESTAMP, Kind.TIME) else known
    if ref.parameters:
        unsupported(f"the type {name.upper()} with parameters", at)
    return _declared(ref.name, catalog, at)


def cast_type(ref: TypeRef, catalog: Catalog, span: Span) -> tuple[SqlType, int | None]:
    """The type that a CAST names, and how many digits of a second it keeps.

    A TIMESTAMP or TIMESTAMPTZ without a parameter has ANY_DIGITS. Other types, and all types of ksqlDB's dialect, have None.
    """
    known = _KNOWN.get(ref.name) if catalog.standard else None
    digits = ref.parameters[0] if ref.parameters else ANY_DIGITS
    if known not in (t.TIMESTAMP, t.TIMESTAMPTZ) or digits > DIGITS or len(ref.parameters) > 1:
        return resolve_type(ref, catalog, span), None
    return finer(known) if digits > _MILLIS else known, digits


def as_written(ref: TypeRef, catalog: Catalog) -> TypeRef:
    """The type with those of CREATE TYPE as they are written there, with their limits of values."""
    if not catalog.standard or ref.known is not None:
        return ref
    if ref.name in catalog.types and ref.name not in _SPELLINGS:
        found: TypeRef = catalog.written[ref.name]
        return found
    args, fields = (as_written(a, catalog) for a in ref.args), ((n, as_written(of, catalog)) for n, of in ref.fields)
    return replace(ref, args=tuple(args), fields=tuple(fields))


def _declared(name: str, catalog: Catalog, at: Span) -> SqlType:
    """A type of CREATE TYPE."""
    found = catalog.types.get(name)
    if found is not None:
        return found
    if catalog.standard and name.lower() in _MISSING_UNLESS_DECLARED:
        title = f"the type {name.upper()} is not supported yet"
        raise mistakes.unsupported(title, at, "not supported yet", help=_MISSING_UNLESS_DECLARED[name.lower()])
    names = [*catalog.types, *(_SPELLINGS if catalog.standard else (k.value for k in Kind))]
    hint, edit = did_you_mean(name, names), correction(at, name, names, first=True)
    raise mistakes.mistake("FQ2001", f"unknown type {name}", at, "not a type", help=hint, edit=edit)


def _moment(ref: TypeRef, known: SqlType, at: Span) -> SqlType:
    """TIMESTAMP(p) of a column, which keeps milliseconds or microseconds and rounds nothing."""
    digits, name = ref.parameters[0], ref.name.upper()
    if len(ref.parameters) > 1 or digits > DIGITS:
        title = (
            f"{name}({', '.join(map(str, ref.parameters))}) is not a type: a time has up to {DIGITS} digits of a second"
        )
        fail("FQ1007", title, at, help=f"write  {name}({DIGITS})")
    if digits < _MILLIS:
        cut = f"write  {name}  , and  DATE_TRUNC('second', ...)  for what is written to it"
        unsupported(f"rounding by the type {name}({digits})", at, cut)
    if known.kind is Kind.TIME or digits == _MILLIS:
        return known
    if digits < DIGITS:
        help = f"write  {name}({DIGITS})  , and  CAST(... AS {name}({digits}))  for what is written to it"
        unsupported(f"rounding by the type {name}({digits})", at, help)
    return finer(known)


def _decimal(ref: TypeRef, at: Span) -> SqlType:
    if not ref.parameters:
        return _NUMERIC
    precision, scale = (*ref.parameters, 0)[:2]
    if precision < 1 or scale > precision or len(ref.parameters) > 2:
        title = f"NUMERIC({precision}, {scale}) is not a type: precision must be at least 1 and at least the scale"
        fail("FQ1007", title, at, help="write  NUMERIC(10, 2)")
    return t.decimal(precision, scale)
