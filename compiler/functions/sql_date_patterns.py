"""Patterns of TO_CHAR, TO_DATE and TO_TIMESTAMP in their parts, as PostgreSQL reads them (`formatting.c: parse_format`)."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache

# Fields in the two cases in which they are written; of these the first that fits is taken.
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
