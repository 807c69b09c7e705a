r"""Patterns of standard SQL: ILIKE, SIMILAR TO, `~`, and functions of regular expressions, whose arguments ksqlDB has in another order.

REGEXP_EXTRACT is Flink's and DuckDB's, with Java's expressions as Flink has them (`\b`, `(?i)`); REGEXP_SPLIT_TO_ARRAY is PostgreSQL's.
"""

from __future__ import annotations

import re
from functools import lru_cache

from flowql.compiler.functions import regex
from flowql.compiler.functions.lazy_arrow import Ints, np, pa, pc
from flowql.compiler.functions.pattern_calls import (
    FEW,
    Prepared,
    between,
    found_in,
    group_of_first,
    lists,
    pattern_function,
    places_before,
    replacing,
    scattered,
)
from flowql.compiler.functions.patterns import all_matches, engine, spans
from flowql.compiler.functions.patterns.like import ilike
from flowql.compiler.functions.patterns.postgres import FLAGS, parse_postgres, parse_postgres_match, parse_similar
from flowql.compiler.functions.patterns.program import WHOLE, Program
from flowql.compiler.functions.patterns.spans import Spans
from flowql.compiler.functions.registry import standard, takes
from flowql.compiler.plan.types import BOOLEAN, INT, STRING, array

_PLAIN = re.compile(r"[^\\]+")  # of a replacement


def _checked(flags: str, known: str = FLAGS) -> str:
    """Flags without those of a function. Raises ValueError for an unknown one."""
    unknown = [f for f in flags if f not in known]
    if unknown:
        raise ValueError(f'invalid regular expression option: "{unknown[0]}"')
    return flags.replace("g", "")


@lru_cache(maxsize=500)
def asking_program(pattern: str, flags: str = "") -> Program:
    """Compiles a pattern whose matches are not taken. Raises ValueError."""
    return Program(parse_postgres(pattern, _checked(flags)))


@lru_cache(maxsize=500)
def taking_program(pattern: str, flags: str = "", *, known: str = FLAGS) -> Program:
    """Raises ValueError, for a pattern of which PostgreSQL may take another match as well."""
    return Program(parse_postgres_match(pattern, _checked(flags, known)))


def matches(pattern: str, flags: str = "") -> Prepared:
    """Whether a string contains what the expression describes; flags: i ignores case."""
    program = asking_program(pattern, flags)
    return Prepared(program, lambda strings: engine.tests(program, strings)).with_row(found_in)


def similar(pattern: str, escape: str = "\\") -> Prepared:
    program = Program(parse_similar(pattern, escape))
    return Prepared(program, lambda strings: engine.tests(program, strings)).with_row(found_in)


def replaced(pattern: str, replacement: str, flags: str = "") -> Prepared:
    r"""The first match replaced, all with the flag g; \1 is a group and \& the match."""
    program = taking_program(pattern, flags, known=FLAGS + "g")
    pieces = _pieces(replacement, program.groups)
    groups = frozenset(p for p in pieces if isinstance(p, int)) | {WHOLE}
    if "g" in flags:
        made = Prepared(program, lambda strings: all_matches.replaced(program, strings, pieces), every=True)
        return made.with_row(replacing(pieces), groups) if len(pieces) < FEW else made

    def over(strings: pa.Array) -> pa.Array:
        return all_matches.spliced(strings, engine.first(program, strings, groups), pieces)

    made = Prepared(program, over)
    return made.with_row(replacing(pieces, 1), groups) if len(pieces) < FEW else made


def _pieces(replacement: str, groups: int) -> tuple[str | int, ...]:
    """Groups that the expression does not have are nothing."""
    out: list[str | int] = []
    i = 0
    while i < len(replacement):
        if plain := _PLAIN.match(replacement, i):
            out.append(plain[0])
            i = plain.end()
            continue
        c, escaped = replacement[i], replacement[i + 1 : i + 2]
        i += 1
        if c == "\\" and escaped and escaped in r"\&123456789":
            i += 1
            number = {"&": 0, "\\": -1}.get(escaped, int(escaped) if escaped.isdigit() else 0)
            if number < 0:
                out.append("\\")
            elif number <= groups:
                out.append(number)
        else:
            out.append(c)
    return all_matches.joined(out)


def first_match(pattern: str, flags: str = "") -> Prepared:
    """The groups of the first match, or all of it where the expression has none; NULL when there is none."""
    program = taking_program(pattern, flags)
    kept = list(range(1, program.groups + 1)) or [WHOLE]

    def over(strings: pa.Array) -> pa.Array:
        found = engine.first(program, strings, frozenset(kept))
        parts = [spans.texts(strings, found.rows, *found.groups[g]) for g in kept]
        count, width = len(found.rows), len(kept)
        order = np.arange(count * width).reshape(width, count).T.reshape(-1)
        values = pa.concat_arrays(parts).take(pa.array(order))
        made = lists(np.repeat(np.arange(count), width), values, count)
        return scattered(found.rows, made, len(strings))

    return Prepared(program, over)


def part_described(pattern: str) -> Prepared:
    """The first group of the first match, or the match where the expression has none; NULL when nothing matches."""
    program = taking_program(pattern)
    group = 1 if program.groups else WHOLE

    def over(strings: pa.Array) -> pa.Array:
        found = engine.first(program, strings, frozenset((group,)))
        return scattered(found.rows, spans.texts(strings, found.rows, *found.groups[group]), len(strings))

    return Prepared(program, over).with_row(group_of_first(group), [group])


standard("ILIKE", takes(STRING, STRING, STRING, gives=BOOLEAN, needs=2), by=ilike)
pattern_function(standard, "SIMILAR", similar, STRING, STRING, STRING, gives=BOOLEAN, needs=2)
pattern_function(standard, "REGEXP_LIKE", matches, STRING, STRING, STRING, gives=BOOLEAN, needs=2)
pattern_function(standard, "REGEXP_MATCH", first_match, STRING, STRING, STRING, gives=array(STRING), needs=2)
pattern_function(standard, "REGEXP_REPLACE", replaced, STRING, STRING, STRING, STRING, gives=STRING, needs=3)


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


pattern_function(standard, "REGEXP_EXTRACT", _extract, STRING, STRING, INT, gives=STRING, needs=2)
pattern_function(standard, "REGEXP_EXTRACT_ALL", _extract_all, STRING, STRING, INT, gives=array(STRING))
pattern_function(standard, "REGEXP_SPLIT_TO_ARRAY", _split, STRING, STRING, STRING, gives=array(STRING), needs=2)


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


_PART = (STRING, STRING, INT, INT, STRING, INT)
pattern_function(standard, "REGEXP_COUNT", _count, STRING, STRING, INT, STRING, gives=INT, needs=2)
pattern_function(standard, "REGEXP_INSTR", _place, *_PART[:4], INT, *_PART[4:], gives=INT, needs=2)
pattern_function(standard, "REGEXP_SUBSTR", _part, *_PART, gives=STRING, needs=2)
