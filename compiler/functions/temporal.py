"""Dates, times and timestamps as integers, and their ISO texts."""

from __future__ import annotations

import datetime as dt
import re
from functools import cache
from zoneinfo import ZoneInfo, available_timezones

DAY_MS = 86_400_000
MONTHS = [
    *("January", "February", "March", "April", "May", "June", "July"),
    *("August", "September", "October", "November", "December"),
]
_EPOCH_ORDINAL = dt.date(1970, 1, 1).toordinal()
_UTC = dt.UTC
_ISO_TIME = re.compile(r"(\d{2}):(\d{2})(?::(\d{2})(?:\.(\d{1,9}))?)?")
# `+h`, `+hh`, `+hhmm`, `+hhmmss`, `+hh:mm` and `+hh:mm:ss`.
_OFFSET = re.compile(
    r"(?:UTC|GMT|UT)?([+-])([0-9]{2}(?=[0-9:])|[0-9]{1,2}\Z)(?:([0-9]{2})([0-9]{2})?|:([0-9]{2})(?::([0-9]{2}))?)?"
)
_OFFSET_MAX = dt.timedelta(hours=18)
_NOT_JAVAS = frozenset(("EST", "MST", "HST", "ROC", "Factory", "localtime", "posixrules"))
# Any prefix of a full timestamp, then an optional zone (ksqlDB's partial timestamps).
_PARTIAL = re.compile(
    r"(\d{4})(?:-(\d{1,2})(?:-(\d{1,2})(?:T(?:(\d{1,2})(?::(\d{1,2})(?::(\d{1,2})(?:\.(\d{1,9}))?)?)?)?)?)?)?"
    r"(Z|[+-]\d{2}:?\d{2})?",
    re.IGNORECASE,
)


def date_of(days: int) -> dt.date:
    """The calendar date of a day number. Raises OverflowError outside years 1 to 9999."""
    try:
        return dt.date.fromordinal(_EPOCH_ORDINAL + days)
    except ValueError as e:
        raise OverflowError(f"day {days} is outside the years 1 to 9999") from e


def days_of(d: dt.date) -> int:
    return d.toordinal() - _EPOCH_ORDINAL


def datetime_of(ms: int, zone: dt.tzinfo = _UTC) -> dt.datetime:
    """The local date and time of an instant in a zone."""
    days, rest = divmod(ms, DAY_MS)
    utc = dt.datetime.combine(date_of(days), dt.time(), tzinfo=_UTC) + dt.timedelta(milliseconds=rest)
    return utc if zone is _UTC else utc.astimezone(zone)


def millis_of(local: dt.datetime) -> int:
    """The instant, in ms, of an aware datetime."""
    delta = local - dt.datetime(1970, 1, 1, tzinfo=_UTC)
    return delta.days * DAY_MS + delta.seconds * 1000 + delta.microseconds // 1000


def zone_of(name: str) -> dt.tzinfo:
    """A time zone as `java.time.ZoneId.of` reads it: a region, `Z`, or an offset behind nothing, `UTC`, `GMT` or `UT`. Raises ValueError."""
    if name in ("Z", "UTC", "GMT", "UT"):
        return _UTC
    if m := _OFFSET.fullmatch(name):
        hours, minutes, seconds = (int(part or 0) for part in (m[2], m[3] or m[5], m[4] or m[6]))
        offset = dt.timedelta(hours=hours, minutes=minutes, seconds=seconds)
        if offset <= _OFFSET_MAX and minutes < 60 and seconds < 60:
            return dt.timezone(-offset if m[1] == "-" else offset)
    elif name in _regions():
        return ZoneInfo(name)
    raise ValueError(
        f"unknown time zone {name[:60]!r}: give a region such as Europe/Berlin or an offset such as +02:00"
    )


@cache
def _regions() -> frozenset[str]:
    """Those of the time zone database that Java has."""
    return frozenset(available_timezones() - _NOT_JAVAS)


def date_text(days: int) -> str:
    return date_of(days).isoformat()


def time_text(ms: int) -> str:
    """`LocalTime.toString`: seconds and milliseconds only when they are there."""
    seconds, milli = divmod(ms, 1000)
    text = f"{seconds // 3600:02d}:{seconds // 60 % 60:02d}"
    if seconds % 60 or milli:
        text += f":{seconds % 60:02d}"
    return f"{text}.{milli:03d}" if milli else text


def timestamp_text(ms: int) -> str:
    d = datetime_of(ms)
    return f"{d:%Y-%m-%dT%H:%M:%S}.{ms % 1000:03d}".rjust(23, "0")


def micros_text(us: int) -> str:
    """As `timestamp_text`, with six digits of a second."""
    return f"{timestamp_text(us // 1000)}{us % 1000:03d}"


def parse_timestamp(text: str) -> int:
    """An ISO timestamp, possibly cut short (`2020`, `2020-01-02T03`), possibly with a zone; UTC without one."""
    return parse_micros(text) // 1000


def parse_micros(text: str) -> int:
    """As `parse_timestamp`, in microseconds."""
    m = _PARTIAL.fullmatch(text.strip())
    if m is None:
        raise ValueError(f"{text!r} is not a timestamp (like 2020-01-02T03:04:05.006)")
    year, month, day, hour, minute, second = (
        int(g) if g else d for g, d in zip(m.groups()[:6], (0, 1, 1, 0, 0, 0), strict=True)
    )
    micro = int((m[7] or "0").ljust(6, "0")[:6])
    zone = zone_of(m[8].upper()) if m[8] else _UTC
    return millis_of(dt.datetime(year, month, day, hour, minute, second, tzinfo=zone)) * 1000 + micro


def parse_date(text: str) -> int:
    """An ISO date, possibly cut short. Raises ValueError."""
    ms = parse_timestamp(text)
    days, rest = divmod(ms, DAY_MS)
    if rest:
        raise ValueError(f"{text!r} is not a date (like 2020-01-02)")
    return days


def parse_time(text: str) -> int:
    """An ISO time of day. Raises ValueError."""
    m = _ISO_TIME.fullmatch(text.strip())
    if m is None or int(m[1]) > 23 or int(m[2]) > 59 or int(m[3] or 0) > 59:
        raise ValueError(f"{text!r} is not a time (like 01:02:03.004)")
    ms = int((m[4] or "0").ljust(3, "0")[:3])
    return ((int(m[1]) * 60 + int(m[2])) * 60 + int(m[3] or 0)) * 1000 + ms
