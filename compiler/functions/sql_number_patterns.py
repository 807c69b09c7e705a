"""TO_CHAR and TO_NUMBER of numbers by PostgreSQL's patterns: 9, 0, a point (D), a comma (G), the sign (S, MI, SG, PR), FM, and texts in double quotes.

What PostgreSQL has beyond these (V, EEEE, RN, TH, L, PL), and what a text has that the pattern does not, is an error.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from decimal import ROUND_HALF_UP, Decimal
from functools import lru_cache

from flowql.compiler.functions.numeric import MAX_PRECISION, WIDE, fit_decimal
from flowql.compiler.functions.registry import Reference, define, resolver, standard, takes
from flowql.compiler.functions.signatures import DEC, Resolution
from flowql.compiler.functions.sums import NUMERIC_SCALE
from flowql.compiler.plan.types import BIGINT, DOUBLE, INT, STRING, decimal

_DIGITS = ("9", "0")
_POINTS, _GROUPS, _SIGNS = (".", "D"), (",", "G"), ("MI", "SG", "S", "PR")
_WORDS = (*_DIGITS, *_POINTS, *_GROUPS, *_SIGNS)
_DIGITS_MAX = MAX_PRECISION
_DOUBLE_DIGITS = 15  # more of a DOUBLE are not shown


@dataclass(frozen=True, slots=True)
class NumberPattern:
    """A pattern in its parts: names of _WORDS, and texts, which have a quote in front.

    whole, behind: digits in front of the point and behind it. zeros: the place of the first 0 in front of the point, or `whole`.
    kept: so many digits behind the point are written with FM even where they are 0.
    """

    written: str
    parts: tuple[str, ...]
    fill: bool
    sign: str
    whole: int
    behind: int
    zeros: int
    kept: int


@lru_cache(maxsize=256)
def number_pattern(pattern: str) -> NumberPattern:
    """Raises ValueError for what is no pattern, or one that is not supported."""
    parts, fill = _parts(pattern)
    points = [i for i, p in enumerate(parts) if p in _POINTS]
    if len(points) > 1:
        raise ValueError(f"multiple decimal points in the pattern {pattern!r}")
    point = points[0] if points else len(parts)
    digits = [p for p in parts[:point] if p in _DIGITS]
    fraction = [p for p in parts[point:] if p in _DIGITS]
    if not digits or (points and not fraction):
        raise ValueError(f"the pattern {pattern!r} needs a 9 or 0 in front of the point, and behind it")
    if len(digits) + len(fraction) > _DIGITS_MAX:
        raise ValueError(f"the pattern {pattern!r} has more than {_DIGITS_MAX} digits")
    if any(p in _GROUPS for p in parts[point:]):
        raise ValueError(f"the pattern {pattern!r} has a comma behind the point")
    if points and not fill and parts[point - 1] in _GROUPS:
        raise ValueError(f"the pattern {pattern!r} has FM, and a comma in front of the point")
    zeros = digits.index("0") if "0" in digits else len(digits)
    kept = max((i + 1 for i, p in enumerate(fraction) if p == "0"), default=0)
    sign = _sign_of(pattern, parts, stripped=bool(points) and not fill)
    return NumberPattern(pattern, parts, fill, sign, len(digits), len(fraction), zeros, kept)


def _parts(pattern: str) -> tuple[tuple[str, ...], bool]:
    """The parts, and whether blanks fill up what has no digit (without FM)."""
    found: list[str] = []
    at, fill = 0, True
    while at < len(pattern):
        rest = pattern[at : at + 2].upper()
        word = next((w for w in ("FM", *sorted(_WORDS, key=len, reverse=True)) if rest.startswith(w)), "")
        if pattern[at] == '"':
            end = pattern.find('"', at + 1)
            end = len(pattern) if end < 0 else end
            found.append('"' + pattern[at + 1 : end])
            at = end + 1
        elif word and pattern[at : at + len(word)] in (word, word.lower()):
            fill = fill and word != "FM"
            found += [word] if word != "FM" else []
            at += len(word)
        elif pattern[at].isalnum() or pattern[at] == "\\":
            raise ValueError(
                f"{pattern[at]!r} in the pattern {pattern!r} is not supported; put literal characters in double quotes"
            )
        else:
            found.append('"' + pattern[at])
            at += 1
    return tuple(found), fill


def _sign_of(pattern: str, parts: Sequence[str], *, stripped: bool) -> str:
    """How the sign is written: nothing (in front of the digits), S in front or "S behind", MI, SG or PR. stripped: zeros behind the point are."""
    places = [i for i, p in enumerate(parts) if p in _SIGNS]
    if not places:
        return ""
    if len(places) > 1:
        raise ValueError(f"the pattern {pattern!r} has more than one sign")
    (at,) = places
    numbers = [i for i, p in enumerate(parts) if p in (*_DIGITS, *_POINTS, *_GROUPS)]
    behind = at > numbers[-1]
    if parts[at] in ("S", "PR"):
        is_next = parts[at - 1] in (*_DIGITS, *_POINTS)  # PostgreSQL writes the sign in front of a last comma
        if (not behind and at > numbers[0]) or (behind and not is_next) or (parts[at] == "PR" and not behind):
            raise ValueError(f"{parts[at]} stands at an end of the digits, PR behind them: {pattern!r}")
        if behind and stripped:
            raise ValueError(f"{parts[at]} behind digits with FM and a point is not supported: {pattern!r}")
    return "S behind" if parts[at] == "S" and behind else parts[at]


# --- writing ---


def written(v: int | float | Decimal, pattern: str) -> str:
    """A number as the pattern says; # in the place of digits where there are too many. Raises ValueError."""
    p = number_pattern(pattern)
    negative, whole, fraction = _digits_of(v, p)
    if len(whole) > p.whole:
        whole, fraction = "#" * p.whole, "#" * p.behind
    return _Writer(p, whole, fraction, negative=negative).text()


def _digits_of(v: int | float | Decimal, p: NumberPattern) -> tuple[bool, str, str]:
    """Whether it is negative, and its digits in front of the point and behind it, rounded."""
    if isinstance(v, float):
        if not math.isfinite(v):
            raise ValueError(f"{v} cannot be written by a pattern")
        behind = max(0, min(p.behind, _DOUBLE_DIGITS - len(f"{abs(v):.0f}")))
        text = f"{v:.{behind}f}"
    else:
        behind = p.behind
        rounded = Decimal(v).quantize(Decimal(1).scaleb(-behind), ROUND_HALF_UP, WIDE)
        text = f"{rounded if rounded else abs(rounded):f}"
    whole, _, fraction = text.removeprefix("-").partition(".")
    return text.startswith("-"), whole, fraction.ljust(p.behind, "0")


class _Writer:
    """Writes one number part by part: blanks up to its first digit, with its sign in front of that."""

    def __init__(self, p: NumberPattern, whole: str, fraction: str, *, negative: bool) -> None:
        self._p, self._negative = p, negative
        self._digits = whole.rjust(p.whole)
        self._fraction = fraction
        self._shown = p.behind if p.fill else max(p.kept, len(fraction.rstrip("0")))
        # The 0 in front of the point goes where no 0 of the pattern asks for it; with FM not if nothing is behind the point.
        if whole == "0" and p.behind and p.zeros == p.whole and (p.fill or self._shown):
            self._digits = " " * p.whole
        self._out: list[str] = []
        self._signed = p.sign not in ("", "S", "PR")
        self._inside = False  # behind a digit

    def text(self) -> str:
        place, of_fraction = 0, 0
        for part in self._p.parts:
            if part.startswith('"'):
                self._out.append(part[1:])
            elif part in _SIGNS:
                self._sign(part)
            elif part in _GROUPS:
                self._blank_or(",", shown=self._inside)
            elif part in _POINTS:
                self._anchor()
                self._out.append(".")
                of_fraction = 1
            elif of_fraction:
                self._out.append(self._fraction[of_fraction - 1] if of_fraction <= self._shown else "")
                of_fraction += 1
            else:
                self._whole_digit(place)
                place += 1
        return "".join(self._out)

    def _whole_digit(self, place: int) -> None:
        digit = self._digits[place]
        if digit == " " and place >= self._p.zeros:
            digit = "0"
        self._inside = digit != " "
        if self._inside:
            self._anchor()
        self._blank_or(digit, shown=self._inside)

    def _blank_or(self, text: str, *, shown: bool) -> None:
        if shown or self._p.fill:
            self._out.append(text if shown else " ")

    def _anchor(self) -> None:
        """The sign in front of what is written first."""
        if self._signed:
            return
        self._signed = True
        if self._p.sign == "S":
            self._out.append("-" if self._negative else "+")
        elif self._negative:
            self._out.append("<" if self._p.sign == "PR" else "-")
        elif self._p.fill:
            self._out.append(" ")

    def _sign(self, part: str) -> None:
        if part == "SG" or self._p.sign == "S behind":
            self._out.append("-" if self._negative else "+")
        elif part == "MI":
            self._blank_or("-", shown=self._negative)
        elif part == "PR":
            self._blank_or(">", shown=self._negative)


# --- reading ---


def read(text: str, pattern: str) -> Decimal:
    """The number that a text is by a pattern; it may have less digits, and no commas. Raises ValueError."""
    p = number_pattern(pattern)
    failure = ValueError(f"{text!r} is not written as {pattern!r}")
    if p.sign == "SG":
        raise ValueError(f"SG in the pattern {pattern!r} cannot be read")
    parts = [part for part in p.parts if part not in _SIGNS]
    rest = text.strip(" ")
    blank = max(0, len(text.rstrip(" ")) - len(rest) - 1)  # places of digits that blanks in front take
    while parts and parts[0].startswith('"'):
        literal = parts.pop(0)[1:]
        if not rest.startswith(literal):
            raise failure
        rest = rest[len(literal) :].lstrip(" ")
    if any(part.startswith('"') for part in parts):
        raise ValueError(f"the pattern {pattern!r} has literal characters behind its first digit, which cannot be read")
    negative, digits, blanks = _without_sign(rest, p)
    found = "".join(_consumed(digits, parts, failure))
    whole, _, fraction = found.partition(".")
    if not found.strip(".") or blank + blanks + len(whole) > p.whole or len(fraction) > p.behind:
        raise failure
    return Decimal(found) * (-1 if negative else 1)


def _without_sign(text: str, p: NumberPattern) -> tuple[bool, str, int]:
    """Whether the number is negative, the text without its sign, and the number of blanks that stood behind a sign in front."""
    if p.sign == "PR":
        inside = text.startswith("<") and text.endswith(">")
        return inside, text[1:-1] if inside else text, 0
    behind = p.sign == "S behind" or (p.sign == "MI" and p.parts[-1] == "MI")
    sign = text[-1:] if behind else text[:1]
    if sign not in ("-", "+") or (sign == "+" and p.sign == "MI"):
        return False, text, 0
    if behind:
        return sign == "-", text[:-1], 0
    digits = text[1:].lstrip(" ")
    return sign == "-", digits, len(text) - 1 - len(digits)


def _consumed(text: str, parts: Sequence[str], failure: ValueError) -> list[str]:
    """From the left on, a character for each part of the pattern; a comma in the place of a digit takes that place, as in PostgreSQL."""
    found: list[str] = []
    at = 0
    for part in parts:
        c = text[at : at + 1]
        if part in _GROUPS:
            at += c == ","
            continue
        if not c:
            break
        pointed = "." in found
        if not (c in "0123456789" or (c == "," and not pointed) or (c == "." and not pointed)):
            raise failure
        if c == "." and not any(x in _POINTS for x in parts):
            raise failure
        found += [c] if c != "," else []
        at += 1
    if at < len(text):
        raise failure
    return found


_READ = decimal(MAX_PRECISION, NUMERIC_SCALE)


def _number(_r: Resolution) -> Reference:
    return lambda text, pattern: fit_decimal(read(text, pattern), _READ.precision, _READ.scale)


define(
    "sql_number_to_char",
    resolver("TO_CHAR", *(takes(t, STRING, gives=STRING) for t in (INT, BIGINT, DEC, DOUBLE))),
    lambda _r: written,
)
standard("TO_NUMBER", takes(STRING, STRING, gives=_READ), by_types=_number)
