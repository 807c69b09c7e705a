"""Matches of POSIX regular expressions in standard SQL by their number: how many there are, where one is, and what it is."""

from __future__ import annotations

from flowql.compiler.functions.lazy_arrow import Ints, np, pa, pc
from flowql.compiler.functions.pattern_calls import Prepared, pattern_calls, scattered
from flowql.compiler.functions.patterns import all_matches, spans
from flowql.compiler.functions.patterns.program import WHOLE, Program
from flowql.compiler.functions.patterns.spans import Spans
from flowql.compiler.functions.registry import standard, takes
from flowql.compiler.functions.sql_patterns import taking_program
from flowql.compiler.plan.types import INT, STRING


def _positive(name: str, value: int, least: int = 1) -> None:
    if value < least:
        raise ValueError(f'invalid value for parameter "{name}": {value}')


def _found(program: Program, strings: pa.Array, start: int, groups: frozenset[int]) -> Spans:
    """All matches from a character on, counted from 1."""
    if start == 1:
        return all_matches.every(program, strings, groups)
    rows = np.flatnonzero(pc.utf8_length(strings).to_numpy(zero_copy_only=False) >= start - 1)
    found = all_matches.every(program, strings.take(pa.array(rows)), groups, start - 1)
    return Spans(rows[found.rows], found.groups)


def _nth(found: Spans, n: int) -> Ints:
    """Which matches are the n-th ones of their rows."""
    first = np.searchsorted(found.rows, found.rows)
    chosen: Ints = np.flatnonzero(np.arange(len(found.rows)) - first == n - 1)
    return chosen


def _count(pattern: str, start: int = 1, flags: str = "") -> Prepared:
    _positive("start", start)
    program = taking_program(pattern, flags)

    def over(strings: pa.Array) -> pa.Array:
        found = _found(program, strings, start, frozenset((WHOLE,)))
        return pa.array(np.bincount(found.rows, minlength=len(strings)).astype(np.int32))

    return Prepared(program, over, every=True)


def _place(pattern: str, start: int = 1, n: int = 1, end: int = 0, flags: str = "", group: int = 0) -> Prepared:
    _positive("start", start)
    _positive("n", n)
    _positive("subexpr", group, 0)
    if end not in (0, 1):
        raise ValueError(f'invalid value for parameter "endoption": {end}')
    program = taking_program(pattern, flags)

    def over(strings: pa.Array) -> pa.Array:
        made = np.zeros(len(strings), np.int32)
        if group <= program.groups:
            found = _found(program, strings, start, frozenset((group,)))
            at = _nth(found, n)
            rows, places = found.rows[at], found.groups[group][end][at]
            there = places >= 0
            rows, places = rows[there], places[there]
            before = spans.texts(strings, rows, np.zeros(len(rows), np.int64), places)
            made[rows] = pc.utf8_length(before).to_numpy(zero_copy_only=False) + 1
        return pa.array(made)

    return Prepared(program, over, every=True)


def _part(pattern: str, start: int = 1, n: int = 1, flags: str = "", group: int = 0) -> Prepared:
    _positive("start", start)
    _positive("n", n)
    _positive("subexpr", group, 0)
    program = taking_program(pattern, flags)

    def over(strings: pa.Array) -> pa.Array:
        if group > program.groups:
            return pa.nulls(len(strings), pa.string())
        found = _found(program, strings, start, frozenset((group,)))
        at = _nth(found, n)
        begins, ends = (a[at] for a in found.groups[group])
        return scattered(found.rows[at], spans.texts(strings, found.rows[at], begins, ends), len(strings))

    return Prepared(program, over, every=True)


_COUNT = ((STRING, STRING), (STRING, STRING, INT), (STRING, STRING, INT, STRING))
_PLACE = tuple((STRING, STRING, INT, INT, INT, STRING, INT)[:n] for n in range(2, 8))
_PART = tuple((STRING, STRING, INT, INT, STRING, INT)[:n] for n in range(2, 7))
standard(
    "REGEXP_COUNT",
    *(takes(*form, gives=INT) for form in _COUNT),
    **pattern_calls("sql_regexp_count", _count, INT, *_COUNT),
)
standard(
    "REGEXP_INSTR",
    *(takes(*form, gives=INT) for form in _PLACE),
    **pattern_calls("sql_regexp_instr", _place, INT, *_PLACE),
)
standard(
    "REGEXP_SUBSTR",
    *(takes(*form, gives=STRING) for form in _PART),
    **pattern_calls("sql_regexp_substr", _part, STRING, *_PART),
)
