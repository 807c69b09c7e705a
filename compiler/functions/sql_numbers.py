"""Functions of numbers in standard SQL: of DECIMALs exact and a DECIMAL, of other numbers a DOUBLE where PostgreSQL gives one.

What has no value is an error: the root or logarithm of a negative number, a result out of range.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Sequence
from decimal import ROUND_CEILING, ROUND_DOWN, ROUND_FLOOR, ROUND_HALF_UP, Decimal, InvalidOperation, localcontext
from typing import Any

from flowql.compiler.functions.numeric import MAX_PRECISION, WIDE, NumericOverflow, fit_decimal
from flowql.compiler.functions.registry import Lowering, Reference, Resolve, standard, takes
from flowql.compiler.functions.signatures import DEC, Resolution, as_decimal, not_accepted
from flowql.compiler.functions.sql_arithmetic import RANGES, out_of_range
from flowql.compiler.functions.sums import NUMERIC_SCALE
from flowql.compiler.plan.types import BIGINT, DOUBLE, INT, STRING, Kind, SqlType, decimal, duckdb_type

_WIDEST = decimal(MAX_PRECISION, NUMERIC_SCALE)
_CONSTANT = re.compile(r"CAST\('-?\d+' AS INTEGER\)")


def _whole_type(args: tuple[SqlType, ...]) -> SqlType:
    """The type of a DECIMAL rounded to a whole number: one digit more than it has before the point."""
    t = args[0]
    return decimal(max(1, min(MAX_PRECISION, t.precision - t.scale + 1)), 0)


def _absolute(r: Resolution) -> Reference:
    kind = r.result.kind
    if kind is Kind.DECIMAL:
        return Decimal.copy_abs
    if kind is Kind.DOUBLE:
        return abs
    high = RANGES[kind][1]
    return lambda v: abs(v) if abs(v) <= high else out_of_range(kind.value)


standard(
    "ABS",
    takes(INT, gives=INT),
    takes(BIGINT, gives=BIGINT),
    takes(DEC, gives=DEC),
    takes(DOUBLE, gives=DOUBLE),
    by_types=_absolute,
    duckdb=lambda a, r: f"TRY(abs({a[0]}))" if r.result.kind in RANGES else f"abs({a[0]})",
    declines=lambda args, r: f"({args[0]} = {RANGES[r.result.kind][0]})" if r.result.kind in RANGES else "",
)


# --- to whole numbers and to digits ---


def _nearest(v: float) -> float:
    """Halves to the even number, as IEEE rounds."""
    return math.copysign(float(round(v)), v) if math.isfinite(v) else v


def _stepped(step: Callable[[float], int]) -> Callable[[float], float]:
    return lambda v: math.copysign(float(step(v)), v) if math.isfinite(v) else v


def _to_digits(v: Decimal, digits: int, mode: str) -> Decimal:
    """Raises NumericOverflow for more digits than there are."""
    with localcontext(WIDE) as context:
        context.rounding = mode
        try:
            return v.quantize(Decimal(1).scaleb(-digits)) if digits >= -MAX_PRECISION else Decimal(0)
        except InvalidOperation as e:
            raise NumericOverflow(f"{v} has no {digits} digits") from e


def _rounding(whole: Callable[[float], float], mode: str) -> Callable[[Resolution], Reference]:
    def reference(r: Resolution) -> Reference:
        if r.result.kind is Kind.DOUBLE:
            return lambda v: whole(float(v))
        p, s = r.result.precision, r.result.scale
        if len(r.args) == 1:
            return lambda v: fit_decimal(_to_digits(v, 0, mode), p, s)
        return lambda v, n: fit_decimal(v if n >= s else _to_digits(v, n, mode), p, s)

    return reference


def _one_more(args: tuple[SqlType, ...]) -> SqlType:
    return decimal(min(MAX_PRECISION, args[0].precision + 1), args[0].scale)


_TO_WHOLE = (
    takes(INT, gives=DOUBLE),
    takes(BIGINT, gives=DOUBLE),
    takes(DOUBLE, gives=DOUBLE),
    takes(DEC, gives=_whole_type),
)
_MODES: tuple[tuple[str, Callable[[float], float], str], ...] = (
    ("CEIL", _stepped(math.ceil), ROUND_CEILING),
    ("FLOOR", _stepped(math.floor), ROUND_FLOOR),
    ("ROUND", _nearest, ROUND_HALF_UP),
    ("TRUNC", _stepped(math.trunc), ROUND_DOWN),
)  # fmt: skip


def _whole_sql(name: str) -> Lowering:
    """Digits must be constant: DuckDB rounds a DECIMAL to others as a DOUBLE."""

    def lowering(a: Sequence[str], r: Resolution) -> str:
        kind = r.args[0].kind
        if kind is Kind.DOUBLE:
            return f"round_even({a[0]}, 0)" if name == "ROUND" else f"{name.lower()}({a[0]})"
        if kind is not Kind.DECIMAL:
            return f"CAST({a[0]} AS DOUBLE)"
        if not all(map(_CONSTANT.fullmatch, a[1:])):
            return ""
        return f"TRY(CAST({name.lower()}({', '.join(a)}) AS {duckdb_type(r.result)}))"

    return lowering


def _without_digits(name: str) -> Lowering:
    """Declines a number that has too many digits when it is rounded."""

    def declines(a: Sequence[str], r: Resolution) -> str:
        is_decimal = r.args[0].kind is Kind.DECIMAL
        return f"({a[0]} IS NOT NULL AND {_whole_sql(name)(a, r)} IS NULL)" if is_decimal else ""

    return declines


for _name, _f, _mode in _MODES:
    _has_digits = _name in ("ROUND", "TRUNC")
    standard(
        _name,
        *_TO_WHOLE,
        *([takes(DEC, INT, gives=_one_more)] if _has_digits else []),
        by_types=_rounding(_f, _mode),
        also={"CEIL": ("CEILING",), "TRUNC": ("TRUNCATE",)}.get(_name, ()),
        duckdb=_whole_sql(_name),
        declines=_without_digits(_name),
    )


def _sign(r: Resolution) -> Reference:
    if r.result.kind is Kind.DECIMAL:
        return lambda v: Decimal((v > 0) - (v < 0))
    return lambda v: float(int(v > 0) - int(v < 0))  # of NaN it is 0, as in PostgreSQL


standard(
    "SIGN",
    takes(INT, gives=DOUBLE),
    takes(BIGINT, gives=DOUBLE),
    takes(DOUBLE, gives=DOUBLE),
    takes(DEC, gives=decimal(1, 0)),
    by_types=_sign,
)


def _needed_digits(v: Decimal) -> int:
    exponent = v.normalize(WIDE).as_tuple().exponent
    assert isinstance(exponent, int), "decimals are finite"
    return max(0, -exponent) if v else 0


standard("MIN_SCALE", takes(DEC, gives=INT), by=_needed_digits)


# --- roots, powers and logarithms ---


def _analytic(written: str, least: int, most: int) -> Resolve:
    """DECIMALs, with whole numbers beside them, give a DECIMAL; all else is a DOUBLE."""

    def resolve(types: tuple[SqlType, ...]) -> Resolution:
        kinds = {t.kind for t in types}
        if not least <= len(types) <= most or not all(t.is_numeric or t.kind is Kind.NULL for t in types):
            takes_ = " or ".join(str(n) for n in range(least, most + 1))
            raise not_accepted(written, types, f"it takes {takes_} numbers")
        if Kind.DECIMAL in kinds and Kind.DOUBLE not in kinds:
            return Resolution(tuple(as_decimal(t) if t.is_numeric else decimal(1, 0) for t in types), _WIDEST)
        return Resolution(tuple(DOUBLE for _ in types), DOUBLE)

    return resolve


def _defined(f: Callable[..., float]) -> Callable[..., float]:
    """Where Python raises, or finite numbers give an infinity, the result is out of range."""

    def run(*args: float) -> float:
        try:
            v = f(*args)
        except OverflowError:
            return out_of_range("DOUBLE")
        if math.isinf(v) and all(map(math.isfinite, args)):
            out_of_range("DOUBLE")
        return v

    return run


def _positive(v: Any, of: str) -> None:
    if v <= 0:
        raise ValueError(f"cannot take {of} of {'zero' if v == 0 else 'a negative number'}")


def _root(v: Any) -> Any:
    if v < 0:
        raise ValueError("cannot take square root of a negative number")
    return WIDE.sqrt(v) if isinstance(v, Decimal) else math.sqrt(v)


def _natural(v: Any) -> Any:
    _positive(v, "logarithm")
    return WIDE.ln(v) if isinstance(v, Decimal) else math.log(v)


def _exponential(v: Any) -> Any:
    if isinstance(v, Decimal):
        return WIDE.exp(v) if v < 100 else out_of_range(str(_WIDEST))
    found = math.exp(v)
    return found if found or v == -math.inf else out_of_range("DOUBLE")


def _logarithm(*args: Any) -> Any:
    """To base 10, or `log(base, x)`."""
    for v in args:
        _positive(v, "logarithm")
    if len(args) == 1:
        return WIDE.log10(args[0]) if isinstance(args[0], Decimal) else math.log10(args[0])
    base, v = args
    if base == 1:
        raise ZeroDivisionError("division by zero")
    return WIDE.divide(WIDE.ln(v), WIDE.ln(base)) if isinstance(v, Decimal) else math.log(v) / math.log(base)


def _power(x: Any, y: Any) -> Any:
    if x == 0 and y < 0:
        raise ValueError("zero raised to a negative power is undefined")
    if x < 0 and math.isfinite(y) and y != math.floor(y):
        raise ValueError("a negative number raised to a non-integer power yields a complex result")
    if not isinstance(x, Decimal):
        return _double_power(x, y)
    if y == 0:
        return Decimal(1)
    if x == 0:
        return Decimal(0)
    if abs(y) * abs(x.adjusted() + (x.adjusted() >= 0)) > 2_000:
        return out_of_range(str(_WIDEST)) if (y > 0) == (abs(x) > 1) else Decimal(0)
    return WIDE.power(x, y)


def _double_power(x: float, y: float) -> float:
    found = math.pow(x, y)
    if found == 0.0 and x != 0.0 and math.isfinite(x) and math.isfinite(y):
        out_of_range("DOUBLE")
    return found


def _exact_or_double(f: Callable[..., Any]) -> Callable[[Resolution], Reference]:
    def reference(r: Resolution) -> Reference:
        if r.result.kind is Kind.DOUBLE:
            return _defined(f)
        p, s = r.result.precision, r.result.scale
        return lambda *args: fit_decimal(f(*args), p, s)

    return reference


for _name, _function, _most in (
    ("SQRT", _root, 1),
    ("EXP", _exponential, 1),
    ("LN", _natural, 1),
    ("LOG10", _logarithm, 1),
    ("LOG", _logarithm, 2),
):
    standard(_name, resolve=_analytic(_name, 1, _most), by_types=_exact_or_double(_function))
standard(
    "POWER",
    resolve=_analytic("POWER", 2, 2),
    by_types=_exact_or_double(_power),
    also=("POW",),
)


# --- angles ---


def _angle(f: Callable[[float], float]) -> Callable[[float], float]:
    def run(v: float) -> float:
        try:
            return f(v)
        except ValueError:
            raise ValueError("input is out of range") from None

    return run


for _name, _of in (
    ("ACOS", math.acos),
    ("ASIN", math.asin),
    ("COS", math.cos),
    ("SIN", math.sin),
    ("TAN", math.tan),
):
    standard(_name, takes(DOUBLE, gives=DOUBLE), by=_angle(_of))

# --- the buckets of a sketch of quantiles: DDSketch (Masson, Rim and Lee, VLDB 2019), section 2.1 ---


def sketched(x: float, error: float) -> float:
    """The middle of the bucket of a number: no further from it than `error` times its size. Raises ValueError."""
    if not 0 < error < 1:
        raise ValueError(f"a relative error is between 0 and 1, not {error}")
    if not x or not math.isfinite(x):
        return x
    base = (1 + error) / (1 - error)
    bucket = math.ceil(math.log(abs(x)) / math.log(base))
    return math.copysign(2 * base**bucket / (base + 1), x)


standard("DDSKETCH_VALUE", takes(DOUBLE, DOUBLE, gives=DOUBLE), by=sketched)

# --- whole numbers: quotients, divisors, factorials, digits of other bases ---

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


def _log2(v: float) -> float:
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
for _name, _whole in (("GCD", math.gcd), ("LCM", math.lcm)):
    standard(
        _name,
        takes(INT, INT, gives=INT),
        takes(BIGINT, BIGINT, gives=BIGINT),
        by_types=_in_range(_whole),
    )
standard("FACTORIAL", takes(BIGINT, gives=decimal(MAX_PRECISION, 0)), by=_factorial)
standard("WIDTH_BUCKET", takes(DOUBLE, DOUBLE, DOUBLE, INT, gives=INT), by=_bucket)
standard("LOG2", takes(DOUBLE, gives=DOUBLE), by=_log2)
for _name, _base in (
    ("TO_BIN", "b"),
    ("TO_OCT", "o"),
):
    standard(_name, takes(INT, gives=STRING), takes(BIGINT, gives=STRING), by_types=_digits(_base))

# --- trigonometry in degrees, error functions and areas of hyperbolas ---
#
# Results are exact where possible: `sind(30)` is 0.5. The reduction to the first quadrant, and the scaling by the computed values at 30, 45 and
# 60 degrees, are those of PostgreSQL (float.c).

_DEGREE = math.pi / 180.0
_SIN_30 = math.sin(30.0 * _DEGREE)
_ONE_MINUS_COS_60 = 1.0 - math.cos(60.0 * _DEGREE)
_ASIN_HALF, _ACOS_HALF, _ATAN_ONE = math.asin(0.5), math.acos(0.5), math.atan(1.0)


def _sin_to_30(x: float) -> float:
    return math.sin(x * _DEGREE) / _SIN_30 / 2.0


def _cos_to_60(x: float) -> float:
    return 1.0 - (1.0 - math.cos(x * _DEGREE)) / _ONE_MINUS_COS_60 / 2.0


def _sin_of_quadrant(x: float) -> float:
    return _sin_to_30(x) if x <= 30.0 else _cos_to_60(90.0 - x)


def _cos_of_quadrant(x: float) -> float:
    return _cos_to_60(x) if x <= 60.0 else _sin_to_30(90.0 - x)


_TAN_45 = _sin_of_quadrant(45.0) / _cos_of_quadrant(45.0)
_COT_45 = _cos_of_quadrant(45.0) / _sin_of_quadrant(45.0)


def _finite(x: float) -> float:
    """Raises ValueError for an infinity."""
    if math.isinf(x):
        raise ValueError("input is out of range")
    return x


def _half_circle(x: float) -> tuple[float, float]:
    """The sign of the sine of an angle, and an angle of 0 to 180 whose sine is as large. Raises ValueError for an infinity."""
    sign, x = 1.0, math.fmod(_finite(x), 360.0)
    if x < 0.0:
        sign, x = -sign, -x
    return (-sign, 360.0 - x) if x > 180.0 else (sign, x)


def _sind(x: float) -> float:
    sign, x = _half_circle(x)
    return sign * _sin_of_quadrant(180.0 - x if x > 90.0 else x)


def _cosd(x: float) -> float:
    x = abs(math.fmod(_finite(x), 360.0))
    if x > 180.0:
        x = 360.0 - x
    return -_cos_of_quadrant(180.0 - x) if x > 90.0 else _cos_of_quadrant(x)


def _degrees_quotient(x: float, over: Callable[[float], float], under: Callable[[float], float], unit: float) -> float:
    sign, x = _half_circle(x)
    if x > 90.0:
        sign, x = -sign, 180.0 - x
    divisor = under(x)
    found = sign * (over(x) / divisor / unit if divisor else math.inf)
    return found or 0.0  # no negative zero


def _asin_of_quadrant(x: float) -> float:
    return math.asin(x) / _ASIN_HALF * 30.0 if x <= 0.5 else 90.0 - math.acos(x) / _ACOS_HALF * 60.0


def _acos_of_quadrant(x: float) -> float:
    return 90.0 - math.asin(x) / _ASIN_HALF * 30.0 if x <= 0.5 else math.acos(x) / _ACOS_HALF * 60.0


def _from_one(x: float) -> float:
    """Raises ValueError outside of -1 to 1."""
    if x < -1.0 or x > 1.0:
        raise ValueError("input is out of range")
    return x


def _asind(x: float) -> float:
    return _asin_of_quadrant(_from_one(x)) if x >= 0.0 else -_asin_of_quadrant(-_from_one(x))


def _acosd(x: float) -> float:
    return _acos_of_quadrant(_from_one(x)) if x >= 0.0 else 90.0 + _asin_of_quadrant(-_from_one(x))


def _acosh(x: float) -> float:
    if x < 1.0:
        raise ValueError("input is out of range")
    return math.acosh(x)


def _atanh(x: float) -> float:
    return math.copysign(math.inf, x) if abs(x) == 1.0 else math.atanh(_from_one(x))


def _erfc(x: float) -> float:
    found = math.erfc(x)
    return found if found or x == math.inf or x != x else out_of_range("DOUBLE")


_ONE: tuple[tuple[str, Callable[[float], float]], ...] = (
    ("SIND", _sind),
    ("COSD", _cosd),
    ("TAND", lambda x: _degrees_quotient(x, _sin_of_quadrant, _cos_of_quadrant, _TAN_45)),
    ("COTD", lambda x: _degrees_quotient(x, _cos_of_quadrant, _sin_of_quadrant, _COT_45)),
    ("ASIND", _asind),
    ("ACOSD", _acosd),
    ("ATAND", lambda x: math.atan(x) / _ATAN_ONE * 45.0),
    ("ASINH", math.asinh),
    ("ACOSH", _acosh),
    ("ATANH", _atanh),
    ("ERF", math.erf),
    ("ERFC", _erfc),
)  # fmt: skip
for _name, _by in _ONE:
    standard(_name, takes(DOUBLE, gives=DOUBLE), by=_by)
standard(
    "ATAN2D",
    takes(DOUBLE, DOUBLE, gives=DOUBLE),
    by=lambda y, x: math.atan2(y, x) / _ATAN_ONE * 45.0,
)


# The operator as written -> the function in the syntax tree.

# --- operators of bits over whole numbers in two's complement: `a & b`, `a | b`, `a # b`, `~a`, `a << n`, `a >> n` ---
#
# A shift counts its places modulo the bits of the number. Bits that are shifted out are lost, as in PostgreSQL.

OPERATORS = {"&": "BITS_AND", "|": "BITS_OR", "#": "BITS_XOR", "<<": "BITS_LEFT", ">>": "BITS_RIGHT"}
NOT = "BITS_NOT"


def _left(r: Resolution) -> Reference:
    bits = 32 if r.result.kind is Kind.INT else 64
    half = 1 << (bits - 1)

    def shifted(v: int, places: int) -> int:
        return ((v << (places & (bits - 1))) + half & (1 << bits) - 1) - half

    return shifted


def _right(r: Resolution) -> Reference:
    mask = (32 if r.result.kind is Kind.INT else 64) - 1
    return lambda v, places: v >> (places & mask)


def _same(function: Callable[..., int]) -> Callable[[Resolution], Reference]:
    return lambda _r: function


def _between(sign: str) -> Lowering:
    return lambda a, _r: f"({a[0]} {sign} {a[1]})"


_PAIRS: tuple[tuple[str, Callable[[Resolution], Reference], Lowering], ...] = (
    ("BITS_AND", _same(lambda a, b: a & b), _between("&")),
    ("BITS_OR", _same(lambda a, b: a | b), _between("|")),
    ("BITS_XOR", _same(lambda a, b: a ^ b), lambda a, _r: f"xor({a[0]}, {a[1]})"),
)  # fmt: skip
for _name, _pair, _sql in _PAIRS:
    standard(
        _name,
        takes(INT, INT, gives=INT),
        takes(BIGINT, BIGINT, gives=BIGINT),
        by_types=_pair,
        duckdb=_sql,
    )
for _name, _shift in (
    ("BITS_LEFT", _left),
    ("BITS_RIGHT", _right),
):  # fmt: skip
    standard(_name, takes(INT, INT, gives=INT), takes(BIGINT, INT, gives=BIGINT), by_types=_shift)
standard(
    NOT,
    takes(INT, gives=INT),
    takes(BIGINT, gives=BIGINT),
    by=lambda v: ~v,
    duckdb=lambda a, _r: f"(~{a[0]})",
)
