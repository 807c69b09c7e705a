"""The texts of intervals, as PostgreSQL reads them: `1 day 02:00:00`, `90`, `1-2` with units behind."""

from __future__ import annotations

import re
from dataclasses import dataclass
from decimal import Decimal

_MICROS = {
    "MICROSECOND": 1,
    "MILLISECOND": 1_000,
    "SECOND": 1_000_000,
    "MINUTE": 60_000_000,
    "HOUR": 3_600_000_000,
}
_DAY_MICROS, _MONTH_DAYS = 86_400_000_000, 30
_DAYS = {"DAY": 1, "WEEK": 7}
_MONTHS = {"MONTH": 1, "QUARTER": 3, "YEAR": 12, "DECADE": 120, "CENTURY": 1200}
_SHORT = {
    "US": "MICROSECOND", "USEC": "MICROSECOND", "MS": "MILLISECOND", "MSEC": "MILLISECOND", "S": "SECOND", "SEC": "SECOND", "M": "MINUTE",
    "MIN": "MINUTE", "H": "HOUR", "HR": "HOUR", "D": "DAY", "W": "WEEK", "MON": "MONTH", "Y": "YEAR", "YR": "YEAR", "CENTURIE": "CENTURY",
}  # fmt: skip
_PART = re.compile(
    r"\s*(?:(?P<clock>[+-]?\d+:\d{1,2}(?::\d{1,2}(?:\.\d+)?)?)\s*"
    r"|(?P<years>[+-]?\d+)-(?P<months>\d{1,2})(?![\d:])\s*"
    r"|(?P<number>[+-]?(?:\d+(?:\.\d*)?|\.\d+))\s*(?:(?P<unit>[A-Za-z]+)\s*)?)",
    re.ASCII,
)
_ISO = re.compile(r"P(?=[\dT+-])(?P<date>(?:[+-]?[\d.]+[YMWD])*)(?:T(?P<time>(?:[+-]?[\d.]+[HMS])+))?", re.ASCII)
_ISO_PART = re.compile(r"([+-]?[\d.]+)([A-Z])")
_ISO_UNITS = {"Y": "year", "M": "month", "W": "week", "D": "day", "H": "hour", "S": "second"}


@dataclass(frozen=True, slots=True)
class Duration:
    """Months, days and microseconds, which do not add up to one number."""

    months: int = 0
    days: int = 0
    micros: int = 0


def read_interval(text: str, units: tuple[str, ...] = ()) -> Duration | None:
    """The interval of a string; None where it is no interval. units: those behind the text; the last one counts for a bare number.

    >>> read_interval("1 day 02:00:00"), read_interval("PT10S"), read_interval("5", ("MINUTE",))
    (Duration(months=0, days=1, micros=7200000000), Duration(months=0, days=0, micros=10000000), Duration(months=0, days=0, micros=300000000))
    """
    body, ago = _plain(text.strip()), False
    if body.lower().endswith(" ago"):
        body, ago = body[:-4], True
    months, days, micros = 0, 0, Decimal(0)
    at = 0
    if not body:
        return None
    while at < len(body):
        match = _PART.match(body, at)
        if match is None or match.end() == at:
            return None
        at = match.end()
        if match["clock"]:
            micros += _clock(match["clock"], units)
            continue
        if match["years"]:
            sign = -1 if match["years"].startswith("-") else 1
            months += int(match["years"]) * 12 + sign * int(match["months"])
            continue
        unit = _unit(match["unit"]) if match["unit"] else _unwritten(body, at, units)
        amount = Decimal(match["number"])
        if unit in _MICROS:
            micros += amount * _MICROS[unit]
        elif unit in _DAYS:
            whole = int(amount * _DAYS[unit])
            days += whole
            micros += (amount * _DAYS[unit] - whole) * _DAY_MICROS
        elif unit == "MONTH":
            months += int(amount)
            part = amount % 1 * _MONTH_DAYS
            days += int(part)
            micros += part % 1 * _DAY_MICROS
        elif unit in _MONTHS:
            months += round(amount * _MONTHS[unit])
        else:
            return None
    found = Duration(months, days, round(micros))
    return Duration(-found.months, -found.days, -found.micros) if ago else found


def _unwritten(body: str, at: int, units: tuple[str, ...]) -> str:
    """The unit of a bare number that ends at a place of a text: the one behind the text, days before a time of day."""
    rest = _PART.match(body, at)
    if rest is None:
        return units[-1] if units else "SECOND"
    return units[0] if len(units) == 2 and not rest["clock"] else "DAY"


def _plain(text: str) -> str:
    """`P1Y2DT3M` of ISO 8601 as `1year 2day 3minute`; other texts as they are."""
    found = _ISO.fullmatch(text)
    if found is None:
        return text
    parts = [(n, _ISO_UNITS[unit]) for n, unit in _ISO_PART.findall(found["date"])]
    parts += [(n, "minute" if unit == "M" else _ISO_UNITS[unit]) for n, unit in _ISO_PART.findall(found["time"] or "")]
    return " ".join(n + unit for n, unit in parts)


def _unit(written: str) -> str:
    """`DAYS` and `day` as `DAY`."""
    unit = written.upper()
    if len(unit) > 2:
        unit = unit.removesuffix("S")
    return _SHORT.get(unit, _SHORT.get(written.upper(), unit))


def _clock(text: str, units: tuple[str, ...]) -> Decimal:
    """`02:30` is hours and minutes, unless the units say minutes and seconds."""
    sign = -1 if text.startswith("-") else 1
    parts = [Decimal(p) for p in text.lstrip("+-").split(":")]
    if units == ("MINUTE", "SECOND") and len(parts) == 2:
        parts.insert(0, Decimal(0))
    hours, minutes, seconds = (*parts, Decimal(0))[:3]
    return sign * (hours * 3600 + minutes * 60 + seconds) * 1_000_000
