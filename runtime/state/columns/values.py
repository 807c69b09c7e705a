"""Values of a store as columns: one row per value, a column per number in it.

A value (`flowql.runtime.state.store.Value`) here is the accumulators of a group and its row time, or the columns of a row. A part is one number, a pair of
numbers, or anything at all, which a column of objects holds. A Decimal is the whole number that it is in the scale of its column. A value that
does not fit its columns, as it has more parts or an integer with more bits, is kept whole beside them: it is *odd*.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from decimal import Context, Decimal
from itertools import groupby
from typing import Any, Literal

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from flowql.runtime.batch import Ints
from flowql.runtime.state.columns.packed import Flags, ends_of, grown, spread
from flowql.runtime.state.columns.wide import WIDE, fits, from_ints, in_bytes, narrowed, to_ints
from flowql.runtime.state.rows import Value
from flowql.runtime.state.values import (
    NESTED_MARK,
    TAGGED_MARK,
    WIDE_INT_LEAD,
    array_header,
    decimal_lead,
    encode_value,
    tuple_lead,
    wide_decimal_lead,
)

ABSENT, PRESENT, ODD = 0, 1, 2
States = npt.NDArray[np.int8]

_DTYPES: dict[str, Any] = {"double": np.float64, "object": np.object_}
_TYPES: dict[str, type] = {"integer": int, "double": float}
_NO_TYPE = type(None)
_EXACT = Context(prec=60)
_NIL, _FALSE, _TRUE = 0xC0, 0xC2, 0xC3
_FIX_TEXT, _SHORT = 0xA0, 32
_LONGER_TEXTS = (
    (_SHORT, 0xD9, 1),
    (1 << 8, 0xDA, 2),
    (1 << 16, 0xDB, 4),
)  # from which length on, tag, bytes of the length
_DOUBLE_TAG = 0xCB
_INTEGER_TAGS = ((0xD1, ">i2"), (0xD2, ">i4"), (0xD3, ">i8"))  # msgpack's signed integers, by width


@dataclass(frozen=True, slots=True)
class Scaled:
    """The kind of a column of Decimals n / 10**scale, which holds n."""

    scale: int


@dataclass(frozen=True, slots=True)
class Wide:
    """As `Scaled`, with 128 bits for each; scale None: of integers."""

    scale: int | None


ColumnKind = Literal["integer", "double", "object"] | Scaled | Wide


@dataclass(frozen=True, slots=True)
class ValueColumn:
    """data: of one kind; null: where it is NULL, None for nowhere. Objects are None instead. scale: that of Decimals."""

    data: npt.NDArray[Any]
    null: Flags | None = None
    scale: int | None = None

    def take(self, at: Ints | Flags) -> ValueColumn:
        return replace(self, data=self.data[at], null=None if self.null is None else self.null[at])

    def to_list(self) -> list[Any]:
        found: list[Any] = to_ints(self.data) if self.data.dtype == WIDE else self.data.tolist()
        if self.scale is not None:
            found = [_EXACT.scaleb(Decimal(n), -self.scale) for n in found]
        if self.null is not None:
            for i in np.flatnonzero(self.null).tolist():
                found[i] = None
        return found


@dataclass(frozen=True)
class ValueLayout:
    """parts: the kinds of the columns of each part, one or two."""

    parts: tuple[tuple[ColumnKind, ...], ...]
    kinds: tuple[ColumnKind, ...] = field(init=False)
    has_decimals: bool = field(init=False)

    def __post_init__(self) -> None:
        kinds = tuple(k for part in self.parts for k in part)
        object.__setattr__(self, "kinds", kinds)
        object.__setattr__(self, "has_decimals", any(_scale(k) is not None for k in kinds))

    def columns_of(self, values: Sequence[Value]) -> list[ValueColumn] | None:
        """Columns of values; None if one does not fit."""
        if not values:
            return self.empty(0)
        width = len(self.parts)
        if any(len(v) != width for v in values):
            return None
        made: list[ValueColumn] = []
        for part, column in zip(self.parts, zip(*values, strict=True), strict=True):
            if len(part) == 1:
                found = _column(column, part[0])
                if found is None:
                    return None
                made.append(found)
                continue
            if any(type(v) is not tuple or len(v) != len(part) for v in column):
                return None
            for inner, kind in zip(zip(*column, strict=True), part, strict=True):
                found = _column(inner, kind)
                if found is None or found.null is not None:
                    return None
                made.append(found)
        return made

    def empty(self, n: int) -> list[ValueColumn]:
        return [column_of(k, np.full(n, None) if k == "object" else np.zeros(n, _dtype(k))) for k in self.kinds]

    def part_columns(self, columns: Sequence[ValueColumn]) -> list[tuple[ValueColumn, ...]]:
        """The columns of each part."""
        at, found = 0, []
        for part in self.parts:
            found.append(tuple(columns[at : at + len(part)]))
            at += len(part)
        return found

    def tuples(self, columns: Sequence[ValueColumn]) -> list[Value]:
        """The values in these columns."""
        parts: list[Iterable[Any]] = []
        for of_part in self.part_columns(columns):
            lists = [c.to_list() for c in of_part]
            parts.append(lists[0] if len(lists) == 1 else zip(*lists, strict=True))
        return list(zip(*parts, strict=True))

    def encode(self, columns: Sequence[ValueColumn]) -> pa.Array | None:
        """The values in msgpack as binary; None for columns with other objects than strings or booleans."""
        return _encode_rows(self, columns)


def column_of(kind: ColumnKind, data: npt.NDArray[Any], null: Flags | None = None) -> ValueColumn:
    return ValueColumn(data, null, _scale(kind))


def _scale(kind: ColumnKind) -> int | None:
    return kind.scale if isinstance(kind, Scaled | Wide) else None


def _dtype(kind: ColumnKind) -> Any:
    if isinstance(kind, Wide):
        return WIDE
    return np.int64 if isinstance(kind, Scaled) else _DTYPES.get(kind, np.int64)


class RowValues:
    """A value, or none, per row. odd: those that do not fit the columns, by row. Not changed once made."""

    __slots__ = ("columns", "layout", "odd", "states")

    def __init__(self, layout: ValueLayout, states: States, columns: list[ValueColumn], odd: dict[int, Value]) -> None:
        self.layout, self.states, self.columns, self.odd = layout, states, columns, odd

    @staticmethod
    def of(layout: ValueLayout, values: Sequence[Value | None]) -> RowValues:
        states = np.full(len(values), PRESENT, np.int8)
        fitting = None if None in values else layout.columns_of(values)  # type: ignore[arg-type]
        if fitting is not None:
            return RowValues(layout, states, fitting, {})
        columns, odd = layout.empty(len(values)), {}
        some = [i for i, v in enumerate(values) if v is not None]
        states[[i for i, v in enumerate(values) if v is None]] = ABSENT
        fitting = layout.columns_of([v for v in values if v is not None])
        if fitting is None:
            alone = {i: layout.columns_of([values[i]]) for i in some}  # type: ignore[list-item]
            odd = {i: v for i in some if alone[i] is None and (v := values[i]) is not None}
            states[list(odd)] = ODD
            some = [i for i in some if i not in odd]
            fitting = layout.columns_of([v for i in some if (v := values[i]) is not None])
        if some:
            assert fitting is not None
            columns = [_filled(c, f, some) for c, f in zip(columns, fitting, strict=True)]
        return RowValues(layout, states, columns, odd)

    @staticmethod
    def nothing(layout: ValueLayout, n: int) -> RowValues:
        """No value in each of n rows."""
        return RowValues(layout, np.full(n, ABSENT, np.int8), layout.empty(n), {})

    def __len__(self) -> int:
        return len(self.states)

    @property
    def known(self) -> Flags:
        """Where there is a value."""
        return self.states != ABSENT

    def take(self, at: Ints) -> RowValues:
        odd = {n: self.odd[i] for n, i in enumerate(at.tolist()) if i in self.odd} if self.odd else {}
        return RowValues(self.layout, self.states[at], [c.take(at) for c in self.columns], odd)

    def without(self, gone: Flags) -> RowValues:
        """The same with no values where `gone` says so."""
        odd = {i: v for i, v in self.odd.items() if not gone[i]}
        return RowValues(self.layout, np.where(gone, np.int8(ABSENT), self.states), self.columns, odd)

    def to_list(self) -> list[Value | None]:
        found: list[Value | None] = list(self.layout.tuples(self.columns)) if self.columns else [()] * len(self)
        for i in np.flatnonzero(self.states != PRESENT).tolist():
            found[i] = self.odd.get(i)
        return found

    def encode(self) -> pa.Array:
        """Each as `encode_value` gives it, or so that it reads the same, as binary; NULL where there is no value."""
        at = np.flatnonzero(self.states == PRESENT)
        whole = len(at) == len(self)
        rows = self.layout.encode(self.columns if whole else [c.take(at) for c in self.columns])
        if rows is not None and whole:
            return rows
        encoded: list[bytes | None] = [None] * len(self)
        others = np.flatnonzero(self.known)
        if rows is not None:
            others = others[self.states[others] != PRESENT]
            for i, data in zip(at.tolist(), rows.to_pylist(), strict=True):
                encoded[i] = data
        for i, value in zip(others.tolist(), self.take(others).to_list(), strict=True):
            encoded[i] = None if value is None else encode_value(value)
        return pa.array(encoded, pa.binary())


def concatenated(parts: Sequence[RowValues]) -> RowValues:
    """Values one behind the other; at least one part."""
    if len(parts) == 1:
        return parts[0]
    columns = []
    for of_part in zip(*(p.columns for p in parts), strict=True):
        null = None
        if any(c.null is not None for c in of_part):
            null = np.concatenate([np.zeros(len(c.data), bool) if c.null is None else c.null for c in of_part])
        columns.append(replace(of_part[0], data=np.concatenate([c.data for c in of_part]), null=null))
    odd: dict[int, Value] = {}
    begin = 0
    for p in parts:
        odd.update({begin + i: v for i, v in p.odd.items()})
        begin += len(p)
    return RowValues(parts[0].layout, np.concatenate([p.states for p in parts]), columns, odd)


class ValueTable:
    """Values by slot, which one thread reads and writes."""

    __slots__ = ("_columns", "_layout", "_nulls", "_odd", "_states")

    def __init__(self, layout: ValueLayout, capacity: int) -> None:
        self._layout = layout
        self._states = np.zeros(capacity, np.int8)
        self._columns: list[npt.NDArray[Any]] = [np.zeros(capacity, _dtype(k)) for k in layout.kinds]
        self._nulls: list[Flags | None] = [None] * len(layout.kinds)  # made with the first NULL of a column
        self._odd: dict[int, Value] = {}

    def reserve(self, capacity: int) -> None:
        used = len(self._states)
        if capacity <= used:
            return
        self._states = grown(self._states, capacity, used)
        self._states[used:] = ABSENT
        self._columns = [grown(c, capacity, used) for c in self._columns]
        for c in self._columns:
            c[used:] = 0 if c.dtype != np.object_ else None
        for i, null in enumerate(self._nulls):
            if null is not None:
                longer = self._nulls[i] = grown(null, capacity, used)
                longer[used:] = False

    def read(self, slots: Ints) -> RowValues:
        states = self._states[slots]
        columns = [
            column_of(k, c[slots], None if null is None or not (n := null[slots]).any() else n)
            for k, c, null in zip(self._layout.kinds, self._columns, self._nulls, strict=True)
        ]
        odd = {i: self._odd[s] for i, s in enumerate(slots.tolist()) if s in self._odd} if self._odd else {}
        return RowValues(self._layout, states, columns, odd)

    def write(self, slots: Ints, values: RowValues) -> None:
        """Slots are different ones."""
        if self._odd:
            for s in slots.tolist():
                self._odd.pop(s, None)
        self._states[slots] = values.states
        for i, column in enumerate(values.columns):
            self._columns[i][slots] = column.data
            null = self._nulls[i]
            if column.null is not None:
                if null is None:
                    null = self._nulls[i] = np.zeros(len(self._states), bool)
                null[slots] = column.null
            elif null is not None:
                null[slots] = False
        for i, value in values.odd.items():
            self._odd[int(slots[i])] = value


def objects(values: Sequence[Any]) -> ValueColumn:
    data = np.empty(len(values), np.object_)
    for i, v in enumerate(values):  # as a whole, tuples would become rows of an array
        data[i] = v
    return ValueColumn(data)


def _column(values: Sequence[Any], kind: ColumnKind) -> ValueColumn | None:
    if kind == "object":
        return objects(values)
    types = set(map(type, values))
    if isinstance(kind, Scaled | Wide):
        wanted = int if kind.scale is None else Decimal
        return None if types - {wanted, _NO_TYPE} else _whole_numbers(values, kind)
    if types - {_TYPES[kind], _NO_TYPE}:
        return None
    null = None
    if _NO_TYPE in types:
        null = np.fromiter((v is None for v in values), bool, len(values))
        values = [0 if v is None else v for v in values]
    try:
        return ValueColumn(np.array(values, _dtype(kind)), null)
    except OverflowError:
        return None


def _whole_numbers(values: Sequence[Any], kind: Scaled | Wide) -> ValueColumn | None:
    """None for a value that needs more bits, and a Decimal that has other digits or another exponent in this scale."""
    scale = kind.scale
    if scale is None:
        whole = [0 if v is None else v for v in values]
    elif any(v is not None and v.as_tuple().exponent != -scale for v in values):
        return None
    else:
        whole = [0 if v is None else int(_EXACT.scaleb(v, scale)) for v in values]
    null = np.fromiter((v is None for v in values), bool, len(values))
    try:
        data = from_ints(whole) if isinstance(kind, Wide) else np.array(whole, np.int64)
    except OverflowError:
        return None
    return None if data is None else ValueColumn(data, null if null.any() else None, scale)


def _filled(empty: ValueColumn, some: ValueColumn, at: list[int]) -> ValueColumn:
    data, null = empty.data, None
    data[at] = some.data
    if some.null is not None:
        null = np.zeros(len(data), bool)
        null[at] = some.null
    return replace(empty, data=data, null=null)


Fixed = npt.NDArray[np.uint8]  # a row of bytes for each value
Varying = tuple[npt.NDArray[np.uint8], Ints]  # bytes of all values, one behind the other, and how many of them each has


def _encode_rows(layout: ValueLayout, columns: Sequence[ValueColumn]) -> pa.Array | None:
    """Values in msgpack as binary, written by whole columns; None for columns with other objects than strings or booleans."""
    if not columns or not len(columns[0].data) or len(columns) >= 1 << 16:
        return None
    n, array = len(columns[0].data), array_header(len(layout.parts))
    nested = any(len(part) > 1 for part in layout.parts)
    tagged = layout.has_decimals or any(c.data.dtype == WIDE and not fits(c.data).all() for c in columns)
    blocks: list[Fixed | Varying] = [constant((TAGGED_MARK if tagged else NESTED_MARK if nested else b"") + array, n)]
    for part in layout.part_columns(columns):
        found = part_blocks(part, n, tagged=tagged)
        if found is None:
            return None
        blocks += found
    return in_array(blocks, n)


def part_blocks(part: Sequence[ValueColumn], n: int, *, tagged: bool) -> list[Fixed | Varying] | None:
    """One part of each value, of one or two columns; None for other objects than strings or booleans."""
    if len(part) > 1:
        numbers = [block for c in part for block in _encode_numbers(c, n)]
        pair = array_header(len(part))
        length = len(pair) + sum(block.shape[1] for block in numbers)
        return [constant((tuple_lead(length) if tagged else b"") + pair, n), *numbers]
    (c,) = part
    if c.data.dtype == np.object_:
        found = _encode_objects(c.data.tolist())
        return None if found is None else [found]
    numbers = _encode_numbers(c, n)
    return list(numbers) if c.null is None else [_with_nulls(np.concatenate(numbers, axis=1), c.null)]


def _encode_numbers(c: ValueColumn, n: int) -> list[Fixed]:
    """Encodes a column with the same width in all rows."""
    if c.data.dtype != WIDE or fits(c.data).all():
        data = narrowed(c.data) if c.data.dtype == WIDE else c.data
        if c.scale is None:
            return [_number(data)]
        return [constant(decimal_lead(c.scale), n), _bytes_of(data.astype(">i8"), n)]
    return [constant(WIDE_INT_LEAD if c.scale is None else wide_decimal_lead(c.scale), n), in_bytes(c.data)]


def _with_nulls(rows: Fixed, null: Flags) -> Varying:
    kept = np.ones(rows.shape, bool)
    kept[null, 1:] = False
    rows[null, 0] = _NIL
    return rows[kept], np.where(null, 1, rows.shape[1])


def _encode_objects(values: list[Any]) -> Varying | None:
    """None for other objects than strings that are valid text, or booleans."""
    types = set(map(type, values)) - {_NO_TYPE}
    if types <= {bool}:
        tags = np.array([_NIL if v is None else _TRUE if v else _FALSE for v in values], np.uint8)
        return tags, np.ones(len(values), np.int64)
    if types != {str}:
        return None
    try:
        column = pa.array(values, pa.string())
    except UnicodeEncodeError:
        return None
    offsets = np.frombuffer(column.buffers()[1], np.int32)[: len(values) + 1].astype(np.int64)
    inner = np.frombuffer(column.buffers()[2] or b"", np.uint8)[: offsets[-1]]
    lengths = np.diff(offsets)
    lead = np.ones(len(values), np.int64)
    tags = np.where(lengths < _SHORT, _FIX_TEXT | lengths, 0)
    if column.null_count:
        tags[pc.is_null(column).to_numpy(zero_copy_only=False)] = _NIL
    for least, tag, size in _LONGER_TEXTS:
        tags[lengths >= least], lead[lengths >= least] = tag, 1 + size
    ends = ends_of(lead + lengths)
    data = np.zeros(int(ends[-1]), np.uint8)
    data[ends[:-1]] = tags
    for _, _, size in _LONGER_TEXTS:
        long = np.flatnonzero(lead == 1 + size)
        for k in range(size):
            data[ends[long] + 1 + k] = lengths[long] >> 8 * (size - 1 - k) & 0xFF
    data[spread(ends[:-1] + lead, lengths)] = inner
    return data, lead + lengths


def in_array(blocks: Sequence[Fixed | Varying], n: int) -> pa.Array:
    """Blocks one behind the other in each row, as binary."""
    joined: list[Fixed | Varying] = []
    for is_fixed, members in groupby(blocks, key=lambda b: not isinstance(b, tuple)):
        group = list(members)
        joined += [np.ascontiguousarray(np.concatenate(group, axis=1))] if is_fixed else group
    (first, *others) = joined
    if not others and not isinstance(first, tuple):
        offsets = np.arange(n + 1, dtype=np.int32) * np.int32(first.shape[1])
        return pa.Array.from_buffers(pa.binary(), n, [None, pa.py_buffer(offsets), pa.py_buffer(first)])
    varying = [b if isinstance(b, tuple) else (b.reshape(-1), np.full(n, b.shape[1], np.int64)) for b in joined]
    ends = ends_of(np.sum([lengths for _, lengths in varying], axis=0))
    data, at = np.empty(int(ends[-1]), np.uint8), ends[:-1]
    for inner, lengths in varying:
        data[spread(at, lengths)] = inner
        at = at + lengths
    return pa.Array.from_buffers(pa.binary(), n, [None, pa.py_buffer(ends.astype(np.int32)), pa.py_buffer(data)])


def constant(data: bytes, n: int) -> npt.NDArray[np.uint8]:
    return np.broadcast_to(np.frombuffer(data, np.uint8), (n, len(data)))


def _number(data: npt.NDArray[Any]) -> npt.NDArray[np.uint8]:
    n = len(data)
    if data.dtype == np.float64:
        return _tagged(_DOUBLE_TAG, data.astype(">f8"), n)
    low, high = int(data.min()), int(data.max())
    if low >= 0 and high < 128:
        return data.astype(np.uint8).reshape(n, 1)
    for tag, dtype in _INTEGER_TAGS:
        limits = np.iinfo(dtype)
        if limits.min <= low and high <= limits.max:
            return _tagged(tag, data.astype(dtype), n)
    raise AssertionError("64 bits hold every number of a column")


def _tagged(tag: int, data: npt.NDArray[Any], n: int) -> npt.NDArray[np.uint8]:
    return np.concatenate([np.full((n, 1), tag, np.uint8), _bytes_of(data, n)], axis=1)


def _bytes_of(data: npt.NDArray[Any], n: int) -> npt.NDArray[np.uint8]:
    return data.view(np.uint8).reshape(n, data.dtype.itemsize)
