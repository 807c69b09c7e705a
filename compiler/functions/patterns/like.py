"""LIKE and ILIKE: a greedy search of the segments between the % of a pattern.

The first segment stands at the beginning of the string, the last one at its end, and each of the others at the first place behind the one before:
a later place would only leave less to the segments behind it. So no place is tried twice.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import lru_cache, partial

ANY, ONE = "%", "_"
CACHED_CHARS_MAX = 1_000  # of a pattern: the segments of one take a hundred times its memory


@dataclass(frozen=True, slots=True)
class Segment:
    """Characters between two %. runs: (distance from its beginning, text) of what lies between its _; size: in characters.

    The longest run is the first one: it is searched for, the others are compared.
    """

    runs: tuple[tuple[int, str], ...]
    size: int

    def at(self, s: str, place: int) -> bool:
        """Whether it stands there. place: from 0 to `len(s) - size`."""
        return all(s.startswith(run, place + offset) for offset, run in self.runs)

    def find(self, s: str, start: int, end: int) -> int:
        """The first place from `start` on where it stands and ends at or before `end`, or -1."""
        last = end - self.size
        if not self.runs:
            return start if start <= last else -1
        offset, run = self.runs[0]
        place = start
        while place <= last:
            found = s.find(run, place + offset, last + offset + len(run))
            if found < 0:
                return -1
            if self.at(s, found - offset):
                return found - offset
            place = found - offset + 1
        return -1


@dataclass(frozen=True, slots=True)
class LikePattern:
    """A pattern in segments: one alone is the whole string. texts: the segments where none has a _."""

    segments: tuple[Segment, ...]
    texts: tuple[str, ...] | None = None

    def matches(self, s: str) -> bool:
        """Whether all of a string is what the pattern describes."""
        if self.texts is not None:
            return _has_texts(s, self.texts)
        first, last = self.segments[0], self.segments[-1]
        if len(self.segments) == 1:
            return len(s) == first.size and first.at(s, 0)
        end = len(s) - last.size
        if end < first.size or not first.at(s, 0) or not last.at(s, end):
            return False
        place = first.size
        for segment in self.segments[1:-1]:
            found = segment.find(s, place, end)
            if found < 0:
                return False
            place = found + segment.size
        return True

    def test(self) -> Callable[[str], bool]:
        """`matches`, for many strings."""
        if self.texts is None:
            return self.matches
        if len(self.texts) == 1:
            return self.texts[0].__eq__
        first, *inner, last = self.texts
        if first or last:
            return partial(_has_texts, texts=self.texts)
        return _has_one(inner[0]) if len(inner) == 1 else partial(_has_inside, inner=[(t, len(t)) for t in inner])


def _has_one(text: str) -> Callable[[str], bool]:
    return lambda s: text in s


def _has_inside(s: str, inner: Sequence[tuple[str, int]]) -> bool:
    """As `_has_texts`, where neither the first nor the last one has characters. inner: the others with their lengths."""
    place = 0
    for text, size in inner:
        found = s.find(text, place)
        if found < 0:
            return False
        place = found + size
    return True


def _has_texts(s: str, texts: tuple[str, ...]) -> bool:
    """As `LikePattern.matches`, of segments without a _."""
    if len(texts) == 1:
        return s == texts[0]
    place, end = len(texts[0]), len(s) - len(texts[-1])
    if end < place or not s.startswith(texts[0]) or not s.endswith(texts[-1]):
        return False
    for text in texts[1:-1]:
        found = s.find(text, place, end)
        if found < 0:
            return False
        place = found + len(text)
    return True


def _of_segments(segments: Iterable[Segment]) -> LikePattern:
    made = tuple(segments)
    texts = tuple(s.runs[0][1] if s.runs else "" for s in made)
    plain = all(len(text) == s.size for text, s in zip(texts, made, strict=True))
    return LikePattern(made, texts if plain else None)


def like_pattern(pattern: str, escape: str = "\\") -> LikePattern:
    """The segments of a pattern. Raises ValueError for a bad escape."""
    return (_known if len(pattern) <= CACHED_CHARS_MAX else _read)(pattern, escape)


def _read(pattern: str, escape: str) -> LikePattern:
    if len(escape) != 1:
        raise ValueError(f"the escape of LIKE must be one character, not {escape!r}")
    segments: list[list[str]] = [[]]
    chars = iter(pattern)
    for c in chars:
        if c == escape:
            escaped = next(chars, None)
            if escaped is None:
                raise ValueError(f"the LIKE pattern {pattern!r} ends with its escape character")
            segments[-1].append(escaped)
        elif c == ANY:
            segments.append([])
        else:
            segments[-1].append("" if c == ONE else c)
    # An empty segment between two % changes nothing.
    kept = [s for i, s in enumerate(segments) if s or i in (0, len(segments) - 1)]
    return _of_segments(map(_segment, kept))


_known = lru_cache(maxsize=512)(_read)


def _segment(chars: list[str]) -> Segment:
    """chars: empty for any one character."""
    runs: list[tuple[int, str]] = []
    start = 0
    for i in range(len(chars) + 1):
        if i == len(chars) or not chars[i]:
            if i > start:
                runs.append((start, "".join(chars[start:i])))
            start = i + 1
    return Segment(tuple(sorted(runs, key=lambda run: -len(run[1]))), len(chars))


def like(s: str, pattern: str, escape: str = "\\") -> bool:
    """LIKE: % any text, _ one character, backslash escapes unless ESCAPE names another."""
    return like_pattern(pattern, escape).matches(s)


def small_letters(s: str) -> str:
    """Each character as a small letter, which is one character."""
    # `lower` makes two of the first one, and a final sigma of the second one at the end of a word.
    return s.replace("\u0130", "i").replace("\u03a3", "\u03c3").lower()


def ilike(s: str, pattern: str, escape: str = "\\") -> bool:
    """LIKE whatever the case of letters."""
    made = _known_ilike if len(pattern) <= CACHED_CHARS_MAX else _read_ilike
    return made(pattern, escape).matches(small_letters(s))


def _read_ilike(pattern: str, escape: str) -> LikePattern:
    """Runs in small letters; `_`, `%` and the escape are those of the pattern as it is written."""
    found = like_pattern(pattern, escape)
    return _of_segments(Segment(tuple((o, small_letters(r)) for o, r in s.runs), s.size) for s in found.segments)


_known_ilike = lru_cache(maxsize=512)(_read_ilike)
