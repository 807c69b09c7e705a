"""Upper and lower case of long strings, part by part: `str.upper` of 1 MB of a letter with a special case keeps the interpreter lock for 70 ms."""

from __future__ import annotations

from flowql.compiler.functions.bounds import PART_MAX, parts_of

_SIGMA = "\u03a3"  # the one letter whose lower case depends on its neighbours: it is another one at the end of a word


def upper(text: str) -> str:
    """`str.upper`.

    >>> upper("straße")
    'STRASSE'
    """
    return text.upper() if len(text) <= PART_MAX else "".join([part.upper() for part in parts_of(text)])


def lower(text: str) -> str:
    """`str.lower`.

    >>> lower("ΟΔΟΣ")
    'οδος'
    """
    if len(text) <= PART_MAX:
        return text.lower()
    parts = parts_of(text)
    return "".join(_lower_parts(parts) if _SIGMA in text else [part.lower() for part in parts])


def _lower_parts(parts: list[str]) -> list[str]:
    """Each part between the two characters that decide about a sigma at its ends: the nearest ones that are not skipped."""
    after = [""]
    for part in reversed(parts):
        after.append(next((c for c in part if not _is_skipped(c)), after[-1]))
    before, out = "", []
    for part, behind in zip(parts, reversed(after[:-1]), strict=True):
        lowered = (before + part + behind).lower()
        out.append(lowered[len(before.lower()) : len(lowered) - len(behind.lower())])
        before = next((c for c in reversed(part) if not _is_skipped(c)), before)
    return out


def _is_skipped(c: str) -> bool:
    """Whether a character between a sigma and a letter makes no difference, such as an apostrophe or an accent."""
    return (c + _SIGMA).lower()[-1] == "\u03c3" and ("a" + c + _SIGMA).lower()[-1] == "\u03c2"
