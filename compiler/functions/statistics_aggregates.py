"""Variances, deviations and statistics of pairs, of both dialects.

ksqlDB's STDDEV_SAMP, STDDEV_SAMPLE and CORRELATION go by running means (Welford), which can also be undone and merged. Its STDDEV_SAMP
gives the sample variance and STDDEV_SAMPLE the square root; both names keep that meaning there.

In standard SQL STDDEV_SAMP is the sample standard deviation. Its statistics keep sums without rounding before the last step, so what is added can be
taken out again. Those of pairs are PostgreSQL's `f(y, x)`, pairs with a NULL left out: they keep the sums of x, y, their squares and their product.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from decimal import Decimal
from fractions import Fraction
from functools import partial
from typing import Any

from flowql.compiler.functions.aggregate_forms import Acc, Add, Asked, Init, Linear, OverRelations
from flowql.compiler.functions.change_aggregates import linear_aggregate
from flowql.compiler.functions.duckdb_text import digits, finisher, whole_sql
from flowql.compiler.functions.exact_sums import Scaled, plus, ratio, reduced, scaled, whole_of
from flowql.compiler.functions.numeric import WIDE, fit_decimal
from flowql.compiler.functions.registry import define_aggregate
from flowql.compiler.functions.signatures import Resolution, not_accepted
from flowql.compiler.plan.types import BIGINT, DOUBLE, Kind, SqlType, decimal

# (count, mean x, mean y, sum of dx², sum of dy², sum of dx·dy); one variable uses x = y.
Moments = tuple[int, float, float, float, float, float]
_EMPTY: Moments = (0, 0.0, 0.0, 0.0, 0.0, 0.0)


def _numbers(name: str, count: int) -> Callable[[tuple[SqlType, ...], Init], Resolution]:
    def resolve(types: tuple[SqlType, ...], _init: Init) -> Resolution:
        if len(types) != count or not all(t.is_numeric for t in types):
            raise not_accepted(name, types, f"{name} takes {'one number' if count == 1 else 'two numbers'}")
        return Resolution((DOUBLE,) * count, DOUBLE)

    return resolve


def _add(acc: Moments, x: float | None, y: float | None) -> Moments:
    if x is None or y is None:
        return acc
    n, mx, my, sx, sy, sxy = acc
    n += 1
    dx, dy = x - mx, y - my
    mx, my = mx + dx / n, my + dy / n
    return n, mx, my, sx + dx * (x - mx), sy + dy * (y - my), sxy + dx * (y - my)


def _undo(acc: Moments, x: float | None, y: float | None) -> Moments:
    if x is None or y is None:
        return acc
    n, mx, my, sx, sy, sxy = acc
    if n <= 1:
        return _EMPTY
    px, py = (n * mx - x) / (n - 1), (n * my - y) / (n - 1)
    dx, dy = x - px, y - py
    return n - 1, px, py, sx - dx * (x - mx), sy - dy * (y - my), sxy - dx * (y - my)


def _merge(a: Moments, b: Moments) -> Moments:
    n = a[0] + b[0]
    if not a[0] or not b[0]:
        return a if a[0] else b
    dx, dy, w = b[1] - a[1], b[2] - a[2], a[0] * b[0] / n
    mx, my = a[1] + dx * b[0] / n, a[2] + dy * b[0] / n
    return n, mx, my, a[3] + b[3] + dx * dx * w, a[4] + b[4] + dy * dy * w, a[5] + b[5] + dx * dy * w


def _variance(acc: Any) -> float:
    return max(acc[3], 0.0) / (acc[0] - 1) if acc[0] > 1 else 0.0


def _correlation(acc: Any) -> float:
    n, _, _, sx, sy, sxy = acc
    return sxy / math.sqrt(sx * sy) if n > 1 and sx > 0 and sy > 0 else math.nan


def _step(f: Callable[[Moments, Any, Any], Moments], count: int) -> Callable[[Resolution, Init], Add]:
    return lambda _r, _i: (lambda acc, x: f(acc, x, x)) if count == 1 else f


def _register(name: str, count: int, result: Callable[[Any], float]) -> None:
    define_aggregate(
        name,
        _numbers(name, count),
        initial=lambda _r, _i: _EMPTY,
        add=_step(_add, count),
        undo=_step(_undo, count),
        merge=lambda _r, _i: lambda a, b: _merge(tuple(a), tuple(b)),
        result=lambda _r, _i: result,
    )


_register("STDDEV_SAMP", 1, _variance)
_register("STDDEV_SAMPLE", 1, lambda acc: math.sqrt(_variance(acc)))
_register("CORRELATION", 2, _correlation)


# --- standard SQL ---

EXACT = (Kind.INT, Kind.BIGINT, Kind.DECIMAL)


def _exact_variance(args: tuple[SqlType, ...], of: SqlType, sample: bool, root: bool) -> Linear | None:
    """Accumulator: (n, sum, sum of squares, values that are not finite), sums as m and e: nothing is rounded before the end."""
    if len(args) != 1 or not args[0].is_numeric:
        return None
    t = args[0]
    whole = whole_of(t) if t.kind is not Kind.DOUBLE else None
    unit = Fraction(1, 10**t.scale) if t.kind is Kind.DECIMAL else Fraction(1)

    def part(args: tuple[Any, ...], weight: int) -> Acc | None:
        v = args[0]
        if v is None:
            return None
        if whole is None and not math.isfinite(v):
            return weight, 0, 0, 0, 0, weight
        m, e = scaled(v) if whole is None else reduced(whole(v), 0)
        return (weight, *reduced(m * weight, e), *reduced(m * m * weight, 2 * e), 0)

    def add(a: Acc, b: Acc) -> Acc:
        return (a[0] + b[0], *plus(a[1:3], b[1:3]), *plus(a[3:5], b[3:5]), a[5] + b[5])

    def result(acc: Acc) -> Any:
        n, m, e, m2, e2, odd = acc
        if n <= sample:
            return None
        if odd:
            return math.nan
        squares = Fraction(m2) * Fraction(2) ** e2 - (Fraction(m) * Fraction(2) ** e) ** 2 / n
        found = squares * unit * unit / (n - sample)
        if of.kind is Kind.DECIMAL:
            return _decimal(found, of, root=root)
        return _root(found) if root else ratio(found.numerator, 0, found.denominator)

    return Linear((0, 0, 0, 0, 0, 0), part, add, result)


def _decimal(value: Fraction, of: SqlType, *, root: bool) -> Decimal:
    """The value, or its square root, rounded half up to the scale of the type."""
    shift = 10**of.scale
    doubled = math.isqrt(math.floor(4 * value * shift * shift)) if root else math.floor(2 * value * shift)
    return fit_decimal(Decimal((doubled + 1) // 2).scaleb(-of.scale, WIDE), of.precision, of.scale)


def _root(value: Fraction) -> float:
    """The square root, also of what is too small or too large for a double."""
    half = (value.numerator.bit_length() - value.denominator.bit_length()) // 2
    near_one = value / Fraction(4) ** half
    return math.ldexp(math.sqrt(near_one), half)


def _number(types: tuple[SqlType, ...]) -> SqlType | None:
    return DOUBLE if all(t.is_numeric for t in types) else None


def _variance_type(types: tuple[SqlType, ...], *, root: bool) -> SqlType | None:
    """A deviation is as large as the values are: the DECIMAL of their average. A variance that may not fit is a DOUBLE."""
    if len(types) != 1 or types[0].kind not in EXACT:
        return _number(types)
    t = types[0]
    whole = {Kind.INT: 10, Kind.BIGINT: 19}.get(t.kind, t.precision - t.scale)
    places = max(18, t.scale)
    return decimal(38, places) if root or whole * 2 + places <= 38 else DOUBLE


def _asked_variance(function: str, linear: Callable[..., Linear | None], call: Asked) -> str | None:
    """The SQL of a variance of exact numbers: their squares are summed as whole numbers."""
    if len(call.args) != 1 or call.types[0].kind not in EXACT:
        return None
    t, arg, over = call.types[0], call.args[0], call.over
    whole = whole_sql(arg, t)
    sums = [digits(over(f"sum({call.of}{x})")) for x in (whole, f"{whole} * {whole}")]
    accumulator = lambda n, s, squares: (n, s, 0, squares, 0, 0)  # noqa: E731
    finish = finisher(function, linear((t,), call.result), t, call.result, accumulator, 2)
    return f'"{finish}"({over(f"count({call.of}{arg})")}, {", ".join(sums)})'


def _register_variance(*names: str, sample: bool, root: bool) -> None:
    linear = lambda args, result: _exact_variance(args, result, sample, root)  # noqa: E731
    asked = partial(_asked_variance, names[0], linear)
    linear_aggregate(
        OverRelations(names, partial(_variance_type, root=root), linear=linear, asked=asked),
        takes="another argument",
    )


_register_variance("VAR_POP", sample=False, root=False)
_register_variance("VAR_SAMP", "VARIANCE", sample=True, root=False)
_register_variance("STDDEV_POP", sample=False, root=True)
_register_variance("STDDEV_SAMP", "STDDEV", sample=True, root=True)

# n; how many x are NaN; m and e of the five sums, of finite numbers; how many x are Infinity and -Infinity; how many y are NaN, Infinity and -Infinity.
Sums = tuple[int, ...]
_NO_PAIRS: Sums = (0,) * 17
_ZERO: Scaled = (0, 0)


@dataclass(frozen=True, slots=True)
class Pairs:
    """n pairs: their means, and the sums of the products of what each value differs from its mean: NaN of values that are not finite."""

    n: int
    mean_x: Fraction | float
    mean_y: Fraction | float
    xx: Fraction | float
    yy: Fraction | float
    xy: Fraction | float


def _pairs(args: Sequence[SqlType]) -> Callable[[tuple[Any, ...], int], Sums | None]:
    """(y and x of a row, how many times it counts) -> its accumulator."""
    y_of, x_of = map(_exact, args)

    def part(row: tuple[Any, ...], weight: int) -> Sums | None:
        if None in row:
            return None
        y, x = y_of(row[0]), x_of(row[1])
        of_x, of_y = ([k * weight for k in _kind(v)] if e is None else [0, 0, 0] for v, e in ((row[1], x), (row[0], y)))
        none = x is None or y is None
        x, y = x or _ZERO, y or _ZERO
        sums = [x, y, _times(x, x), _times(y, y), _ZERO if none else _times(x, y)]
        return (weight, of_x[0], *(p for m, e in sums for p in reduced(m * weight, e)), *of_x[1:], *of_y)

    return part


def _kind(v: float) -> tuple[int, int, int]:
    """Whether a number that is not finite is NaN, Infinity or -Infinity."""
    return int(v != v), int(v > 0), int(v < 0)


def _exact(t: SqlType) -> Callable[[Any], Scaled | None]:
    """A number as m * 2**e, of a DECIMAL without its point; None for what is not finite."""
    if t.kind is Kind.DOUBLE:
        return lambda v: scaled(v) if math.isfinite(v) else None
    whole = whole_of(t)
    return lambda v: reduced(whole(v), 0)


def _times(a: Scaled, b: Scaled) -> Scaled:
    return a[0] * b[0], a[1] + b[1]


def _added(a: Sums, b: Sums) -> Sums:
    """The accumulator of both sets of rows."""
    sums = (p for i in range(2, 12, 2) for p in plus((a[i], a[i + 1]), (b[i], b[i + 1])))
    return (a[0] + b[0], a[1] + b[1], *sums, *(x + y for x, y in zip(a[12:], b[12:], strict=True)))


def _mean(total: Fraction, n: int, nans: int, above: int, below: int) -> Fraction | float:
    if nans or (above and below):
        return math.nan
    return math.inf if above else -math.inf if below else total / n


def _pairs_result(function: str, args: Sequence[SqlType]) -> Callable[[Sums], Any]:
    """How the result is computed in the end."""
    compute = _OF_PAIRS[function]
    unit_y, unit_x = (Fraction(1, 10 ** (t.scale if t.kind is Kind.DECIMAL else 0)) for t in args)

    def result(acc: Sums) -> Any:
        n = acc[0]
        if function == "REGR_COUNT":
            return n
        if not n:
            return None
        _, x_nan, *_, x_above, x_below, y_nan, y_above, y_below = acc
        x, y, xx, yy, xy = (Fraction(acc[i]) * Fraction(2) ** acc[i + 1] for i in range(2, 12, 2))
        x, y, xx, yy, xy = x * unit_x, y * unit_y, xx * unit_x**2, yy * unit_y**2, xy * unit_x * unit_y
        odd_x, odd_y = x_nan or x_above or x_below, y_nan or y_above or y_below
        pairs = Pairs(
            n,
            _mean(x, n, x_nan, x_above, x_below),
            _mean(y, n, y_nan, y_above, y_below),
            math.nan if odd_x else xx - x * x / n,
            math.nan if odd_y else yy - y * y / n,
            math.nan if odd_x or odd_y else xy - x * y / n,
        )
        found = compute(pairs)
        return ratio(found.numerator, 0, found.denominator) if isinstance(found, Fraction) else found

    return result


def _corr(m: Pairs) -> float | None:
    if not m.xx or not m.yy:
        return None
    square = m.xy * m.xy / (m.xx * m.yy)
    return math.copysign(math.sqrt(square), m.xy) if m.xy else 0.0


_OF_PAIRS: dict[str, Callable[[Pairs], Fraction | float | None]] = {
    "CORR": _corr,
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


def _register_pairs(function: str) -> None:
    def linear(args: tuple[SqlType, ...], _result: SqlType) -> Linear | None:
        if len(args) != 2 or not all(t.is_numeric for t in args):
            return None
        return Linear(_NO_PAIRS, _pairs(args), _added, _pairs_result(function, args))

    def result(types: tuple[SqlType, ...]) -> SqlType | None:
        return BIGINT if function == "REGR_COUNT" and _number(types) else _number(types)

    relation = OverRelations((function,), result, linear=linear, arguments=2)
    linear_aggregate(relation, takes="two numbers")


for _function in _OF_PAIRS:
    _register_pairs(_function)
