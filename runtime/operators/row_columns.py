"""Batches as keys and values for stores, column by column: what `RowKey` does row by row."""

from __future__ import annotations

from collections.abc import Sequence
from decimal import Decimal

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from flowql.compiler.plan.schema import Schema
from flowql.compiler.plan.types import Kind, SqlType, arrow_type
from flowql.runtime.batch import DELETE, TEMPORAL, UPDATE_BEFORE, Batch, Ints, record_of, to_arrow, to_python
from flowql.runtime.operators.keys import key_fields, value_fields
from flowql.runtime.state.columns.packed import Flags, PackedKeys, packed_keys, same
from flowql.runtime.state.columns.values import (
    ABSENT,
    PRESENT,
    ColumnKind,
    RowValues,
    Scaled,
    ValueColumn,
    ValueLayout,
    Wide,
    objects,
)
from flowql.runtime.state.columns.wide import Wides, fits, from_decimals, narrowed, widened
from flowql.runtime.state.keys import key_codec

_NARROW_DIGITS = 18  # a number of so many digits has no more than 64 bits


class RowColumns:
    """Splits batches of a schema whose keys are their own frozen form into what a `table` store keeps.

    timed: values end with the row time.
    """

    def __init__(self, schema: Schema, *, timed: bool = False) -> None:
        self._schema, self._timed = schema, timed
        names = schema.names
        keys = key_fields(schema)
        self._key_at = [names.index(f.name) for f in keys]
        self._codec = key_codec(tuple(f.type for f in keys))
        self._values = [(names.index(f.name), f.type) for f in value_fields(schema)]
        kinds: list[tuple[ColumnKind, ...]] = [(value_kind(t),) for _, t in self._values]
        self.layout = ValueLayout((*kinds, ("integer",)) if timed else tuple(kinds))

    def split(self, batch: Batch) -> tuple[PackedKeys, RowValues]:
        """Keys and values of all rows but before-images, in their order; no value for a DELETE."""
        kept = np.flatnonzero(batch.op != UPDATE_BEFORE)
        return self.keys(batch, kept), self.values(batch, kept)

    def changing(self, batch: Batch, *, null_group: bool = False) -> Ints:
        """Places of the rows that change a table: before-images do not, nor do rows without a key, unless NULL is a group."""
        changes = batch.op != UPDATE_BEFORE
        if self._key_at and not null_group:
            arrow = batch.arrow()
            columns = [arrow.column(i) for i in self._key_at]
            if all(c.null_count for c in columns):
                changes &= ~np.all([pc.is_null(c).to_numpy(zero_copy_only=False) for c in columns], axis=0)
        return np.flatnonzero(changes)

    def keys(self, batch: Batch, at: Ints) -> PackedKeys:
        """The keys of rows at these places."""
        return packed_keys(self._codec, list(map(plain_column, self.key_columns(batch, at))))

    def key_columns(self, batch: Batch, at: Ints) -> list[pa.Array]:
        """The columns of the keys of rows at these places."""
        return self._taken(batch, self._key_at, at)

    def values(self, batch: Batch, at: Ints) -> RowValues:
        """The values of rows at these places; no value for a DELETE."""
        columns = self._taken(batch, [i for i, _ in self._values], at)
        made = [_column(c, t, value_kind(t)) for c, (_, t) in zip(columns, self._values, strict=True)]
        if self._timed:
            made.append(ValueColumn(batch.rowtime[at]))
        states = np.where(batch.op[at] == DELETE, ABSENT, PRESENT).astype(np.int8)
        return RowValues(self.layout, states, made, {})

    def record(self, batch: Batch, at: Ints, values: RowValues) -> pa.RecordBatch:
        """Rows of the schema: the keys of rows at these places, with such values, of which none is odd."""
        schema = self._schema
        made: list[pa.Array | None] = [None] * len(schema.names)
        for i, column in zip(self._key_at, self._taken(batch, self._key_at, at), strict=True):
            made[i] = column
        for (i, t), column in zip(self._values, values.columns, strict=False):
            made[i] = value_array(column, t)
        return record_of(made, schema)

    @staticmethod
    def _taken(batch: Batch, columns: Sequence[int], at: Ints) -> list[pa.Array]:
        arrow = batch.arrow()
        if len(at) == len(batch) and (at[1:] > at[:-1]).all():
            return [arrow.column(i) for i in columns]
        places = pa.array(at)
        return [arrow.column(i).take(places) for i in columns]


def last_changes(keys: PackedKeys, gone: Flags) -> Ints:
    """Places of the last change of each key, rising. gone: which rows remove a key; to remove what is removed changes nothing."""
    order = keys.order()
    ordered = keys.take(order)
    again = same(ordered.between(0, len(keys) - 1), ordered.between(1, len(keys)))
    last = np.flatnonzero(np.append(~again, True))
    if gone.any():
        gone = gone[order]
        repeated = np.append(False, again & gone[:-1]) & gone
        last = np.maximum.accumulate(np.where(repeated, 0, np.arange(len(order))))[last]
    return np.sort(order[last])


def value_array(column: ValueColumn, t: SqlType) -> pa.Array:
    """Values of a type as a column of Arrow."""
    return to_arrow(column.data.tolist(), t) if column.data.dtype == np.object_ else column_array(column, t)


def column_array(column: ValueColumn, t: SqlType) -> pa.Array:
    """A column of numbers as one of Arrow of this type. Of a DECIMAL it holds the whole numbers in the scale of the type."""
    if t.kind is Kind.DECIMAL:
        limbs = np.ascontiguousarray(widened(column.data))
        known = None if column.null is None else pa.array(~column.null).buffers()[1]
        return pa.Array.from_buffers(arrow_type(t), len(column.data), [known, pa.py_buffer(limbs)])
    numbers = pa.array(column.data, mask=column.null)
    return numbers.cast(TEMPORAL[t.kind]).cast(arrow_type(t)) if t.kind in TEMPORAL else numbers.cast(arrow_type(t))


def value_kind(t: SqlType) -> ColumnKind:
    """The column that holds values of a type."""
    if t.kind is Kind.DOUBLE:
        return "double"
    if t.kind is Kind.DECIMAL:
        return Scaled(t.scale) if t.precision <= _NARROW_DIGITS else Wide(t.scale)
    return "integer" if t.kind in (Kind.INT, Kind.BIGINT) or t.kind in TEMPORAL else "object"


def wide_decimals(column: pa.Array) -> Wides:
    """Decimals as whole numbers in their scale, 0 for NULL."""
    return from_decimals(pc.fill_null(column, pa.scalar(Decimal(0), column.type)) if column.null_count else column)


def whole_decimals(column: pa.Array) -> tuple[Ints, Flags]:
    """The lower 64 bits of each Decimal as a whole number, 0 for NULL, and whether they are all of it."""
    numbers = wide_decimals(column)
    return narrowed(numbers), fits(numbers)


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
    if isinstance(kind, Scaled | Wide):
        null = pc.is_null(column).to_numpy(zero_copy_only=False) if column.null_count else None
        numbers = wide_decimals(column)
        return ValueColumn(narrowed(numbers) if isinstance(kind, Scaled) else numbers, null, kind.scale)
    numbers = column.cast(TEMPORAL[t.kind]) if t.kind in TEMPORAL else column
    dtype = np.float64 if kind == "double" else np.int64
    if not numbers.null_count:
        return ValueColumn(numbers.to_numpy().astype(dtype, copy=False))
    return ValueColumn(
        pc.fill_null(numbers, 0).to_numpy().astype(dtype, copy=False),
        pc.is_null(numbers).to_numpy(zero_copy_only=False),
    )
