"""TO_DATE and TO_TIMESTAMP: texts read by PostgreSQL's patterns (`formatting.c: DCH_from_char`, `do_to_timestamp`).

A text is read from the left, field by field, until it or the pattern ends; the rest of either makes no difference. Any separator of a text is taken for any
of the pattern, and a letter of the pattern for any character.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import lru_cache

from flowql.compiler.functions.numeric import INT_MAX, INT_MIN, NumericOverflow
from flowql.compiler.functions.registry import scalar, standard, takes
from flowql.compiler.functions.sql_calendar import EPOCH_2000, checked_micros, civil, day_of, month_days, rounded
from flowql.compiler.functions.sql_intervals import DAY_MICROS
from flowql.compiler.functions.sql_to_char import DAYS, JULIAN, NAMES, ROMAN, Part, parts_of, separates
from flowql.compiler.functions.temporal import MONTHS
from flowql.compiler.plan.types import DATE, DOUBLE, MICROSTZ, STRING, TIMESTAMPTZ

_SPACES = " \t\n\r\v\f"
_DIGITS = frozenset("0123456789")
_ISO_FIELDS = frozenset({"IDDD", "ID", "IW", "IYYY", "IYY", "IY", "I"})
_GREGORIAN = frozenset({"DDD", "DD", "D", "MM", "MONTH", "MON", "RM", "WW", "W", "Y,YYY", "YYYY", "YYY", "YY", "Y"})
_WRITTEN_ONLY = ("TZ", "OF")
# Field -> its key among the values, and its width.
_NUMBERS = {
    "HH": ("hh", 2), "HH12": ("hh", 2), "HH24": ("hh", 2), "MI": ("mi", 2), "SS": ("ss", 2), "SSSS": ("ssss", 4), "SSSSS": ("ssss", 5), "MM": ("mm", 2),
    "DDD": ("ddd", 3), "IDDD": ("ddd", 3), "DD": ("dd", 2), "D": ("d", 1), "ID": ("d", 1), "WW": ("ww", 2), "IW": ("ww", 2), "Q": ("", 1), "CC": ("cc", 2),
    "W": ("w", 1), "J": ("j", 1), "TZH": ("tzh", 2), "TZM": ("tzm", 2), "MS": ("ms", 3), "US": ("us", 6), **{f"FF{n}": ("us", n) for n in range(1, 7)},
    **{y: ("year", n) for n in (4, 3, 2, 1) for y in ("Y" * n, "I" + "Y" * (n - 1))},
}  # fmt: skip
_HALVES = {"A.M.": ("a.m.", "p.m."), "AM": ("am", "pm"), "A.D.": ("a.d.", "b.c."), "AD": ("ad", "bc")}
_HALVES |= {"P.M.": _HALVES["A.M."], "PM": _HALVES["AM"], "B.C.": _HALVES["A.D."], "BC": _HALVES["AD"]}
_LISTED: dict[str, Sequence[str]] = {
    "MONTH": MONTHS, "MON": [m[:3] for m in MONTHS], "DAY": DAYS, "DY": [d[:3] for d in DAYS], "RM": ROMAN[::-1], **_HALVES,
}  # fmt: skip


@lru_cache(maxsize=256)
def readable(pattern: str) -> tuple[Part, ...]:
    """The parts of a pattern to read by. Raises ValueError for fields that no text can be read by."""
    parts = parts_of(pattern)
    written = "".join(p.field or p.text for p in parts)
    for part in parts:
        if part.name in _WRITTEN_ONLY:
            raise ValueError(f'formatting field "{part.name}" is only supported in to_char')
    if "RR" in written.upper().replace("\\", ""):
        raise ValueError(f"RR in the pattern {pattern!r} is not a pattern of PostgreSQL: use YY or YYYY")
    return parts


@dataclass(slots=True)
class _Reader:
    """Reads one text from the left. skipped: characters passed over beyond those of the pattern."""

    text: str
    at: int = 0
    fixed: bool = False
    skipped: int = 0
    iso: bool | None = None
    clock12: bool = False
    sign: int = 0
    year_digits: int = 0
    digits: int = 0  # of a second, by FF
    values: dict[str, int] = field(default_factory=dict)

    def blanks(self) -> None:
        while self.at < len(self.text) and self.text[self.at] in _SPACES:
            self.at += 1
            self.skipped += 1

    def character(self, part: Part) -> None:
        """A character of the pattern that stands for itself."""
        if self.fixed:
            self.at += 1
        elif part.is_space or part.is_separator:
            self.skipped -= 1
            if self.text[self.at] in _SPACES or separates(self.text[self.at]):
                self.at += 1
                self.skipped += 1
        elif self.skipped > 0:
            self.skipped -= 1
        else:
            self.at += 1

    def set(self, key: str, value: int, part: Part) -> None:
        if self.values.get(key) and self.values[key] != value:
            raise ValueError(f'conflicting values for "{part.field}" field in formatting string')
        self.values[key] = value

    def number(self, part: Part, width: int, *, slurp: bool) -> tuple[int, int]:
        """A whole number, and how many characters it took."""
        start = self.at
        while self.at < len(self.text) and self.text[self.at] in _SPACES:
            self.at += 1
        if slurp:
            value, self.at = _whole(self.text, self.at, len(self.text), start)
        else:
            if len(self.text) - self.at < width:
                raise ValueError(f'source string too short for "{part.field}" formatting field')
            value, end = _whole(self.text, self.at, self.at + width, self.at)
            if 0 < end - self.at < width:
                raise self.invalid(part)
            self.at = end
        if self.at == start:
            raise self.invalid(part)
        if not INT_MIN <= value <= INT_MAX:
            raise ValueError(f'value for "{part.field}" in source string is out of range')
        return value, self.at - start

    def listed(self, part: Part, names: Sequence[str]) -> int:
        """The place of the name that stands here."""
        for i, name in enumerate(names):
            if self.text[self.at : self.at + len(name)].lower() == name.lower():
                self.at += len(name)
                return i
        raise self.invalid(part)

    def invalid(self, part: Part) -> ValueError:
        return ValueError(f'invalid value "{self.text[self.at : self.at + 20]}" for "{part.field}"')


def _whole(text: str, at: int, end: int, nothing: int) -> tuple[int, int]:
    """As C's `strtol`: a sign and digits. Gives `nothing` for the end where there are none."""
    while at < end and text[at] in _SPACES:
        at += 1
    first = at + (at < end and text[at] in "+-")
    last = first
    while last < end and text[last] in _DIGITS:
        last += 1
    if last == first:
        return 0, nothing
    value = int(text[first:last]) if last - first <= 18 else INT_MAX + 1
    return (-value if text[at] == "-" else value), last


def _slurps(parts: Sequence[Part], i: int) -> bool:
    """Whether a number takes all digits that stand there: nothing that begins with a digit follows it in the pattern."""
    return not parts[i].fill or bool(parts[i].ordinal) or i + 1 == len(parts) or not parts[i + 1].is_digit


def _fields(text: str, pattern: str) -> _Reader:
    r, parts = _Reader(text), readable(pattern)
    for i, part in enumerate(parts):
        if r.at >= len(text):
            break
        if not r.fixed and part.name != "FX" and (part.field or i == 0):
            r.blanks()
        if not part.field:
            if r.at < len(text):
                r.character(part)
            continue
        _mode(r, part)
        _read_field(r, part, slurp=_slurps(parts, i))
        if not r.fixed:
            r.skipped = 0
            r.blanks()
    return r


def _mode(r: _Reader, part: Part) -> None:
    iso = True if part.name in _ISO_FIELDS else False if part.name in _GREGORIAN else None
    if iso is not None and r.iso is not None and iso != r.iso:
        raise ValueError("invalid combination of date conventions")
    r.iso = r.iso if iso is None else iso


def _read_field(r: _Reader, part: Part, *, slurp: bool) -> None:
    if part.name == "FX":
        r.fixed = True
        return
    if part.name in NAMES:
        _read_name(r, part)
        return
    if part.name == "Y,YYY":
        _read_grouped(r, part)
    else:
        _read_number(r, part, slurp=slurp)
    if part.ordinal:
        r.at = min(r.at + 2, len(r.text))


def _read_name(r: _Reader, part: Part) -> None:
    found = r.listed(part, _LISTED[part.name])
    if part.name in ("MONTH", "MON"):
        r.set("mm", found + 1, part)
    elif part.name == "RM":
        r.set("mm", 12 - found, part)
    elif part.name in ("DAY", "DY"):
        r.set("d", found, part)
        r.values["d"] += 1
    elif "M" in part.name:
        r.set("pm", found, part)
        r.clock12 = True
    else:
        r.set("bc", found, part)


def _read_grouped(r: _Reader, part: Part) -> None:
    """`2,024`."""
    thousands, comma = _whole(r.text, r.at, len(r.text), -1)
    if comma < 0 or r.text[comma : comma + 1] != ",":
        raise ValueError('invalid input string for "Y,YYY"')
    years, end = _whole(r.text, comma + 1, min(comma + 4, len(r.text)), -1)
    if end < 0:
        raise ValueError('invalid input string for "Y,YYY"')
    r.set("year", thousands * 1000 + years, part)
    r.year_digits, r.at = 4, end


def _read_number(r: _Reader, part: Part, *, slurp: bool) -> None:
    name = part.name
    key, width = _NUMBERS[name]
    if name == "TZH":
        _sign(r)
    elif name == "TZM" and not r.sign:
        r.sign = 1
    value, used = r.number(part, width, slurp=slurp)
    if not key:
        return
    r.set(key, value, part)
    if key in ("ms", "us"):
        r.values[key] *= 10 ** max(0, (3 if key == "ms" else 6) - used)
        r.digits = width if name.startswith("FF") else r.digits
    elif name == "ID":
        r.values["d"] = value % 7 + 1 if value == 7 else value + 1 if value < 7 else 1
    elif key == "year":
        r.year_digits = width
        r.values["year"] = value if width == 4 or used >= 4 else _near_2020(value)
    elif name in ("HH", "HH12"):
        r.clock12 = True


def _sign(r: _Reader) -> None:
    if r.text[r.at : r.at + 1] in ("+", "-", " "):
        r.sign = -1 if r.text[r.at] == "-" else 1
        r.at += 1
    else:
        r.sign = -1 if r.skipped > 0 and r.text[r.at - 1] == "-" else 1


def _near_2020(year: int) -> int:
    """A year of one to three digits: the one from 1970 to 2069, or from 1520 to 2519."""
    for below, add in ((70, 2000), (100, 1900), (520, 2000), (1000, 1000)):
        if year < below:
            return year + add
    return year


# --- from the fields to a moment ---


@dataclass(slots=True)
class _Date:
    """A year, month and day, and which of them are known."""

    year: int = 0
    month: int = 1
    day: int = 1
    known: set[str] = field(default_factory=set)

    def put(self, day_number: int) -> None:
        self.year, self.month, self.day = civil(day_number)
        self.known = {"year", "month", "day"}

    def valid(self) -> bool:
        whole = len(self.known) == 3
        return (
            ("month" not in self.known or 1 <= self.month <= 12)
            and ("day" not in self.known or 1 <= self.day <= 31)
            and (not whole or self.day <= month_days(self.year, self.month))
        )


def _year(r: _Reader, d: _Date) -> None:
    v = r.values
    year, century = v.get("year", 0), -v.get("cc", 0) if v.get("bc") else v.get("cc", 0)
    if year and century and r.year_digits <= 2:
        low = abs(year) % 100 * (1 if year > 0 else -1)
        if low:
            d.year = low + (century - 1) * 100 if century >= 0 else (century + 1) * 100 - low + 1
        else:
            d.year = century * 100 + (century < 0)
    elif year:
        d.year = -year if v.get("bc") else year
        d.year += d.year < 0
    elif century:
        d.year = (century - 1) * 100 + 1 if century >= 0 else century * 100 + 1
    if year or century:
        d.known.add("year")


def _monday(year: int, week: int) -> int:
    """The day on which a week of an ISO year begins."""
    fourth = day_of(year, 1, 4)
    return fourth - (fourth + 3) % 7 + (week - 1) * 7


def _date(r: _Reader) -> _Date:
    d, v = _Date(), r.values
    _year(r, d)
    if v.get("j"):
        d.put(v["j"] - JULIAN)
    of_year, of_month = v.get("ddd", 0), v.get("dd", 0)
    if v.get("ww") and r.iso:
        weekday = v.get("d", 0)
        d.put(_monday(d.year, v["ww"]) + (0 if not weekday else weekday - 2 if weekday > 1 else 6))
    elif v.get("ww"):
        of_year = (v["ww"] - 1) * 7 + 1
    if v.get("w"):
        of_month = (v["w"] - 1) * 7 + 1
    if of_month:
        d.day = of_month
        d.known.add("day")
    if v.get("mm"):
        d.month = v["mm"]
        d.known.add("month")
    if of_year and (d.month <= 1 or d.day <= 1):
        _day_of_year(r, d, of_year)
    return d


def _day_of_year(r: _Reader, d: _Date, of_year: int) -> None:
    if not d.year and not r.values.get("bc"):
        raise ValueError("cannot calculate day of year without year information")
    if r.iso:
        d.put(_monday(d.year, 1) - 1 + of_year)
        return
    month, before = 1, 0
    while month <= 12 and of_year > before + month_days(d.year, month):
        before += month_days(d.year, month)
        month += 1
    d.month = month if d.month <= 1 else d.month
    d.day = of_year - before if d.day <= 1 else d.day
    d.known |= {"month", "day"}


def _clock(r: _Reader) -> tuple[int, int, int]:
    v = r.values
    rest = v.get("ssss", 0)
    sign = -1 if rest < 0 else 1
    hour, minute, second = (sign * (abs(rest) // 3600), sign * (abs(rest) // 60 % 60), sign * (abs(rest) % 60))
    hour, minute, second = v.get("hh") or hour, v.get("mi") or minute, v.get("ss") or second
    if not r.clock12:
        return hour, minute, second
    if not 1 <= hour <= 12:
        raise ValueError(f'hour "{hour}" is invalid for the 12-hour clock')
    return hour % 12 + (12 if v.get("pm") else 0), minute, second


def _micros(text: str, pattern: str) -> tuple[int, _Reader]:
    """The local time that a text is, in microseconds. Raises ValueError."""
    r = _fields(text, pattern)
    (hour, minute, second), d = _clock(r), _date(r)
    fraction = r.values.get("ms", 0) * 1000 + r.values.get("us", 0)
    in_range = 0 <= hour < 24 and 0 <= minute < 60 and 0 <= second < 60 and 0 <= fraction < 1_000_000
    in_range &= not r.sign or (0 <= r.values.get("tzh", 0) <= 15 and 0 <= r.values.get("tzm", 0) < 60)
    if not (in_range and d.valid() and -5000 < d.year < 300_000):
        raise ValueError(f'date/time field value out of range: "{text}"')
    day = day_of(d.year, d.month, d.day) if 1 <= d.month <= 12 else 0
    return checked_micros(day * DAY_MICROS + ((hour * 60 + minute) * 60 + second) * 1_000_000 + fraction), r


def read_date(text: str, pattern: str) -> int:
    """The day that a text is by a pattern; parts that are not there are those of the first day of 1 BC. Raises ValueError."""
    return _micros(text, pattern)[0] // DAY_MICROS


def read_moment(text: str, pattern: str) -> int:
    """The moment, in ms, that a text is by a pattern, in UTC or at the offset of TZH and TZM. Raises ValueError."""
    us, r = _micros(text, pattern)
    us -= r.sign * (r.values.get("tzh", 0) * 60 + r.values.get("tzm", 0)) * 60_000_000
    us = rounded(us, r.digits) if r.digits else us
    if us % 1000:
        raise ValueError(f'"{text}" has parts of a millisecond, which are not supported')
    return checked_micros(us) // 1000


def seconds_to_micros(seconds: float) -> int:
    """Counted from 2000 before they are rounded, as PostgreSQL's `float8_timestamptz` does."""
    if not math.isfinite(seconds):
        raise NumericOverflow("timestamp out of range")
    return checked_micros(round((seconds - EPOCH_2000 / 1_000_000) * 1_000_000) + EPOCH_2000)


def seconds_to_moment(seconds: float) -> int:
    """In milliseconds. Raises ValueError for parts of one."""
    micros = seconds_to_micros(seconds)
    if micros % 1000:
        raise ValueError(f"{seconds} has parts of a millisecond, which are not supported")
    return micros // 1000


standard("TO_DATE", takes(STRING, STRING, gives=DATE), by=read_date, name="sql_to_date_by")
standard(
    "TO_TIMESTAMP",
    takes(STRING, STRING, gives=TIMESTAMPTZ),
    takes(DOUBLE, gives=TIMESTAMPTZ),
    by_types=lambda r: read_moment if len(r.args) == 2 else seconds_to_moment,
    name="sql_to_timestamp_by",
)
scalar("sql_to_timestamp_micros", takes(DOUBLE, gives=MICROSTZ), by=seconds_to_micros)
