"""Matches of POSIX regular expressions in standard SQL by their number: how many there are, where one is, and what it is."""

from __future__ import annotations

import re
from collections.abc import Iterator

from flowql.compiler.functions.registry import standard, takes
from flowql.compiler.functions.sql_patterns import ignores_case, posix
from flowql.compiler.plan.types import INT, STRING


def _matches(s: str, pattern: str, start: int, flags: str) -> Iterator[re.Match[str]]:
    """From a character on, counted from 1. Raises ValueError."""
    if start < 1:
        raise ValueError(f'invalid value for parameter "start": {start}')
    if start > len(s) + 1:
        return iter(())
    # ^ matches at the beginning of the text alone, wherever the search starts.
    return posix(pattern, ignore_case=ignores_case(flags, "i")).finditer(s, start - 1)


def _nth(s: str, pattern: str, start: int, n: int, flags: str) -> re.Match[str] | None:
    if n < 1:
        raise ValueError(f'invalid value for parameter "n": {n}')
    for i, match in enumerate(_matches(s, pattern, start, flags), 1):
        if i == n:
            return match
    return None


def _group(match: re.Match[str], group: int) -> int | None:
    """Raises ValueError for a number below 0; None for one that the expression does not have."""
    if group < 0:
        raise ValueError(f'invalid value for parameter "subexpr": {group}')
    return group if group <= match.re.groups else None


def _count(s: str, pattern: str, start: int = 1, flags: str = "") -> int:
    return sum(1 for _ in _matches(s, pattern, start, flags))


def _place(s: str, pattern: str, start: int = 1, n: int = 1, end: int = 0, flags: str = "", group: int = 0) -> int:
    if end not in (0, 1):
        raise ValueError(f'invalid value for parameter "endoption": {end}')
    match = _nth(s, pattern, start, n, flags)
    known = None if match is None else _group(match, group)
    if match is None or known is None or match.start(known) < 0:
        return 0
    return (match.end(known) if end else match.start(known)) + 1


def _part(s: str, pattern: str, start: int = 1, n: int = 1, flags: str = "", group: int = 0) -> str | None:
    match = _nth(s, pattern, start, n, flags)
    known = None if match is None else _group(match, group)
    return None if match is None or known is None else match[known]


standard(
    "REGEXP_COUNT",
    takes(STRING, STRING, gives=INT),
    takes(STRING, STRING, INT, gives=INT),
    takes(STRING, STRING, INT, STRING, gives=INT),
    by=_count,
    summary="How often a POSIX regular expression matches a text, from a character on.",
    example="sql_regexp_count('banana', 'an') -> 2",
)
standard(
    "REGEXP_INSTR",
    takes(STRING, STRING, gives=INT),
    takes(STRING, STRING, INT, gives=INT),
    takes(STRING, STRING, INT, INT, gives=INT),
    takes(STRING, STRING, INT, INT, INT, gives=INT),
    takes(STRING, STRING, INT, INT, INT, STRING, gives=INT),
    takes(STRING, STRING, INT, INT, INT, STRING, INT, gives=INT),
    by=_place,
    summary="Where the n-th match begins, or with 1 as fifth argument ends; 0 where there is none.",
    example="sql_regexp_instr('banana', 'an', 1, 2) -> 4",
)
standard(
    "REGEXP_SUBSTR",
    takes(STRING, STRING, gives=STRING),
    takes(STRING, STRING, INT, gives=STRING),
    takes(STRING, STRING, INT, INT, gives=STRING),
    takes(STRING, STRING, INT, INT, STRING, gives=STRING),
    takes(STRING, STRING, INT, INT, STRING, INT, gives=STRING),
    by=_part,
    summary="The n-th match of a POSIX regular expression, or a group of it; NULL where there is none.",
    example="sql_regexp_substr('a=1&b=22', '(b)=([0-9]+)', 1, 1, '', 2) -> '22'",
)
