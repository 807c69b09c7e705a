"""Statistics of pairs over relations that change: correlation, covariance and the line through the points, exact before the last step.

As PostgreSQL has them: `f(y, x)`, pairs with a NULL left out. They keep the sums of x, y, their squares and their product, so what is
added can be taken out again.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

from flowql.compiler.functions.exact_sums import Scaled, plus, ratio, reduced, scaled, whole_of
from flowql.compiler.plan.types import Kind, SqlType

Acc = tuple[int, ...]  # n, pairs that are not finite, then m and e of the five sums
ZERO: Acc = (0,) * 12


@dataclass(frozen=True, slots=True)
class Moments:
    """n pairs: their means, and the sums of the products of what each value differs from its mean."""

    n: int
    mean_x: Fraction
    mean_y: Fraction
    xx: Fraction
    yy: Fraction
    xy: Fraction


def pairs(args: Sequence[SqlType]) -> Callable[[tuple[Any, ...], int], Acc | None]:
    """(y and x of a row, how many times it counts) -> its accumulator."""
    y_of, x_of = map(_exact, args)

    def part(row: tuple[Any, ...], weight: int) -> Acc | None:
        if None in row:
            return None
        y, x = y_of(row[0]), x_of(row[1])
        if y is None or x is None:
            return (weight, weight, *ZERO[2:])
        sums = [x, y, _times(x, x), _times(y, y), _times(x, y)]
        return (weight, 0, *(p for m, e in sums for p in reduced(m * weight, e)))

    return part


def _exact(t: SqlType) -> Callable[[Any], Scaled | None]:
    """A number as m * 2**e, of a DECIMAL without its point; None for what is not finite."""
    if t.kind is Kind.DOUBLE:
        return lambda v: scaled(v) if math.isfinite(v) else None
    whole = whole_of(t)
    return lambda v: reduced(whole(v), 0)


def _times(a: Scaled, b: Scaled) -> Scaled:
    return a[0] * b[0], a[1] + b[1]


def added(a: Acc, b: Acc) -> Acc:
    """The accumulator of both sets of rows."""
    sums = (p for i in range(2, 12, 2) for p in plus((a[i], a[i + 1]), (b[i], b[i + 1])))
    return (a[0] + b[0], a[1] + b[1], *sums)


def result_of(function: str, args: Sequence[SqlType]) -> Callable[[Acc], Any]:
    """How the result is computed in the end."""
    compute = FUNCTIONS[function]
    unit_y, unit_x = (Fraction(1, 10 ** (t.scale if t.kind is Kind.DECIMAL else 0)) for t in args)

    def result(acc: Acc) -> Any:
        n = acc[0]
        if function == "REGR_COUNT":
            return n
        if not n:
            return None
        if acc[1]:
            return math.nan
        x, y, xx, yy, xy = (Fraction(acc[i]) * Fraction(2) ** acc[i + 1] for i in range(2, 12, 2))
        x, y, xx, yy, xy = x * unit_x, y * unit_y, xx * unit_x**2, yy * unit_y**2, xy * unit_x * unit_y
        found = compute(Moments(n, x / n, y / n, xx - x * x / n, yy - y * y / n, xy - x * y / n))
        return ratio(found.numerator, 0, found.denominator) if isinstance(found, Fraction) else found

    return result


def _correlation(m: Moments) -> float | None:
    if not m.xx or not m.yy:
        return None
    square = m.xy * m.xy / (m.xx * m.yy)
    return math.copysign(math.sqrt(square), m.xy) if m.xy else 0.0


FUNCTIONS: dict[str, Callable[[Moments], Fraction | float | None]] = {
    "CORR": _correlation,
    "COVAR_POP": lambda m: m.xy / m.n,
    "COVAR_SAMP": lambda m: m.xy / (m.n - 1) if m.n > 1 else None,
    "REGR_AVGX": lambda m: m.mean_x,
    "REGR_AVGY": lambda m: m.mean_y,
    "REGR_COUNT": lambda m: float(m.n),
    "REGR_INTERCEPT": lambda m: m.mean_y - m.mean_x * m.xy / m.xx if m.xx else None,
    "REGR_R2": lambda m: None if not m.xx else Fraction(1) if not m.yy else m.xy * m.xy / (m.xx * m.yy),
    "REGR_SLOPE": lambda m: m.xy / m.xx if m.xx else None,
    "REGR_SXX": lambda m: m.xx,
    "REGR_SXY": lambda m: m.xy,
    "REGR_SYY": lambda m: m.yy,
}
