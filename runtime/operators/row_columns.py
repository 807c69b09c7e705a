"""Batches as keys and values for stores, column by column: what `RowKey` does row by row."""

from __future__ import annotations

from collections.abc import Sequence
from decimal import Decimal

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from flowql.compiler.plan.schema import Schema
from flowql.compiler.plan.types import Kind, SqlType
from flowql.runtime.batch import DELETE, TEMPORAL, UPDATE_BEFORE, Batch, Ints, to_python
from flowql.runtime.operators.keys import key_fields, value_fields
from flowql.runtime.state.columns.key_columns import packed_keys
from flowql.runtime.state.columns.packed import Flags, PackedKeys
from flowql.runtime.state.columns.values import (
    ABSENT,
    ODD,
    PRESENT,
    ColumnKind,
    RowValues,
    Scaled,
    States,
    ValueColumn,
    ValueLayout,
    objects,
)
from flowql.runtime.state.keys import key_codec
from flowql.runtime.state.rows import Value


class RowColumns:
    """Splits batches of a schema whose keys are their own frozen form into what a `table` store keeps."""

    def __init__(self, schema: Schema) -> None:
        names = schema.names
        keys = key_fields(schema)
        self._key_at = [names.index(f.name) for f in keys]
        self._codec = key_codec(tuple(f.type for f in keys))
        self._values = [(names.index(f.name), f.type) for f in value_fields(schema)]
        self._layout = ValueLayout(tuple((_kind(t),) for _, t in self._values))

    def split(self, batch: Batch) -> tuple[PackedKeys, RowValues]:
        """Keys and values of all rows but before-images, in their order; no value for a DELETE."""
        op, columns = batch.op, batch.arrow().columns
        kept = np.flatnonzero(op != UPDATE_BEFORE)
        if len(kept) < len(batch):
            op, columns = op[kept], [c.take(pa.array(kept)) for c in columns]
        keys = packed_keys(self._codec, [plain_column(columns[i]) for i in self._key_at])
        states = np.where(op == DELETE, ABSENT, PRESENT).astype(np.int8)
        values = [_column(columns[i], t, k) for (i, t), k in zip(self._values, self._layout.kinds, strict=True)]
        return keys, RowValues(self._layout, states, values, self._odd(columns, states))

    def _odd(self, columns: Sequence[pa.Array], states: States) -> dict[int, Value]:
        """Rows with a Decimal beyond 64 bits, by place. Marks them in `states`."""
        wide = np.zeros(len(states), bool)
        for (i, _), kind in zip(self._values, self._layout.kinds, strict=True):
            if isinstance(kind, Scaled):
                wide |= ~whole_decimals(columns[i])[1]
        rows = np.flatnonzero(wide & (states == PRESENT))
        if not len(rows):
            return {}
        states[rows] = ODD
        at = pa.array(rows)
        parts = [to_python(columns[i].take(at), t) for i, t in self._values]
        return dict(zip(rows.tolist(), zip(*parts, strict=True), strict=True))


def _kind(t: SqlType) -> ColumnKind:
    if t.kind is Kind.DOUBLE:
        return "double"
    if t.kind is Kind.DECIMAL:
        return Scaled(t.scale)
    return "integer" if t.kind in (Kind.INT, Kind.BIGINT) or t.kind in TEMPORAL else "object"


def whole_decimals(column: pa.Array) -> tuple[Ints, Flags]:
    """The lower 64 bits of each Decimal as a whole number, 0 for NULL, and whether they are all of it."""
    if column.null_count:
        column = pc.fill_null(column, pa.scalar(Decimal(0), column.type))
    limbs = np.frombuffer(column.buffers()[1], "<i8").reshape(-1, 2)[column.offset : column.offset + len(column)]
    low = limbs[:, 0].astype(np.int64)
    return low, limbs[:, 1] == low >> 63


def plain_column(column: pa.Array) -> pa.Array:
    """Dates and times as integers."""
    if pa.types.is_temporal(column.type):
        return column.cast(
            pa.int32() if pa.types.is_date32(column.type) or pa.types.is_time32(column.type) else pa.int64()
        )
    return column


def _column(column: pa.Array, t: SqlType, kind: ColumnKind) -> ValueColumn:
    if kind == "object":
        return objects(to_python(column, t))
    if isinstance(kind, Scaled):
        null = pc.is_null(column).to_numpy(zero_copy_only=False) if column.null_count else None
        return ValueColumn(whole_decimals(column)[0], null, kind.scale)
    numbers = column.cast(TEMPORAL[t.kind]) if t.kind in TEMPORAL else column
    dtype = np.float64 if kind == "double" else np.int64
    if not numbers.null_count:
        return ValueColumn(numbers.to_numpy().astype(dtype, copy=False))
    return ValueColumn(
        pc.fill_null(numbers, 0).to_numpy().astype(dtype, copy=False),
        pc.is_null(numbers).to_numpy(zero_copy_only=False),
    )
