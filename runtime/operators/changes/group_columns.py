"""Groups over changes in columns: where a group is a few numbers, a batch is one look-up, one addition and one write of whole columns."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from flowql.compiler.functions.aggregate_forms import Linear
from flowql.compiler.plan.topology import Operator
from flowql.compiler.plan.types import Kind, arrow_type
from flowql.runtime.batch import Batch, Ints, record_of, to_arrow
from flowql.runtime.operators.accumulate import decimal_means
from flowql.runtime.operators.base import MicroBatchContext
from flowql.runtime.operators.changes.deltas import signs
from flowql.runtime.operators.changes.group_deltas import BoundCall, GroupDeltas
from flowql.runtime.operators.group_results import ChangedRows, Shown, unchanged
from flowql.runtime.operators.partials import COLUMN_KEYS, typed_call
from flowql.runtime.operators.row_columns import column_array, plain_column, whole_decimals
from flowql.runtime.operators.winners import group_codes
from flowql.runtime.state.columns.packed import Flags, packed_keys
from flowql.runtime.state.columns.values import ABSENT, PRESENT, ColumnKind, RowValues, ValueColumn, ValueLayout
from flowql.runtime.state.columns.wide import widened
from flowql.runtime.state.layout import store_key_codec
from flowql.runtime.state.store import Store

_SUMS = ("SUM", "AVG")
_ROWS, _TIME, _CALLS = 0, 1, 2  # columns of a group: its rows, its row time, then those of its calls
_LARGEST = 1 << 62  # sums of a batch stay below


class Declined(Exception):
    """The batch, or the state of its groups, does not fit into columns."""


@dataclass(frozen=True, slots=True)
class Totals:
    """The sums that a batch adds to each of its groups, in order of appearance. first: the place of each group's first row."""

    first: Ints
    rows: Ints
    time: Ints
    seq: Ints
    numbers: list[Ints]  # by column of the calls


class GroupColumns:
    """The columnar form of a `GroupAggregate` whose calls count, or sum whole numbers and decimals. Holds no data."""

    def __init__(self, plan: Operator, deltas: GroupDeltas, keys: Sequence[int]) -> None:
        self._plan, self._deltas, self._keys = plan, deltas, keys
        self._codec = store_key_codec(plan.stores[0])
        numbers: list[tuple[ColumnKind, ...]] = [
            ("integer",) if _counts(c) else ("integer", "integer") for c in deltas.calls
        ]
        self._layout = ValueLayout((("integer",), ("integer",), *numbers))

    @staticmethod
    def of(plan: Operator, deltas: GroupDeltas, keys: Sequence[int]) -> GroupColumns | None:
        """keys: places of the keys in the input. None if a key or a call has no columnar form (`without_columns`)."""
        return None if without_columns(deltas) else GroupColumns(plan, deltas, keys)

    def apply(self, batch: Batch, store: Store, run: MicroBatchContext) -> Batch | None:
        """The changes of the groups' results; state is staged. Raises Declined, with nothing staged."""
        columns = batch.arrow().columns
        totals = self._totals(batch, columns)
        at = pa.array(totals.first)
        keys = [columns[i].take(at) for i in self._keys]
        held = store.columns(self._layout)
        found = held.find(packed_keys(self._codec, list(map(plain_column, keys))))
        if found.values.odd:
            raise Declined
        known = found.values.known
        before = [np.where(known, c.data, 0) for c in found.values.columns]
        after = [_added(b, d) for b, d in zip(before, [totals.rows, totals.time, *totals.numbers], strict=True)]
        after[_TIME] = np.maximum(before[_TIME], totals.time)
        rows = after[_ROWS]
        assert (rows >= 0).all(), (
            f"a group of {self._plan.id} would have {rows.min()} rows: a row was removed that never came"
        )
        states = np.where(rows > 0, PRESENT, ABSENT).astype(np.int8)
        held.stage(found, RowValues(self._layout, states, list(map(ValueColumn, after)), {}))
        return self._changes(keys, known, rows > 0, before, after, totals.seq, run)

    def _totals(self, batch: Batch, columns: Sequence[pa.Array]) -> Totals:
        codes, count = group_codes([columns[i] for i in self._keys], sort=False)
        first = np.full(count, -1, np.int64)
        first[codes[::-1]] = np.arange(len(codes))[::-1]
        present = np.flatnonzero(first >= 0)
        order = present[np.argsort(first[present], kind="stable")]
        sign = signs(batch.op)
        time, seq = np.full(count, np.iinfo(np.int64).min), np.zeros(count, np.int64)
        np.maximum.at(time, codes, batch.rowtime)
        np.maximum.at(seq, codes, batch.seq)
        numbers: list[Ints] = []
        for call in self._deltas.calls:
            live = self._deltas.live(call, columns, len(batch))
            numbers.append(_summed(codes, sign * live, count)[order])
            if not _counts(call):
                whole = _whole(columns[call.args[0]], call) * live
                if int(np.abs(whole).max(initial=0)) * len(whole) >= _LARGEST:
                    raise Declined
                numbers.append(_summed(codes, sign * whole, count)[order])
        return Totals(first[order], _summed(codes, sign, count)[order], time[order], seq[order], numbers)

    def _changes(
        self,
        keys: Sequence[pa.Array],
        known: Flags,
        lives: Flags,
        before: Sequence[Ints],
        after: Sequence[Ints],
        seq: Ints,
        run: MicroBatchContext,
    ) -> Batch | None:
        """In the order of the groups' last changes, what leaves a group in front of what it becomes."""
        old, new = self._shown(before), self._shown(after)
        place = np.argsort(np.argsort(seq, kind="stable"))
        changes = ChangedRows(known, lives, ~unchanged(old, new, len(seq)), after[_TIME], seq, place)
        return changes.batch(
            self._plan.schema,
            lambda at: self._record(keys, old).take(pa.array(at)),
            lambda at: self._record(keys, new).take(pa.array(at)),
            befores=run.befores,
        )

    def _shown(self, values: Sequence[Ints]) -> list[Shown]:
        """The results of the calls."""
        found: list[Shown] = []
        at = _CALLS
        for call in self._deltas.calls:
            numbers = values[at]
            if _counts(call):
                found.append(ValueColumn(numbers))
                at += 1
                continue
            none, total = numbers == 0, values[at + 1]
            if call.call.function == "SUM":
                found.append(ValueColumn(total, none if none.any() else None))
            else:
                found.append(_means(call, numbers, total))
            at += 2
        return found

    def _record(self, keys: Sequence[pa.Array], results: Sequence[Shown]) -> pa.RecordBatch:
        schema = self._plan.schema
        made = {f.name: k.cast(arrow_type(f.type)) for f, k in zip(schema.key, keys, strict=True)}
        for call, shown in zip(self._deltas.calls, results, strict=True):
            t = call.call.type
            made[call.call.name] = column_array(shown, t) if isinstance(shown, ValueColumn) else to_arrow(shown, t)
        return record_of([made[n] for n in schema.names], schema)


def without_columns(deltas: GroupDeltas) -> str:
    """The key or the call that has no columnar form; empty if all have one. A call has one if it keeps a few numbers."""
    if not deltas.key_types:
        return "it has no keys"
    if odd := [t for t in deltas.key_types if t.kind not in COLUMN_KEYS]:
        return f"a key of type {odd[0]}"
    called = next((c for c in deltas.calls if not _is_number(c)), None)
    if called is None:
        return ""
    types = ", ".join(map(str, called.arg_types))
    return typed_call(called.call.function, [f"DISTINCT {types}" if called.call.distinct else types])


def _counts(call: BoundCall) -> bool:
    return call.call.function == "COUNT"


def _is_number(call: BoundCall) -> bool:
    """Whether a group has a count of it, or a count and a whole number."""
    if call.needs_values:
        return False
    if call.call.function not in _SUMS:
        return _counts(call)
    (t,) = call.arg_types
    if t.kind is Kind.DECIMAL:  # a sum has the digits of its values
        return call.call.function == "AVG" or call.call.type.scale == t.scale
    return t.kind in (Kind.INT, Kind.BIGINT)


def _whole(column: pa.Array, call: BoundCall) -> Ints:
    """Values as whole numbers, as `exact_sums.whole_of` says; 0 for NULL. Raises Declined beyond 64 bits."""
    if call.arg_types[0].kind is not Kind.DECIMAL:
        filled = pc.fill_null(column, 0) if column.null_count else column
        return filled.to_numpy().astype(np.int64, copy=False)
    low, fits = whole_decimals(column)
    if not fits.all():
        raise Declined
    return low


def _means(call: BoundCall, counts: Ints, totals: Ints) -> Shown:
    result, (t,) = call.call.type, call.arg_types
    if result.kind is Kind.DECIMAL:
        places = result.scale - (t.scale if t.kind is Kind.DECIMAL else 0)
        found = decimal_means(widened(totals), counts, places, result.scale)
        if found is not None:
            return found
    assert isinstance(call.kind, Linear)
    return list(map(call.kind.result, zip(counts.tolist(), totals.tolist(), strict=True)))


def _summed(codes: Ints, values: Ints, count: int) -> Ints:
    found = np.zeros(count, np.int64)
    np.add.at(found, codes, values)
    return found


def _added(before: Ints, delta: Ints) -> Ints:
    """Raises Declined where the sum is beyond 64 bits."""
    total = before + delta
    if ((before ^ total) & (delta ^ total) < 0).any():
        raise Declined
    return total
