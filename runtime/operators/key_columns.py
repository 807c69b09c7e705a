"""Keys of records as Arrow columns: one column in the KAFKA format, or no key columns at all; and the bounds of their windows."""

from __future__ import annotations

from typing import Self

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from flowql.compiler.plan.logical import Format
from flowql.compiler.plan.schema import WINDOW_START, KeyWindow, Schema
from flowql.compiler.plan.types import Kind, SqlType, arrow_type

Bools = npt.NDArray[np.bool_]
Ints = npt.NDArray[np.int64]
_LARGEST = 2**63 - 1
_LAYOUT = {Kind.INT: ">i4", Kind.BIGINT: ">i8", Kind.DOUBLE: ">f8"}


class KeyColumns:
    """Decodes key bytes by column; declines (False) what the reference must judge."""

    def __init__(self, types: tuple[SqlType, ...], window: KeyWindow | None, bounds: tuple[str, ...]) -> None:
        self._types, self._window, self._bounds = types, window, bounds

    @classmethod
    def of(cls, schema: Schema, fmt: Format) -> Self | None:
        """The columnar reader of keys; None if they have to be read row by row."""
        types = tuple(f.type for f in schema.key)
        if types and fmt.name != "KAFKA":
            return None
        return cls(types, schema.window, tuple(f.name for f in schema if f.role == "window"))

    def decode(self, keys: pa.Array, *, is_table: bool) -> tuple[list[pa.Array], Bools | None]:
        """The key columns of n records, then the bounds of their windows, and the rows they are true for (None: all)."""
        if self._window is None:
            return self._plain(keys, is_table=is_table)
        keys, start, end, whole = _split(keys, self._window)
        arrays, good = self._plain(keys, is_table=is_table)
        arrays += [pa.array(start if name == WINDOW_START else end) for name in self._bounds]
        return arrays, whole if good is None else good & whole

    def _plain(self, keys: pa.Array, *, is_table: bool) -> tuple[list[pa.Array], Bools | None]:
        """The key columns of keys without windows."""
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


def _split(keys: pa.Array, window: KeyWindow) -> tuple[pa.Array, Ints, Ints, Bools]:
    """As `flowql.runtime.serde.windowed.split_window`: keys, starts, ends, and the rows for which they are right."""
    size = 8 if window.kind == "time" else 16
    whole = pc.fill_null(pc.greater_equal(pc.binary_length(keys), size), False).to_numpy(zero_copy_only=False)
    if not whole.all():  # there is no key, or it is too short: the reference says so
        keys = pc.if_else(pa.array(whole), keys, pa.scalar(bytes(size), keys.type))
    n = len(keys)
    offsets = np.frombuffer(keys.buffers()[1], np.int32)[keys.offset : keys.offset + n + 1]
    data = np.frombuffer(keys.buffers()[2] or b"", np.uint8)[offsets[0] : offsets[-1]]
    offsets = offsets - offsets[0]
    behind = offsets[1:, None] - size + np.arange(size)
    times = np.ascontiguousarray(data[behind]).view(">i8").astype(np.int64).reshape(n, -1)
    kept = np.ones(len(data), bool)
    kept[behind.ravel()] = False
    shorter = (offsets - size * np.arange(n + 1)).astype(np.int32)
    bare = pa.Array.from_buffers(
        pa.binary(), n, [None, pa.py_buffer(shorter.tobytes()), pa.py_buffer(data[kept].tobytes())]
    )
    if window.kind == "session":
        return bare, times[:, 1], times[:, 0], whole
    start = times[:, 0]
    if window.size_ms is None:
        return bare, start, np.full(n, _LARGEST), whole
    return bare, start, start + window.size_ms, whole & (start <= _LARGEST - window.size_ms)


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
