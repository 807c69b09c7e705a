"""Casts between texts and other values as PostgreSQL reads and writes them (see `flowql.compiler.functions.sql_casts`)."""

from __future__ import annotations

import datetime as dt
import math
import re
from collections.abc import Callable, Sequence
from decimal import Decimal
from typing import Any

from flowql.compiler.functions.numeric import WIDE
from flowql.compiler.functions.registry import define, standard, takes
from flowql.compiler.functions.signatures import Resolution, T
from flowql.compiler.functions.sql_bytes import bytes_of_text, text_of_bytes
from flowql.compiler.functions.sql_calendar import checked_micros, on_ms
from flowql.compiler.functions.sql_casts import cast_resolver
from flowql.compiler.functions.sql_intervals import DAY_MICROS, interval_text
from flowql.compiler.functions.sql_times import made_date
from flowql.compiler.functions.sql_zones import CHANGING, OFFSETS_S, zone_behind
from flowql.compiler.functions.temporal import DAY_MS, datetime_of
from flowql.compiler.functions.values import text_of
from flowql.compiler.plan.types import (
    BYTES,
    DATE,
    DOUBLE,
    MICROS,
    MICROSTZ,
    STRING,
    TIME,
    TIMESTAMP,
    TIMESTAMPTZ,
    Kind,
    SqlType,
)

_PLAIN_DIGITS = 15  # doubles from here on are written with an exponent
_DATE = re.compile(r"(\d{4})-(\d{1,2})-(\d{1,2})", re.ASCII)
_CLOCK = re.compile(r"(\d{1,2}):(\d{2})(?::(\d{2})(?:\.(\d+))?)?", re.ASCII)
_FINER = re.compile(r":\d{2}\.\d{3}(\d+)", re.ASCII)
_IN_ZONE = re.compile(r"[A-Za-z0-9+\-/_.:]+", re.ASCII)
_NUMBER = re.compile(r"[+-]?(?:\d+(?:\.\d*)?|\.\d+)(?:e[+-]?\d+)?", re.IGNORECASE | re.ASCII)
_NOT_FINITE = {"nan": math.nan, "inf": math.inf, "infinity": math.inf}
_SPACES = " \t\n\r\v\f"


def _invalid(kind: str, text: str) -> ValueError:
    return ValueError(f'invalid input syntax for type {kind}: "{text}"')


# --- reading ---


def read_timestamp(text: str) -> int:
    """A date, and behind a blank or a T a time of day. A zone behind them makes no difference, as in PostgreSQL. Raises ValueError."""
    return _read(text, _clock, DAY_MS)[0]


def read_micros(text: str) -> int:
    """As `read_timestamp`, in microseconds. Raises ValueError."""
    return checked_micros(_read(text, _clock_micros, DAY_MICROS)[0])


def has_finer_part(text: str) -> bool:
    """Whether a text is a time with parts of a millisecond, which TIMESTAMP(6) has."""
    match = _FINER.search(text)
    return match is not None and match[1].rstrip("0") != ""


def _read(text: str, clock_of: Callable[[str, str, str], int], a_day: int) -> tuple[int, str]:
    """The local time, and the text of the zone behind it. Raises ValueError."""
    body = text.strip(_SPACES)
    match = _DATE.match(body)
    if match is None:
        raise _invalid("timestamp", text)
    midnight = made_date(*(int(g) for g in match.groups())) * a_day
    rest = body[match.end() :]
    if rest and rest[0] not in "Tt+" and rest[0] not in _SPACES:
        raise _invalid("timestamp", text)
    clock = _CLOCK.match(rest[1:].lstrip(_SPACES))
    zone = rest.lstrip(_SPACES) if clock is None else clock.string[clock.end() :].lstrip(_SPACES)
    if (clock is None and rest[:1] in ("T", "t")) or not _is_zone(zone):
        raise _invalid("timestamp", text)
    return midnight + (clock_of(clock[0], "timestamp", text) if clock is not None else 0), zone


def _is_zone(zone: str) -> bool:
    """Whether a text behind a moment is a zone, or empty. Raises ValueError for a numeric zone out of range."""
    if not zone or zone.upper() in CHANGING:
        return True
    if not (zone[0] in "+-" or zone[0].isalpha()) or not _IN_ZONE.fullmatch(zone):
        return False
    try:
        zone_behind(zone)
    except ValueError as error:
        if zone[0] in "+-" or "supported" in str(error):
            raise
        return False
    return True


def read_timestamptz(text: str) -> int:
    """As `read_timestamp`, in UTC or in the zone that stands behind it: +02 is to the east, names are those of `AT TIME ZONE`. Raises ValueError."""
    local, zone = _read(text, _clock, DAY_MS)
    return utc_of(local, zone_behind(zone)) if zone else local


def read_microstz(text: str) -> int:
    """As `read_timestamptz`, in microseconds. Raises ValueError."""
    local, zone = _read(text, _clock_micros, DAY_MICROS)
    return on_ms(lambda ms: utc_of(ms, zone_behind(zone)))(checked_micros(local)) if zone else checked_micros(local)


def utc_of(local: int, zone: dt.tzinfo) -> int:
    """The moment when clocks of a zone show this; of two the later one, and in a gap as before it."""
    shown = datetime_of(local).replace(tzinfo=zone)
    offsets = [shown.replace(fold=fold).utcoffset() or dt.timedelta() for fold in (0, 1)]
    return local - min(offsets) // dt.timedelta(milliseconds=1)


def _clock(clock: str, kind: str, text: str) -> int:
    seconds, fraction = _seconds(clock, kind, text)
    if len(fraction) > 3:
        way = ", which are not supported" if kind == "time" else ": TIMESTAMP(6) has them"
        raise ValueError(f'"{text}" has parts of a millisecond{way}')
    return seconds * 1000 + int(fraction.ljust(3, "0"))


def _clock_micros(clock: str, kind: str, text: str) -> int:
    """PostgreSQL takes digits beyond the sixth as a double, and rounds."""
    seconds, fraction = _seconds(clock, kind, text)
    return seconds * 1_000_000 + (round(float(f"0.{fraction}") * 1e6) if fraction else 0)


def _seconds(clock: str, kind: str, text: str) -> tuple[int, str]:
    """The whole seconds of a time of day, and the digits behind the point without zeros at the end. Raises ValueError."""
    match = _CLOCK.fullmatch(clock)
    if match is None:
        raise _invalid(kind, text)
    hour, minute, second = int(match[1]), int(match[2]), int(match[3] or 0)
    if hour > 23 or minute > 59 or second > 59:
        raise ValueError(f'date/time field value out of range: "{text}"')
    return (hour * 60 + minute) * 60 + second, (match[4] or "").rstrip("0")


def read_date(text: str) -> int:
    """A date; a time of day behind it is left out. Raises ValueError."""
    return read_timestamp(text) // DAY_MS


def read_time(text: str) -> int:
    """A time of day. An offset or abbreviation behind it makes no difference, as in PostgreSQL. Raises ValueError."""
    body = text.strip(_SPACES)
    match = _CLOCK.match(body)
    zone = body[match.end() :].lstrip(_SPACES) if match is not None else ""
    known = zone[:1] in ("+", "-", "") or zone.upper() in OFFSETS_S or zone.upper() in CHANGING
    if match is None or not known or not _is_zone(zone):
        raise _invalid("time", text)
    return _clock(match[0], "time", text)


def read_double(text: str) -> float:
    """Raises ValueError, also for a number out of range."""
    body = text.strip(_SPACES)
    if not _NUMBER.fullmatch(body):
        sign, word = (-1.0, body[1:]) if body[:1] == "-" else (1.0, body.removeprefix("+"))
        if word.lower() not in _NOT_FINITE:
            raise _invalid("double precision", text)
        return sign * _NOT_FINITE[word.lower()] if word.lower() != "nan" else math.nan
    value = float(body)
    if math.isinf(value) or (value == 0.0 and Decimal(body) != 0):
        raise ValueError(f'"{text}" is out of range for type double precision')
    return value


def _reads(
    to: SqlType,
    read: Callable[[str], Any],
    pattern: str = "",
    cast: str = "",
    name: str = "",
) -> None:
    """Register the cast of texts to a type. name: in the function's. cast: DuckDB's of `{}`, for texts that match `pattern`; it gives NULL where it fails."""

    def lowering(args: Sequence[str], _r: Resolution) -> str:
        return cast.replace("{}", args[0])

    def declines(args: Sequence[str], r: Resolution) -> str:
        form = f"NOT regexp_full_match({args[0]}, '{pattern}') OR starts_with({args[0]}, '0000')"
        return f"({form} OR {lowering(args, r)} IS NULL)"

    define(
        f"sql_to_{name or str(to).lower()}",
        cast_resolver(to),
        lambda _r: read,
        duckdb=lowering if cast else None,
        declines=declines if cast else None,
    )


_DATE_SQL = "[0-9]{4}-[0-9]{2}-[0-9]{2}"
_reads(
    TIMESTAMP,
    read_timestamp,
    _DATE_SQL + "[ T][0-9]{2}:[0-9]{2}:[0-9]{2}([.][0-9]{1,3})?",
    "CAST(TRY_CAST({} AS TIMESTAMP) AS TIMESTAMP_MS)",
)
_reads(TIMESTAMPTZ, read_timestamptz)
_reads(
    MICROS,
    read_micros,
    _DATE_SQL + "[ T][0-9]{2}:[0-9]{2}:[0-9]{2}([.][0-9]{1,6})?",
    "TRY_CAST({} AS TIMESTAMP)",
    name="micros",
)
_reads(MICROSTZ, read_microstz, name="microstz")
_reads(DATE, read_date, _DATE_SQL, "TRY_CAST({} AS DATE)")
_reads(TIME, read_time)
_reads(DOUBLE, read_double, "-?[0-9]{1,15}([.][0-9]{1,15})?", "TRY_CAST({} AS DOUBLE)")
_reads(BYTES, bytes_of_text)


# --- writing ---


def timestamp_text(v: int) -> str:
    """`2024-05-01 12:00:00`, with a fraction where there is one."""
    d = datetime_of(v)
    return f"{d.year:04d}{d:-%m-%d %H:%M:%S}{_fraction(v % 1000)}"


def micros_text(us: int) -> str:
    """As `timestamp_text`, with six digits where they are needed."""
    d = datetime_of(us // 1000)
    fraction = f".{us % 1_000_000:06d}".rstrip("0") if us % 1_000_000 else ""
    return f"{d.year:04d}{d:-%m-%d %H:%M:%S}{fraction}"


def _time_text(v: int) -> str:
    seconds, ms = divmod(v, 1000)
    return f"{seconds // 3600:02d}:{seconds // 60 % 60:02d}:{seconds % 60:02d}{_fraction(ms)}"


def _fraction(ms: int) -> str:
    return f".{ms:03d}".rstrip("0") if ms else ""


def double_text(v: float) -> str:
    """The shortest text that is read as this double: plain from 0.0001 to below 1e15."""
    if not math.isfinite(v):
        return "NaN" if v != v else "Infinity" if v > 0 else "-Infinity"
    sign, digits, exponent = Decimal(repr(v)).normalize().as_tuple()
    assert isinstance(exponent, int)
    minus, text = "-" if sign else "", "".join(map(str, digits))
    power = len(text) - 1 + exponent
    if not v or -5 < power < _PLAIN_DIGITS:
        return f"{minus}{abs(Decimal(repr(v)).normalize(WIDE)):f}" if v else f"{minus}0"
    mantissa = f"{text[0]}.{text[1:]}" if len(text) > 1 else text
    return f"{minus}{mantissa}e{'-' if power < 0 else '+'}{abs(power):02d}"


_TEXTS: dict[Kind, Callable[[Any], str]] = {
    Kind.TIMESTAMP: timestamp_text,
    Kind.MICROS: micros_text,
    Kind.DOUBLE: double_text,
    Kind.TIME: _time_text,
    Kind.BYTES: text_of_bytes,
    Kind.INTERVAL: interval_text,
}
_IN_ARRAY = re.compile(r'[\s,{}"\\]')
_IN_STRUCT = re.compile(r'[\s,()"\\]')


def text_writer(t: SqlType) -> Callable[[Any], str]:
    """How values of a type, none of them NULL, are written out."""
    if t.kind is Kind.ARRAY:
        element, nested = _written_inside(t.element), t.element.kind is Kind.ARRAY
        return lambda v: "{" + ",".join(_element(x, element, nested=nested) for x in v) + "}"
    if t.kind is Kind.STRUCT:
        fields = [(n, _written_inside(f)) for n, f in t.fields]
        return lambda v: "(" + ",".join(_field(v.get(n), write) for n, write in fields) + ")"
    if t.zoned:
        moment = _TEXTS[t.kind]
        return lambda v: f"{moment(v)}+00"
    return _TEXTS.get(t.kind) or text_of(t)


def _written_inside(t: SqlType) -> Callable[[Any], str]:
    """Inside arrays and structs a truth value is a letter."""
    return (lambda v: "t" if v else "f") if t.kind is Kind.BOOLEAN else text_writer(t)


def _element(v: Any, write: Callable[[Any], str], *, nested: bool) -> str:
    if v is None:
        return "NULL"
    text = write(v)
    quoted = not nested and (text == "" or text.upper() == "NULL" or _IN_ARRAY.search(text))
    return '"' + text.replace("\\", "\\\\").replace('"', '\\"') + '"' if quoted else text


def _field(v: Any, write: Callable[[Any], str]) -> str:
    if v is None:
        return ""
    text = write(v)
    quoted = text == "" or _IN_STRUCT.search(text)
    return '"' + text.replace("\\", "\\\\").replace('"', '""') + '"' if quoted else text


define("sql_to_text", cast_resolver(STRING), lambda r: text_writer(r.args[0]))


_TYPE_NAMES = {
    Kind.INT: "integer",
    Kind.DOUBLE: "double precision",
    Kind.DECIMAL: "numeric",
    Kind.STRING: "text",
    Kind.BYTES: "bytea",
    Kind.TIME: "time without time zone",
    Kind.STRUCT: "record",
    Kind.NULL: "unknown",
}


def _name_of(t: SqlType) -> str:
    """PostgreSQL's name of a type."""
    if t.kind is Kind.ARRAY:
        return f"{_name_of(t.element)}[]"
    if t.kind is Kind.STRING and t.form:
        return t.form.lower()
    zone = f"timestamp {'with' if t.zoned else 'without'} time zone"
    return {**_TYPE_NAMES, Kind.TIMESTAMP: zone, Kind.MICROS: zone}.get(t.kind, t.kind.value.lower())


standard(
    "PG_TYPEOF",
    takes(T, gives=STRING),
    by_types=lambda r: lambda _: _name_of(r.args[0]),
    duckdb=lambda _, r: f"'{_name_of(r.args[0])}'",
    null_propagating=False,
)
