"""Sums of numbers without rounding, so that what was added can be taken out again.

A sum of doubles in doubles depends on the order of its parts, and taking one out leaves a rest: 1e16 + 1 - 1e16 is 0. Here a
finite double is `m * 2**e` with whole m and e; so is a sum of them, exactly. Infinities and NaN are counted beside it.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from decimal import Context, Decimal
from typing import Any

from flowql.compiler.functions.aggregate_forms import Acc, Linear, OutOfRange
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
    """A value of an exact type as a whole number (a DECIMAL without its point)."""
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


def linear_sum(args: tuple[SqlType, ...], result: SqlType, *, mean: bool) -> Linear | None:
    """The sum or the mean of relations. Accumulator: (values that are not NULL, their sum as a whole number or as a `DoubleSum`)."""
    if len(args) != 1 or not args[0].is_numeric:
        return None
    t = args[0]
    if t.kind is Kind.DOUBLE:

        def of_doubles(acc: Acc) -> Any:
            return as_double(acc[1], acc[0] if mean else 1) if acc[0] else None

        return Linear(
            (0, *NO_DOUBLES),
            lambda args, weight: None if args[0] is None else (weight, *double_part(args[0], weight)),
            lambda a, b: (a[0] + b[0], *add_doubles(a[1:], b[1:])),
            lambda acc: of_doubles((acc[0], acc[1:])),
            of_sum=lambda n, m, e: (n, *reduced(m, e), 0, 0, 0),
        )
    whole = whole_of(t)
    write = _whole_result(t, result)

    def part(args: tuple[Any, ...], weight: int) -> Acc | None:
        return None if args[0] is None else (weight, whole(args[0]) * weight)

    return Linear(
        (0, 0),
        part,
        lambda a, b: (a[0] + b[0], a[1] + b[1]),
        lambda acc: write(acc[1], acc[0] if mean else 1) if acc[0] else None,
        of_sum=(lambda n, m, _e: (n, m)) if t.kind in (Kind.INT, Kind.BIGINT) else None,
    )


def _whole_result(t: SqlType, result: SqlType) -> Callable[[int, int], Any]:
    """(whole number in the scale of `t`, divisor) -> value of the result's type. Raises OutOfRange."""
    scale = t.scale if t.kind is Kind.DECIMAL else 0
    if result.kind is Kind.DOUBLE:
        return lambda n, divisor: n / (divisor * 10**scale)
    if result.kind is Kind.DECIMAL:
        up = result.scale - scale
        limit = 10**result.precision

        def decimal(n: int, divisor: int) -> Any:
            whole = divided(n * 10 ** max(up, 0), divisor * 10 ** max(-up, 0))
            if abs(whole) >= limit:
                raise OutOfRange(f"the result does not fit in {result}")
            return from_whole(whole, result.scale)

        return decimal
    bits = 31 if result.kind is Kind.INT else 63

    def integer(n: int, divisor: int) -> Any:
        whole = divided(n, divisor * 10**scale)
        if not -(1 << bits) <= whole < 1 << bits:
            raise OutOfRange(f"the result does not fit in {result}")
        return whole

    return integer
