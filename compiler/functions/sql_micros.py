"""TIMESTAMP(6) and TIMESTAMPTZ(6) of standard SQL: moments in microseconds since 1970, beside those in milliseconds.

Functions of moments have a meaning in milliseconds; `by_unit` and `on_ms` make that of microseconds of it.
"""

from __future__ import annotations

from collections.abc import Callable

from flowql.compiler.functions.registry import Reference, define
from flowql.compiler.functions.signatures import FunctionTypeError, Resolution
from flowql.compiler.functions.sql_calendar import checked_micros
from flowql.compiler.plan.types import INT, MICROS, MICROSTZ, TIMESTAMP, TIMESTAMPTZ, Kind, SqlType

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
