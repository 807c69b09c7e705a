"""Merging a batch's partial results into accumulators, a column at a time.

The same as `merge(acc, from_partial(...))` of COUNT, SUM, AVG, MIN and MAX over numbers and times. What columns cannot do alike (a NaN in the
state, a sum beyond 64 bits) is left to those calls. Integers wrap as the functions say: numpy wraps 64 bits, a cast the 32 of INT.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from flowql.compiler.plan.types import Kind, SqlType
from flowql.runtime.state.columns.packed import Flags
from flowql.runtime.state.columns.values import ColumnKind, ValueColumn

Columns = tuple[ValueColumn, ...]
# (an accumulator's columns, columns of partial results) -> its columns; None where it declines.
Folding = Callable[[Columns, Sequence[pa.Array]], Columns | None]
_SQL_SUMS = ("sql_sum", "sql_avg")


def folding(function: str, t: SqlType) -> tuple[tuple[ColumnKind, ...], Folding]:
    """The columns of an aggregate's accumulator over arguments of type `t`, and their merge."""
    number: ColumnKind = "double" if t.kind is Kind.DOUBLE else "integer"
    if function == "COUNT":
        return ("integer",), lambda before, partial: (_added(before[0], partial[0]),)
    if function in _SQL_SUMS:
        return ("integer", "integer"), _exact_sums
    if function == "SUM":
        return (number,), _wrapping_sums if t.kind is Kind.INT else _sums
    if function == "AVG":
        return (number, "integer"), _averages
    assert function in ("MIN", "MAX")
    return (number,), _extremes(np.minimum if function == "MIN" else np.maximum)


def shown_column(function: str, t: SqlType) -> Callable[[Columns], ValueColumn] | None:
    """The results from the columns of accumulators; None where they need a call each."""
    if function == "sql_sum" and t.kind is not Kind.DOUBLE:
        return lambda columns: ValueColumn(columns[0].data, _or_none(columns[1].data == 0))
    return None if function in ("AVG", "sql_avg") else lambda columns: columns[0]


def _or_none(null: Flags) -> Flags | None:
    return null if null.any() else None


def numbers(partial: pa.Array, dtype: Any) -> ValueColumn:
    """A column of partial results; 0 where it is NULL."""
    if not partial.null_count:
        return ValueColumn(partial.to_numpy().astype(dtype, copy=False))
    null = pc.is_null(partial).to_numpy(zero_copy_only=False)
    return ValueColumn(pc.fill_null(partial, 0).to_numpy().astype(dtype, copy=False), null)


def _added(before: ValueColumn, partial: pa.Array) -> ValueColumn:
    """No value adds 0."""
    return ValueColumn(before.data + numbers(partial, before.data.dtype).data)


def _sums(before: Columns, partial: Sequence[pa.Array]) -> Columns:
    return (_added(before[0], partial[0]),)


def _wrapping_sums(before: Columns, partial: Sequence[pa.Array]) -> Columns:
    return (ValueColumn(_added(before[0], partial[0]).data.astype(np.int32).astype(np.int64)),)


def _averages(before: Columns, partial: Sequence[pa.Array]) -> Columns:
    return _added(before[0], partial[0]), _added(before[1], partial[1])


def _exact_sums(before: Columns, partial: Sequence[pa.Array]) -> Columns | None:
    old, new = before[0].data, numbers(partial[0], np.int64).data
    total = old + new
    if ((old ^ total) & (new ^ total) < 0).any():
        return None
    return ValueColumn(total), _added(before[1], partial[1])


def _extremes(better: Any) -> Folding:
    def run(before: Columns, partial: Sequence[pa.Array]) -> Columns | None:
        old = before[0]
        new = numbers(partial[0], old.data.dtype)
        if old.data.dtype == np.float64 and np.isnan(old.data).any():
            return None
        best = better(old.data, new.data)
        if new.null is not None:
            best = np.where(new.null, old.data, best)
        if old.null is None:
            return (ValueColumn(best),)
        best = np.where(old.null, new.data, best)  # groups without a value so far
        null = old.null & new.null if new.null is not None else None
        return (ValueColumn(best, null),)

    return run
