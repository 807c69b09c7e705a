"""Functions of whole numbers in standard SQL: quotients, divisors, factorials, places among limits, digits of other bases."""

from __future__ import annotations

import math
from decimal import ROUND_DOWN, Decimal
from typing import Any

from flowql.compiler.functions.numeric import MAX_PRECISION, WIDE, fit_decimal
from flowql.compiler.functions.registry import Reference, standard, takes
from flowql.compiler.functions.signatures import Resolution, as_decimal, not_accepted
from flowql.compiler.functions.sql_arithmetic import RANGES, out_of_range
from flowql.compiler.plan.types import BIGINT, DOUBLE, INT, STRING, Kind, SqlType, decimal

_FACTORIAL_MAX = 33  # 34! has more than 38 digits


def _quotient_types(types: tuple[SqlType, ...]) -> Resolution:
    """The type for exact numbers, which become DECIMALs; the result has scale 0."""
    exact = (Kind.INT, Kind.BIGINT, Kind.DECIMAL, Kind.NULL)
    if len(types) != 2 or any(t.kind not in exact for t in types):
        raise not_accepted("DIV", types, "it takes two exact numbers")
    return Resolution(tuple(decimal(1, 0) if t.kind is Kind.NULL else as_decimal(t) for t in types), decimal(MAX_PRECISION, 0))  # fmt: skip


def _quotient(a: Decimal, b: Decimal) -> Decimal:
    if not b:
        raise ZeroDivisionError("division by zero")
    return fit_decimal(WIDE.divide(a, b).quantize(Decimal(1), rounding=ROUND_DOWN, context=WIDE), MAX_PRECISION, 0)


def _in_range(f: Any) -> Any:
    def by_types(r: Resolution) -> Reference:
        high = RANGES[r.result.kind][1]

        def run(a: int, b: int) -> int:
            v: int = f(a, b)
            return v if v <= high else out_of_range(r.result.kind.value)

        return run

    return by_types


def _factorial(n: int) -> Decimal:
    if n < 0:
        raise ValueError("factorial of a negative number is undefined")
    return Decimal(math.factorial(n)) if n <= _FACTORIAL_MAX else out_of_range(f"DECIMAL({MAX_PRECISION}, 0)")


def _bucket(v: float, low: float, high: float, count: int) -> int:
    """Which of so many equal parts from low to high a number is in: 0 below them, one more above them."""
    if count <= 0:
        raise ValueError("count must be greater than zero")
    if low == high:
        raise ValueError("lower bound cannot equal upper bound")
    if any(map(math.isnan, (v, low, high))) or math.isinf(low) or math.isinf(high):
        raise ValueError("operand, lower bound, and upper bound cannot be NaN")
    if low > high:
        v, low, high = -v, -low, -high
    if v < low:
        return 0
    return count + 1 if v >= high else int(count * ((v - low) / (high - low))) + 1


def _logarithm(v: float) -> float:
    if v <= 0:
        raise ValueError(f"cannot take logarithm of {'zero' if v == 0 else 'a negative number'}")
    return math.log2(v)


def _digits(base: str) -> Any:
    def by_types(r: Resolution) -> Reference:
        bits = 32 if r.args[0].kind is Kind.INT else 64
        return lambda v: format(v % (1 << bits), base)

    return by_types


standard(
    "DIV",
    name="sql_quotient",  # `/` is sql_div
    resolve=_quotient_types,
    by=_quotient,
)
for _name, _of in (
    ("GCD", math.gcd),
    ("LCM", math.lcm),
):
    standard(
        _name,
        takes(INT, INT, gives=INT),
        takes(BIGINT, BIGINT, gives=BIGINT),
        by_types=_in_range(_of),
    )
standard("FACTORIAL", takes(BIGINT, gives=decimal(MAX_PRECISION, 0)), by=_factorial)
standard("WIDTH_BUCKET", takes(DOUBLE, DOUBLE, DOUBLE, INT, gives=INT), by=_bucket)
standard("LOG2", takes(DOUBLE, gives=DOUBLE), by=_logarithm)
for _name, _base in (
    ("TO_BIN", "b"),
    ("TO_OCT", "o"),
):
    standard(_name, takes(INT, gives=STRING), takes(BIGINT, gives=STRING), by_types=_digits(_base))
