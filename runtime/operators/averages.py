"""Means of whole columns of sums and counts, as the functions give them row by row."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from flowql.runtime.batch import Ints
from flowql.runtime.state.columns.values import ValueColumn
from flowql.runtime.state.columns.wide import (
    LARGEST_DIVISOR,
    Wides,
    added,
    negated,
    quotients,
    times,
    wide,
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
