"""Numbers as ksqlDB has them: Java's integers, decimals with declared precision, doubles and their text."""

from __future__ import annotations

import math
from decimal import ROUND_HALF_UP, Context, Decimal, InvalidOperation

from flowql.compiler.functions.signatures import as_decimal
from flowql.compiler.plan.types import SqlType, decimal

INT_MIN, INT_MAX = -(2**31), 2**31 - 1
BIGINT_MIN, BIGINT_MAX = -(2**63), 2**63 - 1
MAX_PRECISION = 38
# Wide enough for every intermediate of two 38-digit decimals; roundings are explicit.
WIDE = Context(prec=120, rounding=ROUND_HALF_UP)


class NumericOverflow(ArithmeticError):
    """A number does not fit the declared precision."""


def wrap32(n: int) -> int:
    """An integer reduced to 32 bits as Java does."""
    return (n + 2**31) % 2**32 - 2**31


def wrap64(n: int) -> int:
    """An integer reduced to 64 bits as Java does."""
    return (n + 2**63) % 2**64 - 2**63


def divide(a: int, b: int) -> int:
    """Integer division that rounds toward zero. Raises ZeroDivisionError."""
    q = a // b
    return q + 1 if q < 0 and q * b != a else q


def remainder(a: int, b: int) -> int:
    """Integer remainder with the sign of the dividend. Raises ZeroDivisionError."""
    return a - b * divide(a, b)


def divide_double(a: float, b: float) -> float:
    """IEEE division: a zero divisor gives an infinity or NaN, as in Java."""
    if b != 0.0:
        return a / b
    if a != a or a == 0.0:
        return math.nan
    return math.copysign(math.inf, a) * math.copysign(1.0, b)


def remainder_double(a: float, b: float) -> float:
    if b == 0.0 or a in (math.inf, -math.inf) or a != a or b != b:
        return math.nan
    return math.fmod(a, b)


def fit_decimal(value: Decimal, precision: int, scale: int) -> Decimal:
    """`value` at exactly `scale`, half up. Raises NumericOverflow when it needs more than `precision` digits."""
    try:
        fitted = value.quantize(Decimal(1).scaleb(-scale), context=WIDE)
    except InvalidOperation as e:
        raise NumericOverflow(f"{value} does not fit DECIMAL({precision}, {scale})") from e
    if fitted.adjusted() >= precision - scale and fitted != 0:
        raise NumericOverflow(f"{value} does not fit DECIMAL({precision}, {scale})")
    return fitted if fitted != 0 else abs(fitted)  # java.math.BigDecimal has no negative zero


def truncate_double(d: float, low: int, high: int) -> int:
    """Java's cast of a double to an integer type: toward zero, clamped, NaN is 0."""
    if d != d:
        return 0
    if d >= high:
        return high
    return low if d <= low else int(d)


def double_text(d: float) -> str:
    """`Double.toString`: plain from 1e-3 to below 1e7, else computerised scientific notation."""
    if d != d:
        return "NaN"
    if math.isinf(d):
        return "Infinity" if d > 0 else "-Infinity"
    if d == 0.0:
        return "-0.0" if math.copysign(1.0, d) < 0 else "0.0"
    sign, digits, exponent = Decimal(repr(d)).normalize().as_tuple()
    assert isinstance(exponent, int)
    text = "".join(map(str, digits))
    if len(text) == 1 and float(two := f"{d:.1e}") == d:  # Java shows two digits, the nearest ones: 4.9E-324
        mantissa, _, power = two.lstrip("-").partition("e")
        text, exponent = mantissa.replace(".", ""), int(power) - 1
        text, exponent = (text[0], exponent + 1) if text[1] == "0" else (text, exponent)
    magnitude = len(text) + exponent - 1
    minus = "-" if sign else ""
    if -3 <= magnitude < 7:
        if magnitude < 0:
            return f"{minus}0.{'0' * (-magnitude - 1)}{text}"
        text = text.ljust(magnitude + 1, "0")
        return f"{minus}{text[: magnitude + 1]}.{text[magnitude + 1 :] or '0'}"
    return f"{minus}{text[0]}.{text[1:] or '0'}E{magnitude}"


def result_decimal(op: str, a: SqlType, b: SqlType) -> SqlType:
    """The DECIMAL an arithmetic operator gives for two exact operands (ksqlDB's DecimalUtil rules)."""
    a, b = as_decimal(a), as_decimal(b)
    p1, s1, p2, s2 = a.precision, a.scale, b.precision, b.scale
    if op in ("add", "sub"):
        scale = max(s1, s2)
        precision = max(p1 - s1, p2 - s2) + scale + 1
    elif op == "mul":
        precision, scale = p1 + p2 + 1, s1 + s2
    elif op == "div":
        scale = max(6, s1 + p2 + 1)
        precision = p1 - s1 + s2 + scale
    else:
        scale = max(s1, s2)
        precision = min(p1 - s1, p2 - s2) + scale
    precision = max(1, min(precision, MAX_PRECISION))
    return decimal(precision, min(scale, precision))
