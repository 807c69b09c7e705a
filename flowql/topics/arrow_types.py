"""Arrow columns of Parquet files and DuckDB's answers as columns of SQL types. Nothing is rounded or cut."""

from __future__ import annotations

from dataclasses import replace

import pyarrow as pa

from flowql.compiler.plan.types import (
    BIGINT,
    BOOLEAN,
    BYTES,
    DATE,
    DOUBLE,
    INT,
    JSONB,
    NULL,
    STRING,
    TIME,
    UUID,
    Kind,
    SqlType,
    array,
    arrow_type,
    decimal,
    map_of,
    struct,
)

_is = pa.types
_SIMPLE = (
    (_is.is_boolean, BOOLEAN),
    (lambda t: _is.is_int8(t) or _is.is_int16(t) or _is.is_int32(t) or _is.is_uint8(t) or _is.is_uint16(t), INT),
    (lambda t: _is.is_int64(t) or _is.is_uint32(t), BIGINT),
    (_is.is_uint64, decimal(20, 0)),
    (_is.is_floating, DOUBLE),
    (lambda t: _is.is_string(t) or _is.is_large_string(t) or _is.is_string_view(t), STRING),
    (
        lambda t: _is.is_binary(t) or _is.is_large_binary(t) or _is.is_binary_view(t) or _is.is_fixed_size_binary(t),
        BYTES,
    ),
    (_is.is_date, DATE),
    (_is.is_time, TIME),
    (_is.is_null, NULL),
)


def sql_type_of(t: pa.DataType) -> SqlType | None:
    """The SQL type of an Arrow type; None if there is none, as for a duration."""
    if t == pa.uuid():
        return UUID
    if isinstance(t, pa.BaseExtensionType):
        return JSONB if t.extension_name == "arrow.json" else sql_type_of(t.storage_type)
    if _is.is_dictionary(t):
        return sql_type_of(t.value_type)
    if _is.is_decimal(t):
        return decimal(t.precision, t.scale) if t.precision <= 38 and 0 <= t.scale <= t.precision else None
    if _is.is_timestamp(t):
        kind = Kind.TIMESTAMP if t.unit in ("s", "ms") else Kind.MICROS
        return SqlType(kind, zoned=t.tz is not None)
    return _nested(t) or next((found for holds, found in _SIMPLE if holds(t)), None)


def _nested(t: pa.DataType) -> SqlType | None:
    if _is.is_map(t):
        key, value = sql_type_of(t.key_type), sql_type_of(t.item_type)
        return None if key is None or value is None else map_of(key, value)
    if _is.is_list(t) or _is.is_large_list(t) or _is.is_fixed_size_list(t):
        element = sql_type_of(t.value_type)
        return None if element is None else array(element)
    if _is.is_struct(t):
        fields = [(f.name, sql_type_of(f.type)) for f in t]
        known = [(n, f) for n, f in fields if f is not None]
        return struct(*known) if len(known) == len(fields) else None
    return None


def fitted_type(found: SqlType, wanted: SqlType) -> SqlType:
    """The type to read a column as that is stored as `wanted`: a timestamp in microseconds becomes one in milliseconds, which `column_as` never rounds."""
    if found.kind is Kind.MICROS and wanted.kind is Kind.TIMESTAMP:
        return replace(found, kind=Kind.TIMESTAMP)
    if found.kind is not wanted.kind:
        return found
    args = tuple(fitted_type(a, b) for a, b in zip(found.args, wanted.args, strict=True))
    return replace(found, args=args, fields=tuple((n, fitted_type(t, wanted.field(n) or t)) for n, t in found.fields))


def column_as(column: pa.Array, t: SqlType) -> pa.Array:
    """A column as `arrow_type(t)`, with `t` from `sql_type_of` and `fitted_type`. Raises pa.ArrowInvalid for a value that would be rounded."""
    if t == UUID and isinstance(column.type, pa.BaseExtensionType):
        return pa.array([None if v is None else str(v) for v in column.to_pylist()], pa.string())
    if isinstance(column.type, pa.BaseExtensionType):
        column = column.storage
    if _is.is_dictionary(column.type):
        column = column.dictionary_decode()
    return column.cast(arrow_type(t))
