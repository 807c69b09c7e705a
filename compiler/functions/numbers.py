"""Functions of numbers."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from decimal import ROUND_CEILING, ROUND_DOWN, ROUND_FLOOR, ROUND_HALF_UP, Context, Decimal
from random import random
from typing import Any

from flowql.compiler.functions.numeric import WIDE, fit_decimal, wrap32, wrap64
from flowql.compiler.functions.registry import Lowering, Reference, named, scalar, takes, text
from flowql.compiler.functions.signatures import DEC, Resolution
from flowql.compiler.functions.spark_casts import clamped
from flowql.compiler.functions.spark_text import kept_least
from flowql.compiler.plan.types import BIGINT, DOUBLE, INT, STRING, Kind, SqlType, decimal

_PI_ON_SPARK = f"CAST('{math.pi!r}' AS DOUBLE)"
_SAME = (takes(INT, gives=INT), takes(BIGINT, gives=BIGINT), takes(DEC, gives=DEC), takes(DOUBLE, gives=DOUBLE))


def _ieee(f: Callable[..., float]) -> Callable[..., float]:
    """Python raises where IEEE gives NaN or an infinity; a domain error is NaN as in java.lang.Math."""

    def run(*args: float) -> float:
        if any(a != a for a in args):
            return math.nan
        try:
            return f(*args)
        except ValueError:
            return math.nan
        except OverflowError:
            return math.inf

    return run


def _ln(x: float) -> float:
    return -math.inf if x == 0 else math.log(x)


def _power(x: float, y: float) -> float:
    if y == 0:
        return 1.0
    if x != x or y != y or (abs(x) == 1.0 and math.isinf(y)):
        return math.nan
    odd = y == math.floor(y) and math.fmod(y, 2) != 0 if math.isfinite(y) else False
    try:
        return math.pow(x, y)
    except OverflowError:
        return -math.inf if x < 0 and odd else math.inf
    except ValueError:
        if x == 0:
            return math.copysign(math.inf, x) if odd else math.inf
        return math.nan


def _sinh(x: float) -> float:
    try:
        return math.sinh(x)
    except OverflowError:
        return math.copysign(math.inf, x)


def _log(base_or_x: float, x: float | None = None) -> float:
    """LOG(x) is natural, LOG(base, x) to a base."""
    if x is None:
        return _ieee(_ln)(base_or_x)
    if base_or_x <= 0 or base_or_x == 1 or x < 0 or x != x:
        return math.nan
    return -math.inf if x == 0 else math.log(x) / math.log(base_or_x)


def _absolute(r: Resolution) -> Reference:
    wraps: dict[Kind, Callable[[int], int]] = {Kind.INT: wrap32, Kind.BIGINT: wrap64}
    wrap = wraps.get(r.result.kind)
    if r.result.kind is Kind.DECIMAL:
        return Decimal.copy_abs  # `abs` would round to 28 digits
    return (lambda v: wrap(abs(v))) if wrap else abs


def java_round(v: float) -> int:
    """Math.round: half up (towards +infinity), clamped to 64 bits, NaN is 0."""
    if v != v:
        return 0
    if abs(v) >= 2.0**63:
        return 2**63 - 1 if v > 0 else -(2**63)
    low = math.floor(v)
    return low + 1 if v - low >= 0.5 else low


def _round_double(v: float, digits: int, mode: str = ROUND_HALF_UP) -> float:
    """To decimal digits of the shortest text of the double; halves go towards positive infinity."""
    if not math.isfinite(v):
        return v
    exact = Decimal(repr(v))
    if -exact.as_tuple().exponent <= digits:  # type: ignore[operator]  # the exponent of a finite number
        return v
    rounding = _towards_positive(exact, mode)
    return float(exact.quantize(Decimal(1).scaleb(-digits), rounding=rounding, context=ROUNDING)) + 0.0  # not -0.0


_WHOLE = decimal(38, 0)
# 1e308 to a whole number has 309 digits.
ROUNDING = Context(prec=400)


def _round_decimal(v: Decimal, digits: int, t: SqlType, mode: str = ROUND_HALF_UP) -> Decimal:
    """Rounded to digits but shown at the scale of the argument, as ksqlDB does. Raises NumericOverflow for one digit too many."""
    rounded = v.quantize(Decimal(1).scaleb(-digits), rounding=_towards_positive(v, mode), context=WIDE)
    return fit_decimal(rounded, t.precision, t.scale)


def _towards_positive(v: Decimal, mode: str) -> str:
    return "ROUND_HALF_DOWN" if mode == ROUND_HALF_UP and v < 0 else mode


def _rounding(mode: str, whole: Callable[[float], int]) -> Callable[[Resolution], Reference]:
    def reference(r: Resolution) -> Reference:
        kind = r.args[0].kind
        if len(r.args) == 1:
            if kind is Kind.DOUBLE:
                return whole
            if kind is Kind.DECIMAL:
                return lambda v: _round_decimal(v, 0, r.result, mode)
            return lambda v: v
        if kind is Kind.DOUBLE:
            return lambda v, n: _round_double(v, n, mode)
        if kind is Kind.DECIMAL:
            return lambda v, n: _round_decimal(v, n, r.result, mode)
        wrap = wrap32 if kind is Kind.INT else wrap64
        return lambda v, n: v if n >= 0 else wrap(int(_round_decimal(Decimal(v), n, _WHOLE, mode)))

    return reference


def _whole_decimal(args: tuple[SqlType, ...]) -> SqlType:
    d = args[0]
    return decimal(max(1, min(38, d.precision - d.scale + 1)), 0)


def _truncated(v: float) -> int:
    if v != v:
        return 0
    return max(-(2**63), min(2**63 - 1, int(v) if math.isfinite(v) else (2**63 if v > 0 else -(2**63))))


def _absolute_on_spark(args: Sequence[str], r: Resolution) -> str:
    v, kind = args[0], r.result.kind
    return kept_least(v, f"abs({v})", kind) if kind in (Kind.INT, Kind.BIGINT) else f"abs({v})"


def _round_on_spark(args: Sequence[str], r: Resolution) -> str:
    """To a whole number; halves go towards positive infinity."""
    v, kind = args[0], r.args[0].kind
    if len(args) > 1:
        return ""
    if kind is Kind.DOUBLE:
        up = f"CASE WHEN {v} - CAST(floor({v}) AS DOUBLE) >= 0.5D THEN 1L ELSE 0L END"
        return f"(CASE WHEN abs({v}) < 4503599627370496D THEN floor({v}) + {up} ELSE {clamped(v, BIGINT)} END)"
    if kind is Kind.DECIMAL:
        return f"floor({v} + 0.5)" if r.args[0].precision < 38 and r.args[0].scale > 0 else ""
    return v


def _truncated_on_spark(args: Sequence[str], r: Resolution) -> str:
    kind = r.args[0].kind
    if len(args) > 1 or kind is Kind.DECIMAL:
        return ""
    return clamped(args[0], BIGINT) if kind is Kind.DOUBLE else args[0]


_ROUNDED = (
    takes(INT, gives=INT),
    takes(BIGINT, gives=BIGINT),
    takes(DOUBLE, gives=BIGINT),
    takes(DEC, gives=_whole_decimal),
    takes(INT, INT, gives=INT),
    takes(BIGINT, INT, gives=BIGINT),
    takes(DOUBLE, INT, gives=DOUBLE),
    takes(DEC, INT, gives=lambda a: a[0]),
)
scalar(
    "ROUND",
    *_ROUNDED,
    by_types=_rounding(ROUND_HALF_UP, java_round),
    duckdb=lambda a, r: a[0] if len(a) == 1 and r.args[0].kind in (Kind.INT, Kind.BIGINT) else "",
    spark=_round_on_spark,
)
scalar("TRUNC", *_ROUNDED, by_types=_rounding(ROUND_DOWN, _truncated), spark=_truncated_on_spark)
scalar(
    "ABS",
    *_SAME,
    by_types=_absolute,
    duckdb=lambda a, r: f"TRY(abs({a[0]}))" if r.args[0].kind is not Kind.DECIMAL else f"abs({a[0]})",
    declines=lambda a, r: (
        f"(TRY(abs({a[0]})) IS NULL AND {a[0]} IS NOT NULL)" if r.args[0].kind in (Kind.INT, Kind.BIGINT) else ""
    ),
    spark=_absolute_on_spark,
)


def _step(f: Callable[[float], int], mode: str) -> Callable[[Resolution], Reference]:
    def whole(v: float) -> float:
        return math.copysign(float(f(v)), v) if math.isfinite(v) else v

    kinds: dict[Kind, Callable[[Any], Any]] = {
        Kind.DOUBLE: whole,
        Kind.DECIMAL: lambda v: v.quantize(Decimal(1), rounding=mode, context=WIDE),
    }
    return lambda r: _at_scale(kinds[r.args[0].kind], r) if r.args[0].kind in kinds else (lambda v: v)


def _at_scale(f: Callable[[Any], Any], r: Resolution) -> Reference:
    precision, scale = r.result.precision, r.result.scale
    return (lambda v: fit_decimal(f(v), precision, scale)) if r.result.kind is Kind.DECIMAL else f


def _floor_on_spark(v: str) -> str:
    """On Spark: floor of a double as a double; `rint` keeps infinities, NaN and the sign of zero."""
    return f"(CASE WHEN rint({v}) > {v} THEN rint({v}) - 1D ELSE rint({v}) END)"


def _step_sql(double: Callable[[str], str]) -> Lowering:
    """Whole numbers are their own floor; decimals keep their scale, which DuckDB drops."""

    def lowering(args: Sequence[str], r: Resolution) -> str:
        if r.result.kind is Kind.DOUBLE:
            return double(args[0])
        return "" if r.result.kind is Kind.DECIMAL else args[0]

    return lowering


def _ceil_on_spark(v: str) -> str:
    return f"(-{_floor_on_spark(f'(-{v})')})"


for _name, _f, _mode, _on_spark, _aliases in (
    ("FLOOR", math.floor, ROUND_FLOOR, _floor_on_spark, ()),
    ("CEIL", math.ceil, ROUND_CEILING, _ceil_on_spark, ("CEILING",)),
):
    scalar(
        _name,
        *_SAME,
        by_types=_step(_f, _mode),
        aliases=_aliases,
        duckdb=_step_sql(f"{_name.lower()}({{}})".format),
        spark=_step_sql(_on_spark),
    )
scalar(
    "SIGN",
    takes(INT, gives=INT),
    takes(BIGINT, gives=INT),
    takes(DOUBLE, gives=INT),
    by=lambda v: (v > 0) - (v < 0),
    duckdb=text(lambda a: f"CAST(sign({a}) AS INTEGER)"),
    spark=text(lambda a: f"(CASE WHEN isnan(CAST({a} AS DOUBLE)) THEN 0 ELSE CAST(signum({a}) AS INT) END)"),
)


def _on_double(name: str, f: Callable[..., float], **more: Any) -> None:
    scalar(name, takes(DOUBLE, gives=DOUBLE), by=f, **more)


_on_double("SQRT", _ieee(math.sqrt), duckdb=named("sqrt"), spark=named("sqrt"))
# The other functions of analysis have no lowering: C libraries differ in the last digit.
_on_double("EXP", _ieee(math.exp))
_on_double("LN", _ieee(_ln))
_on_double("CBRT", lambda v: math.cbrt(v))
_on_double("ACOS", _ieee(math.acos))
_on_double("ASIN", _ieee(math.asin))
_on_double("ATAN", _ieee(math.atan))
_on_double("COS", _ieee(math.cos))
_on_double("SIN", _ieee(math.sin))
_on_double("TAN", _ieee(math.tan))
_on_double("COT", _ieee(lambda x: math.inf if x == 0 else 1.0 / math.tan(x)))
_on_double("COSH", _ieee(math.cosh))
_on_double("SINH", _sinh)
_on_double("TANH", _ieee(math.tanh))
# Spark's own RADIANS and DEGREES multiply by a rounded quotient: the last digit would differ.
_on_double(
    "RADIANS",
    lambda v: v / 180.0 * math.pi,
    spark=text(lambda a: f"({a} / 180D * {_PI_ON_SPARK})"),
)
_on_double(
    "DEGREES",
    lambda v: v * 180.0 / math.pi,
    spark=text(lambda a: f"({a} * 180D / {_PI_ON_SPARK})"),
)
scalar("ATAN2", takes(DOUBLE, DOUBLE, gives=DOUBLE), by=math.atan2)
scalar("PI", takes(gives=DOUBLE), by=lambda: math.pi, spark=lambda _a, _r: _PI_ON_SPARK)
scalar("LOG", takes(DOUBLE, DOUBLE, gives=DOUBLE, needs=1), by=_log)
scalar("POWER", takes(DOUBLE, DOUBLE, gives=DOUBLE), by=_power, aliases=("POW",))
scalar("RANDOM", takes(gives=DOUBLE), by=random, deterministic=False)
_EARTH_RADIUS = {"km": 6371.0, "mi": 3959.0}


def geo_distance(lat1: float, lon1: float, lat2: float, lon2: float, unit: str = "KM") -> float:
    """Great-circle (haversine) distance in km or miles (6371 km, 3959 mi)."""
    if not (abs(lat1) <= 90 and abs(lat2) <= 90 and abs(lon1) <= 180 and abs(lon2) <= 180):
        raise ValueError("latitudes must be within -90 to 90 and longitudes within -180 to 180")
    word = unit.lower()
    radius = _EARTH_RADIUS["mi" if word.startswith("mi") else "km"]
    if not word.startswith(("mi", "km", "kilometer")):
        raise ValueError(f"the unit must be KM or MI, not {unit!r}")
    d_lat, d_lon = math.radians(lat2 - lat1), math.radians(lon2 - lon1)
    a = math.sin(d_lat / 2) ** 2 + math.sin(d_lon / 2) ** 2 * math.cos(math.radians(lat1)) * math.cos(
        math.radians(lat2)
    )
    return radius * 2 * math.asin(math.sqrt(a))


def _geo_overloads() -> Any:

    four = (DOUBLE, DOUBLE, DOUBLE, DOUBLE)
    return takes(*four, gives=DOUBLE), takes(*four, STRING, gives=DOUBLE)


scalar("GEO_DISTANCE", *_geo_overloads(), by=geo_distance)
