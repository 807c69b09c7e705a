"""Values of a column in PostgreSQL's binary form."""

from __future__ import annotations

import struct
from collections.abc import Callable
from decimal import Decimal
from uuid import UUID

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from flowql.pg import texts
from flowql.pg.types import (
    BOOL,
    BYTEA,
    DATE,
    FLOAT4,
    FLOAT8,
    INT2,
    INT4,
    INT8,
    INTERVAL,
    JSONB,
    NUMERIC,
    OID,
    TIME,
    TIMESTAMP,
    TIMESTAMPTZ,
    UUID_,
    PgType,
)

_BINARY = pa.binary()
DAYS_2000, MICROS_2000 = (
    10_957,
    946_684_800_000_000,
)  # from 1970, where Arrow begins to count, to 2000, where PostgreSQL does
_POSITIVE, _NEGATIVE, _NAN = 0, 0x4000, 0xC000
_MASK_OF_EXPONENT = 4


def values(column: pa.Array, t: PgType) -> pa.Array:
    """The bytes; NULL stays NULL."""
    if pa.types.is_dictionary(column.type):
        column = column.dictionary_decode()
    if isinstance(column, pa.ExtensionArray) and column.type != pa.uuid():
        column = column.storage
    if t.element is not None:
        return _arrays(column, t.element, 0 if t.is_vector else 1)
    make = _FORMS.get(t.name)
    return texts.values(column, t).cast(_BINARY) if make is None or pa.types.is_null(column.type) else make(column)


def fixed(rows: np.ndarray) -> pa.Array:
    """A value of as many bytes for each row of a matrix."""
    n, size = rows.shape
    offsets = np.arange(0, (n + 1) * size, size, dtype=np.int32) if size else np.zeros(n + 1, np.int32)
    return pa.Array.from_buffers(_BINARY, n, [None, pa.py_buffer(offsets), pa.py_buffer(np.ascontiguousarray(rows))])


def _of_numbers(column: pa.Array, numbers: np.ndarray, form: str) -> pa.Array:
    made = np.ascontiguousarray(numbers.astype(form))
    raw = fixed(made.view(np.uint8).reshape(len(made), made.itemsize))
    return pc.if_else(column.is_valid(), raw, pa.scalar(None, _BINARY)) if column.null_count else raw


def _plain(form: str) -> Callable[[pa.Array], pa.Array]:
    def make(column: pa.Array) -> pa.Array:
        return _of_numbers(column, pc.fill_null(column, 0).to_numpy(zero_copy_only=False), form)

    return make


def _bools(column: pa.Array) -> pa.Array:
    return _of_numbers(column, pc.fill_null(column, False).to_numpy(zero_copy_only=False), "u1")


def _dates(column: pa.Array) -> pa.Array:
    return _of_numbers(column, pc.fill_null(column.cast(pa.int32()), 0).to_numpy() - DAYS_2000, ">i4")


def _times(column: pa.Array) -> pa.Array:
    return _of_numbers(column, pc.fill_null(column.cast(pa.time64("us")).cast(pa.int64()), 0).to_numpy(), ">i8")


def _timestamps(column: pa.Array) -> pa.Array:
    micros = column.cast(pa.timestamp("us", column.type.tz), safe=False).cast(pa.int64())
    return _of_numbers(column, pc.fill_null(micros, 0).to_numpy() - MICROS_2000, ">i8")


def _intervals(column: pa.Array) -> pa.Array:
    found = (
        None if v is None else struct.pack("!qii", v.nanoseconds // 1000, v.days, v.months) for v in column.to_pylist()
    )
    return pa.array(list(found), _BINARY)


def _uuids(column: pa.Array) -> pa.Array:
    if isinstance(column, pa.ExtensionArray):
        return column.storage.cast(_BINARY)
    return pa.array([None if v is None else UUID(v).bytes for v in column.to_pylist()], _BINARY)


def _jsonb(column: pa.Array) -> pa.Array:
    raw = texts.values(column, JSONB).cast(_BINARY)
    return pc.binary_join_element_wise(pa.scalar(b"\x01", _BINARY), raw, pa.scalar(b"", _BINARY))


def _bytes(column: pa.Array) -> pa.Array:
    return column.cast(_BINARY)


def _numerics(column: pa.Array) -> pa.Array:
    return pa.array([None if v is None else numeric_bytes(Decimal(v)) for v in column.to_pylist()], _BINARY)


def numeric_bytes(value: Decimal) -> bytes:
    """Digits to the base 10,000: how many, the place of the first, sign, digits behind the point."""
    if value.is_nan():
        return struct.pack("!hhHh", 0, 0, _NAN, 0)
    sign, digits, exponent = value.as_tuple()
    assert isinstance(exponent, int)
    scale = max(0, -exponent)
    text = "".join(map(str, digits)) + "0" * max(0, exponent)
    whole = text[: len(text) - scale] if scale < len(text) else ""
    fraction = text[len(whole) :].rjust(scale, "0") if scale else ""
    whole = whole.rjust(-(-len(whole) // _MASK_OF_EXPONENT) * _MASK_OF_EXPONENT, "0")
    fraction = fraction.ljust(-(-len(fraction) // _MASK_OF_EXPONENT) * _MASK_OF_EXPONENT, "0")
    weight = len(whole) // _MASK_OF_EXPONENT - 1
    figures = [int((whole + fraction)[i : i + 4]) for i in range(0, len(whole + fraction), 4)]
    while figures and not figures[0]:
        figures.pop(0)
        weight -= 1
    while figures and not figures[-1]:
        figures.pop()
    head = struct.pack(
        "!hhHh", len(figures), weight if figures else 0, _NEGATIVE if sign and figures else _POSITIVE, scale
    )
    return head + struct.pack(f"!{len(figures)}h", *figures)


def _arrays(column: pa.Array, element: PgType, first: int) -> pa.Array:
    """Arrays of one dimension, whose first place has this number. Those of several are written one by one, where PostgreSQL wants all rows to be of one length."""
    column = column.cast(pa.list_(column.type.value_type))
    flat = column.flatten()
    if pa.types.is_list(flat.type):
        return pa.array([None if v is None else _nested(v, flat.type, element) for v in column], _BINARY)
    inner = values(flat, element)
    lengths = pc.fill_null(pc.binary_length(inner), -1).to_numpy().astype(">i4")
    prefix = fixed(lengths.view(np.uint8).reshape(len(inner), 4))
    items = pc.binary_join_element_wise(prefix, inner, b"", null_handling="replace", null_replacement=b"")
    counts = pc.fill_null(pc.list_value_length(column), 0).to_numpy()
    offsets = np.concatenate([[0], np.cumsum(counts)]).astype(np.int32)
    body = pc.binary_join(pa.ListArray.from_arrays(pa.array(offsets), items), pa.scalar(b"", _BINARY))
    nulls = np.concatenate([[0], np.cumsum(pc.is_null(inner).to_numpy(zero_copy_only=False))])
    has_null = (nulls[offsets[1:]] - nulls[offsets[:-1]]) > 0
    heads = [_head(int(c), bool(h), element.oid, first) for c, h in zip(counts, has_null, strict=True)]
    made = pc.binary_join_element_wise(pa.array(heads, _BINARY), body, pa.scalar(b"", _BINARY))
    return pc.if_else(column.is_valid(), made, pa.scalar(None, _BINARY))


def _head(count: int, has_null: bool, oid: int, first: int) -> bytes:
    if not count:
        return struct.pack("!iiI", 0, 0, oid)
    return struct.pack("!iiIii", 1, has_null, oid, count, first)


def _nested(rows: pa.Scalar, t: pa.DataType, element: PgType) -> bytes:
    dims, level = [len(rows.values)], rows.values
    while pa.types.is_list(level.type):
        lengths = set(pc.list_value_length(level).to_pylist())
        if len(lengths) != 1 or None in lengths:
            raise ValueError("multidimensional arrays must have sub-arrays of one length")
        dims += lengths
        level = level.flatten()
    inner = values(level, element).to_pylist()
    head = struct.pack("!iiI", len(dims), None in inner, element.oid) + b"".join(struct.pack("!ii", d, 1) for d in dims)
    return head + b"".join(struct.pack("!i", -1) if v is None else struct.pack("!i", len(v)) + v for v in inner)


_FORMS: dict[str, Callable[[pa.Array], pa.Array]] = {
    BOOL.name: _bools,
    BYTEA.name: _bytes,
    DATE.name: _dates,
    FLOAT4.name: _plain(">f4"),
    FLOAT8.name: _plain(">f8"),
    INT2.name: _plain(">i2"),
    INT4.name: _plain(">i4"),
    INT8.name: _plain(">i8"),
    OID.name: _plain(">u4"),
    INTERVAL.name: _intervals,
    JSONB.name: _jsonb,
    NUMERIC.name: _numerics,
    TIME.name: _times,
    TIMESTAMP.name: _timestamps,
    TIMESTAMPTZ.name: _timestamps,
    UUID_.name: _uuids,
}
