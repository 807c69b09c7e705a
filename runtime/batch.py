"""Batches between operators: columns in Arrow or rows in Python, whichever the last operator made.

Small batches stay rows (a DuckDB statement costs 0.5-1 ms whatever its size), large ones stay Arrow; an operator asks
for the form it wants and the conversion happens once. Batches are immutable by convention.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from flowql.compiler.plan.schema import Schema
from flowql.compiler.plan.types import Kind, SqlType, arrow_type

INSERT, UPDATE_BEFORE, UPDATE_AFTER, DELETE = 0, 1, 2, 3
Row = tuple[Any, ...]
Ints = npt.NDArray[np.int64]
Ops = npt.NDArray[np.int8]
Headers = Sequence[Sequence[tuple[str, bytes | None]] | None]
UNKNOWN = -1  # in the place of an offset


@dataclass(frozen=True, slots=True)
class Origins:
    """The source record that each of n rows was made from, where that is exactly one.

    places: topics and partitions. which: per row, an index into them. offsets: per row, the offset there, or UNKNOWN.
    """

    places: tuple[tuple[str, int], ...]
    which: npt.NDArray[np.int16]
    offsets: Ints

    @staticmethod
    def unknown(n: int) -> Origins:
        return Origins((), np.zeros(n, np.int16), np.full(n, UNKNOWN, np.int64))

    def __len__(self) -> int:
        return len(self.offsets)

    def of(self, row: int) -> tuple[str, int, int] | None:
        """Topic, partition and offset; None if no record is known."""
        offset = int(self.offsets[row])
        return None if offset == UNKNOWN else (*self.places[self.which[row]], offset)

    def take(self, index: Ints | slice) -> Origins:
        return Origins(self.places, self.which[index], self.offsets[index])

    def without(self, rows: npt.NDArray[np.bool_]) -> Origins:
        """Nothing is known of these rows (any more)."""
        return Origins(self.places, self.which, np.where(rows, UNKNOWN, self.offsets))


def concat_origins(parts: Sequence[Origins]) -> Origins:
    """Those of rows that stand one after the other."""
    if len(parts) == 1:
        return parts[0]
    places = {place: n for n, place in enumerate(dict.fromkeys(place for part in parts for place in part.places))}
    which = [np.array([places[place] for place in part.places] or [0], np.int16)[part.which] for part in parts]
    return Origins(tuple(places), np.concatenate(which), np.concatenate([part.offsets for part in parts]))


class Batch:
    """n rows of one schema in the order of a task's run.

    columns: values of the schema's fields. rowtime: ms per row. op: INSERT.. per row; in a stream DELETE marks a record
    whose value is null (value columns are null). seq: position in the task's run: rising, equal for rows made from the
    same input record; joins merge their inputs by it and dead letters are found by it. headers: per row, or None for none.
    origins: of rows that travel through a repartition, if they are known.
    """

    __slots__ = ("_arrow", "_rows", "headers", "op", "origins", "rowtime", "schema", "seq")

    def __init__(
        self,
        schema: Schema,
        *,
        rowtime: Ints,
        op: Ops,
        seq: Ints,
        arrow: pa.RecordBatch | None = None,
        rows: list[Row] | None = None,
        headers: Headers | None = None,
        origins: Origins | None = None,
    ) -> None:
        assert (arrow is None) != (rows is None), "a batch starts with one of its two forms"
        self.schema = schema
        self.rowtime, self.op, self.seq = rowtime, op, seq
        self.headers, self.origins = headers, origins
        self._arrow, self._rows = arrow, rows

    def __len__(self) -> int:
        return len(self.rowtime)

    @property
    def is_columns(self) -> bool:
        """The columns exist already (asking for them is free); else the rows do."""
        return self._arrow is not None

    def rows(self) -> list[Row]:
        """Values in schema order, in their reference representation (`flowql.compiler.plan.types`)."""
        if self._rows is None:
            assert self._arrow is not None
            columns = [to_python(self._arrow.column(i), f.type) for i, f in enumerate(self.schema)]
            self._rows = list(zip(*columns, strict=True)) if columns else [()] * len(self)
        return self._rows

    def arrow(self) -> pa.RecordBatch:
        """Columns in schema order, with the Arrow types of `flowql.compiler.plan.types`."""
        if self._arrow is None:
            assert self._rows is not None
            fields = list(self.schema)
            arrays = [to_arrow([r[i] for r in self._rows], f.type) for i, f in enumerate(fields)]
            self._arrow = record_of(arrays, self.schema, len(self))
        return self._arrow

    def column(self, name: str) -> list[Any]:
        """One column in reference representation."""
        i = self.schema.names.index(name)
        if self._rows is not None:
            return [r[i] for r in self._rows]
        return to_python(self.arrow().column(i), self.schema.fields[i].type)

    def take(self, indices: Ints) -> Batch:
        """The rows at `indices`, in that order."""
        headers = None if self.headers is None else [self.headers[i] for i in indices]
        parts: dict[str, Any] = {"rowtime": self.rowtime[indices], "op": self.op[indices], "seq": self.seq[indices]}
        if self.origins is not None:
            parts["origins"] = self.origins.take(indices)
        if self._arrow is not None:
            return Batch(self.schema, arrow=self._arrow.take(pa.array(indices)), headers=headers, **parts)
        assert self._rows is not None
        rows = self._rows
        return Batch(self.schema, rows=[rows[i] for i in indices], headers=headers, **parts)

    def slice(self, start: int, end: int) -> Batch:
        """The rows from `start` to before `end`. Columns are not copied."""
        if (start, end) == (0, len(self)):
            return self
        headers = None if self.headers is None else self.headers[start:end]
        arrow = None if self._arrow is None else self._arrow.slice(start, end - start)
        rows = None if self._rows is None else self._rows[start:end]
        made = self._of(arrow, rows, self.rowtime[start:end], self.op[start:end], self.seq[start:end], headers)
        made.origins = None if self.origins is None else self.origins.take(slice(start, end))
        return made

    def numbered(self, seq: Ints) -> Batch:
        """The same rows with other places in the run."""
        return self._of(self._arrow, self._rows, self.rowtime, self.op, seq, self.headers)

    def with_op(self, op: Ops) -> Batch:
        """The same rows as other changes."""
        return self._of(self._arrow, self._rows, self.rowtime, op, self.seq, self.headers)

    def with_origins(self, origins: Origins) -> Batch:
        """The same rows, made from these records."""
        assert len(origins) == len(self)
        made = self._of(self._arrow, self._rows, self.rowtime, self.op, self.seq, self.headers)
        made.origins = origins
        return made

    def _of(
        self,
        arrow: pa.RecordBatch | None,
        rows: list[Row] | None,
        rowtime: Ints,
        op: Ops,
        seq: Ints,
        headers: Headers | None,
    ) -> Batch:
        """A batch of this schema in all forms that exist already, of unknown origins."""
        made = Batch.__new__(Batch)
        made.schema, made.rowtime, made.op, made.seq, made.headers = self.schema, rowtime, op, seq, headers
        made.origins = None
        made._arrow, made._rows = arrow, rows
        return made

    def select(self, schema: Schema) -> Batch:
        """The same rows with the columns of `schema` (a subset by name, any order and roles)."""
        index = [self.schema.names.index(n) for n in schema.names]
        if self._arrow is not None:
            return self.with_columns(schema, [self._arrow.column(i) for i in index])
        assert self._rows is not None
        parts: dict[str, Any] = {"rowtime": self.rowtime, "op": self.op, "seq": self.seq, "headers": self.headers}
        return Batch(schema, rows=[tuple(r[i] for i in index) for r in self._rows], **parts)

    def with_columns(self, schema: Schema, columns: Sequence[pa.Array]) -> Batch:
        """The same changes with the values of another schema, of unknown origins."""
        return from_columns(schema, columns, self.rowtime, op=self.op, seq=self.seq, headers=self.headers)


def from_columns(
    schema: Schema,
    columns: Sequence[pa.Array],
    rowtime: Ints,
    *,
    seq: Ints,
    op: Ops | None = None,
    headers: Headers | None = None,
) -> Batch:
    """A batch in column form. op: every row is inserted if it is not given."""
    arrow, op = record_of(columns, schema, len(rowtime)), np.full(len(rowtime), INSERT, np.int8) if op is None else op
    return Batch(schema, arrow=arrow, rowtime=rowtime, op=op, seq=seq, headers=headers)


def from_rows(
    schema: Schema,
    rows: list[Row],
    rowtime: Sequence[int] | Ints,
    op: Sequence[int] | Ops,
    seq: Sequence[int] | Ints,
    headers: Headers | None = None,
) -> Batch:
    """A batch in row form."""
    return Batch(
        schema,
        rows=rows,
        rowtime=np.asarray(rowtime, np.int64),
        op=np.asarray(op, np.int8),
        seq=np.asarray(seq, np.int64),
        headers=headers,
    )


def empty(schema: Schema) -> Batch:
    return from_rows(schema, [], [], [], [])


def concat(schema: Schema, batches: Sequence[Batch]) -> Batch:
    """Rows of all batches one after the other, of unknown origins; columns are matched by position."""
    batches = [b for b in batches if len(b)]
    if not batches:
        return empty(schema)
    if len(batches) == 1:
        return batches[0]
    headers: list[Any] | None = None
    if any(b.headers is not None for b in batches):
        headers = [h for b in batches for h in (b.headers if b.headers is not None else [None] * len(b))]
    parts: dict[str, Any] = {
        "rowtime": np.concatenate([b.rowtime for b in batches]),
        "op": np.concatenate([b.op for b in batches]),
        "seq": np.concatenate([b.seq for b in batches]),
        "headers": headers,
    }
    if not any(b.is_columns for b in batches):
        return Batch(schema, rows=[r for b in batches for r in b.rows()], **parts)
    table = pa.Table.from_batches([b.arrow() for b in batches]).combine_chunks()
    return Batch(schema, arrow=table.to_batches()[0], **parts)


_SCALARS = frozenset({Kind.BOOLEAN, Kind.INT, Kind.BIGINT, Kind.DOUBLE, Kind.DECIMAL, Kind.STRING, Kind.BYTES})
# The integers that dates and times are as reference values.
TEMPORAL = {Kind.DATE: pa.int32(), Kind.TIME: pa.int32(), Kind.TIMESTAMP: pa.int64(), Kind.MICROS: pa.int64()}


def to_python(array: pa.Array, t: SqlType) -> list[Any]:
    """An Arrow column as reference values."""
    if t.kind in TEMPORAL:
        return list(array.cast(TEMPORAL[t.kind]).to_pylist())
    if t.kind in _SCALARS or t.kind is Kind.NULL:
        return list(array.to_pylist())
    if t.kind is Kind.STRUCT:
        valid = array.is_valid().to_pylist()
        children = [to_python(pc.struct_field(array, i), f) for i, (_, f) in enumerate(t.fields)]
        names = [n for n, _ in t.fields]
        return [
            dict(zip(names, values, strict=True)) if ok else None
            for ok, values in zip(valid, zip(*children, strict=True), strict=True)
        ]
    offsets = array.offsets.to_pylist()
    valid = array.is_valid().to_pylist()
    if t.kind is Kind.ARRAY:
        items = to_python(array.values, t.element)
        return [items[offsets[i] : offsets[i + 1]] if ok else None for i, ok in enumerate(valid)]
    keys, items = to_python(array.keys, t.args[0]), to_python(array.items, t.args[1])
    return [
        dict(zip(keys[a:b], items[a:b], strict=True)) if ok else None
        for ok, a, b in zip(valid, offsets[:-1], offsets[1:], strict=True)
    ]


def to_arrow(values: Sequence[Any], t: SqlType) -> pa.Array:
    """Reference values as an Arrow column of `arrow_type(t)`."""
    if t.kind in TEMPORAL:
        return pa.array(values, TEMPORAL[t.kind]).cast(arrow_type(t))
    if t.kind in _SCALARS or t.kind is Kind.NULL:
        return pa.array(values, arrow_type(t))
    mask = pa.array([v is None for v in values], pa.bool_())
    if t.kind is Kind.STRUCT:
        children = [to_arrow([None if v is None else v.get(n) for v in values], f) for n, f in t.fields]
        fields = [pa.field(n, arrow_type(f)) for n, f in t.fields]
        return pa.StructArray.from_arrays(children, fields=fields, mask=mask)
    offsets = np.zeros(len(values) + 1, np.int32)
    np.cumsum([0 if v is None else len(v) for v in values], out=offsets[1:])
    nullable = (
        pa.array(offsets, mask=np.append(mask.to_numpy(zero_copy_only=False), False))
        if len(values)
        else pa.array(offsets)
    )
    if t.kind is Kind.ARRAY:
        flat = to_arrow([x for v in values if v is not None for x in v], t.element)
        return pa.ListArray.from_arrays(nullable, flat)
    keys = to_arrow([k for v in values if v is not None for k in v], t.args[0])
    items = to_arrow([x for v in values if v is not None for x in v.values()], t.args[1])
    return pa.MapArray.from_arrays(nullable, keys, items)


def record_of(arrays: Sequence[pa.Array], schema: Schema, n: int = 0) -> pa.RecordBatch:
    """Columns of a schema. n: how many rows a schema without columns has."""
    if not arrays:
        return pa.RecordBatch.from_struct_array(pa.array([{}] * n, pa.struct([])))
    fields = [pa.field(f.name, arrow_type(f.type)) for f in schema]
    return pa.RecordBatch.from_arrays(list(arrays), schema=pa.schema(fields))
