"""Which partition a row goes to by some of its columns: the bytes that are hashed.

They are those of keys in state, so every value has some: NULL, NaN, zeros of both signs, lists. Equal values have equal bytes.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from flowql.compiler.plan.schema import Schema
from flowql.compiler.plan.types import Kind
from flowql.runtime.batch import Batch, Ints
from flowql.runtime.operators.keys import freeze, picker
from flowql.runtime.state.keys import key_codec

_SIGN = np.uint64(1 << 63)
_WHOLE = frozenset({Kind.INT, Kind.BIGINT, Kind.DATE, Kind.TIME, Kind.TIMESTAMP, Kind.MICROS})


class PlacementKeys:
    """The bytes of these columns, for all rows of a batch."""

    def __init__(self, schema: Schema, columns: Sequence[str]) -> None:
        self._at = [schema.names.index(c) for c in columns]
        self._types = tuple(schema.fields[i].type for i in self._at)
        self._pick = picker(self._at)
        self._codec = key_codec(self._types)
        self._whole = all(t.kind in _WHOLE for t in self._types)

    def of(self, batch: Batch, *, vector: bool | None = None) -> pa.BinaryArray:
        """vector: None: by columns if the batch has them."""
        if not self._at:
            return pa.array([b""] * len(batch), pa.binary())
        if self._whole and (batch.is_columns if vector is None else vector):
            columns = [batch.arrow().column(i) for i in self._at]
            if not any(c.null_count for c in columns):
                return _integers(columns)
        types, pick = self._types, self._pick
        keys = [tuple([freeze(v, t) for v, t in zip(pick(row), types, strict=True)]) for row in batch.rows()]
        return pa.array(self._codec.encode_many(keys), pa.binary())


def _integers(columns: Sequence[pa.Array]) -> pa.BinaryArray:
    """As `KeyCodec` writes whole numbers and times: for each 1, then 8 bytes with the sign flipped."""
    n, width = len(columns[0]), 9 * len(columns)
    data = np.empty((n, width), np.uint8)
    for i, column in enumerate(columns):
        values = whole_numbers(column).view(np.uint64) ^ _SIGN
        data[:, 9 * i] = 1
        data[:, 9 * i + 1 : 9 * i + 9] = values.astype(">u8").view(np.uint8).reshape(n, 8)
    offsets = np.arange(0, width * n + 1, width, dtype=np.int32)
    return pa.Array.from_buffers(pa.binary(), n, [None, pa.py_buffer(offsets), pa.py_buffer(data.tobytes())])


def whole_numbers(column: pa.Array) -> Ints:
    """A column of whole numbers or times without NULLs, as keys have them: days, milliseconds."""
    if pa.types.is_date32(column.type) or pa.types.is_time32(column.type):
        column = column.cast(pa.int32())
    return np.ascontiguousarray(pc.cast(column, pa.int64()).to_numpy(zero_copy_only=False))
