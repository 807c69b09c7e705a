"""FlowQL's types as PostgreSQL's: numbers of types (OIDs), and columns of answers.

OIDs: PostgreSQL's `src/include/catalog/pg_type.dat`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import orjson
import pyarrow as pa

from flowql.compiler.plan.codec import from_data
from flowql.compiler.plan.types import JSONB as JSONB_TYPE
from flowql.compiler.plan.types import SPAN, UUID, Kind, SqlType
from flowql.query.errors import NAMES, TYPES

UNSET = -1
_MODIFIER_HEADER = 4  # of a numeric's precision and scale
DIGITS_ANY = 38  # a DECIMAL of as many digits as there can be is numeric without a precision


@dataclass(frozen=True, slots=True)
class PgType:
    """size: bytes of a value, -1 if they vary. modifier: of a numeric its precision and scale. array: number of the type of its arrays.

    element: of an array, the type of its elements. sql: how FlowQL's standard dialect writes it.
    """

    name: str
    oid: int
    size: int
    array: int
    category: str
    sql: str = ""
    modifier: int = UNSET
    element: PgType | None = None

    @property
    def is_vector(self) -> bool:
        return self.element is not None and not self.name.startswith("_")

    @property
    def as_array(self) -> PgType:
        sql = f"{self.sql}[]" if self.sql else ""
        return PgType(f"_{self.name}", self.array, -1, 0, "A", sql, element=replace(self, modifier=UNSET))


BOOL = PgType("bool", 16, 1, 1000, "B", "BOOLEAN")
BYTEA = PgType("bytea", 17, -1, 1001, "U", "BYTEA")
CHAR = PgType("char", 18, 1, 1002, "Z")
NAME = PgType("name", 19, 64, 1003, "S", "VARCHAR")
INT8 = PgType("int8", 20, 8, 1016, "N", "BIGINT")
INT2 = PgType("int2", 21, 2, 1005, "N", "INTEGER")
INT4 = PgType("int4", 23, 4, 1007, "N", "INTEGER")
TEXT = PgType("text", 25, -1, 1009, "S", "VARCHAR")
OID = PgType("oid", 26, 4, 1028, "N", "BIGINT")
JSON = PgType("json", 114, -1, 199, "U", "JSONB")
FLOAT4 = PgType("float4", 700, 4, 1021, "N", "DOUBLE PRECISION")
FLOAT8 = PgType("float8", 701, 8, 1022, "N", "DOUBLE PRECISION")
UNKNOWN = PgType("unknown", 705, -2, 0, "X")
BPCHAR = PgType("bpchar", 1042, -1, 1014, "S", "VARCHAR")
VARCHAR = PgType("varchar", 1043, -1, 1015, "S", "VARCHAR")
DATE = PgType("date", 1082, 4, 1182, "D", "DATE")
TIME = PgType("time", 1083, 8, 1183, "D", "TIME")
TIMESTAMP = PgType("timestamp", 1114, 8, 1115, "D", "TIMESTAMP(6)")
TIMESTAMPTZ = PgType("timestamptz", 1184, 8, 1185, "D", "TIMESTAMPTZ(6)")
INTERVAL = PgType("interval", 1186, 16, 1187, "T", "INTERVAL")
NUMERIC = PgType("numeric", 1700, -1, 1231, "N", "NUMERIC")
UUID_ = PgType("uuid", 2950, 16, 2951, "U", "UUID")
JSONB = PgType("jsonb", 3802, -1, 3807, "U", "JSONB")
VOID = PgType("void", 2278, 4, 0, "P")
REGCLASS = PgType("regclass", 2205, 4, 2210, "N")

# Vectors of the catalogue: arrays that are shown without braces, and whose first place is 0.
INT2VECTOR = PgType("int2vector", 22, -1, 1006, "A", element=INT2)
OIDVECTOR = PgType("oidvector", 30, -1, 1013, "A", element=OID)

SCALARS = (
    *(BOOL, BYTEA, CHAR, NAME, INT8, INT2, INT4, TEXT, OID, JSON, FLOAT4, FLOAT8, UNKNOWN, BPCHAR, VARCHAR, DATE, TIME),
    *(TIMESTAMP, TIMESTAMPTZ, INTERVAL, NUMERIC, UUID_, JSONB, VOID, REGCLASS, INT2VECTOR, OIDVECTOR),
)
ALL = (*SCALARS, *(t.as_array for t in SCALARS if t.array))
BY_OID = {t.oid: t for t in ALL}
_KINDS = {
    Kind.BOOLEAN: BOOL,
    Kind.INT: INT4,
    Kind.BIGINT: INT8,
    Kind.DOUBLE: FLOAT8,
    Kind.DECIMAL: NUMERIC,
    Kind.STRING: TEXT,
    Kind.BYTES: BYTEA,
    Kind.DATE: DATE,
    Kind.TIME: TIME,
    Kind.INTERVAL: INTERVAL,
    Kind.NULL: TEXT,
}


@dataclass(frozen=True, slots=True)
class PgColumn:
    """A column of an answer."""

    name: str
    type: PgType


def pg_type(t: SqlType) -> PgType:
    """STRUCT and MAP, which PostgreSQL has no like of, are JSON."""
    if t.kind in (Kind.TIMESTAMP, Kind.MICROS):
        return TIMESTAMPTZ if t.zoned else TIMESTAMP
    if t.kind is Kind.ARRAY:
        element = pg_type(t.element)
        return (
            element if element.element is not None else element.as_array
        )  # an array of arrays has the type of an array
    if t == SPAN:
        return INTERVAL
    if t == JSONB_TYPE:
        return JSONB
    if t == UUID:
        return UUID_
    if t.kind is Kind.DECIMAL:
        return _numeric(t.precision, t.scale)
    return _KINDS.get(t.kind, JSON)


def _numeric(precision: int, scale: int) -> PgType:
    if precision >= DIGITS_ANY:
        return NUMERIC
    return replace(NUMERIC, modifier=(precision << 16 | scale) + _MODIFIER_HEADER)


def of_arrow(t: pa.DataType) -> PgType:
    """The type of a column whose type in FlowQL is not told: of an answer in DuckDB's SQL."""
    if pa.types.is_dictionary(t):
        return of_arrow(t.value_type)
    for is_, found in _ARROW:
        if is_(t):
            return found
    if pa.types.is_timestamp(t):
        return TIMESTAMP if t.tz is None else TIMESTAMPTZ
    if pa.types.is_decimal(t):
        return _numeric(t.precision, t.scale)
    if pa.types.is_list(t) or pa.types.is_large_list(t) or pa.types.is_fixed_size_list(t):
        element = of_arrow(t.value_type)
        return element if element.element is not None or not element.array else element.as_array
    return JSON


_ARROW = (
    (pa.types.is_boolean, BOOL),
    (pa.types.is_int8, INT2),
    (pa.types.is_uint8, INT2),
    (pa.types.is_int16, INT2),
    (pa.types.is_uint16, INT4),
    (pa.types.is_int32, INT4),
    (pa.types.is_uint32, OID),  # of the catalogue; sums of integers are wider
    (pa.types.is_int64, INT8),
    (pa.types.is_uint64, NUMERIC),
    (pa.types.is_float32, FLOAT4),
    (pa.types.is_floating, FLOAT8),
    (pa.types.is_string, TEXT),
    (pa.types.is_large_string, TEXT),
    (pa.types.is_string_view, TEXT),
    (pa.types.is_binary, BYTEA),
    (pa.types.is_large_binary, BYTEA),
    (pa.types.is_date32, DATE),
    (pa.types.is_time, TIME),
    (pa.types.is_interval, INTERVAL),
    (pa.types.is_null, TEXT),
    (lambda t: t == pa.uuid(), UUID_),
)


def columns_of(schema: pa.Schema) -> list[PgColumn]:
    """The columns of an answer."""
    told = (schema.metadata or {}).get(TYPES)
    types: Sequence[PgType] = (
        [pg_type(t) for t in from_data(orjson.loads(told))] if told is not None else [of_arrow(t) for t in schema.types]
    )
    written = (schema.metadata or {}).get(NAMES)
    names = orjson.loads(written) if written is not None else schema.names
    return [PgColumn(n, t) for n, t in zip(names, types, strict=True)]
