"""Sets of code points: sorted ranges that neither meet nor touch, both ends included."""

from __future__ import annotations

import unicodedata
from bisect import bisect_right
from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache

Ranges = tuple[tuple[int, int], ...]
LAST = 0x10FFFF
EVERY: Ranges = ((0, LAST),)
NONE: Ranges = ()
ASCII: Ranges = ((0, 0x7F),)


def union(*sets: Ranges) -> Ranges:
    made: list[tuple[int, int]] = []
    for low, high in sorted(r for s in sets for r in s):
        if made and low <= made[-1][1] + 1:
            made[-1] = (made[-1][0], max(made[-1][1], high))
        else:
            made.append((low, high))
    return tuple(made)


def complement(ranges: Ranges) -> Ranges:
    made, start = [], 0
    for low, high in ranges:
        if low > start:
            made.append((start, low - 1))
        start = high + 1
    return (*made, (start, LAST)) if start <= LAST else tuple(made)


def intersection(a: Ranges, b: Ranges) -> Ranges:
    made, i, j = [], 0, 0
    while i < len(a) and j < len(b):
        low, high = max(a[i][0], b[j][0]), min(a[i][1], b[j][1])
        if low <= high:
            made.append((low, high))
        if a[i][1] < b[j][1]:
            i += 1
        else:
            j += 1
    return tuple(made)


def chars(text: str) -> Ranges:
    """The characters of a text."""
    return union(tuple((ord(c), ord(c)) for c in text))


def between(*pairs: str) -> Ranges:
    """`between("az", "09")`: ranges by their first and last characters."""
    return union(tuple((ord(p[0]), ord(p[1])) for p in pairs))


# Surrogates, planes 4 to 13 and what is behind the tags of plane 14 have one category each, as the two planes of private use have.
_ALIKE = ((0xD800, 0xDFFF), (0x33480, 0xDFFFF), (0xE0200, 0xEFFFF), (0xF0000, 0xFFFFD), (0x100000, 0x10FFFD))


@lru_cache(maxsize=64)
def where(test: Callable[[str], bool]) -> Ranges:
    """The characters for which a function is true. test: of the module, so that it is asked once."""
    made = [r for r in _ALIKE if test(chr(r[0]))]
    for low, high in complement(_ALIKE):
        start = -1
        for point in range(low, high + 2):
            holds = point <= high and test(chr(point))
            if holds and start < 0:
                start = point
            elif not holds and start >= 0:
                made.append((start, point - 1))
                start = -1
    return union(tuple(made))


@lru_cache(maxsize=64)
def category(name: str) -> Ranges:
    """A general category, of one letter or two."""
    return where(_Category(name))


@dataclass(frozen=True, slots=True)
class _Category:
    name: str

    def __call__(self, c: str) -> bool:
        return unicodedata.category(c).startswith(self.name)


def holds(ranges: Ranges, point: int) -> bool:
    at = bisect_right(ranges, point, key=lambda r: r[0])
    return at > 0 and point <= ranges[at - 1][1]


def both_cases_ascii(ranges: Ranges) -> Ranges:
    """With the other case of each ASCII letter."""
    upper, lower = intersection(ranges, between("AZ")), intersection(ranges, between("az"))
    return union(ranges, tuple((a + 32, b + 32) for a, b in upper), tuple((a - 32, b - 32) for a, b in lower))


@lru_cache(maxsize=2_000)
def both_cases(ranges: Ranges) -> Ranges:
    """With the large and the small letter of each character, where that is one character."""
    if len(ranges) == 1 and ranges[0][0] == ranges[0][1]:
        c = chr(ranges[0][0])
        return chars("".join(o for o in (c, c.lower(), c.upper()) if len(o) == 1))
    made = list(both_cases_ascii(ranges))
    for point, others in _cases():
        if any(low <= point <= high for low, high in ranges):
            made += ((other, other) for other in others)
    return union(tuple(made))


@lru_cache(maxsize=1)
def _cases() -> tuple[tuple[int, tuple[int, ...]], ...]:
    """Characters beyond ASCII that have another case, with it; ASCII's own are of ASCII."""
    made = []
    for point in (*range(0x80, 0xD800), *range(0xE000, 0x1E944)):
        c = chr(point)
        others = tuple(ord(o) for o in {c.lower(), c.upper()} if len(o) == 1 and o != c)
        if others:
            made.append((point, others))
    return tuple(made)
