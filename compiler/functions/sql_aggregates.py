"""SUM and AVG of standard SQL: NULL of nothing, and wide enough that no sum wraps.

| argument | SUM | AVG |
|---|---|---|
| INT | BIGINT | DECIMAL(38, 18) |
| BIGINT | DECIMAL(38, 0) | DECIMAL(38, 18) |
| DECIMAL(p, s) | DECIMAL(38, s) | DECIMAL(38, s), with 18 places at least |
| DOUBLE | DOUBLE | DOUBLE |

A row with which a sum overflows is an error of that row. An accumulator is (sum, number of values): it tells "no values" from zero, also
after values were taken out again. Doubles are summed exactly, so that neither their order nor what has gone leaves a trace: the sum is
kept as the parts of Shewchuk's expansion ("Adaptive Precision Floating-Point Arithmetic", 1997), beside the numbers of NaNs and infinities.
COUNT, MIN and MAX are those of ksqlDB; the others of relations are in `sql_linear_aggregates`.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from decimal import ROUND_HALF_UP, Decimal
from typing import Any

from flowql.compiler.functions.aggregates import Add, Init
from flowql.compiler.functions.numeric import BIGINT_MAX, BIGINT_MIN, MAX_PRECISION, WIDE, NumericOverflow, fit_decimal
from flowql.compiler.functions.registry import AggregateFunction, register_aggregate
from flowql.compiler.functions.signatures import Resolution, not_accepted
from flowql.compiler.plan.types import BIGINT, DOUBLE, Kind, SqlType, decimal

NUMERIC_SCALE = 18  # of a bare NUMERIC, and of quotients
_INTEGERS = (Kind.INT, Kind.BIGINT)
# (parts of the sum, NaNs, infinities, negative infinities) of doubles.
_NO_DOUBLES: tuple[Any, ...] = ((), 0, 0, 0)


def _sum_type(t: SqlType) -> SqlType:
    if t.kind is Kind.DECIMAL:
        return decimal(MAX_PRECISION, t.scale)
    return {Kind.INT: BIGINT, Kind.BIGINT: decimal(MAX_PRECISION, 0)}.get(t.kind, DOUBLE)


def _average_type(t: SqlType) -> SqlType:
    return DOUBLE if t.kind is Kind.DOUBLE else decimal(MAX_PRECISION, max(t.scale, NUMERIC_SCALE))


def _resolver(name: str, result: Callable[[SqlType], SqlType]) -> Callable[[tuple[SqlType, ...], Init], Resolution]:
    def resolve(types: tuple[SqlType, ...], _init: Init) -> Resolution:
        if len(types) != 1 or not types[0].is_numeric:
            raise not_accepted(name, types, f"{name} takes one number")
        return Resolution(types, result(types[0]))

    return resolve


def _grown(parts: tuple[float, ...], v: float) -> tuple[float, ...]:
    """The expansion with one value more: no part overlaps another, and together they are the sum, without rounding."""
    rest = []
    for part in parts:
        large, small = (v, part) if abs(v) >= abs(part) else (part, v)
        v = large + small
        if lost := small - (v - large):
            rest.append(lost)
    if math.isinf(v):
        raise NumericOverflow("the sum is out of the range of DOUBLE")
    return (*rest, v) if v else tuple(rest)


def _double_step(sign: int) -> Callable[[Any, float], Any]:
    def step(total: Any, v: float) -> Any:
        parts, nans, above, below = total
        if math.isfinite(v):
            return _grown(parts, sign * v), nans, above, below
        if v != v:
            return parts, nans + sign, above, below
        return (parts, nans, above + sign, below) if v > 0 else (parts, nans, above, below + sign)

    return step


def _double_total(total: Any) -> float:
    parts, nans, above, below = total
    if nans or (above and below):
        return math.nan
    return math.inf if above else -math.inf if below else math.fsum(parts)


def _double_mean(total: Any, n: int) -> float:
    """The double nearest to the exact mean, which a rounded sum might miss."""
    whole = _double_total(total)
    if not math.isfinite(whole):
        return whole
    fractions = [part.as_integer_ratio() for part in total[0]]
    below = max((d for _, d in fractions), default=1)  # all are powers of two
    return sum(m * (below // d) for m, d in fractions) / (below * n)


def _double_merge(a: Any, b: Any) -> Any:
    parts = a[0]
    for v in b[0]:
        parts = _grown(parts, v)
    return (parts, *(x + y for x, y in zip(a[1:], b[1:], strict=True)))


def _step(t: SqlType, sign: int) -> Callable[[Any, Any], Any]:
    """Sum ± value of an argument of type `t`. Integers are exact at any size; decimals must fit their sum's type."""
    if t.kind is Kind.DOUBLE:
        return _double_step(sign)
    if t.kind is Kind.DECIMAL:
        exact = WIDE.add if sign > 0 else WIDE.subtract
        return lambda total, v: fit_decimal(exact(total, v), MAX_PRECISION, t.scale)
    if t.kind is Kind.INT:
        return lambda total, v: _bigint(total + sign * v)
    return lambda total, v: total + sign * v


def _bigint(total: int) -> int:
    if not BIGINT_MIN <= total <= BIGINT_MAX:
        raise NumericOverflow("the sum is out of the range of BIGINT")
    return total


def _initial(r: Resolution, _init: Init) -> Any:
    t = r.args[0]
    if t.kind is Kind.DOUBLE:
        return _NO_DOUBLES, 0
    return (Decimal(0).scaleb(-t.scale) if t.kind is Kind.DECIMAL else 0), 0


def _fold(sign: int) -> Callable[[Resolution, Init], Add]:
    def make(r: Resolution, _init: Init) -> Add:
        step = _step(r.args[0], sign)
        return lambda acc, v: acc if v is None else (step(acc[0], v), acc[1] + sign)

    return make


def _merge(r: Resolution, _init: Init) -> Callable[[Any, Any], Any]:
    t = r.args[0]
    both = _double_merge if t.kind is Kind.DOUBLE else _step(t, 1)
    return lambda a, b: (both(a[0], b[0]), a[1] + b[1])


def _from_partial(r: Resolution, init: Init) -> Add:
    """Of the sum and the number of a batch's values. A sum of doubles has been rounded by then."""
    t, nothing = r.args[0], _initial(r, init)
    if t.kind is Kind.DOUBLE:
        step = _double_step(1)
        return lambda total, n: (step(_NO_DOUBLES, float(total)), n) if n else nothing
    whole = int if t.kind in _INTEGERS else (lambda total: fit_decimal(total, MAX_PRECISION, t.scale))
    return lambda total, n: (whole(total), n) if n else nothing


def _sum_result(r: Resolution, _init: Init) -> Callable[[Any], Any]:
    if r.args[0].kind is Kind.DOUBLE:
        return lambda acc: _double_total(acc[0]) if acc[1] else None
    if r.args[0].kind is Kind.BIGINT:
        return lambda acc: Decimal(acc[0]) if acc[1] else None
    return lambda acc: acc[0] if acc[1] else None


def _average_result(r: Resolution, _init: Init) -> Callable[[Any], Any]:
    if r.result.kind is Kind.DOUBLE:
        return lambda acc: _double_mean(acc[0], acc[1]) if acc[1] else None
    quantum = Decimal(1).scaleb(-r.result.scale)

    def mean(acc: Any) -> Decimal | None:
        if not acc[1]:
            return None
        exact = WIDE.divide(Decimal(acc[0]), Decimal(acc[1]))
        return exact.quantize(quantum, rounding=ROUND_HALF_UP, context=WIDE)

    return mean


def _averaging(make: Callable[[Resolution, Init], Add]) -> Callable[[Resolution, Init], Add]:
    """A step of AVG. Where the average may be out of its type's range, which is an error as of a sum, it is looked at."""

    def averaging(r: Resolution, init: Init) -> Add:
        step, mean = make(r, init), _average_result(r, init)
        limit = Decimal(10) ** (r.result.precision - r.result.scale)

        def run(acc: Any, v: Any) -> Any:
            made = step(acc, v)
            if (value := mean(made)) is not None and abs(value) >= limit:
                raise NumericOverflow(f"the average is out of the range of {r.result}")
            return made

        t = r.args[0]
        narrower = t.kind is Kind.DECIMAL and t.precision - t.scale > r.result.precision - r.result.scale
        return run if narrower else step

    return averaging


_PARTIAL = lambda args, _r: [f"sum({args[0]})", f"count({args[0]})"]  # noqa: E731

register_aggregate(
    AggregateFunction(
        "sql_sum",
        _resolver("SUM", _sum_type),
        initial=_initial,
        add=_fold(1),
        undo=_fold(-1),
        merge=_merge,
        result=_sum_result,
        duckdb_partial=_PARTIAL,
        from_partial=_from_partial,
        summary="The sum in a wider type; NULLs are left out, NULL when there is nothing.",
        example="SUM(x)",
    )
)
register_aggregate(
    AggregateFunction(
        "sql_avg",
        _resolver("AVG", _average_type),
        initial=_initial,
        add=_averaging(_fold(1)),
        undo=_averaging(_fold(-1)),
        merge=_averaging(_merge),
        result=_average_result,
        duckdb_partial=_PARTIAL,
        from_partial=_from_partial,
        summary="The mean, exact to 18 places of whole numbers and decimals; NULLs are left out, NULL when there is nothing.",
        example="AVG(x)",
    )
)
