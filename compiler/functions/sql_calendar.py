"""The proleptic Gregorian calendar of standard SQL's dates and timestamps: its parts, its beginnings, and months added.

Days count from 1970-01-01, timestamps in ms, or in us as TIMESTAMP(6). Years are those of PostgreSQL: 4713 BC to 294276; there is no year 0.
"""

from __future__ import annotations

from collections.abc import Callable

from flowql.compiler.functions.numeric import NumericOverflow
from flowql.compiler.functions.registry import Reference, define
from flowql.compiler.functions.signatures import FunctionTypeError, Resolution
from flowql.compiler.functions.temporal import DAY_MS
from flowql.compiler.plan.types import INT, MICROS, MICROSTZ, TIMESTAMP, TIMESTAMPTZ, Kind, SqlType

DAY_MIN, DAY_MAX = -2_440_588, 106_751_990
MICROS_MIN, MICROS_MAX = DAY_MIN * DAY_MS * 1000, (DAY_MAX + 1) * DAY_MS * 1000 - 1  # within 64 bits
_CYCLE_DAYS = 146_097  # of 400 years
_LENGTHS = (31, 28, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31)


def civil(day: int) -> tuple[int, int, int]:
    """(year, month, day); the year before 1 is 0.

    >>> civil(0), civil(-719528), civil(19782)
    ((1970, 1, 1), (0, 1, 1), (2024, 2, 29))
    """
    cycles, rest = divmod(day + 719_468, _CYCLE_DAYS)
    of_cycle = (rest - rest // 1_460 + rest // 36_524 - rest // 146_096) // 365
    of_year = rest - (365 * of_cycle + of_cycle // 4 - of_cycle // 100)
    month = (5 * of_year + 2) // 153
    found = month + 3 if month < 10 else month - 9
    return cycles * 400 + of_cycle + (found <= 2), found, of_year - (153 * month + 2) // 5 + 1


def day_of(year: int, month: int, day: int) -> int:
    """The number of a day.

    >>> day_of(1970, 1, 1), day_of(2024, 2, 29)
    (0, 19782)
    """
    year -= month <= 2
    cycles, of_cycle = divmod(year, 400)
    of_year = (153 * (month - 3 if month > 2 else month + 9) + 2) // 5 + day - 1
    return cycles * _CYCLE_DAYS + of_cycle * 365 + of_cycle // 4 - of_cycle // 100 + of_year - 719_468


def month_days(year: int, month: int) -> int:
    """How many days a month has."""
    leap = year % 4 == 0 and (year % 100 != 0 or year % 400 == 0)
    return 29 if month == 2 and leap else _LENGTHS[month - 1]


def checked_day(day: int) -> int:
    """Raises NumericOverflow."""
    if not DAY_MIN <= day <= DAY_MAX:
        raise NumericOverflow("date out of range")
    return day


def checked_timestamp(ms: int) -> int:
    """Raises NumericOverflow."""
    if not DAY_MIN * DAY_MS <= ms < (DAY_MAX + 1) * DAY_MS:
        raise NumericOverflow("timestamp out of range")
    return ms


def checked_micros(us: int) -> int:
    """As `checked_timestamp`, of microseconds. Raises NumericOverflow."""
    if not MICROS_MIN <= us <= MICROS_MAX:
        raise NumericOverflow("timestamp out of range")
    return us


def months_later(day: int, months: int) -> int:
    """The same day of another month, or its last one. Raises NumericOverflow.

    >>> civil(months_later(day_of(2024, 1, 31), 1))
    (2024, 2, 29)
    """
    year, month, of_month = civil(day)
    years, month0 = divmod(month - 1 + months, 12)
    year += years
    if not -5_000 < year < 300_000:
        raise NumericOverflow("timestamp out of range")
    return checked_day(day_of(year, month0 + 1, min(of_month, month_days(year, month0 + 1))))


def iso_week(day: int) -> tuple[int, int]:
    """(ISO year, week): the week, from Monday, belongs to the year of its Thursday.

    >>> iso_week(day_of(2005, 1, 2)), iso_week(day_of(2012, 12, 31))
    ((2004, 53), (2013, 1))
    """
    thursday = day - (day + 3) % 7 + 3
    year = civil(thursday)[0]
    return year, (thursday - day_of(year, 1, 1)) // 7 + 1


def shown_year(year: int) -> int:
    """Without a year 0: the year before 1 is -1."""
    return year if year > 0 else year - 1


def century(year: int, years: int) -> int:
    """The number of a span of 100 or 1000 years, counted from the year 1 in both directions."""
    return (year + years - 1) // years if year > 0 else -((years - year) // years)


# --- TIMESTAMP(6) and TIMESTAMPTZ(6) of standard SQL: moments in microseconds since 1970, beside those in milliseconds ---
#
# Functions of moments have a meaning in milliseconds; `by_unit` and `on_ms` make that of microseconds of it.

DIGITS = 6  # of a second that TIMESTAMP(6) has
EPOCH_2000 = 946_684_800_000_000  # PostgreSQL counts from here: halves are rounded away from it
_MOMENTS = (Kind.TIMESTAMP, Kind.MICROS)
_FINER = {TIMESTAMP: MICROS, TIMESTAMPTZ: MICROSTZ}


def finer(t: SqlType) -> SqlType:
    """The type of microseconds of a type of milliseconds; other types are themselves."""
    return _FINER.get(t, t)


def common_moment(a: SqlType, b: SqlType) -> SqlType | None:
    """The type that dates and moments have in common where one of them is in microseconds; None for anything else."""
    kinds = {a.kind, b.kind}
    if Kind.MICROS not in kinds or not kinds <= {Kind.DATE, *_MOMENTS}:
        return None
    return MICROSTZ if a.zoned or b.zoned else MICROS


def by_unit(of_ms: Reference, of_micros: Reference) -> Callable[[Resolution], Reference]:
    """The meaning by what the first moment among the arguments counts in."""
    return lambda r: of_micros if any(t.kind is Kind.MICROS for t in r.args) else of_ms


def on_ms(move: Callable[[int], int]) -> Callable[[int], int]:
    """Applies a function of milliseconds to a time in microseconds: parts of a millisecond stay."""
    return lambda us: checked_micros(move(us // 1000) * 1000 + us % 1000)


def rounded(us: int, digits: int) -> int:
    """To so many digits of a second, halves away from the year 2000, as PostgreSQL does. Raises NumericOverflow.

    >>> rounded(946_684_800_000_500, 3), rounded(946_684_799_999_500, 3), rounded(-1, 0)
    (946684800001000, 946684799999000, 0)
    """
    if not 0 <= digits <= DIGITS:
        raise ValueError(f"a second has up to {DIGITS} digits, not {digits}")
    unit = 10 ** (DIGITS - digits)
    since = us - EPOCH_2000
    units = (abs(since) + unit // 2) // unit
    return checked_micros((units if since >= 0 else -units) * unit + EPOCH_2000)


def _rounded_types(types: tuple[SqlType, ...]) -> Resolution:
    if len(types) != 2 or types[0].kind is not Kind.MICROS or types[1].kind is not Kind.INT:
        raise FunctionTypeError(f"a TIMESTAMP(6) and a number of digits are needed, not ({', '.join(map(str, types))})")
    return Resolution((types[0], INT), types[0])


define("sql_rounded_moment", _rounded_types, lambda _r: rounded)
