"""Keys of records as Arrow columns: one column in the KAFKA format, or no key columns at all."""

from __future__ import annotations

from typing import Self

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from flowql.compiler.plan.logical import Format
from flowql.compiler.plan.schema import Schema
from flowql.compiler.plan.types import Kind, SqlType, arrow_type

Bools = npt.NDArray[np.bool_]
_LAYOUT = {Kind.INT: ">i4", Kind.BIGINT: ">i8", Kind.DOUBLE: ">f8"}


class KeyColumns:
    """Decodes key bytes by column; declines (False) what the reference must judge."""

    def __init__(self, types: tuple[SqlType, ...]) -> None:
        self._types = types

    @classmethod
    def of(cls, schema: Schema, fmt: Format) -> Self | None:
        """The columnar reader of keys; None if they have to be read row by row."""
        types = tuple(f.type for f in schema.key)
        if schema.window is not None or (types and fmt.name != "KAFKA"):
            return None
        return cls(types)

    def decode(self, keys: pa.Array, *, is_table: bool) -> tuple[list[pa.Array], Bools | None]:
        """The key columns of n records, and the rows they are true for (None: all)."""
        if not self._types:
            return [], None
        t = self._types[0]
        valid = keys.is_valid().to_numpy(zero_copy_only=False) if keys.null_count else None
        if t.kind in _LAYOUT:
            array, good = _fixed(keys, t)
        elif t.kind is Kind.STRING:
            array, good = _texts(keys)
        else:
            array, good = keys, None
        if valid is None:
            return [array], good
        # A null key is a null column of a stream; a table skips the record, with a dead letter, by rows.
        if is_table:
            return [array], valid if good is None else good & valid
        return [array], None if good is None else good | ~valid


def _fixed(keys: pa.Array, t: SqlType) -> tuple[pa.Array, Bools | None]:
    layout = np.dtype(_LAYOUT[t.kind])
    n, width = len(keys), layout.itemsize
    offsets = np.frombuffer(keys.buffers()[1], np.int32)[keys.offset : keys.offset + n + 1]
    data = np.frombuffer(keys.buffers()[2] or b"", np.uint8)
    exact = np.diff(offsets) == width
    if keys.null_count:
        exact &= keys.is_valid().to_numpy(zero_copy_only=False)
    if exact.all():
        values = np.frombuffer(data[offsets[0] : offsets[-1]], layout)
        return pa.array(values.astype(layout.newbyteorder("=")), arrow_type(t)), None
    values = np.zeros(n, layout)
    rows = np.flatnonzero(exact)
    if len(rows):
        places = offsets[:-1][rows][:, None] + np.arange(width)
        values[rows] = np.ascontiguousarray(data[places]).view(layout)[:, 0]
    return pa.array(values.astype(layout.newbyteorder("=")), arrow_type(t), mask=~exact), exact


def _texts(keys: pa.Array) -> tuple[pa.Array, Bools | None]:
    try:
        return pc.cast(keys, pa.string()), None
    except pa.ArrowInvalid:  # broken UTF-8 somewhere: the reference names the records
        return pa.nulls(len(keys), pa.string()), np.zeros(len(keys), bool)
