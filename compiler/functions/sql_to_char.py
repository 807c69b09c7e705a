"""TO_CHAR of timestamps, and TO_DATE and TO_TIMESTAMP, by PostgreSQL's patterns. What a pattern has beyond the known ones is an error."""

from __future__ import annotations

import math
import re
from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache, partial

from flowql.compiler.functions.numeric import NumericOverflow
from flowql.compiler.functions.registry import standard, takes
from flowql.compiler.functions.sql_calendar import checked_timestamp, civil, day_of, iso_week, month_days, shown_year
from flowql.compiler.functions.sql_intervals import DAY_MICROS
from flowql.compiler.functions.sql_micros import by_unit
from flowql.compiler.functions.temporal import DAY_MS
from flowql.compiler.plan.types import DATE, DOUBLE, MICROS, MICROSTZ, STRING, TIMESTAMP, TIMESTAMPTZ

_MONTHS = [
    "January",
    "February",
    "March",
    "April",
    "May",
    "June",
    "July",
    "August",
    "September",
    "October",
    "November",
    "December",
]
_ROMAN = ["I", "II", "III", "IV", "V", "VI", "VII", "VIII", "IX", "X", "XI", "XII"]
_JULIAN = 2_440_588  # the number of 1970-01-01
_DAYS = ["Sunday", "Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday"]


@dataclass(frozen=True, slots=True)
class _Moment:
    """A timestamp in its parts. dow: 0 is Sunday."""

    year: int
    month: int
    day: int
    dow: int
    number: int  # of the day since 1970
    us: int  # of the day

    @property
    def ms(self) -> int:
        return self.us // 1000

    @property
    def hour(self) -> int:
        return self.ms // 3_600_000


def _moment(us: int) -> _Moment:
    day, rest = divmod(us, DAY_MICROS)
    return _Moment(*civil(day), (day + 4) % 7, day, rest)


def _padded(width: int, value: Callable[[_Moment], int]) -> tuple[int, Callable[[_Moment], int]]:
    return width, value


# Numbers: their width with leading zeros, without FM.
_NUMBERS: dict[str, tuple[int, Callable[[_Moment], int]]] = {
    "YYYY": _padded(4, lambda m: abs(shown_year(m.year))),
    "YYY": _padded(3, lambda m: abs(shown_year(m.year)) % 1000),
    "YY": _padded(2, lambda m: abs(shown_year(m.year)) % 100),
    "Y": _padded(1, lambda m: abs(shown_year(m.year)) % 10),
    "CC": _padded(2, lambda m: (m.year + 99) // 100 if m.year > 0 else m.year // 100),
    "IYYY": _padded(4, lambda m: abs(shown_year(iso_week(m.number)[0]))),
    "IYY": _padded(3, lambda m: abs(shown_year(iso_week(m.number)[0])) % 1000),
    "IY": _padded(2, lambda m: abs(shown_year(iso_week(m.number)[0])) % 100),
    "I": _padded(1, lambda m: abs(shown_year(iso_week(m.number)[0])) % 10),
    "IDDD": _padded(3, lambda m: (iso_week(m.number)[1] - 1) * 7 + (m.dow or 7)),
    "J": _padded(1, lambda m: m.number + _JULIAN),
    "MM": _padded(2, lambda m: m.month),
    "DDD": _padded(3, lambda m: m.number - day_of(m.year, 1, 1) + 1),
    "DD": _padded(2, lambda m: m.day),
    "D": _padded(1, lambda m: m.dow + 1),
    "ID": _padded(1, lambda m: m.dow or 7),
    "Q": _padded(1, lambda m: (m.month + 2) // 3),
    "IW": _padded(2, lambda m: iso_week(m.number)[1]),
    "WW": _padded(2, lambda m: (m.number - day_of(m.year, 1, 1)) // 7 + 1),
    "W": _padded(1, lambda m: (m.day - 1) // 7 + 1),
    "HH24": _padded(2, lambda m: m.hour),
    "HH12": _padded(2, lambda m: m.hour % 12 or 12),
    "HH": _padded(2, lambda m: m.hour % 12 or 12),
    "MI": _padded(2, lambda m: m.ms // 60_000 % 60),
    **{name: _padded(1, lambda m: m.ms // 1000) for name in ("SSSS", "SSSSS")},
    "SS": _padded(2, lambda m: m.ms // 1000 % 60),
    "MS": _padded(3, lambda m: m.ms % 1000),
    "US": _padded(6, lambda m: m.us % 1_000_000),
    **{f"FF{n}": _padded(n, lambda m, n=n: m.us % 1_000_000 // 10 ** (6 - n)) for n in range(1, 7)},  # type: ignore[misc]
}
# Texts; names are filled with blanks to nine characters, without FM.
_TEXTS: dict[str, Callable[[_Moment], str]] = {
    "MONTH": lambda m: _MONTHS[m.month - 1].upper().ljust(9),
    "Month": lambda m: _MONTHS[m.month - 1].ljust(9),
    "month": lambda m: _MONTHS[m.month - 1].lower().ljust(9),
    "MON": lambda m: _MONTHS[m.month - 1][:3].upper(),
    "Mon": lambda m: _MONTHS[m.month - 1][:3],
    "mon": lambda m: _MONTHS[m.month - 1][:3].lower(),
    "DAY": lambda m: _DAYS[m.dow].upper().ljust(9),
    "Day": lambda m: _DAYS[m.dow].ljust(9),
    "day": lambda m: _DAYS[m.dow].lower().ljust(9),
    "DY": lambda m: _DAYS[m.dow][:3].upper(),
    "Dy": lambda m: _DAYS[m.dow][:3],
    "dy": lambda m: _DAYS[m.dow][:3].lower(),
    **{name: lambda m: "AM" if m.hour < 12 else "PM" for name in ("AM", "PM")},
    **{name: lambda m: "am" if m.hour < 12 else "pm" for name in ("am", "pm")},
    **{name: lambda m: "A.M." if m.hour < 12 else "P.M." for name in ("A.M.", "P.M.")},
    **{name: lambda m: "a.m." if m.hour < 12 else "p.m." for name in ("a.m.", "p.m.")},
    **{name: lambda m: "BC" if m.year <= 0 else "AD" for name in ("BC", "AD")},
    **{name: lambda m: "bc" if m.year <= 0 else "ad" for name in ("bc", "ad")},
    **{name: lambda m: "B.C." if m.year <= 0 else "A.D." for name in ("B.C.", "A.D.")},
    **{name: lambda m: "b.c." if m.year <= 0 else "a.d." for name in ("b.c.", "a.d.")},
    "Y,YYY": lambda m: f"{abs(shown_year(m.year)) // 1000},{abs(shown_year(m.year)) % 1000:03d}",
    "RM": lambda m: _ROMAN[m.month - 1].ljust(4),
    "rm": lambda m: _ROMAN[m.month - 1].lower().ljust(4),
    "TZ": lambda m: "UTC",
    "tz": lambda m: "utc",
    "OF": lambda m: "+00",
    "TZH": lambda m: "+00",
    "TZM": lambda m: "00",
}
_KNOWN = sorted([*_NUMBERS, *_TEXTS], key=len, reverse=True)
# Of PostgreSQL's, not built: they are not to be taken for the shorter ones they begin with.
_OTHERS = ("TM", "FX", "SP")
_ZONED = ("TZ", "tz")  # nothing of a timestamp without time zone
_ORDINAL = ("TH", "th")


@dataclass(frozen=True, slots=True)
class _Item:
    """A part of a pattern: a name of the tables above, or text that stands for itself. ordinal: TH, th or nothing."""

    name: str = ""
    text: str = ""
    fill: bool = True
    ordinal: str = ""


@lru_cache(maxsize=256)
def items_of(pattern: str) -> tuple[_Item, ...]:
    """The parts of a pattern. Raises ValueError for patterns that PostgreSQL has and this does not."""
    found: list[_Item] = []
    at, fill = 0, True
    while at < len(pattern):
        if pattern[at] == '"':
            end = pattern.find('"', at + 1)
            end = len(pattern) if end < 0 else end
            found.append(_Item(text=pattern[at + 1 : end]))
            at = end + 1
            continue
        if pattern.startswith(("FM", "fm"), at):
            fill, at = False, at + 2
            continue
        name = _name(pattern, at)
        if not name:
            found.append(_Item(text=pattern[at]))
            at += 1
            continue
        at += len(name)
        ordinal = next((o for o in _ORDINAL if pattern.startswith(o, at)), "") if _canonical(name) in _NUMBERS else ""
        at += len(ordinal)
        found.append(_Item(_canonical(name), "", fill, ordinal))
        fill = True
    return tuple(found)


def _name(pattern: str, at: int) -> str:
    """The longest name that begins here; numbers are written in either case."""
    rest = pattern[at : at + 6]
    names = [n for n in _KNOWN if rest.startswith(n) or (n in _NUMBERS and rest.upper().startswith(n))]
    others = [n for n in _OTHERS if rest.upper().startswith(n.upper())]
    longest = names[0] if names else ""
    for other in others:
        if len(other) > len(longest):
            raise ValueError(f"the pattern {other} of {pattern!r} is not supported")
    return rest[: len(longest)]


def _canonical(name: str) -> str:
    return name.upper() if name.upper() in _NUMBERS else name


def to_char(ms: int, pattern: str, *, zoned: bool = False) -> str:
    """A timestamp as the pattern says. zoned: it is a moment, shown in UTC. Raises ValueError."""
    return to_char_micros(ms * 1000, pattern, zoned=zoned)


def to_char_micros(us: int, pattern: str, *, zoned: bool = False) -> str:
    """As `to_char`, of microseconds. Raises ValueError."""
    moment, out = _moment(us), []
    for item in items_of(pattern):
        if not zoned and item.name in _ZONED:
            continue
        if not item.name:
            out.append(item.text)
        elif item.name in _TEXTS:
            text = _TEXTS[item.name](moment)
            out.append(text if item.fill else text.rstrip())
        else:
            width, value = _NUMBERS[item.name]
            n = value(moment)
            out.append(f"{n:0{width if item.fill else 1}d}" + (_ordinal(n, item.ordinal) if item.ordinal else ""))
    return "".join(out)


def _ordinal(n: int, written: str) -> str:
    text = "th" if n % 100 in (11, 12, 13) else {1: "st", 2: "nd", 3: "rd"}.get(n % 10, "th")
    return text.upper() if written == "TH" else text


# --- reading ---

_READ = {"YYYY": r"\d{1,4}", "MM": r"\d{1,2}", "DD": r"\d{1,2}", "HH24": r"\d{1,2}", "HH12": r"\d{1,2}", "HH": r"\d{1,2}",
         "MI": r"\d{1,2}", "SS": r"\d{1,2}", "MS": r"\d{1,3}", "US": r"\d{1,6}", "DDD": r"\d{1,3}"}  # fmt: skip


@lru_cache(maxsize=256)
def _reader(pattern: str) -> tuple[re.Pattern[str], tuple[str, ...]]:
    """An expression with a group per part, and the names of the parts. Raises ValueError."""
    parts, names = [], []
    for item in items_of(pattern):
        if not item.name:
            parts.append(r"\s*" if item.text.isspace() else re.escape(item.text))
            continue
        name = item.name.upper()
        if item.ordinal or name in names or (name not in _READ and name not in ("MONTH", "MON", "AM", "PM")):
            raise ValueError(f"the pattern {item.name} of {pattern!r} cannot be read")
        names.append(name)
        listed = _MONTHS if name == "MONTH" else [m[:3] for m in _MONTHS]
        parts.append(f"({_READ.get(name) or ('|'.join(listed) if name in ('MONTH', 'MON') else 'AM|PM')})")
    return re.compile(r"\s*" + "".join(parts) + r"\s*", re.IGNORECASE | re.ASCII), tuple(names)


def parsed(text: str, pattern: str) -> int:
    """The timestamp that a text is by a pattern; parts that are not there are the least. Raises ValueError."""
    expression, names = _reader(pattern)
    match = expression.fullmatch(text)
    if match is None:
        raise ValueError(f"{text!r} is not written as {pattern!r}")
    got = dict(zip(names, match.groups(), strict=True))
    year, hour = int(got.get("YYYY", 1)), int(got.get("HH24", 0))
    short = got.get("MONTH", got.get("MON"))
    month = [m[:3].upper() for m in _MONTHS].index(short[:3].upper()) + 1 if short else int(got.get("MM", 1))
    day = int(got.get("DD", 1))
    twelve = got.get("HH12", got.get("HH"))
    if twelve is not None:
        if not 1 <= int(twelve) <= 12:
            raise ValueError(f'hour "{twelve}" is invalid for the 12-hour clock')
        hour = int(twelve) % 12 + (12 if (got.get("PM") or got.get("AM") or "").upper() == "PM" else 0)
    minute, second = int(got.get("MI", 0)), int(got.get("SS", 0))
    micros = int(got["US"].ljust(6, "0")) if "US" in got else int(got.get("MS", "0").ljust(3, "0")) * 1000
    if "MS" in got:
        micros = int(got["MS"].ljust(3, "0")) * 1000
    valid = (
        year > 0
        and 1 <= month <= 12
        and 1 <= day <= month_days(year, month)
        and hour < 24
        and minute < 60
        and second < 60
    )
    if not valid or micros % 1000 or ("DDD" in got and not {"MM", "MON", "MONTH", "DD"}.isdisjoint(got)):
        raise ValueError(f"date/time field value out of range: {text!r}")
    days = day_of(year, month, day)
    if "DDD" in got:
        days += int(got["DDD"]) - 1
        if civil(days)[0] != year or int(got["DDD"]) < 1:
            raise ValueError(f"date/time field value out of range: {text!r}")
    return checked_timestamp(days * DAY_MS + ((hour * 60 + minute) * 60 + second) * 1000 + micros // 1000)


def _of_epoch(seconds: float) -> int:
    if not math.isfinite(seconds):
        raise NumericOverflow("timestamp out of range")
    micros = round(seconds * 1_000_000)
    if micros % 1000:
        raise ValueError(f"{seconds} has parts of a millisecond, which are not supported")
    return checked_timestamp(micros // 1000)


standard(
    "TO_CHAR",
    takes(TIMESTAMP, STRING, gives=STRING),
    takes(TIMESTAMPTZ, STRING, gives=STRING),
    takes(MICROS, STRING, gives=STRING),
    takes(MICROSTZ, STRING, gives=STRING),
    by_types=lambda r: partial(by_unit(to_char, to_char_micros)(r), zoned=r.args[0].zoned),
    summary="A timestamp as a text, by a pattern of PostgreSQL (`YYYY-MM-DD HH24:MI:SS.MS`, `Mon`, `Day`, `IW`, `Q`, `AM`, with FM and TH); "
    "or a number (`FM999,990.00`, with S, MI, SG or PR for its sign).",
    example="sql_to_char(sql_make_timestamp(2024, 2, 9, 15, 4, 5.5), 'FMDDth Mon YYYY, HH12:MI AM') -> '9th Feb 2024, 03:04 PM'",
)
standard(
    "TO_DATE",
    takes(STRING, STRING, gives=DATE),
    by=lambda text, pattern: parsed(text, pattern) // DAY_MS,
    name="sql_to_date_by",
    summary="The date that a text is by a pattern of PostgreSQL.",
    example="sql_date_part('doy', sql_to_date_by('05 Feb 2024', 'DD Mon YYYY')) -> 36.0",
)
standard(
    "TO_TIMESTAMP",
    takes(STRING, STRING, gives=TIMESTAMPTZ),
    takes(DOUBLE, gives=TIMESTAMPTZ),
    by_types=lambda r: parsed if len(r.args) == 2 else _of_epoch,
    name="sql_to_timestamp_by",
    summary="The moment that a text, in UTC, is by a pattern of PostgreSQL; or so many seconds after 1970.",
    example="sql_date_part('hour', sql_to_timestamp_by('05.02.2024 17:30', 'DD.MM.YYYY HH24:MI')) -> 17.0",
)
