"""The changes of a micro-batch to each group of an aggregation: by rows, the reference, or by columns.

Both kernels give the same `GroupDelta` per group; the operator then applies it, one access to state per group and per value.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from flowql.compiler.functions.aggregate_forms import Linear, Ordered
from flowql.compiler.functions.change_aggregates import aggregate
from flowql.compiler.plan.changes import GroupCall
from flowql.compiler.plan.schema import Schema
from flowql.compiler.plan.types import Kind, SqlType
from flowql.runtime.batch import Batch, Ints, Row, to_python
from flowql.runtime.operators.changes.deltas import Signs, signs
from flowql.runtime.operators.changes.order import SortPart, order_text
from flowql.runtime.operators.fold import AggregateUnsupported
from flowql.runtime.operators.keys import freeze, frozen_picker, is_frozen, picker
from flowql.runtime.operators.winners import group_codes
from flowql.runtime.state.keys import key_codec
from flowql.runtime.state.rows import Key

_HALF_BITS = 26  # sums of halves stay below 2**53, where doubles are exact, for 2**26 rows
_HALF_MASK = (1 << _HALF_BITS) - 1
_INT_BITS = 32
_INT_MASK = (1 << _INT_BITS) - 1
_EXTREMES = frozenset({"MIN", "MAX", "ANY_VALUE"})
_WHOLE = frozenset({Kind.INT, Kind.BIGINT, Kind.DATE, Kind.TIME, Kind.TIMESTAMP, Kind.MICROS})
Bools = npt.NDArray[np.bool_]


@dataclass(slots=True)
class GroupDelta:
    """rows: how many more the group has. time, seq: the highest of the changes.

    parts: per call the accumulator to add (None: nothing). values: per call with a multiset, entry -> [arguments, count].
    """

    parts: list[Any]
    values: list[dict[str, list[Any]]]
    rows: int = 0
    time: int = 0
    seq: int = 0


@dataclass(slots=True)
class BoundCall:
    """A call over a schema: how a row enters it. text: entries of its multiset; None for one that needs none."""

    call: GroupCall
    kind: Linear | Ordered
    place: int  # among the calls
    args: list[int]
    order: list[int]  # columns that the entry's text is made of
    filter: int | None
    text: Callable[[Sequence[Any]], str] | None
    back: Callable[[Sequence[Any]], str] | None = None  # the text of the opposite order, where both are kept
    arg_types: list[SqlType] = field(default_factory=list)
    best: bool = False  # the value that is shown is all that a group needs, as rows only come

    @property
    def needs_values(self) -> bool:
        """Whether the values of a run are wanted one by one."""
        return self.text is not None

    @property
    def keeps_values(self) -> bool:
        """Whether those of a group are in state."""
        return self.text is not None and not self.best


def bind(call: GroupCall, place: int, source: Schema, *, appends: bool = False) -> BoundCall:
    """Raises AggregateUnsupported for a function that cannot be kept up to date. appends: rows only come."""
    types = {f.name: f.type for f in source}
    names = source.names
    arg_types = [types[a] for a in call.args]
    kind = aggregate(call.function, tuple(arg_types), call.type, call.init)
    if kind is None:
        raise AggregateUnsupported(
            f"{call.function} of {', '.join(map(str, arg_types))} cannot follow changes of a table"
        )
    columns, parts = list(call.args), [SortPart(t) for t in arg_types]
    if isinstance(kind, Ordered) and not kind.by_argument:
        columns = [*(k.column for k in call.order), *call.args]
        parts = [*(SortPart(types[k.column], k.descending, k.nulls_first) for k in call.order), *parts]
    opposite = [p.reversed() for p in parts]
    if isinstance(kind, Ordered) and kind.reading == "last":
        parts = opposite
    kept = isinstance(kind, Ordered) or call.distinct
    return BoundCall(
        call,
        kind,
        place,
        [names.index(a) for a in call.args],
        [names.index(c) for c in columns],
        names.index(call.filter) if call.filter else None,
        order_text(parts) if kept else None,
        order_text(opposite) if isinstance(kind, Ordered) and kind.reading == "place" else None,
        arg_types,
        appends and isinstance(kind, Ordered) and kind.reading in ("first", "last"),
    )


class _Grouped(NamedTuple):
    """The rows of a batch. codes: the group of each row; groups: how many there are; deltas: of each group."""

    columns: Sequence[pa.Array]
    codes: Ints
    groups: int
    sign: Signs
    deltas: Sequence[GroupDelta]


class GroupDeltas:
    """Makes the deltas of a batch; one per operator, holds no data."""

    def __init__(
        self, keys: Sequence[str], calls: Sequence[GroupCall], source: Schema, *, appends: bool = False
    ) -> None:
        names = source.names
        self.calls = [bind(c, i, source, appends=appends) for i, c in enumerate(calls)]
        self._source = source
        self._keys = [names.index(k) for k in keys]
        self.key_types = [source.fields[i].type for i in self._keys]
        self._key_of = frozen_picker(source, keys)
        self.plain_keys = is_frozen(self.key_types)

    def of_rows(self, batch: Batch) -> dict[Key, GroupDelta]:
        """The reference."""
        found: dict[Key, GroupDelta] = {}
        columns = (batch.rows(), signs(batch.op).tolist(), batch.rowtime.tolist(), batch.seq.tolist())
        for row, sign, rowtime, seq in zip(*columns, strict=True):
            delta = self._delta(found, self._key_of(row), rowtime, seq)
            delta.rows += sign
            for bound in self.calls:
                _enter(bound, delta, row, sign)
        return found

    def of_columns(self, batch: Batch) -> dict[Key, GroupDelta] | None:
        """The same from columns; None where a type has no columnar form."""
        columns = batch.arrow().columns
        sign = signs(batch.op)
        try:
            codes, count = (
                group_codes([columns[i] for i in self._keys], sort=False) if self._keys else _one_group(len(batch))
            )
            found: dict[Key, GroupDelta] = {}
            grouped = _Grouped(columns, codes, count, sign, self._groups(found, batch, codes, count, sign))
            for bound in self.calls:
                live = self.live(bound, columns, len(batch))
                if bound.best and self._extremes(bound, grouped, live):
                    continue
                if bound.needs_values:
                    self._values(bound, grouped, live)
                elif not self._sums(bound, grouped, live):
                    self._parts(bound, grouped, live)
        except pa.ArrowNotImplementedError:
            return None
        return found

    def _delta(self, found: dict[Key, GroupDelta], key: Key, rowtime: int, seq: int) -> GroupDelta:
        delta = found.get(key)
        if delta is None:
            delta = found[key] = GroupDelta([None] * len(self.calls), [{} for _ in self.calls], 0, rowtime, seq)
        delta.time, delta.seq = max(delta.time, rowtime), max(delta.seq, seq)
        return delta

    def _groups(
        self, found: dict[Key, GroupDelta], batch: Batch, codes: Ints, count: int, sign: Signs
    ) -> list[GroupDelta]:
        """The delta of each code. Codes that are one key (0.0 and -0.0) have one delta."""
        first = np.full(count, -1, np.int64)
        first[codes[::-1]] = np.arange(len(codes))[::-1]
        times, seqs = np.full(count, np.iinfo(np.int64).min), np.zeros(count, np.int64)
        np.maximum.at(times, codes, batch.rowtime)
        np.maximum.at(seqs, codes, batch.seq)
        rows = _sum(codes, sign, count).tolist()
        present = np.flatnonzero(first >= 0).tolist()
        index = pa.array(first[present])
        keys = [
            to_python(batch.arrow().column(i).take(index), t) for i, t in zip(self._keys, self.key_types, strict=True)
        ]
        if not self.plain_keys:
            keys = [[freeze(v, t) for v in column] for column, t in zip(keys, self.key_types, strict=True)]
        by_code: list[Any] = [None] * count
        times_, seqs_ = times.tolist(), seqs.tolist()
        for code, key in zip(present, zip(*keys, strict=True) if keys else [()] * len(present), strict=True):
            delta = self._delta(found, key, times_[code], seqs_[code])
            delta.rows += rows[code]
            by_code[code] = delta
        return by_code

    def live(self, bound: BoundCall, columns: Sequence[pa.Array], n: int) -> Bools:
        """Rows that the call counts."""
        live = np.ones(n, bool)
        if bound.filter is not None:
            live &= columns[bound.filter].fill_null(False).to_numpy(zero_copy_only=False)
        if not (isinstance(bound.kind, Ordered) and bound.kind.nulls):
            for i in bound.args:
                if columns[i].null_count:
                    live &= columns[i].is_valid().to_numpy(zero_copy_only=False)
        return live

    def _sums(self, bound: BoundCall, grouped: _Grouped, live: Bools) -> bool:
        """Sums per group by columns; False where the call is no sum of whole numbers or doubles."""
        assert isinstance(bound.kind, Linear)
        of_sum, add = bound.kind.of_sum, bound.kind.add
        if of_sum is None:
            return False
        columns, codes, count, sign, deltas = grouped
        codes, sign = codes[live], sign[live]
        numbers = _sum(codes, sign, count)
        if bound.call.function == "COUNT":
            for code in np.flatnonzero(numbers).tolist():
                _add_part(deltas[code], bound, of_sum(int(numbers[code]), 0, 0), add)
            return True
        values = columns[bound.args[0]].filter(pa.array(live))
        if bound.arg_types[0].kind is Kind.DOUBLE:
            doubles = values.to_numpy(zero_copy_only=False)
            if not np.isfinite(doubles).all():
                return False
            fraction, exponent = np.frexp(doubles)
            pairs, inverse = np.unique(codes * 8192 + (exponent + 4096), return_inverse=True)
            mantissa = (fraction * (1 << 53)).astype(np.int64)
            totals = _wide_sum(inverse, mantissa, sign, len(pairs), _HALF_BITS, _HALF_MASK)
            counted = _sum(inverse, sign, len(pairs)).tolist()
            for pair, n, total in zip(pairs.tolist(), counted, totals, strict=True):
                code, e = pair // 8192, pair % 8192 - 4096 - 53
                _add_part(deltas[code], bound, of_sum(n, total, e), add)
            return True
        whole = pc.cast(values, pa.int64()).to_numpy(zero_copy_only=False)
        totals = _wide_sum(codes, whole, sign, count, _INT_BITS, _INT_MASK)
        for code in np.unique(codes).tolist():
            _add_part(deltas[code], bound, of_sum(int(numbers[code]), totals[code], 0), add)
        return True

    def _parts(self, bound: BoundCall, grouped: _Grouped, live: Bools) -> None:
        """Accumulators of distinct values with their net counts."""
        assert isinstance(bound.kind, Linear)
        for code, values, net in self._combinations(bound.args, grouped, live):
            part = bound.kind.part(values, net)
            if part is not None:
                _add_part(grouped.deltas[code], bound, part, bound.kind.add)

    def _values(self, bound: BoundCall, grouped: _Grouped, live: Bools) -> None:
        assert bound.text is not None
        n = len(bound.order)
        for code, values, net in self._combinations([*bound.order, *bound.args], grouped, live):
            _note(grouped.deltas[code].values[bound.place], bound.text(values[:n]), values[n:], net)

    def _extremes(self, bound: BoundCall, grouped: _Grouped, live: Bools) -> bool:
        """The least or greatest value of each group, of whole numbers and times; False where the call is about others."""
        if bound.call.function not in _EXTREMES or bound.arg_types[0].kind not in _WHOLE:
            return False
        columns, codes, count, _, deltas = grouped
        rows = np.flatnonzero(live)
        if not len(rows):
            return True
        column = columns[bound.args[0]].take(pa.array(rows))
        values, groups = whole_numbers(column), codes[rows]
        limits = np.iinfo(np.int64)
        greatest = bound.call.function == "MAX"
        best = np.full(count, limits.min if greatest else limits.max)
        (np.maximum if greatest else np.minimum).at(best, groups, values)
        found = np.flatnonzero(values == best[groups])
        present, first = np.unique(groups[found], return_index=True)
        shown = to_python(column.take(pa.array(found[first])), bound.arg_types[0])
        assert bound.text is not None
        for code, value in zip(present.tolist(), shown, strict=True):
            _note(deltas[code].values[bound.place], bound.text((value,)), (value,), 1)
        return True

    def _combinations(self, wanted: Sequence[int], grouped: _Grouped, live: Bools) -> list[tuple[int, Row, int]]:
        """(group, values of these columns, net count) of combinations that are left."""
        rows = np.flatnonzero(live)
        if not len(rows):
            return []
        columns, codes, _, sign, _ = grouped
        index = pa.array(rows)
        taken = [columns[i].take(index) for i in wanted]
        combined, count = group_codes([pa.array(codes[rows]), *taken], sort=False)
        net = _sum(combined, sign[rows], count)
        first = np.zeros(count, np.int64)
        first[combined[::-1]] = np.arange(len(combined))[::-1]
        left = np.flatnonzero(net)
        at = pa.array(first[left])
        values = [to_python(c.take(at), self._source.fields[i].type) for c, i in zip(taken, wanted, strict=True)]
        groups = codes[rows][first[left]].tolist()
        rows_of = zip(*values, strict=True) if values else [()] * len(left)
        return list(zip(groups, rows_of, net[left].tolist(), strict=True))


def _enter(bound: BoundCall, delta: GroupDelta, row: Row, sign: int) -> None:
    """One row into one call."""
    if bound.filter is not None and row[bound.filter] is not True:
        return
    args = tuple([row[i] for i in bound.args])
    if bound.text is not None:
        if None in args and not (isinstance(bound.kind, Ordered) and bound.kind.nulls):
            return
        _note(delta.values[bound.place], bound.text([row[i] for i in bound.order]), args, sign)
        return
    assert isinstance(bound.kind, Linear)
    part = bound.kind.part(args, sign)
    if part is not None:
        _add_part(delta, bound, part, bound.kind.add)


def _note(values: dict[str, list[Any]], entry: str, args: Row, net: int) -> None:
    known = values.get(entry)
    if known is None:
        values[entry] = [args, net]
    else:
        known[1] += net
        if not known[1]:
            del values[entry]


def _add_part(delta: GroupDelta, bound: BoundCall, part: Any, add: Callable[[Any, Any], Any]) -> None:
    before = delta.parts[bound.place]
    delta.parts[bound.place] = part if before is None else add(before, part)


def _one_group(n: int) -> tuple[Ints, int]:
    return np.zeros(n, np.int64), 1


def _sum(codes: Ints, values: Ints, count: int) -> Ints:
    """Sums of small numbers per code, exact below 2**53."""
    return np.bincount(codes, values, count).astype(np.int64)


def _wide_sum(codes: Ints, values: Ints, sign: Signs, count: int, bits: int, mask: int) -> list[int]:
    """Sums per code of numbers of up to 64 bits, exact: high and low halves apart."""
    high, low = _sum(codes, (values >> bits) * sign, count), _sum(codes, (values & mask) * sign, count)
    return [(h << bits) + n for h, n in zip(high.tolist(), low.tolist(), strict=True)]


_SIGN = np.uint64(1 << 63)


class PlacementKeys:
    """The bytes of these columns, for all rows of a batch: they decide the partition of a row, and are those of keys in state."""

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
