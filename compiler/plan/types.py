"""SQL types and their counterparts in Arrow, DuckDB, Spark and in reference Python.

Reference values, which row kernels and function references use:

| SQL       | Python                      | Arrow            |
|-----------|-----------------------------|------------------|
| BOOLEAN   | bool                        | bool             |
| INT       | int in 32 bits              | int32            |
| BIGINT    | int in 64 bits              | int64            |
| DOUBLE    | float                       | float64          |
| DECIMAL   | decimal.Decimal, exact scale| decimal128(p, s) |
| STRING    | str                         | string           |
| BYTES     | bytes                       | binary           |
| DATE      | int, days since 1970-01-01  | date32           |
| TIME      | int, ms since midnight      | time32(ms)       |
| TIMESTAMP | int, ms since 1970, UTC     | timestamp(ms)    |
| TIMESTAMP(6) | int, us since 1970, UTC  | timestamp(us)    |
| ARRAY<T>  | list                        | list<T>          |
| MAP<K, V> | dict                        | map<K, V>        |
| STRUCT    | dict, every field present   | struct           |
| JSONB, UUID| str, a text of one form    | string           |
| INTERVAL  | (months, days, microseconds)| never a column   |
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from functools import cache
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import pyarrow as pa  # not at import: it takes 0.1 s with NumPy, and many commands need no column


class Kind(Enum):
    """The constructor of a type."""

    BOOLEAN = "BOOLEAN"
    INT = "INT"
    BIGINT = "BIGINT"
    DOUBLE = "DOUBLE"
    DECIMAL = "DECIMAL"
    STRING = "STRING"
    BYTES = "BYTES"
    DATE = "DATE"
    TIME = "TIME"
    TIMESTAMP = "TIMESTAMP"
    MICROS = "TIMESTAMP(6)"  # of standard SQL
    ARRAY = "ARRAY"
    MAP = "MAP"
    STRUCT = "STRUCT"
    INTERVAL = "INTERVAL"  # inside expressions of standard SQL; never the type of a column
    NULL = "NULL"  # the type of a bare NULL literal; never the type of a column
    LAMBDA = "LAMBDA"  # the type of a lambda argument; never the type of a column


@dataclass(frozen=True, slots=True)
class SqlType:
    """A SQL type. `args` are element types (ARRAY 1, MAP 2); `fields` are those of a STRUCT.

    zoned: of a TIMESTAMP or TIMESTAMP(6), that it is a moment (TIMESTAMP WITH TIME ZONE of standard SQL), not what a clock shows somewhere. Its values
    are the same, as the time zone is UTC; how texts are read and written differs.
    form: of a STRING, that its values are texts of one form: `JSONB` or `UUID` of standard SQL, whose equal texts are equal values, or
    `INTERVAL`, where different texts may be equal (1 day, 24 hours).
    """

    kind: Kind
    args: tuple[SqlType, ...] = ()
    fields: tuple[tuple[str, SqlType], ...] = ()
    precision: int = 0
    scale: int = 0
    zoned: bool = False
    form: str = ""

    def __str__(self) -> str:
        if self.kind is Kind.DECIMAL:
            return f"DECIMAL({self.precision}, {self.scale})"
        if self.kind in (Kind.ARRAY, Kind.MAP):
            return f"{self.kind.value}<{', '.join(map(str, self.args))}>"
        if self.kind is Kind.STRUCT:
            return "STRUCT<" + ", ".join(f"{n} {t}" for n, t in self.fields) + ">"
        text = self.form or self.kind.value
        return text.replace("TIMESTAMP", "TIMESTAMPTZ") if self.zoned else text

    @property
    def is_numeric(self) -> bool:
        return self.kind in (Kind.INT, Kind.BIGINT, Kind.DOUBLE, Kind.DECIMAL)

    @property
    def element(self) -> SqlType:
        """The element of an ARRAY, or the value of a MAP."""
        return self.args[-1]

    def field(self, name: str) -> SqlType | None:
        """The type of a STRUCT's field, or None."""
        return next((t for n, t in self.fields if n == name), None)


BOOLEAN = SqlType(Kind.BOOLEAN)
INT = SqlType(Kind.INT)
BIGINT = SqlType(Kind.BIGINT)
DOUBLE = SqlType(Kind.DOUBLE)
STRING = SqlType(Kind.STRING)
BYTES = SqlType(Kind.BYTES)
DATE = SqlType(Kind.DATE)
TIME = SqlType(Kind.TIME)
TIMESTAMP = SqlType(Kind.TIMESTAMP)
TIMESTAMPTZ = SqlType(Kind.TIMESTAMP, zoned=True)
MICROS = SqlType(Kind.MICROS)
MICROSTZ = SqlType(Kind.MICROS, zoned=True)
JSONB = SqlType(Kind.STRING, form="JSONB")
UUID = SqlType(Kind.STRING, form="UUID")
SPAN = SqlType(Kind.STRING, form="INTERVAL")  # of columns; in expressions they are INTERVAL
INTERVAL = SqlType(Kind.INTERVAL)
NULL = SqlType(Kind.NULL)


def decimal(precision: int, scale: int) -> SqlType:
    """DECIMAL(precision, scale); 1 <= precision <= 38."""
    return SqlType(Kind.DECIMAL, precision=precision, scale=scale)


def array(element: SqlType) -> SqlType:
    return SqlType(Kind.ARRAY, args=(element,))


def map_of(key: SqlType, value: SqlType) -> SqlType:
    return SqlType(Kind.MAP, args=(key, value))


def struct(*fields: tuple[str, SqlType]) -> SqlType:
    return SqlType(Kind.STRUCT, fields=fields)


@cache
def _scalars() -> dict[Kind, pa.DataType]:
    import pyarrow as pa

    return {
        Kind.BOOLEAN: pa.bool_(),
        Kind.INT: pa.int32(),
        Kind.BIGINT: pa.int64(),
        Kind.DOUBLE: pa.float64(),
        Kind.STRING: pa.string(),
        Kind.BYTES: pa.binary(),
        Kind.DATE: pa.date32(),
        Kind.TIME: pa.time32("ms"),
        Kind.TIMESTAMP: pa.timestamp("ms"),
        Kind.MICROS: pa.timestamp("us"),
        Kind.NULL: pa.null(),
    }


_DUCKDB: dict[Kind, str] = {
    Kind.BOOLEAN: "BOOLEAN",
    Kind.INT: "INTEGER",
    Kind.BIGINT: "BIGINT",
    Kind.DOUBLE: "DOUBLE",
    Kind.STRING: "VARCHAR",
    Kind.BYTES: "BLOB",
    Kind.DATE: "DATE",
    Kind.TIME: "TIME",
    Kind.TIMESTAMP: "TIMESTAMP_MS",
    Kind.MICROS: "TIMESTAMP",
    Kind.INTERVAL: "INTERVAL",
    Kind.NULL: "INTEGER",
}
_SPARK = {**_DUCKDB, Kind.INT: "INT", Kind.STRING: "STRING", Kind.BYTES: "BINARY"}
_SPARK |= dict.fromkeys((Kind.TIMESTAMP, Kind.MICROS), "TIMESTAMP_NTZ")
# Spark 4.2 has no TIME column everywhere; a TIME travels as milliseconds of the day.
_SPARK[Kind.TIME] = "INT"


def arrow_type(t: SqlType) -> pa.DataType:
    """The Arrow type that holds a column of `t`."""
    import pyarrow as pa

    if t.kind is Kind.DECIMAL:
        return pa.decimal128(t.precision, t.scale)
    if t.kind is Kind.ARRAY:
        return pa.list_(arrow_type(t.element))
    if t.kind is Kind.MAP:
        return pa.map_(arrow_type(t.args[0]), arrow_type(t.args[1]))
    if t.kind is Kind.STRUCT:
        return pa.struct([pa.field(n, arrow_type(f)) for n, f in t.fields])
    return _scalars()[t.kind]


def duckdb_type(t: SqlType) -> str:
    """The DuckDB spelling of `t`."""
    if t.kind is Kind.DECIMAL:
        return f"DECIMAL({t.precision}, {t.scale})"
    if t.kind is Kind.ARRAY:
        return duckdb_type(t.element) + "[]"
    if t.kind is Kind.MAP:
        return f"MAP({duckdb_type(t.args[0])}, {duckdb_type(t.args[1])})"
    if t.kind is Kind.STRUCT:
        inner = ", ".join('"' + n.replace('"', '""') + '" ' + duckdb_type(f) for n, f in t.fields)
        return f"STRUCT({inner})"
    return _DUCKDB[t.kind]


def spark_type(t: SqlType) -> str:
    """The Spark SQL spelling of `t`."""
    if t.kind is Kind.DECIMAL:
        return f"DECIMAL({t.precision}, {t.scale})"
    if t.kind is Kind.ARRAY:
        return f"ARRAY<{spark_type(t.element)}>"
    if t.kind is Kind.MAP:
        return f"MAP<{spark_type(t.args[0])}, {spark_type(t.args[1])}>"
    if t.kind is Kind.STRUCT:
        return "STRUCT<" + ", ".join(f"`{n}`: {spark_type(f)}" for n, f in t.fields) + ">"
    return _SPARK[t.kind]
