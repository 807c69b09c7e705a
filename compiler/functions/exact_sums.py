"""Sums of numbers without rounding, so that what was added can be taken out again.

A sum of doubles in doubles depends on the order of its parts, and taking one out leaves a rest: 1e16 + 1 - 1e16 is 0. Here a
finite double is `m * 2**e` with whole m and e; so is a sum of them, exactly. Infinities and NaN are counted beside it.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from decimal import Context, Decimal
from typing import Any

from flowql.compiler.functions.numeric import NumericOverflow
from flowql.compiler.plan.types import Kind, SqlType

_EXACT = Context(prec=200)
_MANTISSA = 1 << 53
# m, e, and how many NaN, infinity and -infinity there are.
DoubleSum = tuple[int, int, int, int, int]
NO_DOUBLES: DoubleSum = (0, 0, 0, 0, 0)
Scaled = tuple[int, int]  # m, e


def scaled(v: float) -> Scaled:
    """A finite double as m * 2**e with odd m, or (0, 0).

    >>> scaled(0.75), scaled(-8.0)
    ((3, -2), (-1, 3))
    """
    fraction, exponent = math.frexp(v)
    return reduced(int(fraction * _MANTISSA), exponent - 53)


def reduced(m: int, e: int) -> Scaled:
    """The same number with odd m."""
    if not m:
        return 0, 0
    zeros = (m & -m).bit_length() - 1
    return m >> zeros, e + zeros


def plus(a: Scaled, b: Scaled) -> Scaled:
    (m, e), (n, f) = a, b
    if not n:
        return a
    if not m:
        return b
    low = min(e, f)
    return reduced((m << e - low) + (n << f - low), low)


def double_part(v: float, weight: int) -> DoubleSum:
    """The sum that holds `v` so many times."""
    if math.isfinite(v):
        m, e = scaled(v)
        return *reduced(m * weight, e), 0, 0, 0
    return 0, 0, weight if v != v else 0, weight if v == math.inf else 0, weight if v == -math.inf else 0


def add_doubles(a: DoubleSum, b: DoubleSum) -> DoubleSum:
    m, e = plus(a[:2], b[:2])
    return m, e, a[2] + b[2], a[3] + b[3], a[4] + b[4]


def ratio(m: int, e: int, divisor: int = 1) -> float:
    """The double nearest to m * 2**e / divisor. Raises NumericOverflow where it is too large, as PostgreSQL does."""
    try:
        return m * (1 << e) / divisor if e >= 0 else m / (divisor << -e)
    except OverflowError as error:
        raise NumericOverflow("value out of range: overflow") from error


def as_double(total: DoubleSum, divisor: int = 1) -> float:
    """A sum, or a mean, as a double. Raises NumericOverflow where finite values add up to more than a double holds."""
    m, e, nans, ups, downs = total
    if nans or (ups and downs):
        return math.nan
    if ups or downs:
        return math.inf if ups else -math.inf
    return ratio(m, e, divisor)


def whole_of(t: SqlType) -> Callable[[Any], int]:
    """What a value of an exact type is as a whole number (of DECIMAL: without its point)."""
    if t.kind is Kind.DECIMAL:
        scale = t.scale
        return lambda v: int(_EXACT.scaleb(v, scale))
    return int


def from_whole(n: int, scale: int) -> Decimal:
    """The DECIMAL that is n / 10**scale."""
    return _EXACT.scaleb(Decimal(n), -scale)


def divided(n: int, divisor: int) -> int:
    """The quotient n / divisor, rounded to the nearest whole number, halves away from zero, as PostgreSQL rounds numerics."""
    quotient, rest = divmod(abs(n), divisor)
    quotient += 2 * rest >= divisor
    return -quotient if n < 0 else quotient
