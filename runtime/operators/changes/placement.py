"""Which partition a row goes to by some of its columns: the bytes that are hashed.

They are those of keys in state, so every value has some: NULL, NaN, zeros of both signs, lists. Equal values have equal bytes.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from compiler.plan.schema import Schema
from compiler.plan.types import Kind
from runtime.batch import Batch
from runtime.operators.keys import freeze, picker
from runtime.state.keys import key_codec

_SIGN = np.uint64(1 << 63)


class PlacementKeys:
    """The bytes of these columns, for all rows of a batch."""

    def __init__(self, schema: Schema, columns: Sequence[str]) -> None:
        self._at = [schema.names.index(c) for c in columns]
        self._types = tuple(schema.fields[i].type for i in self._at)
        self._pick = picker(self._at)
        self._codec = key_codec(self._types)
        self._integer = [t.kind for t in self._types] in ([Kind.INT], [Kind.BIGINT])

    def of(self, batch: Batch, *, vector: bool | None = None) -> pa.BinaryArray:
        """vector: None: by columns if the batch has them."""
        if not self._at:
            return pa.array([b""] * len(batch), pa.binary())
        if self._integer and (batch.is_columns if vector is None else vector):
            column = batch.arrow().column(self._at[0])
            if not column.null_count:
                return _integers(column)
        types, pick = self._types, self._pick
        keys = [tuple([freeze(v, t) for v, t in zip(pick(row), types, strict=True)]) for row in batch.rows()]
        return pa.array(self._codec.encode_many(keys), pa.binary())


def _integers(column: pa.Array) -> pa.BinaryArray:
    """As `KeyCodec` writes one integer: 1, then 8 bytes with the sign flipped."""
    n = len(column)
    values = pc.cast(column, pa.int64()).to_numpy(zero_copy_only=False).view(np.uint64) ^ _SIGN
    data = np.empty((n, 9), np.uint8)
    data[:, 0] = 1
    data[:, 1:] = values.astype(">u8").view(np.uint8).reshape(n, 8)
    offsets = np.arange(0, 9 * n + 1, 9, dtype=np.int32)
    return pa.Array.from_buffers(pa.binary(), n, [None, pa.py_buffer(offsets), pa.py_buffer(data.tobytes())])
