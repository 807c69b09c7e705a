r"""Functions of regular expressions in standard SQL whose arguments ksqlDB has in another order: the text comes first.

REGEXP_EXTRACT is Flink's and DuckDB's, with Java's expressions as Flink has them (`\b`, `(?i)`); REGEXP_SPLIT_TO_ARRAY is PostgreSQL's.
"""

from __future__ import annotations

from flowql.compiler.functions import regex
from flowql.compiler.functions.lazy_arrow import Ints, np, pa, pc
from flowql.compiler.functions.pattern_calls import Prepared, between, lists, pattern_calls, places_before, scattered
from flowql.compiler.functions.patterns import all_matches, spans
from flowql.compiler.functions.patterns.program import WHOLE, Program
from flowql.compiler.functions.patterns.spans import Spans
from flowql.compiler.functions.registry import standard, takes
from flowql.compiler.functions.sql_patterns import taking_program
from flowql.compiler.plan.types import INT, STRING, array


def _has_group(pattern: str, group: int) -> None:
    """Raises ValueError for a group that the expression does not have."""
    if not 0 <= group <= regex.java_program(pattern).groups:
        raise ValueError(f"the regular expression {pattern!r} has no group {group}")


def _extract_all(pattern: str, group: int) -> Prepared:
    _has_group(pattern, group)
    return regex.extract_all(pattern, group)


def _extract(pattern: str, group: int = 0) -> Prepared:
    _has_group(pattern, group)
    return regex.extract(pattern, group)


def _split(pattern: str, flags: str = "") -> Prepared:
    """The parts between matches. An empty match at an end of the text, or behind another match, is none (PostgreSQL)."""
    program = taking_program(pattern, flags)

    def over(strings: pa.Array) -> pa.Array:
        found = all_matches.every(program, strings, frozenset((WHOLE,)))
        begins, ends = found.groups[WHOLE]
        inside = (begins > places_before(found)) & (begins < spans.lengths(strings)[found.rows])
        parts = between(strings, found.chosen((ends > begins) | inside), np.ones(len(strings), bool))
        return lists(*parts, len(strings))

    return Prepared(program, over, every=True)


standard(
    "REGEXP_EXTRACT",
    takes(STRING, STRING, gives=STRING),
    takes(STRING, STRING, INT, gives=STRING),
    **pattern_calls("sql_regexp_extract", _extract, STRING, (STRING, STRING), (STRING, STRING, INT)),
)
standard(
    "REGEXP_EXTRACT_ALL",
    takes(STRING, STRING, INT, gives=array(STRING)),
    **pattern_calls("sql_regexp_extract_all", _extract_all, array(STRING), (STRING, STRING, INT)),
)
standard(
    "REGEXP_SPLIT_TO_ARRAY",
    takes(STRING, STRING, gives=array(STRING)),
    takes(STRING, STRING, STRING, gives=array(STRING)),
    **pattern_calls("sql_regexp_split_to_array", _split, array(STRING), (STRING, STRING), (STRING, STRING, STRING)),
)


# --- matches by their number: how many, where one is, and its text ---


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
