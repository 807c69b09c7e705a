"""Regular expressions: Java's syntax, of which Python's is a near superset for what people write."""

from __future__ import annotations

import re
from functools import lru_cache

from flowql.compiler.functions.registry import scalar, takes
from flowql.compiler.plan.types import BOOLEAN, INT, STRING, array


@lru_cache(maxsize=256)
def compiled(pattern: str) -> re.Pattern[str]:
    """The pattern in Python's syntax: Java's named groups and possessive shorthand are rewritten."""
    return re.compile(re.sub(r"\(\?<(?![=!])", "(?P<", pattern))


def _java_replacement(replacement: str) -> str:
    r"""`$1` and `\x` of Java as Python's template."""
    out, i = [], 0
    while i < len(replacement):
        c = replacement[i]
        if c == "\\" and i + 1 < len(replacement):
            i += 1
            out.append("\\\\" if replacement[i] == "\\" else replacement[i])
        elif c == "$" and replacement[i + 1 : i + 2].isdigit():
            i += 1
            out.append(f"\\g<{replacement[i]}>")
        else:
            out.append("\\\\" if c == "\\" else c)
        i += 1
    return "".join(out)


def extract(pattern: str, s: str, group: int = 0) -> str | None:
    """A group of the first match; NULL when nothing matches or there is no such group."""
    m = compiled(pattern).search(s)
    return m.group(group) if m and 0 <= group <= (m.re.groups) else None


def extract_all(pattern: str, s: str, group: int = 0) -> list[str | None] | None:
    regex = compiled(pattern)
    if not 0 <= group <= regex.groups:
        return None
    return [m.group(group) for m in regex.finditer(s)]


def replace(s: str, pattern: str, replacement: str) -> str:
    return compiled(pattern).sub(_java_replacement(replacement), s)


def split(s: str, pattern: str) -> list[str]:
    """The parts between matches; single characters for a pattern that matches nothing."""
    if not pattern:
        return list(s) or [s]
    return [p for p in _parts(compiled(pattern), s)]


def _parts(regex: re.Pattern[str], s: str) -> list[str]:
    parts, start = [], 0
    for m in regex.finditer(s):
        if m.end() > m.start():
            parts.append(s[start : m.start()])
            start = m.end()
    return [*parts, s[start:]]


scalar(
    "REGEXP_EXTRACT",
    takes(STRING, STRING, gives=STRING),
    takes(STRING, STRING, INT, gives=STRING),
    by=extract,
    summary="The first match of a pattern, or one of its groups.",
    example="REGEXP_EXTRACT('(.*) (.*)', 'big river', 2) -> 'river'",
)
scalar(
    "REGEXP_EXTRACT_ALL",
    takes(STRING, STRING, gives=array(STRING)),
    takes(STRING, STRING, INT, gives=array(STRING)),
    by=extract_all,
    summary="All matches of a pattern, or one group of each.",
    example="REGEXP_EXTRACT_ALL('a.', 'abacad') -> ['ab', 'ac', 'ad']",
)
scalar(
    "REGEXP_REPLACE",
    takes(STRING, STRING, STRING, gives=STRING),
    by=replace,
    summary="The text with every match of a pattern replaced; $1 stands for a group.",
    example="REGEXP_REPLACE('baababaa', '(ab)+', 'cat') -> 'bacataa'",
)
scalar(
    "REGEXP_SPLIT_TO_ARRAY",
    takes(STRING, STRING, gives=array(STRING)),
    by=split,
    summary="The parts of a text between matches of a pattern.",
    example="REGEXP_SPLIT_TO_ARRAY('a1b22c', '[0-9]+') -> ['a', 'b', 'c']",
)
scalar(
    "REGEXP_LIKE",
    takes(STRING, STRING, gives=BOOLEAN),
    by=lambda s, pattern: compiled(pattern).search(s) is not None,
    summary="Whether a pattern matches somewhere in the text.",
    example="REGEXP_LIKE('stream', 'tr.a') -> True",
)
