"""Date patterns of java.time (`yyyy-MM-dd'T'HH:mm:ss.SSSX`): formatting and parsing.

Letters: y u M L d D H h k K m s S A n a E z V X x Z, quoted text, and optional sections in brackets. Other letters
raise ValueError. Parsing ignores case; missing fields are those of 1970-01-01T00:00 UTC, as in ksqlDB.
"""

from __future__ import annotations

import calendar
import datetime as dt
import re
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from functools import lru_cache

from flowql.compiler.functions.bounds import CallTooLong
from flowql.compiler.functions.temporal import DAY_MS, MONTHS, datetime_of, days_of, millis_of, zone_of

_DAYS = ["Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday", "Sunday"]
_TOKEN = re.compile(r"'((?:[^']|'')*)'|([A-Za-z])\2*|(.)", re.DOTALL)
_WAYS_MAX = 100_000  # `d/M/y H:m:s` has about 2,000
Part = tuple[str, int]  # (letter, count), ("'", 0) never; literal text is ("lit:" + text, 0)


@lru_cache(maxsize=512)
def parts_of(pattern: str) -> tuple[Part, ...]:
    """The pattern as letters with their counts and literal texts; brackets are letters `[` and `]`."""
    parts: list[Part] = []
    for m in _TOKEN.finditer(pattern):
        if m[2]:
            if m[2] not in _FORMAT:
                raise ValueError(f"the letter {m[2]!r} of the pattern {pattern!r} is not supported")
            parts.append((m[2], len(m[0])))
        elif m[3] in ("[", "]"):
            parts.append((m[3], 0))
        elif m[3] == "'":
            raise ValueError(f"the pattern {pattern!r} has an open quote")
        else:
            parts.append(("lit:" + (m[3] or m[1].replace("''", "'") or "'"), 0))
    return tuple(parts)


def format_timestamp(ms: int, pattern: str, zone: str = "UTC") -> str:
    """The text of an instant as seen in a zone."""
    return _format(datetime_of(ms, zone_of(zone)), pattern)


def format_date(days: int, pattern: str) -> str:
    return _format(datetime_of(days * DAY_MS), pattern)


def format_time(ms: int, pattern: str) -> str:
    return _format(datetime_of(ms), pattern)


def _format(d: dt.datetime, pattern: str) -> str:
    out = []
    for letter, n in parts_of(pattern):
        if letter.startswith("lit:"):
            out.append(letter[4:])
        elif letter not in "[]":
            out.append(_FORMAT[letter](d, n))
    return "".join(out)


def _padded(value: Callable[[dt.datetime], int]) -> Callable[[dt.datetime, int], str]:
    return lambda d, n: str(value(d)).rjust(n, "0")


def _year(d: dt.datetime, n: int) -> str:
    return f"{d.year % 100:02d}" if n == 2 else str(d.year).rjust(n, "0")


def _named(names: list[str], index: Callable[[dt.datetime], int]) -> Callable[[dt.datetime, int], str]:
    def run(d: dt.datetime, n: int) -> str:
        if n < 3:
            return str(index(d) + 1).rjust(n, "0")
        return names[index(d)][:3] if n == 3 else names[index(d)]

    return run


def _offset(d: dt.datetime, n: int, zulu: bool) -> str:
    delta = d.utcoffset() or dt.timedelta()
    if zulu and not delta:
        return "Z"
    minutes = int(delta.total_seconds()) // 60
    sign, minutes = ("-", -minutes) if minutes < 0 else ("+", minutes)
    hours, rest = divmod(minutes, 60)
    if n == 1:
        return f"{sign}{hours:02d}" + (f"{rest:02d}" if rest else "")
    return f"{sign}{hours:02d}:{rest:02d}" if n in (3, 5) else f"{sign}{hours:02d}{rest:02d}"


def _zone_z(d: dt.datetime, n: int) -> str:
    if n == 5:
        return _offset(d, 3, zulu=True)
    return ("GMT" + _offset(d, 3, zulu=False)) if n == 4 else _offset(d, 2, zulu=False)


def _millis_of_day(d: dt.datetime) -> int:
    return ((d.hour * 60 + d.minute) * 60 + d.second) * 1000 + d.microsecond // 1000


_FORMAT: dict[str, Callable[[dt.datetime, int], str]] = {
    "y": _year,
    "u": _year,
    "M": _named(MONTHS, lambda d: d.month - 1),
    "L": _named(MONTHS, lambda d: d.month - 1),
    "d": _padded(lambda d: d.day),
    "D": _padded(lambda d: d.timetuple().tm_yday),
    "H": _padded(lambda d: d.hour),
    "k": _padded(lambda d: d.hour or 24),
    "h": _padded(lambda d: d.hour % 12 or 12),
    "K": _padded(lambda d: d.hour % 12),
    "m": _padded(lambda d: d.minute),
    "s": _padded(lambda d: d.second),
    "S": lambda d, n: f"{d.microsecond:06d}".ljust(9, "0")[:n],
    "n": _padded(lambda d: d.microsecond * 1000),
    "A": _padded(_millis_of_day),
    "a": lambda d, _n: "AM" if d.hour < 12 else "PM",
    "E": lambda d, n: _DAYS[d.weekday()] if n == 4 else _DAYS[d.weekday()][:3],
    "z": lambda d, _n: d.tzname() or "UTC",
    "V": lambda d, _n: str(d.tzinfo),
    "X": lambda d, n: _offset(d, n, zulu=True),
    "x": lambda d, n: _offset(d, n, zulu=False),
    "Z": _zone_z,
}


@dataclass(frozen=True, slots=True)
class _Reader:
    """A pattern as a regular expression; `letters` tells what each group holds."""

    regex: re.Pattern[str]
    letters: tuple[Part, ...]


def _digits(low: int, high: int) -> str:
    return rf"(\d{{{low},{high}}})"


def _group(letter: str, n: int) -> str:
    if letter in "yu":
        return {1: r"([+-]?\d{1,9})", 2: r"(\d{2})"}.get(n, rf"([+-]?\d{{{n}}})")
    if letter in "ML" and n >= 3:
        names = [m[:3] for m in MONTHS] if n == 3 else MONTHS
        return "(" + "|".join(names) + ")"
    if letter == "E":
        return "(" + "|".join(_DAYS if n == 4 else [d[:3] for d in _DAYS]) + ")"
    if letter == "a":
        return "(AM|PM)"
    if letter in "zV":
        return r"([A-Za-z]+(?:[+-]\d{1,2}(?::?\d{2})?)?(?:/[A-Za-z_]+){0,2}|[+-]\d{2}:?\d{2})"
    if letter in "XxZ":
        return r"(Z|(?:GMT)?[+-]\d{2}(?::?\d{2})?)"
    if letter == "S":
        return rf"(\d{{{n}}})"
    if letter in "nA":
        return r"(\d{1,18})"
    widest = 3 if letter == "D" else 2
    return _digits(n, n) if n > 1 else _digits(1, widest)


def _ways(letter: str, n: int) -> int:
    """How many beginnings of a text a part of a pattern may stand for: a search tries all combinations."""
    if letter in ("[", "n", "A", "z", "V"):
        return 2 if letter == "[" else 18
    if letter in "XxZ":
        return 3
    return 1 if n > 1 or letter.startswith("lit:") or letter in "]SaE" else 9 if letter in "yu" else 3


@lru_cache(maxsize=512)
def _reader(pattern: str) -> _Reader:
    out, letters, ways = [], [], 1
    for letter, n in parts_of(pattern):
        ways *= _ways(letter, n)
        if ways > _WAYS_MAX:
            raise CallTooLong(
                f"the pattern {pattern!r} can be read in too many ways: it has too many optional parts or widths"
            )
        if letter.startswith("lit:"):
            out.append(re.escape(letter[4:]))
        elif letter in "[]":
            out.append("(?:" if letter == "[" else ")?")
        else:
            out.append(_group(letter, n))
            letters.append((letter, n))
    return _Reader(re.compile("".join(out), re.IGNORECASE), tuple(letters))


@dataclass(slots=True)
class _Fields:
    """The fields parsed from a text, collected from left to right."""

    year: int = 1970
    month: int = 1
    day: int = 1
    day_of_year: int = 0
    hour: int = 0
    half: int | None = None
    hour12: int | None = None
    minute: int = 0
    second: int = 0
    micro: int = 0
    day_ms: int | None = None
    zone: str | None = None


def _read(text: str, pattern: str) -> _Fields:
    reader = _reader(pattern)
    m = reader.regex.fullmatch(text)
    if m is None:
        raise ValueError(f"{text!r} does not match the pattern {pattern!r}")
    fields = _Fields()
    for (letter, n), value in zip(reader.letters, m.groups(), strict=True):
        if value is not None:
            _store(fields, letter, n, value)
    if fields.hour12 is not None:
        fields.hour = fields.hour12 % 12 + (fields.half or 0)
    return fields


def _store(f: _Fields, letter: str, n: int, value: str) -> None:
    if letter in "yu":
        f.year = int(value) + (2000 if n == 2 else 0)
    elif letter in "ML":
        short = [m[:3].lower() for m in MONTHS]
        f.month = short.index(value[:3].lower()) + 1 if n >= 3 else int(value)
    elif letter == "S":
        f.micro = int(value.ljust(6, "0")[:6])
    elif letter == "n":
        f.micro = int(value) // 1000
    elif letter == "A":
        f.day_ms = int(value)
    elif letter == "a":
        f.half = 12 if value.upper() == "PM" else 0
    elif letter in "zVXxZ":
        f.zone = value
    elif letter in _PLAIN:
        setattr(f, _PLAIN[letter], int(value) % 24 if letter == "k" else int(value))


_PLAIN = {
    "d": "day",
    "D": "day_of_year",
    "H": "hour",
    "k": "hour",
    "h": "hour12",
    "K": "hour12",
    "m": "minute",
    "s": "second",
}


def _day_of_month(f: _Fields) -> int:
    """A day up to 31 behind the end of its month is the last of it, as `ResolverStyle.SMART` reads it."""
    if not (1 <= f.day <= 31 and 1 <= f.month <= 12 and 1 <= f.year <= 9999):
        return f.day
    return min(f.day, calendar.monthrange(f.year, f.month)[1])


def _local(f: _Fields, zone: dt.tzinfo, *, strict: bool = False) -> dt.datetime:
    day = dt.date(f.year, f.month, f.day if strict else _day_of_month(f))
    if f.day_of_year:
        day = dt.date(f.year, 1, 1) + dt.timedelta(days=f.day_of_year - 1)
    clock = dt.time(f.hour, f.minute, f.second, f.micro)
    local = dt.datetime.combine(day, clock, tzinfo=zone)
    return local if f.day_ms is None else local + dt.timedelta(milliseconds=f.day_ms)


def _zone_in_text(name: str) -> dt.tzinfo:
    """As `zone_of`, and by a short name; letters may be small but in regions. Raises ValueError."""
    short = _SHORT_NAMES.get(name.upper())
    if short is not None:
        return zone_of(short)
    with suppress(ValueError):
        return zone_of(name)
    return zone_of(name.upper())


# java.time reads the short names of a zone in a text, summer or winter, as its region.
_SHORT_NAMES = {
    "PST": "America/Los_Angeles",
    "PDT": "America/Los_Angeles",
    "MST": "America/Denver",
    "MDT": "America/Denver",
    "CST": "America/Chicago",
    "CDT": "America/Chicago",
    "EST": "America/New_York",
    "EDT": "America/New_York",
    "HST": "Pacific/Honolulu",
    "CET": "Europe/Paris",
    "CEST": "Europe/Paris",
    "BST": "Europe/London",
    "JST": "Asia/Tokyo",
    "IST": "Asia/Kolkata",
}


def parse_timestamp(text: str, pattern: str, zone: str = "UTC", *, strict: bool = False) -> int:
    """The instant in ms. A zone in the text wins over `zone`. strict: no day lies behind its month. Raises ValueError."""
    fields = _read(text, pattern)
    there = zone_of(zone) if fields.zone is None else _zone_in_text(fields.zone)
    return millis_of(_local(fields, there, strict=strict))


def parse_date(text: str, pattern: str) -> int:
    """Days since 1970. Raises ValueError."""
    return days_of(_local(_read(text, pattern), dt.UTC).date())


def parse_time(text: str, pattern: str) -> int:
    """Milliseconds of the day. Raises ValueError."""
    return _millis_of_day(_local(_read(text, pattern), dt.UTC))
