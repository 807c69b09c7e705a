"""Dates, times and timestamps as integers, and their ISO texts."""

from __future__ import annotations

import datetime as dt
import re
from zoneinfo import ZoneInfo

DAY_MS = 86_400_000
_EPOCH_ORDINAL = dt.date(1970, 1, 1).toordinal()
_UTC = dt.UTC
_ISO_TIME = re.compile(r"(\d{2}):(\d{2})(?::(\d{2})(?:\.(\d{1,9}))?)?")
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
    """A time zone by region name, abbreviation, `Z` or offset such as `+0200`. Raises ValueError."""
    if name in ("Z", "UTC", "GMT", "z"):
        return _UTC
    m = re.fullmatch(r"(?:UTC|GMT)?([+-])(\d{1,2}):?(\d{2})?", name)
    if m:
        minutes = int(m[2]) * 60 + int(m[3] or 0)
        return dt.timezone(dt.timedelta(minutes=-minutes if m[1] == "-" else minutes))
    region = ABBREVIATIONS.get(name.upper(), name)
    try:
        return ZoneInfo(region)
    except (KeyError, ValueError, OSError) as e:
        raise ValueError(f"unknown time zone {name!r}") from e


# java.time reads the short names of a zone, summer or winter, as its region.
ABBREVIATIONS = {
    "PST": "America/Los_Angeles",
    "PDT": "America/Los_Angeles",
    "MST": "America/Denver",
    "MDT": "America/Denver",
    "CST": "America/Chicago",
    "CDT": "America/Chicago",
    "EST": "America/New_York",
    "EDT": "America/New_York",
    "CET": "Europe/Paris",
    "CEST": "Europe/Paris",
    "BST": "Europe/London",
    "JST": "Asia/Tokyo",
    "IST": "Asia/Kolkata",
}


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
    zone = zone_of(m[8]) if m[8] else _UTC
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
