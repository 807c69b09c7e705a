"""Merging a batch's partial results into accumulators, a column at a time.

The same as `merge(acc, from_partial(...))` of COUNT, SUM, AVG, MIN and MAX over numbers and times, at a tenth of the cost
of two calls per group; what the columns cannot do alike (nulls, NaN) is left to those calls. Integers wrap as the
functions say: numpy wraps 64 bits, a cast the 32 of INT.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from flowql.compiler.plan.types import Kind, SqlType

# (accumulators, columns of partial results) -> accumulators; None where it declines.
Folding = Callable[[Sequence[Any], list[list[Any]]], list[Any] | None]
_FLOAT, _INT = np.float64, np.int64


def folding(function: str, t: SqlType) -> Folding | None:
    """The columnar merge of an aggregate over arguments of type `t`."""
    double = t.kind is Kind.DOUBLE
    if function == "COUNT":
        return lambda before, partial: _add(before, partial[0], _INT).tolist()
    if function in ("sql_sum", "sql_avg"):
        return _exact_sums
    if function == "SUM":
        return _sums(_FLOAT if double else _INT, wrap=t.kind is Kind.INT)
    if function == "AVG":
        return _averages(_FLOAT if double else _INT)
    better = np.minimum if function == "MIN" else np.maximum
    return _extremes(better, _FLOAT if double else _INT)


def _add(before: Sequence[Any], partial: list[Any], dtype: Any) -> Any:
    return np.array(before, dtype) + np.array(partial, dtype)


def _sums(dtype: Any, *, wrap: bool) -> Folding:
    def run(before: Sequence[Any], partial: list[list[Any]]) -> list[Any] | None:
        if None in partial[0]:
            return None
        total = _add(before, partial[0], dtype)
        made: list[Any] = (total.astype(np.int32) if wrap else total).tolist()
        return made

    return run


def _averages(dtype: Any) -> Folding:
    def run(before: Sequence[Any], partial: list[list[Any]]) -> list[Any] | None:
        if None in partial[0]:
            return None
        sums, counts = zip(*before, strict=True)
        total, count = _add(sums, partial[0], dtype), _add(counts, partial[1], _INT)
        return list(zip(total.tolist(), count.tolist(), strict=True))

    return run


def _exact_sums(before: Sequence[Any], partial: list[list[Any]]) -> list[Any]:
    """Sums of integers, which Python adds at any size."""
    sums, counts = partial
    return [(total + (s or 0), n + c) for (total, n), s, c in zip(before, sums, counts, strict=True)]


def _extremes(better: Any, dtype: Any) -> Folding:
    def run(before: Sequence[Any], partial: list[list[Any]]) -> list[Any] | None:
        new = partial[0]
        if None in new:
            return None
        if None in before:  # groups without a value so far
            before = [p if b is None else b for b, p in zip(before, new, strict=True)]
        old = np.array(before, dtype)
        if dtype is _FLOAT and np.isnan(old).any():
            return None
        made: list[Any] = better(old, np.array(new, dtype)).tolist()
        return made

    return run
