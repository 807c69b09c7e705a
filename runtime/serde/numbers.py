"""Numbers in records as Java reads them; shared by the text formats."""

from __future__ import annotations

from collections.abc import Callable
from decimal import Decimal

from flowql.compiler.functions.numeric import INT_MAX, INT_MIN
from flowql.compiler.functions.temporal import DAY_MS


def java_integer(text: str, low: int, high: int) -> int:
    """`Long.parseLong`: an optional sign and digits, nothing else. Raises ValueError."""
    body = text[1:] if text[:1] in ("+", "-") else text
    if not (body.isascii() and body.isdigit()) or len(body) > 4000 or not low <= (n := int(text)) <= high:
        raise ValueError(f"{text!r} is not a whole number between {low} and {high}")
    return n


def whole(number: int | Decimal) -> int:
    """A number cut to a whole one, toward zero, exact modulo 2^64 (`BigDecimal.longValue`)."""
    if isinstance(number, int):
        return number
    exponent = number.as_tuple().exponent
    assert isinstance(exponent, int), "JSON has no infinities"
    if exponent >= 64:  # a multiple of 2^64, maybe with more digits than memory holds
        return 0
    return 0 if number.adjusted() < 0 else int(number)


def days(number: Callable[[str], int]) -> Callable[[str], int]:
    """A DATE as `number` reads it."""
    return _counted(lambda v: day_number(number(v)), "DATE", "of days since 1970")


def day_time(number: Callable[[str], int]) -> Callable[[str], int]:
    """A TIME as `number` reads it."""
    return _counted(lambda v: time_of_day(number(v)), "TIME", "of milliseconds since midnight")


def moment(number: Callable[[str], int]) -> Callable[[str], int]:
    """A TIMESTAMP as `number` reads it."""
    return _counted(number, "TIMESTAMP", "of milliseconds since 1970")


def _counted(number: Callable[[str], int], kind: str, what: str) -> Callable[[str], int]:
    """`number`, which says of a text such as '2026-01-02' what records hold in its place. Raises ValueError."""

    def convert(value: str) -> int:
        try:
            return number(value)
        except ValueError:
            if type(value) is not str or value[1:].isdigit():
                raise
            told = f"which is a number {what} in records; texts are read by CAST from a STRING column"
            raise ValueError(f"{value[:40]!r} is no {kind}, {told}") from None

    return convert


def day_number(days: int) -> int:
    """A DATE: days in 32 bits. Raises ValueError."""
    if not INT_MIN <= days <= INT_MAX:
        raise ValueError(f"day {days} is out of range")
    return days


def time_of_day(ms: int) -> int:
    """A TIME: milliseconds of a day. Raises ValueError."""
    if not 0 <= ms < DAY_MS:
        raise ValueError(f"a TIME is 0 to {DAY_MS - 1} milliseconds, not {ms}")
    return ms
