"""TO_CHAR of timestamps by PostgreSQL's patterns, and these patterns."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache, partial

from flowql.compiler.functions.registry import standard, takes
from flowql.compiler.functions.sql_calendar import by_unit, civil, day_of, iso_week, shown_year
from flowql.compiler.functions.sql_intervals import DAY_MICROS
from flowql.compiler.functions.temporal import MONTHS
from flowql.compiler.plan.types import MICROS, MICROSTZ, STRING, TIMESTAMP, TIMESTAMPTZ

# Fields in the two cases in which they are written; of these the first that fits is taken.

# --- patterns in their parts, as PostgreSQL reads them (`formatting.c: parse_format`) ---

_FIELDS = (
    "A.D.", "A.M.", "AD", "AM", "B.C.", "BC", "CC", "DAY", "DDD", "DD", "DY", "D", "FF1", "FF2", "FF3", "FF4", "FF5", "FF6", "FX", "HH24", "HH12",
    "HH", "IDDD", "ID", "IW", "IYYY", "IYY", "IY", "I", "J", "MI", "MM", "MONTH", "MON", "MS", "OF", "P.M.", "PM", "Q", "RM", "SSSSS", "SSSS", "SS",
    "TZH", "TZM", "TZ", "US", "WW", "W", "Y,YYY", "YYYY", "YYY", "YY", "Y",
)  # fmt: skip
_NAMED = ("Month", "Mon", "Day", "Dy")
_KNOWN = (*_NAMED, *_FIELDS, *(f.lower() for f in _FIELDS))
NAMES = ("DAY", "DY", "MONTH", "MON", "A.D.", "B.C.", "A.M.", "P.M.", "AD", "BC", "AM", "PM", "RM")
_NO_DIGITS = frozenset({*NAMES, "FX", "OF", "TZH", "TZ"})


@dataclass(frozen=True, slots=True)
class Part:
    """A field of a pattern, or one character that stands for itself.

    field: as it is written, or nothing. fill: without FM. ordinal: TH, th or nothing. quoted: the character stands in double quotes.
    """

    field: str = ""
    text: str = ""
    fill: bool = True
    ordinal: str = ""
    quoted: bool = False

    @property
    def name(self) -> str:
        """The field in capitals."""
        return self.field.upper()

    @property
    def is_space(self) -> bool:
        return not self.quoted and self.text in (" ", "\t", "\n", "\r", "\v", "\f")

    @property
    def is_separator(self) -> bool:
        return not self.quoted and separates(self.text)

    @property
    def is_digit(self) -> bool:
        """Whether digits follow here in a text."""
        return self.name not in _NO_DIGITS if self.field else self.text in tuple("0123456789")


def separates(c: str) -> bool:
    """Whether a character is visible ASCII, and neither a letter nor a digit."""
    return "!" <= c <= "~" and not c.isalnum()


@lru_cache(maxsize=256)
def parts_of(pattern: str) -> tuple[Part, ...]:
    """Raises ValueError for what PostgreSQL has and this does not."""
    found: list[Part] = []
    at = 0
    while at < len(pattern):
        fill = not pattern.startswith(("FM", "fm"), at)
        at += 0 if fill else 2
        _check(pattern, at, "TM")
        field = next((f for f in _KNOWN if pattern.startswith(f, at)), "")
        if field:
            at += len(field)
            _check(pattern, at, "SP")
            ordinal = pattern[at : at + 2] if pattern.startswith(("TH", "th"), at) else ""
            at += len(ordinal)
            found.append(Part(field, "", fill, ordinal))
        elif at < len(pattern):
            at = _characters(pattern, at, found)
    return tuple(found)


def _check(pattern: str, at: int, word: str) -> None:
    if pattern.startswith((word, word.lower()) if word == "TM" else word, at):
        raise ValueError(f"the pattern {word} of {pattern!r} is not supported")


def _characters(pattern: str, at: int, found: list[Part]) -> int:
    """Adds what stands for itself, a text in double quotes as a whole. Gives where it ends."""
    if pattern[at] != '"':
        at += pattern.startswith('\\"', at)
        found.append(Part(text=pattern[at]))
        return at + 1
    at += 1
    while at < len(pattern) and pattern[at] != '"':
        at += pattern[at] == "\\" and at + 1 < len(pattern)
        found.append(Part(text=pattern[at], quoted=True))
        at += 1
    return at + 1


ROMAN = ["I", "II", "III", "IV", "V", "VI", "VII", "VIII", "IX", "X", "XI", "XII"]
JULIAN = 2_440_588  # the number of 1970-01-01
DAYS = ["Sunday", "Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday"]


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
    "J": _padded(1, lambda m: m.number + JULIAN),
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
_FRACTIONS = ("MS", "US", *(f"FF{n}" for n in range(1, 7)))  # have all their digits with FM, too
# Texts; names are filled with blanks to nine characters, without FM.
_TEXTS: dict[str, Callable[[_Moment], str]] = {
    "MONTH": lambda m: MONTHS[m.month - 1].upper().ljust(9),
    "Month": lambda m: MONTHS[m.month - 1].ljust(9),
    "month": lambda m: MONTHS[m.month - 1].lower().ljust(9),
    "MON": lambda m: MONTHS[m.month - 1][:3].upper(),
    "Mon": lambda m: MONTHS[m.month - 1][:3],
    "mon": lambda m: MONTHS[m.month - 1][:3].lower(),
    "DAY": lambda m: DAYS[m.dow].upper().ljust(9),
    "Day": lambda m: DAYS[m.dow].ljust(9),
    "day": lambda m: DAYS[m.dow].lower().ljust(9),
    "DY": lambda m: DAYS[m.dow][:3].upper(),
    "Dy": lambda m: DAYS[m.dow][:3],
    "dy": lambda m: DAYS[m.dow][:3].lower(),
    **{name: lambda m: "AM" if m.hour < 12 else "PM" for name in ("AM", "PM")},
    **{name: lambda m: "am" if m.hour < 12 else "pm" for name in ("am", "pm")},
    **{name: lambda m: "A.M." if m.hour < 12 else "P.M." for name in ("A.M.", "P.M.")},
    **{name: lambda m: "a.m." if m.hour < 12 else "p.m." for name in ("a.m.", "p.m.")},
    **{name: lambda m: "BC" if m.year <= 0 else "AD" for name in ("BC", "AD")},
    **{name: lambda m: "bc" if m.year <= 0 else "ad" for name in ("bc", "ad")},
    **{name: lambda m: "B.C." if m.year <= 0 else "A.D." for name in ("B.C.", "A.D.")},
    **{name: lambda m: "b.c." if m.year <= 0 else "a.d." for name in ("b.c.", "a.d.")},
    "Y,YYY": lambda m: f"{abs(shown_year(m.year)) // 1000},{abs(shown_year(m.year)) % 1000:03d}",
    "RM": lambda m: ROMAN[m.month - 1].ljust(4),
    "rm": lambda m: ROMAN[m.month - 1].lower().ljust(4),
    "TZ": lambda m: "UTC",
    "tz": lambda m: "utc",
    "OF": lambda m: "+00",
    "TZH": lambda m: "+00",
    "TZM": lambda m: "00",
}
_ZONED = ("TZ", "tz")  # nothing of a timestamp without time zone


def to_char(ms: int, pattern: str, *, zoned: bool = False) -> str:
    """A timestamp as the pattern says. zoned: it is a moment, shown in UTC. Raises ValueError."""
    return to_char_micros(ms * 1000, pattern, zoned=zoned)


def to_char_micros(us: int, pattern: str, *, zoned: bool = False) -> str:
    """As `to_char`, of microseconds. Raises ValueError."""
    moment = _moment(us)
    return "".join(_written(p, moment) for p in parts_of(pattern) if zoned or p.field not in _ZONED)


def _written(part: Part, moment: _Moment) -> str:
    if not part.field or part.name == "FX":
        return part.text
    if part.name in _NUMBERS:
        width, value = _NUMBERS[part.name]
        n = value(moment)
        width += n < 0  # a century before Christ
        return f"{n:0{width if part.fill or part.name in _FRACTIONS else 1}d}" + (
            _ordinal(abs(n), part.ordinal) if part.ordinal else ""
        )
    text = (_TEXTS.get(part.field) or _TEXTS[part.name])(moment)
    if part.name == "Y,YYY" and part.ordinal:
        return text + _ordinal(abs(shown_year(moment.year)), part.ordinal)
    return text if part.fill else "+0" if part.name == "OF" else text.rstrip()


def _ordinal(n: int, written: str) -> str:
    text = "th" if n % 100 in (11, 12, 13) else {1: "st", 2: "nd", 3: "rd"}.get(n % 10, "th")
    return text.upper() if written == "TH" else text


standard(
    "TO_CHAR",
    takes(TIMESTAMP, STRING, gives=STRING),
    takes(TIMESTAMPTZ, STRING, gives=STRING),
    takes(MICROS, STRING, gives=STRING),
    takes(MICROSTZ, STRING, gives=STRING),
    by_types=lambda r: partial(by_unit(to_char, to_char_micros)(r), zoned=r.args[0].zoned),
)
