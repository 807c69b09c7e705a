"""Messages that stand for one value: wrappers, times, dates and decimals."""

from __future__ import annotations

import datetime
from collections.abc import Callable
from decimal import Decimal
from typing import Any

from flowql.compiler.functions.numeric import WIDE
from flowql.compiler.plan.types import Kind, SqlType
from flowql.runtime.serde.generic import Unreadable
from flowql.runtime.serde.numbers import TimeNumber

_EPOCH = datetime.date(1970, 1, 1).toordinal()
_WRAPPERS = ("Bool", "String", "Bytes", "Float", "Double", "Int32", "UInt32", "Int64", "UInt64")
_WRAPPER_NAMES = frozenset(f"google.protobuf.{n}Value" for n in _WRAPPERS)


def read_well_known(name: str) -> Callable[[Any], Any] | None:
    """From a message of that full name to a plain value; None for messages that are records."""
    return _read_value if name in _WRAPPER_NAMES else _READERS.get(name)


def write_well_known(name: str, t: SqlType) -> Callable[[Any, Any], None] | None:
    """Fills a message of that full name from a reference value of `t`; None for messages that are records."""
    if name == "confluent.type.Decimal":
        return lambda m, v: _write_decimal(m, v, t)
    if name == "google.protobuf.Timestamp" and t.kind is Kind.MICROS:
        return _write_micros
    return _write_value if name in _WRAPPER_NAMES else _WRITERS.get(name)


def _read_value(m: Any) -> Any:
    return m.value


def _write_value(m: Any, v: Any) -> None:
    m.value = v


class _Moment(TimeNumber):
    """A moment: its number is that of milliseconds, and TIMESTAMP(6) takes the microseconds as well."""

    kind = Kind.TIMESTAMP
    per_ms = 1
    micros = 0

    def in_unit_of(self, kind: Kind) -> int:
        return self.micros if kind is Kind.MICROS else int(self)


def _read_timestamp(m: Any) -> int:
    moment = _Moment(m.seconds * 1000 + m.nanos // 1_000_000)
    moment.micros = m.seconds * 1_000_000 + m.nanos // 1000
    return moment


def _write_timestamp(m: Any, v: int) -> None:
    m.seconds, m.nanos = v // 1000, v % 1000 * 1_000_000


def _write_micros(m: Any, v: int) -> None:
    m.seconds, m.nanos = v // 1_000_000, v % 1_000_000 * 1000


def _read_date(m: Any) -> int | Unreadable:
    try:
        return datetime.date(m.year, m.month, m.day).toordinal() - _EPOCH
    except ValueError as error:  # such as a year or a month alone, whose other parts are 0
        return Unreadable(f"{m.year:04}-{m.month:02}-{m.day:02}", str(error))


def _write_date(m: Any, v: int) -> None:
    day = datetime.date.fromordinal(v + _EPOCH)
    m.year, m.month, m.day = day.year, day.month, day.day


def _read_time(m: Any) -> int:
    ms: int = ((m.hours * 60 + m.minutes) * 60 + m.seconds) * 1000 + m.nanos // 1_000_000
    return ms


def _write_time(m: Any, v: int) -> None:
    seconds, ms = divmod(v, 1000)
    m.hours, m.minutes, m.seconds, m.nanos = seconds // 3600, seconds // 60 % 60, seconds % 60, ms * 1_000_000


def _read_decimal(m: Any) -> Decimal | Unreadable:
    try:
        return Decimal(int.from_bytes(m.value, "big", signed=True)).scaleb(-m.scale, WIDE)
    except ArithmeticError:
        return Unreadable(f"a decimal of scale {m.scale}", "out of range")


def _write_decimal(m: Any, v: Decimal, t: SqlType) -> None:
    unscaled = int(v.scaleb(t.scale, WIDE))
    m.value = unscaled.to_bytes(unscaled.bit_length() // 8 + 1, "big", signed=True)
    m.precision, m.scale = t.precision, t.scale


_READERS: dict[str, Callable[[Any], Any]] = {
    "google.protobuf.Timestamp": _read_timestamp,
    "google.type.Date": _read_date,
    "google.type.TimeOfDay": _read_time,
    "confluent.type.Decimal": _read_decimal,
}
_WRITERS: dict[str, Callable[[Any, Any], None]] = {
    "google.protobuf.Timestamp": _write_timestamp,
    "google.type.Date": _write_date,
    "google.type.TimeOfDay": _write_time,
}
