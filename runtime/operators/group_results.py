"""The results of groups as columns: what `Fold.row` makes of one group."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any, Protocol

import numpy as np
import pyarrow as pa

from flowql.compiler.plan.schema import WINDOW_END, WINDOW_START, Schema
from flowql.compiler.plan.topology import Operator
from flowql.compiler.plan.types import SqlType, arrow_type
from flowql.runtime.batch import DELETE, INSERT, TEMPORAL, UPDATE_AFTER, UPDATE_BEFORE, Batch, Ints, record_of, to_arrow
from flowql.runtime.operators.base import MicroBatchContext
from flowql.runtime.operators.fold import Fold
from flowql.runtime.operators.row_columns import column_array
from flowql.runtime.state.columns.packed import Flags
from flowql.runtime.state.columns.values import RowValues, ValueColumn
from flowql.runtime.state.columns.wide import WIDE, widened

Shown = (
    ValueColumn | Sequence[Any]
)  # results of one aggregate: its column, where that is the result already, or a list of values


class ShownPart(Protocol):
    """One aggregate. shown: its results from the columns of its accumulators; None, or gives None, where they need a call each."""

    type: SqlType
    shown: Callable[[tuple[ValueColumn, ...]], ValueColumn | None] | None

    def results(self, accs: Sequence[Any], run: MicroBatchContext | None, seqs: Sequence[int]) -> Sequence[Any]: ...


class GroupResults:
    """Groups by key, to be given as rows of results. keys: a column per key of the groups. window: the columns of their bounds."""

    def __init__(
        self,
        plan: Operator,
        fold: Fold,
        parts: Sequence[ShownPart],
        keys: Sequence[pa.Array],
        window: tuple[Ints, Ints] | None,
    ) -> None:
        self._plan, self._parts = plan, parts
        self._names = [b.call.name for b in fold.bound]
        self._made: dict[str, pa.Array] = {
            f.name: _in_type(k, f.type) for f, k in zip(fold.key.fields, keys, strict=True)
        }
        if window is not None:
            self._made[WINDOW_START], self._made[WINDOW_END] = map(pa.array, window)

    def of(self, values: RowValues, run: MicroBatchContext | None, seq: Ints) -> list[Shown]:
        """The results of each aggregate. run: None for results whose dead letters were written before; seq: where they go."""
        seqs = seq.tolist()
        if values.odd:
            *accs, _ = by_part(values)
            return [p.results(of_part, run, seqs) for p, of_part in zip(self._parts, accs, strict=True)]
        found: list[Shown] = []
        for p, columns in zip(self._parts, values.layout.part_columns(values.columns)[:-1], strict=True):
            shown = None if p.shown is None else p.shown(columns)
            if shown is not None:
                found.append(shown)
            else:
                lists = [c.to_list() for c in columns]
                found.append(p.results(lists[0] if len(lists) == 1 else list(zip(*lists, strict=True)), run, seqs))
        return found

    def record(self, results: Sequence[Shown]) -> pa.RecordBatch:
        made, schema = dict(self._made), self._plan.schema
        for name, p, shown in zip(self._names, self._parts, results, strict=True):
            made[name] = column_array(shown, p.type) if isinstance(shown, ValueColumn) else to_arrow(shown, p.type)
        return record_of([made[n] for n in schema.names], schema)

    def batch(self, results: Sequence[Shown], values: RowValues, op: Any, seq: Ints) -> Batch:
        """A row per group, at the time of the group. values: those that the results are of."""
        return Batch(self._plan.schema, arrow=self.record(results), rowtime=row_times(values), op=op, seq=seq)


def by_part(values: RowValues) -> list[list[Any]]:
    """Accumulators, aggregate by aggregate, then row times."""
    return [list(column) for column in zip(*values.to_list(), strict=True)]


def unchanged(before: Sequence[Shown], after: Sequence[Shown], n: int) -> Flags:
    """Which of n groups have the same results."""
    same = np.ones(n, bool)
    for a, b in zip(before, after, strict=True):
        same &= _same(a, b)
    return same


def _in_type(column: pa.Array, t: SqlType) -> pa.Array:
    return column.cast(arrow_type(t)) if t.kind in TEMPORAL else column


def row_times(values: RowValues) -> Ints:
    """The time of each group."""
    times = values.columns[-1].data
    if values.odd:
        times = times.copy()
        for i, value in values.odd.items():
            times[i] = value[-1]
    return times


def _same(a: Shown, b: Shown) -> Flags:
    """Row by row, as Python compares: two NULLs are the same, two NaN are not."""
    if not isinstance(a, ValueColumn) or not isinstance(b, ValueColumn):
        a, b = (c.to_list() if isinstance(c, ValueColumn) else c for c in (a, b))
        return np.fromiter((x == y for x, y in zip(a, b, strict=True)), bool, len(a))
    if WIDE in (a.data.dtype, b.data.dtype):
        a, b = (replace(c, data=widened(c.data)) for c in (a, b))
    equal: Flags = a.data == b.data
    if a.null is None and b.null is None:
        return equal
    nulls = [np.zeros(len(c.data), bool) if c.null is None else c.null for c in (a, b)]
    return np.where(nulls[0] | nulls[1], nulls[0] & nulls[1], equal)


Rows = Callable[[Ints], pa.RecordBatch]  # rows of the keys at these places


@dataclass(frozen=True, slots=True)
class ChangedRows:
    """One change per key. known, lives: whether there was a row, and is one. differs: whether a row that was and is has changed.

    rowtime, seq, headers: those of the last change. place: numbers in the order of the last changes, no two alike.
    """

    known: Flags
    lives: Flags
    differs: Flags
    rowtime: Ints
    seq: Ints
    place: Ints
    headers: list[Any] | None = None

    def batch(self, schema: Schema, before: Rows, after: Rows, *, befores: bool) -> Batch | None:
        """In the order of the last changes, the row that leaves in front of the row that comes. befores: whether rows that are replaced are given."""
        differs = self.differs | ~(self.known & self.lives)
        leaving = np.flatnonzero(self.known & differs if befores else self.known & ~self.lives)
        coming = np.flatnonzero(self.lives & differs)
        if not len(leaving) and not len(coming):
            return None
        order = np.argsort(np.concatenate([2 * self.place[leaving], 2 * self.place[coming] + 1]))
        keys = np.concatenate([leaving, coming])[order]
        if len(leaving):
            records = [before(leaving), after(coming)] if len(coming) else [before(leaving)]
            (arrow,) = pa.Table.from_batches(records).take(pa.array(order)).combine_chunks().to_batches()
        else:
            arrow = after(keys)
        left = np.where(self.lives[leaving], UPDATE_BEFORE, DELETE)
        ops = np.concatenate([left, np.where(self.known[coming], UPDATE_AFTER, INSERT)])[order]
        headers = None if self.headers is None else [self.headers[i] for i in keys.tolist()]
        return Batch(
            schema, arrow=arrow, rowtime=self.rowtime[keys], op=ops.astype(np.int8), seq=self.seq[keys], headers=headers
        )
