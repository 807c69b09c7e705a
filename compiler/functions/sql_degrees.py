"""Trigonometry of standard SQL in degrees, exact where the result is (`sind(30)` is 0.5), and error functions and areas of hyperbolas.

The reduction to the first quadrant, and the scaling by the computed values at 30, 45 and 60 degrees, are those of PostgreSQL (float.c).
"""

from __future__ import annotations

import math
from collections.abc import Callable

from flowql.compiler.functions.registry import standard, takes
from flowql.compiler.functions.sql_arithmetic import out_of_range
from flowql.compiler.plan.types import DOUBLE

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


def _quotient(x: float, over: Callable[[float], float], under: Callable[[float], float], unit: float) -> float:
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
    ("TAND", lambda x: _quotient(x, _sin_of_quadrant, _cos_of_quadrant, _TAN_45)),
    ("COTD", lambda x: _quotient(x, _cos_of_quadrant, _sin_of_quadrant, _COT_45)),
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
