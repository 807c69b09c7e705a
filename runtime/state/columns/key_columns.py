"""Key columns of Arrow as packed keys and the reverse, without a Python object per key."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pyarrow as pa

from flowql.compiler.plan.types import Kind, SqlType, arrow_type
from flowql.runtime.batch import TEMPORAL, Ints
from flowql.runtime.state.columns.packed import Bytes, Flags, PackedKeys, ends_of, pack, pack_rows, spread, word_counts
from flowql.runtime.state.keys import KeyCodec

_SIGN = np.uint64(1 << 63)
_VALUE = 1  # the tag of a part that is not NULL
_INTEGER_BYTES = 9
_ESCAPED = 0xFF  # follows a 0 that is inside of a text
_INTEGERS = frozenset({Kind.INT, Kind.BIGINT, *TEMPORAL})


def packed_keys(codec: KeyCodec, columns: Sequence[pa.Array]) -> PackedKeys:
    """The keys whose parts stand in columns: integers (also for dates and times), texts, and what else Arrow gives as reference values."""
    parts = [_part(c) for c in columns]
    if any(p is None for p in parts):
        return pack(codec.encode_many(list(zip(*(c.to_pylist() for c in columns), strict=True))))
    known = [p for p in parts if p is not None]
    if all(data.ndim == 2 for data, _ in known):
        return pack_rows(np.concatenate([data for data, _ in known], axis=1))
    lengths = np.sum([n for _, n in known], axis=0)
    ends = ends_of(word_counts(lengths))
    filled = np.zeros(int(ends[-1]) * 8, np.uint8)
    at = ends[:-1] * 8
    for data, n in known:
        filled[spread(at, n)] = data.reshape(-1)
        at = at + n
    return PackedKeys(ends[:-1], lengths, filled.view(">u8").astype(np.uint64))


def key_columns(types: Sequence[SqlType], keys: PackedKeys) -> list[pa.Array] | None:
    """The columns of keys with parts of these types, as Arrow has them; None where a part has an inner 0, or is neither integer, time nor text."""
    packed = keys.compact()
    data = np.append(packed.words.astype(">u8").view(np.uint8), np.zeros(_INTEGER_BYTES, np.uint8))
    at, found = packed.starts * 8, list[pa.Array]()
    for t in types:
        null = data[at] != _VALUE  # one byte
        if t.kind in _INTEGERS:
            bits = data[spread(at + 1, np.full(len(at), 8))].view(">u8").astype(np.uint64)
            numbers = pa.array(np.where(null, 0, (bits ^ _SIGN).view(np.int64)), mask=null)
            found.append(numbers.cast(TEMPORAL.get(t.kind, arrow_type(t))).cast(arrow_type(t)))
            at = at + np.where(null, 1, _INTEGER_BYTES)
        elif t.kind in (Kind.STRING, Kind.BYTES):
            zeros = np.flatnonzero(data == 0)
            end = np.where(null, at, zeros[np.searchsorted(zeros, at + 1)])
            if ((data[end + 1] == _ESCAPED) & ~null).any():
                return None
            found.append(_text_column(t, data, np.where(null, at, at + 1), end, null))
            at = end + 1
        else:
            return None
    return found if all(_is_valid(c) for c in found) else None


def _text_column(t: SqlType, data: Bytes, start: Ints, end: Ints, null: Flags) -> pa.Array:
    offsets = ends_of(end - start).astype(np.int32)
    inner = data[spread(start, end - start)]
    known = pa.array(~null).buffers()[1] if null.any() else None
    return pa.Array.from_buffers(arrow_type(t), len(start), [known, pa.py_buffer(offsets), pa.py_buffer(inner)])


def _is_valid(column: pa.Array) -> bool:
    """Texts of rows may have lone surrogates, those of Arrow may not."""
    try:
        column.validate(full=True)
    except pa.ArrowInvalid:
        return False
    return True


def _part(column: pa.Array) -> tuple[Bytes, Ints] | None:
    """A part of all keys: its bytes, as rows where all are as long, and their lengths. None for columns with NULLs, and other types."""
    n = len(column)
    if column.null_count:
        return None
    if pa.types.is_signed_integer(column.type):
        numbers = column.to_numpy().astype(np.int64).view(np.uint64) ^ _SIGN
        rows = np.empty((n, _INTEGER_BYTES), np.uint8)
        rows[:, 0] = _VALUE
        rows[:, 1:] = numbers.astype(">u8").view(np.uint8).reshape(n, 8)
        return rows, np.full(n, _INTEGER_BYTES, np.int64)
    if pa.types.is_string(column.type) or pa.types.is_binary(column.type):
        return _texts(column)
    return None


def _texts(column: pa.Array) -> tuple[Bytes, Ints] | None:
    """None for texts with an inner 0, which is written as two bytes."""
    n = len(column)
    _, offsets, data = column.buffers()
    bounds = np.frombuffer(offsets, np.int32)[column.offset : column.offset + n + 1].astype(np.int64)
    inner = np.zeros(0, np.uint8) if data is None else np.frombuffer(data, np.uint8)[bounds[0] : bounds[-1]]
    if not inner.all():
        return None
    lengths = np.diff(bounds)
    ends = ends_of(lengths + 2)
    made = np.zeros(int(ends[-1]), np.uint8)
    made[ends[:-1]] = _VALUE
    made[spread(ends[:-1] + 1, lengths)] = inner
    return made, lengths + 2
