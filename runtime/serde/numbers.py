"""Numbers in records as Java reads them; shared by the text formats."""

from __future__ import annotations

from collections.abc import Callable
from decimal import Decimal
from typing import ClassVar

from flowql.compiler.functions.numeric import INT_MAX, INT_MIN
from flowql.compiler.functions.temporal import DAY_MS
from flowql.compiler.plan.types import Kind

TIMES = (Kind.DATE, Kind.TIME, Kind.TIMESTAMP, Kind.MICROS)


class TimeNumber(int):
    """A number of a record whose schema says that it is a date or time, and in which unit. A subclass for each such type."""

    kind: ClassVar[Kind]
    per_ms: ClassVar[int]  # so many of the unit are in a millisecond; 1 for days

    @classmethod
    def of(cls, kind: Kind, per_ms: int) -> type[TimeNumber]:
        return type(f"{kind.name.title()}Number", (cls,), {"kind": kind, "per_ms": per_ms})

    @classmethod
    def written(cls, kind: Kind, value: int) -> int:
        """The number that stands for a value of a column in such a field. Raises TypeError, and ValueError for parts that the field has not."""
        if not cls.counts(kind):
            raise TypeError(f"the field is a {cls.kind.value}, the column a {kind.value}")
        if kind is not Kind.MICROS:
            return value * cls.per_ms
        number, rest = divmod(value * cls.per_ms, 1000)
        if rest:
            raise ValueError("the field has milliseconds, the value parts of one")
        return number

    @classmethod
    def counts(cls, kind: Kind) -> bool:
        """Whether a column of the kind is what the number counts."""
        return cls.kind is (Kind.TIMESTAMP if kind is Kind.MICROS else kind)

    def in_unit_of(self, kind: Kind) -> int:
        """The number in the unit of a column of the kind; smaller parts are cut off, toward the past."""
        return int(self) * (1000 if kind is Kind.MICROS else 1) // self.per_ms


_CONNECT, _DEBEZIUM = "org.apache.kafka.connect.data.", "io.debezium.time."
# By the names that schemas of Kafka Connect and of Debezium give them.
NAMED_TIMES: dict[str, type[TimeNumber]] = {
    f"{_CONNECT}Date": TimeNumber.of(Kind.DATE, 1),
    f"{_CONNECT}Time": TimeNumber.of(Kind.TIME, 1),
    f"{_CONNECT}Timestamp": TimeNumber.of(Kind.TIMESTAMP, 1),
    f"{_DEBEZIUM}Date": TimeNumber.of(Kind.DATE, 1),
    f"{_DEBEZIUM}Time": TimeNumber.of(Kind.TIME, 1),
    f"{_DEBEZIUM}MicroTime": TimeNumber.of(Kind.TIME, 1_000),
    f"{_DEBEZIUM}NanoTime": TimeNumber.of(Kind.TIME, 1_000_000),
    f"{_DEBEZIUM}Timestamp": TimeNumber.of(Kind.TIMESTAMP, 1),
    f"{_DEBEZIUM}MicroTimestamp": TimeNumber.of(Kind.TIMESTAMP, 1_000),
    f"{_DEBEZIUM}NanoTimestamp": TimeNumber.of(Kind.TIMESTAMP, 1_000_000),
}


def time_number(value: object, kind: Kind) -> object:
    """The value that a column of DATE, TIME, TIMESTAMP or TIMESTAMP(6) reads from a number: itself, or in days, milliseconds or microseconds if its
    unit is known. Smaller parts are cut off, toward the past. Raises TypeError if it counts something else.
    """
    if not isinstance(value, TimeNumber):
        return value
    if not value.counts(kind):
        raise TypeError(f"its schema says that it is a {value.kind.value}")
    return value.in_unit_of(kind)


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


def moment_in_micros(number: Callable[[str], int]) -> Callable[[str], int]:
    """A TIMESTAMP(6) as `number` reads it."""
    return _counted(number, "TIMESTAMP(6)", "of microseconds since 1970")


def _counted(number: Callable[[str], int], kind: str, what: str) -> Callable[[str], int]:
    """`number`, which says of a text such as '2026-01-02' what records hold in its place. Raises ValueError."""

    def convert(value: str) -> int:
        try:
            return number(value)
        except ValueError:
            if type(value) is not str or value[1:].isdigit():
                raise
            told = f"which is a number {what} in records; strings are read by CAST from a STRING column"
            raise ValueError(f"{value[:40]!r} is not a valid {kind}, {told}") from None

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
