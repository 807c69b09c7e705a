"""Types of the tree as those of the plan."""

from __future__ import annotations

from flowql.compiler.diagnostics.edits import renamed
from flowql.compiler.dialect.ast import ANY_DIGITS, TypeRef
from flowql.compiler.dialect.standard.refuse import fail, unsupported
from flowql.compiler.dialect.standard.tree import TypeName
from flowql.compiler.dialect.type_refs import container_of, struct_of
from flowql.compiler.functions.sql_calendar import DIGITS, finer
from flowql.compiler.plan import types as t
from flowql.compiler.plan.types import SqlType

_KNOWN: dict[str, SqlType] = {
    "boolean": t.BOOLEAN,
    "bool": t.BOOLEAN,
    "tinyint": t.INT,
    "smallint": t.INT,
    "int2": t.INT,
    "int": t.INT,
    "integer": t.INT,
    "int4": t.INT,
    "bigint": t.BIGINT,
    "int8": t.BIGINT,
    "double": t.DOUBLE,
    "float": t.DOUBLE,
    "float8": t.DOUBLE,
    "real": t.DOUBLE,
    "float4": t.DOUBLE,
    "string": t.STRING,
    "varchar": t.STRING,
    "text": t.STRING,
    "char": t.STRING,
    "bytes": t.BYTES,
    "bytea": t.BYTES,
    "blob": t.BYTES,
    "varbinary": t.BYTES,
    "date": t.DATE,
    "time": t.TIME,
    "timestamp": t.TIMESTAMP,
    "timestamptz": t.TIMESTAMPTZ,
    "jsonb": t.JSONB,
    "uuid": t.UUID,
    "interval": t.SPAN,
}
SPELLINGS = (*_KNOWN, "decimal", "numeric", "array", "map", "struct")
# Types of other systems -> what is nearest here.
_FOREIGN = {
    "number": "numeric", "varchar2": "varchar", "nvarchar": "varchar", "nvarchar2": "varchar", "nchar": "char", "datetime": "timestamp",
    "datetime2": "timestamp", "smalldatetime": "timestamp", "timestamp_ltz": "timestamptz", "mediumint": "int", "hugeint": "numeric",
    "uniqueidentifier": "uuid", "tinytext": "text", "mediumtext": "text", "longtext": "text", "clob": "text", "bit": "boolean", "binary": "bytea", "image": "bytea",
}  # fmt: skip
_NUMERIC = t.decimal(38, 18)  # given neither precision nor scale
_MILLIS = 3  # digits of a second that TIMESTAMP and TIME have
_DECIMALS = ("decimal", "dec", "numeric")
_MISSING = {"timetz": "write  TIME", "json": "write  JSONB", "variant": "write  JSONB"}
_NEAREST = {"timetz": "time", "json": "jsonb", "variant": "jsonb"}
# Types of PostgreSQL that are missing, with what to write; a type of the user's own may have such a name.
MISSING_UNLESS_DECLARED = {
    "money": "write  NUMERIC(12, 2)",
    **dict.fromkeys(("inet", "cidr", "macaddr", "xml", "tsvector", "tsquery", "enum", "citext"), "write  TEXT"),
    **dict.fromkeys(("point", "line", "box", "path", "polygon", "circle"), "write  two columns of  DOUBLE PRECISION"),
    **dict.fromkeys(
        ("int4range", "int8range", "numrange", "tsrange", "tstzrange", "daterange"), "write  two columns, for its ends"
    ),
}


def lower_cast_type(made: TypeName) -> TypeRef:
    """The type that a CAST names: of TIMESTAMP(p) also to how many digits it rounds."""
    known = _KNOWN.get(made.name)
    if known not in (t.TIMESTAMP, t.TIMESTAMPTZ):
        return lower_type(made)
    digits = made.parameters[0] if made.parameters else ANY_DIGITS
    if digits > DIGITS or len(made.parameters) > 1:
        return lower_type(made)
    return TypeRef(known=finer(known) if digits > _MILLIS else known, span=made.span, digits=digits)


def _moment(made: TypeName, known: SqlType) -> TypeRef:
    """TIMESTAMP(p) of a column, which keeps milliseconds or microseconds and rounds nothing."""
    digits, name = made.parameters[0], made.name.upper()
    if len(made.parameters) > 1 or digits > DIGITS:
        title = f"{name}({', '.join(map(str, made.parameters))}) is not a type: a time has up to {DIGITS} digits of a second"
        fail("FQ1007", title, made.span, help=f"write  {name}({DIGITS})")
    if digits < _MILLIS:
        cut = f"write  {name}  , and  DATE_TRUNC('second', ...)  for what is written to it"
        unsupported(f"rounding by the type {name}({digits})", made.span, cut)
    if known.kind is t.Kind.TIME or digits == _MILLIS:
        return TypeRef(known=known, span=made.span)
    if digits < DIGITS:
        help = f"write  {name}({DIGITS})  , and  CAST(... AS {name}({digits}))  for what is written to it"
        unsupported(f"rounding by the type {name}({digits})", made.span, help)
    return TypeRef(known=finer(known), span=made.span)


def lower_type(made: TypeName) -> TypeRef:
    """A type. Unknown names become types of the user's own, which the analyzer looks up."""
    if made.name in _DECIMALS:
        return _decimal(made)
    if made.name in ("array", "map"):
        if not made.args:
            shape = "ARRAY<INT>" if made.name == "array" else "MAP<TEXT, INT>"
            fail("FQ1007", f"{made.name} needs the types inside", made.span, help=f"write  {shape}")
        return container_of(made.name.upper(), [lower_type(a) for a in made.args], made.span)
    if made.name == "struct":
        return struct_of([(name, lower_type(of)) for name, of in made.fields], made.span)
    if made.name in _MISSING:
        other = _NEAREST.get(made.name, "")
        edit = renamed(made.span, made.name, other, first=True)
        unsupported(f"the type {made.name.upper()}", made.span, _MISSING[made.name], edit=edit)
    if made.name in _FOREIGN:
        other = _FOREIGN[made.name]
        edit = renamed(made.span, made.name, other, first=True)
        unsupported(f"the type {made.name.upper()}", made.span, f"write  {other}", edit=edit)
    known = _KNOWN.get(made.name)
    if known is not None and known.kind in (t.Kind.TIMESTAMP, t.Kind.TIME) and made.parameters:
        return _moment(made, known)
    if known is None and made.parameters:
        unsupported(f"the type {made.name.upper()} with parameters", made.span)
    return TypeRef(known=known, custom="" if known else made.name, span=made.span)


def _decimal(made: TypeName) -> TypeRef:
    if not made.parameters:
        return TypeRef(known=_NUMERIC, span=made.span)
    precision, scale = (*made.parameters, 0)[:2]
    if precision < 1 or scale > precision or len(made.parameters) > 2:
        title = f"NUMERIC({precision}, {scale}) is not a type: precision must be at least 1 and at least the scale"
        fail("FQ1007", title, made.span, help="write  NUMERIC(10, 2)")
    return TypeRef(known=t.decimal(precision, scale), span=made.span)
