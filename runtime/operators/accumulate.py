"""Merging a batch's partial results into accumulators, a column at a time.

The same as `merge(acc, from_partial(...))` of COUNT, SUM, AVG, MIN and MAX over numbers and times. Where columns would differ (a NaN in the state),
those calls do it. Integers wrap as the functions say: numpy wraps 64 bits, a cast the 32 of INT. Exact sums of BIGINT and
DECIMAL have 128 bits. A sum of DECIMAL overflows with one of the rows: where that is not excluded, the batch is folded row by row.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from flowql.compiler.functions.numeric import MAX_PRECISION
from flowql.compiler.plan.types import Kind, SqlType
from flowql.runtime.batch import Ints
from flowql.runtime.operators.row_columns import value_kind, wide_decimals
from flowql.runtime.state.columns.packed import Flags
from flowql.runtime.state.columns.values import ColumnKind, ValueColumn, Wide
from flowql.runtime.state.columns.wide import (
    LARGEST_DIVISOR,
    WIDE,
    Wides,
    added,
    less,
    narrowed,
    negated,
    quotients,
    size_of,
    times,
    wide,
    widened,
)

_EXACT_IN_DOUBLE = 1 << 53
_DIGITS = 9  # at a time: a remainder below 2**32 times 10**9 has no more than 62 bits


def double_means(totals: Ints | npt.NDArray[np.float64], counts: Ints) -> ValueColumn | None:
    """The double nearest to each mean, 0 of no values. None where an integer is no double."""
    if totals.dtype == np.int64 and ((totals > _EXACT_IN_DOUBLE) | (totals < -_EXACT_IN_DOUBLE)).any():
        return None
    with np.errstate(invalid="ignore"):
        return ValueColumn(np.where(counts == 0, 0.0, totals / np.maximum(counts, 1)))


def decimal_means(totals: Wides, counts: Ints, places: int, scale: int) -> ValueColumn | None:
    """Means as Decimals of a scale, halves away from zero, NULL of no values. None for more values than one division takes.

    places: the digits that the scale has more than the totals. The means have no more than 38 digits.
    """
    if len(counts) and int(counts.max()) >= LARGEST_DIVISOR:
        return None
    none = counts == 0
    divisors = np.where(none, 1, counts).astype(np.uint64)
    negative = totals["high"] < 0
    found, remainder = quotients(negated(totals, negative), divisors)
    while places:
        digits = min(places, _DIGITS)
        remainder = remainder * np.uint64(10**digits)
        found = _plus(times(found, 10**digits), remainder // divisors)
        remainder = remainder % divisors
        places -= digits
    found = _plus(found, (remainder * np.uint64(2) >= divisors).astype(np.uint64))
    return ValueColumn(negated(found, negative), none if none.any() else None, scale)


def _plus(numbers: Wides, digits: npt.NDArray[np.uint64]) -> Wides:
    return added(numbers, wide(digits, np.zeros(len(digits), np.int64)))


Columns = tuple[ValueColumn, ...]
Extent = tuple[
    int, int
]  # the least and the greatest value of an argument in a batch, as whole numbers; 0 without values
# (an accumulator's columns, columns of partial results, the extent of an exact sum's argument) -> its columns; None where it declines.
Folding = Callable[[Columns, Sequence[pa.Array], Extent], Columns | None]
EXACT_SUMS = ("sql_sum", "sql_avg")
_SLACK = 1 + 2.0**-40  # of sizes in doubles
_WRAPS = 2.0**127


class RowsRefused(Exception):
    """An aggregate refuses a row of the batch, or may."""


def is_exact(function: str, t: SqlType) -> bool:
    """Whether an aggregate adds numbers that may have more than 64 bits."""
    if t.kind is Kind.DECIMAL:
        return function in (*EXACT_SUMS, "SUM")
    return function in EXACT_SUMS and t.kind is Kind.BIGINT


def folding(function: str, t: SqlType) -> tuple[tuple[ColumnKind, ...], Folding]:
    """The columns of an aggregate's accumulator over arguments of type `t`, and their merge."""
    number = value_kind(t)
    if function == "COUNT":
        return ("integer",), lambda before, partial, _extent: (_added(before[0], partial[0]),)
    if function in EXACT_SUMS:
        if t.kind is Kind.INT:
            return ("integer", "integer"), _bigint_sums
        if t.kind is Kind.BIGINT:
            return (Wide(None), "integer"), _exact_sums
        return (Wide(t.scale), "integer"), _decimal_sums(MAX_PRECISION)
    if function == "SUM":
        if t.kind is Kind.DECIMAL:
            return (number,), _decimal_sums(t.precision)
        return (number,), _wrapping_sums if t.kind is Kind.INT else _sums
    if function == "AVG":
        return (number, "integer"), _averages
    assert function in ("MIN", "MAX")
    return (number,), _extremes(greatest=function == "MAX")


def shown_column(function: str, t: SqlType, result: SqlType) -> Callable[[Columns], ValueColumn | None] | None:
    """The results from the columns of accumulators; None where they need a call each."""
    if function == "AVG":
        return lambda columns: double_means(columns[0].data, columns[1].data)
    if function not in EXACT_SUMS:
        return lambda columns: columns[0]
    if t.kind is Kind.DOUBLE:
        return None
    if function == "sql_sum":
        scale = result.scale if result.kind is Kind.DECIMAL else None
        return lambda columns: ValueColumn(columns[0].data, _or_none(columns[1].data == 0), scale)
    places = result.scale - (t.scale if t.kind is Kind.DECIMAL else 0)
    return lambda columns: decimal_means(widened(columns[0].data), columns[1].data, places, result.scale)


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


def _sums(before: Columns, partial: Sequence[pa.Array], _extent: Extent) -> Columns:
    return (_added(before[0], partial[0]),)


def _wrapping_sums(before: Columns, partial: Sequence[pa.Array], _extent: Extent) -> Columns:
    return (ValueColumn(_added(before[0], partial[0]).data.astype(np.int32).astype(np.int64)),)


def _averages(before: Columns, partial: Sequence[pa.Array], _extent: Extent) -> Columns:
    return _added(before[0], partial[0]), _added(before[1], partial[1])


def _bigint_sums(before: Columns, partial: Sequence[pa.Array], _extent: Extent) -> Columns | None:
    old, new = before[0].data, numbers(partial[0], np.int64).data
    total = old + new
    if ((old ^ total) & (new ^ total) < 0).any():
        return None
    return ValueColumn(total), _added(before[1], partial[1])


def _wide_partial(partial: pa.Array) -> Wides:
    """Sums of a batch: integers, or Decimals where 64 bits may not hold them."""
    return wide_decimals(partial) if pa.types.is_decimal(partial.type) else widened(numbers(partial, np.int64).data)


def _exact_sums(before: Columns, partial: Sequence[pa.Array], _extent: Extent) -> Columns:
    return ValueColumn(added(before[0].data, _wide_partial(partial[0]))), _added(before[1], partial[1])


def _decimal_sums(precision: int) -> Folding:
    """The sum and, where there is a column for it, the number of values. Raises RowsRefused."""
    limit = 10.0**precision

    def run(before: Columns, partial: Sequence[pa.Array], extent: Extent) -> Columns:
        old, new = widened(before[0].data), _wide_partial(partial[0])
        count = numbers(partial[1], np.int64).data
        total = added(old, new)
        _check(old, total, count, extent, limit)
        made = ValueColumn(total if before[0].data.dtype == WIDE else narrowed(total), None, before[0].scale)
        return (made,) if len(before) == 1 else (made, ValueColumn(before[1].data + count))

    return run


def _check(old: Wides, total: Wides, count: Ints, extent: Extent, limit: float) -> None:
    """Raises RowsRefused unless no sum on the way from `old` to `total` reaches the limit."""
    if not len(old):
        return
    least, greatest = extent
    steps = count * float(max(-least, greatest))
    most = np.maximum(size_of(old), size_of(total)) if least >= 0 or greatest <= 0 else size_of(old) + steps
    if most.max() * _SLACK >= limit or steps.max() * _SLACK >= _WRAPS:
        raise RowsRefused


def _extremes(*, greatest: bool) -> Folding:
    def run(before: Columns, partial: Sequence[pa.Array], _extent: Extent) -> Columns | None:
        old = before[0]
        new = _decimals(partial[0], old) if old.scale is not None else numbers(partial[0], old.data.dtype)
        if old.data.dtype == np.float64 and np.isnan(old.data).any():
            return None
        best = _better(old.data, new.data, greatest=greatest)
        if new.null is not None:
            best = np.where(new.null, old.data, best)
        if old.null is None:
            return (ValueColumn(best, None, old.scale),)
        best = np.where(old.null, new.data, best)  # groups without a value so far
        null = old.null & new.null if new.null is not None else None
        return (ValueColumn(best, null, old.scale),)

    return run


def _decimals(partial: pa.Array, like: ValueColumn) -> ValueColumn:
    whole = wide_decimals(partial)
    null = pc.is_null(partial).to_numpy(zero_copy_only=False) if partial.null_count else None
    return ValueColumn(whole if like.data.dtype == WIDE else narrowed(whole), null, like.scale)


def _better(a: Any, b: Any, *, greatest: bool) -> Any:
    if a.dtype == WIDE:
        return np.where(less(a, b), b, a) if greatest else np.where(less(a, b), a, b)
    if a.dtype == np.float64:  # `b` has no -0.0 (`Partials.declines`), and `a` may be one, which is below 0.0
        return np.where(a > b, a, b) if greatest else np.where(b < a, b, a)
    return np.maximum(a, b) if greatest else np.minimum(a, b)
