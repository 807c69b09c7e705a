"""Functions of standard SQL that make intervals, bring them into other units, and count time in steps of one."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

from flowql.compiler.functions.registry import standard, takes
from flowql.compiler.functions.signatures import FunctionTypeError, Overload, Resolution
from flowql.compiler.functions.sql_calendar import by_unit, checked_micros, checked_timestamp, civil, month_days
from flowql.compiler.functions.sql_intervals import DAY_MICROS, MONTH_DAYS, Interval, interval, whole_ms
from flowql.compiler.functions.sql_time_arithmetic import earlier, earlier_micros, later, later_micros
from flowql.compiler.plan.types import (
    BOOLEAN,
    DATE,
    DOUBLE,
    INT,
    INTERVAL,
    MICROS,
    MICROSTZ,
    TIMESTAMP,
    TIMESTAMPTZ,
    Kind,
    SqlType,
)


def _of_moments(*params: SqlType, gives: SqlType | None = None) -> tuple[Overload, ...]:
    """For timestamps and for moments, in ms and in us; `TIMESTAMP` in the place of either. gives: another result than what is taken."""
    moments = (TIMESTAMP, TIMESTAMPTZ, MICROS, MICROSTZ)
    return tuple(takes(*(t if p == TIMESTAMP else p for p in params), gives=gives or t) for t in moments)


# --- steps ---


def binned(stride: Interval, ms: int, origin: int) -> int:
    """The beginning of the step that a moment is in. Raises ValueError for steps of months, or none."""
    return checked_timestamp(origin + _whole_steps(ms - origin, stride, whole_ms(_micros(stride))))


def binned_micros(stride: Interval, us: int, origin: int) -> int:
    """As `binned`, of microseconds. Raises ValueError."""
    return checked_micros(origin + _whole_steps(us - origin, stride, _micros(stride)))


def _micros(stride: Interval) -> int:
    return stride[1] * DAY_MICROS + stride[2]


def _whole_steps(since: int, stride: Interval, step: int) -> int:
    if stride[0]:
        raise ValueError("timestamps cannot be binned into intervals containing months or years")
    if step <= 0:
        raise ValueError("stride must be greater than zero")
    return since // step * step


standard(
    "DATE_BIN",
    *_of_moments(INTERVAL, TIMESTAMP, TIMESTAMP),
    by_types=by_unit(binned, binned_micros),
)
for _name, _moved, _exact in (
    ("DATE_ADD", later, later_micros),
    ("DATE_SUBTRACT", earlier, earlier_micros),
):
    standard(
        _name,
        takes(TIMESTAMPTZ, INTERVAL, gives=TIMESTAMPTZ),
        takes(MICROSTZ, INTERVAL, gives=MICROSTZ),
        by_types=by_unit(_moved, _exact),
    )


# --- ages ---


def _fields(us: int) -> tuple[int, int, int, int]:
    """(year, month, day, microseconds of the day)."""
    day, rest = divmod(us, DAY_MICROS)
    return (*civil(day), rest)


def age(end: int, start: int) -> Interval:
    """Years, months, days and time between two moments as people count them: a month is a month, however many days it has."""
    return age_micros(end * 1000, start * 1000)


def age_micros(end: int, start: int) -> Interval:
    """As `age`, of microseconds."""
    if end < start:
        months, days, micros = _between(_fields(start), _fields(end))
        return interval(-months, -days, -micros)
    return _between(_fields(end), _fields(start))


def _between(late: tuple[int, int, int, int], early: tuple[int, int, int, int]) -> Interval:
    """The difference of the fields, from the least on: one below zero borrows of the next. Days of a month that is borrowed are
    those of the earlier moment, as PostgreSQL counts (timestamp_age).
    """
    year, month, day, us = (a - b for a, b in zip(late, early, strict=True))
    if us < 0:
        us, day = us + DAY_MICROS, day - 1
    while day < 0:
        day, month = day + month_days(early[0], early[1]), month - 1
    return interval(year * 12 + month, day, us)


standard(
    "AGE",
    *_of_moments(TIMESTAMP, TIMESTAMP, gives=INTERVAL),
    by_types=by_unit(age, age_micros),
)


# --- units ---


def _carried(high: int, low: int, unit: int) -> tuple[int, int]:
    """With the whole units of `low`, towards zero, in `high`."""
    whole = abs(low) // unit * (1 if low >= 0 else -1)
    return high + whole, low - whole * unit


def _with_one_sign(high: int, low: int, unit: int) -> tuple[int, int]:
    """One unit moves where the parts differ in sign. low: less than a unit."""
    if high > 0 > low:
        return high - 1, low + unit
    if high < 0 < low:
        return high + 1, low - unit
    return high, low


def justified_hours(a: Interval) -> Interval:
    """24 hours as a day; days and time with one sign."""
    months, days, micros = a
    return interval(months, *_with_one_sign(*_carried(days, micros, DAY_MICROS), DAY_MICROS))


def justified_days(a: Interval) -> Interval:
    """30 days as a month; months and days with one sign."""
    months, days, micros = a
    return interval(*_with_one_sign(*_carried(months, days, MONTH_DAYS), MONTH_DAYS), micros)


def justified(a: Interval) -> Interval:
    """Both, and all three with one sign."""
    months, days, micros = a
    if (days > 0 and micros > 0) or (days < 0 and micros < 0):
        months, days = _carried(months, days, MONTH_DAYS)
    days, micros = _carried(days, micros, DAY_MICROS)
    months, days = _carried(months, days, MONTH_DAYS)
    if months > 0 and (days < 0 or (days == 0 and micros < 0)):
        months, days = months - 1, days + MONTH_DAYS
    elif months < 0 and (days > 0 or (days == 0 and micros > 0)):
        months, days = months + 1, days - MONTH_DAYS
    return interval(months, *_with_one_sign(days, micros, DAY_MICROS))


_UNITS: tuple[tuple[str, Callable[[Interval], Interval]], ...] = (
    ("JUSTIFY_HOURS", justified_hours),
    ("JUSTIFY_DAYS", justified_days),
    ("JUSTIFY_INTERVAL", justified),
)  # fmt: skip
for _name, _unit in _UNITS:
    standard(_name, takes(INTERVAL, gives=INTERVAL), by=_unit)


def _made(
    years: int = 0, months: int = 0, weeks: int = 0, days: int = 0, hours: int = 0, mins: int = 0, secs: float = 0.0
) -> Interval:
    if not math.isfinite(secs):
        raise ValueError("interval out of range")
    return interval(years * 12 + months, weeks * 7 + days, (hours * 60 + mins) * 60_000_000 + round(secs * 1_000_000))


def _make_types(types: tuple[SqlType, ...]) -> Resolution:
    if len(types) > 7 or any(not (t.is_numeric or t.kind is Kind.NULL) for t in types):
        raise FunctionTypeError(
            "MAKE_INTERVAL takes up to seven numbers: years, months, weeks, days, hours, minutes, seconds"
        )
    return Resolution((INT,) * min(len(types), 6) + ((DOUBLE,) if len(types) == 7 else ()), INTERVAL)


standard("MAKE_INTERVAL", resolve=_make_types, by=_made)


def _always(_v: Any) -> bool:
    return True


standard(
    "ISFINITE",
    takes(DATE, gives=BOOLEAN),
    *_of_moments(TIMESTAMP, gives=BOOLEAN),
    takes(INTERVAL, gives=BOOLEAN),
    by=_always,
)
