"""Intervals of standard SQL inside an expression: months, days and microseconds, which do not add up to one number.

The reference value is a tuple of the three. No column has this type: what an expression gives is a moment, a number or a text. DuckDB's
INTERVAL holds the same three numbers.
"""

from __future__ import annotations

import math
import re
from decimal import Decimal
from fractions import Fraction

from flowql.compiler.functions.interval_texts import read_interval
from flowql.compiler.functions.numeric import BIGINT_MAX, INT_MAX, INT_MIN, NumericOverflow
from flowql.compiler.functions.registry import define
from flowql.compiler.functions.signatures import FunctionTypeError, Resolution
from flowql.compiler.plan.types import BIGINT, INT, INTERVAL, SPAN, Kind, SqlType

Interval = tuple[int, int, int]
DAY_MICROS = 86_400_000_000
_WRITTEN = re.compile(r"([+-]?\d+) (year|mon|day)s?|([+-]?)(\d+):(\d\d):(\d\d(?:\.\d+)?)", re.ASCII)
MONTH_DAYS = 30  # where intervals are compared, multiplied and divided


def interval(months: int, days: int, micros: int) -> Interval:
    """Raises NumericOverflow."""
    if not (INT_MIN <= months <= INT_MAX and INT_MIN <= days <= INT_MAX and -BIGINT_MAX <= micros <= BIGINT_MAX):
        raise NumericOverflow("interval out of range")
    return months, days, micros


def whole_ms(micros: int) -> int:
    """The milliseconds to move a moment by. Raises NumericOverflow for a part of one, which moments do not have."""
    if micros % 1000:
        raise NumericOverflow("a moment moved by a part of a millisecond: CAST it to TIMESTAMP(6) first")
    return micros // 1000


def plus(a: Interval, b: Interval) -> Interval:
    return interval(a[0] + b[0], a[1] + b[1], a[2] + b[2])


def minus(a: Interval, b: Interval) -> Interval:
    return interval(a[0] - b[0], a[1] - b[1], a[2] - b[2])


def negated(a: Interval) -> Interval:
    return interval(-a[0], -a[1], -a[2])


def between(micros: int) -> Interval:
    """The time between two timestamps: whole days, and the rest with the same sign."""
    days = abs(micros) // DAY_MICROS * (1 if micros > 0 else -1)
    return interval(0, days, micros - days * DAY_MICROS)


def scaled(a: Interval, factor: int | float | Decimal) -> Interval:
    """Parts of months become days of which a month has 30, parts of days become time."""
    if isinstance(factor, float) and not math.isfinite(factor):
        raise NumericOverflow("interval out of range")
    return interval(*_parts_by(a, Fraction(factor)))


def divided(a: Interval, divisor: int | float | Decimal) -> Interval:
    if divisor == 0:
        raise ZeroDivisionError("division by zero")
    if isinstance(divisor, float) and not math.isfinite(divisor):
        raise NumericOverflow("interval out of range")
    return interval(*_parts_by(a, 1 / Fraction(divisor)))


def average(total: Interval, count: int) -> Interval:
    """The sum by the number of intervals."""
    return _parts_by(total, Fraction(1, count))


def _parts_by(a: Interval, factor: Fraction) -> Interval:
    """Parts of a month are rounded as days, and parts of a day as seconds, to the sixth digit, as PostgreSQL does (interval_mul)."""
    months, days = a[0] * factor, a[1] * factor
    of_month = round((months - math.trunc(months)) * MONTH_DAYS, 6)
    whole = math.trunc(of_month)
    of_day = round((days - math.trunc(days) + of_month - whole) * (DAY_MICROS // 1_000_000), 6)
    carried = math.trunc(of_day * 1_000_000 / DAY_MICROS)  # two parts of days that make a whole one
    micros = a[2] * factor + of_day * 1_000_000 - carried * DAY_MICROS
    return math.trunc(months), math.trunc(days) + whole + carried, round(micros)


def total_micros(a: Interval) -> int:
    """The value by which intervals are ordered: a month as 30 days, a day as 24 hours."""
    return (a[0] * MONTH_DAYS + a[1]) * DAY_MICROS + a[2]


def interval_text(a: Interval) -> str:
    """As PostgreSQL writes it: `1 year 2 mons 3 days 04:05:06.789`.

    >>> interval_text((14, 3, 14706789000)), interval_text((0, 0, 0)), interval_text((-1, 2, -3000000))
    ('1 year 2 mons 3 days 04:05:06.789', '00:00:00', '-1 mons +2 days -00:00:03')
    """
    months, days, micros = a
    years = math.trunc(months / 12)
    parts: list[str] = []
    before = False  # whether a negative part stands before: then positive ones get a sign
    for n, unit in ((years, "year"), (months - years * 12, "mon"), (days, "day")):
        if n:
            parts.append(f"{'+' if before and n > 0 else ''}{n} {unit}{'' if n == 1 else 's'}")
            before = n < 0
    if micros or not parts:
        seconds, fraction = divmod(abs(micros), 1_000_000)
        sign = "-" if micros < 0 else "+" if before else ""
        text = f"{sign}{seconds // 3600:02d}:{seconds // 60 % 60:02d}:{seconds % 60:02d}"
        parts.append(f"{text}.{fraction:06d}".rstrip("0") if fraction else text)
    return " ".join(parts)


def interval_sql(months: str, days: str, micros: str) -> str:
    """DuckDB's INTERVAL of three numbers."""
    return f"(to_months({months}) + to_days({days}) + to_microseconds({micros}))"


def interval_of(text: str) -> Interval:
    """The interval of a text that `interval_text` has written.

    >>> interval_of("-1 years -2 mons +3 days -00:00:03.5"), interval_of("01:00:00")
    ((-14, 3, -3500000), (0, 0, 3600000000))
    """
    months = days = micros = 0
    for number, unit, sign, hours, minutes, seconds in _WRITTEN.findall(text):
        if unit == "day":
            days = int(number)
        elif unit:
            months += int(number) * (12 if unit == "year" else 1)
        else:
            whole = (int(hours) * 60 + int(minutes)) * 60_000_000 + int(Decimal(seconds) * 1_000_000)
            micros = -whole if sign == "-" else whole
    return months, days, micros


def read(text: str) -> Interval:
    """The interval of any text that PostgreSQL reads. Raises ValueError."""
    found = read_interval(text)
    if found is None:
        raise ValueError(f'invalid input syntax for type interval: "{text}"')
    return interval(found.months, found.days, found.micros)


def _of_numbers(types: tuple[SqlType, ...]) -> Resolution:
    if len(types) != 3 or any(t.kind not in (Kind.INT, Kind.BIGINT, Kind.NULL) for t in types):
        raise FunctionTypeError("an interval is made of months, days and microseconds")
    return Resolution((INT, INT, BIGINT), INTERVAL)


define("sql_interval", _of_numbers, lambda _r: interval, duckdb=lambda a, _r: interval_sql(*a))


def _one_interval(types: tuple[SqlType, ...]) -> Resolution:
    if len(types) != 1 or types[0].kind not in (Kind.INTERVAL, Kind.NULL):
        raise FunctionTypeError(f"an INTERVAL is needed, not ({', '.join(map(str, types))})")
    return Resolution((INTERVAL,), BIGINT)


define(
    "sql_interval_micros",
    _one_interval,
    lambda _r: total_micros,
    duckdb=lambda a, _r: (
        f"TRY(((date_part('year', {a[0]}) * 12 + date_part('month', {a[0]})) * {MONTH_DAYS} + date_part('day', {a[0]})) * {DAY_MICROS}"
        f" + date_part('hour', {a[0]}) * 3600000000 + date_part('minute', {a[0]}) * 60000000 + date_part('microsecond', {a[0]}))"
    ),
    declines=lambda a, _r: f"(abs(date_part('year', {a[0]})) > 9000)",
)


def _kept(types: tuple[SqlType, ...]) -> Resolution:
    if len(types) != 1 or types[0].kind not in (Kind.INTERVAL, Kind.NULL):
        raise FunctionTypeError(f"an INTERVAL is needed, not ({', '.join(map(str, types))})")
    return Resolution((INTERVAL,), SPAN)


def _taken(types: tuple[SqlType, ...]) -> Resolution:
    if len(types) != 1 or types[0].kind not in (Kind.STRING, Kind.NULL):
        raise FunctionTypeError(f"a column of type INTERVAL is needed, not ({', '.join(map(str, types))})")
    return Resolution((SPAN,), INTERVAL)


define("sql_interval_kept", _kept, lambda _r: interval_text)
define("sql_interval_taken", _taken, lambda _r: interval_of)


def _of_text(types: tuple[SqlType, ...]) -> Resolution:
    if len(types) != 1 or types[0].kind is not Kind.STRING:
        raise FunctionTypeError(f"expected a string, not ({', '.join(map(str, types))})")
    return Resolution(types, INTERVAL)


define("sql_to_interval", _of_text, lambda _r: read)


for _place, _name in ((0, "months"), (1, "days"), (2, "rest")):
    define(
        f"sql_interval_{_name}",
        _one_interval,
        lambda _r, place=_place: lambda a: a[place],  # type: ignore[misc]
    )
define(
    "sql_interval_total",
    _of_numbers,
    lambda _r: lambda months, days, micros: (months, days, micros),
)


def _of_sum(types: tuple[SqlType, ...]) -> Resolution:
    if (
        len(types) != 2
        or types[0].kind not in (Kind.INTERVAL, Kind.NULL)
        or types[1].kind not in (Kind.INT, Kind.BIGINT)
    ):
        raise FunctionTypeError("an average is of a sum of intervals and their number")
    return Resolution((INTERVAL, BIGINT), INTERVAL)


define("sql_interval_average", _of_sum, lambda _r: average)
