"""Regular expressions in Java's syntax, as ksqlDB and Flink have them."""

from __future__ import annotations

import re
from collections.abc import Mapping
from functools import lru_cache

from flowql.compiler.functions.lazy_arrow import Ints, np, pa
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
from flowql.compiler.functions.patterns.java import parse_java
from flowql.compiler.functions.patterns.program import WHOLE, Program
from flowql.compiler.functions.patterns.spans import Spans
from flowql.compiler.functions.patterns.tree import PatternError
from flowql.compiler.functions.registry import scalar
from flowql.compiler.plan.types import BOOLEAN, INT, STRING, array

_PLAIN = re.compile(r"[^\\$]+")  # of a replacement


@lru_cache(maxsize=500)
def java_program(pattern: str) -> Program:
    """Raises PatternError."""
    return Program(parse_java(pattern))


def like(pattern: str) -> Prepared:
    program = java_program(pattern)
    return Prepared(program, lambda strings: engine.tests(program, strings)).with_row(found_in)


def extract(pattern: str, group: int = 0) -> Prepared:
    """A group of the first match; NULL when nothing matches or there is no such group."""
    program = java_program(pattern)
    if not 0 <= group <= program.groups:
        return Prepared(program, lambda strings: pa.nulls(len(strings), pa.string()))
    program.take([group])

    def over(strings: pa.Array) -> pa.Array:
        found = engine.first(program, strings, frozenset((group,)))
        return scattered(found.rows, spans.texts(strings, found.rows, *found.groups[group]), len(strings))

    return Prepared(program, over).with_row(group_of_first(group), [group])


def extract_all(pattern: str, group: int = 0) -> Prepared:
    program = java_program(pattern)
    if not 0 <= group <= program.groups:
        return Prepared(program, lambda strings: pa.nulls(len(strings), pa.list_(pa.string())))
    program.take([group])

    def over(strings: pa.Array) -> pa.Array:
        found = all_matches.every(program, strings, frozenset((group,)))
        return lists(found.rows, spans.texts(strings, found.rows, *found.groups[group]), len(strings))

    return Prepared(program, over, every=True)


def replace(pattern: str, replacement: str) -> Prepared:
    program = java_program(pattern)
    pieces = _pieces(program, replacement)
    program.take(p for p in pieces if isinstance(p, int))
    made = Prepared(program, lambda strings: all_matches.replaced(program, strings, pieces), every=True)
    return made.with_row(replacing(pieces), [p for p in pieces if isinstance(p, int)]) if len(pieces) < FEW else made


def _pieces(program: Program, replacement: str) -> tuple[str | int, ...]:
    r"""`$1`, `${name}` and `\x` of Java. Raises PatternError for a group that the pattern does not have."""
    out: list[str | int] = []
    names = dict(program.pattern.names)
    i = 0
    while i < len(replacement):
        if plain := _PLAIN.match(replacement, i):
            out.append(plain[0])
            i = plain.end()
            continue
        c = replacement[i]
        i += 1
        if c == "\\":
            if i == len(replacement):
                raise PatternError(replacement, "a backslash is at the end of the replacement")
            out.append(replacement[i])
            i += 1
        else:
            group, i = _group(program, names, replacement, i)
            out.append(group)
    return all_matches.joined(out)


def _group(program: Program, names: Mapping[str, int], replacement: str, at: int) -> tuple[int, int]:
    """The group that is named behind a `$`, and where its name ends: as many digits as make a number of a group."""
    if replacement.startswith("{", at):
        end = replacement.find("}", at)
        name = replacement[at + 1 : end] if end >= 0 else ""
        if name not in names:
            raise PatternError(replacement, f"the pattern has no group that is called {name!r}")
        return names[name], end + 1
    digit = replacement[at : at + 1]
    if not (digit.isascii() and digit.isdigit()):
        raise PatternError(replacement, "a $ of the replacement has no number of a group; write  \\$  for the sign")
    number, at = int(digit), at + 1
    if number > program.groups:
        raise PatternError(replacement, f"the pattern has no group {number}")
    while (
        (digit := replacement[at : at + 1]).isascii() and digit.isdigit() and number * 10 + int(digit) <= program.groups
    ):
        number, at = number * 10 + int(digit), at + 1
    return number, at


def split(pattern: str) -> Prepared:
    """The parts between matches; single characters for a pattern that matches an empty string."""
    program = java_program(pattern)
    empty = program.nullable and bool(engine.matches_empty(program))

    def over(strings: pa.Array) -> pa.Array:
        found = all_matches.every(program, strings, frozenset((WHOLE,)))
        return lists(*(_by_java if empty else _by_guava)(strings, found), len(strings))

    return Prepared(program, over, every=True).with_row(lambda regex: regex.split)


def _by_java(strings: pa.Array, found: Spans) -> tuple[Ints, pa.Array]:
    """Splits as Java's `Pattern.split`: drops an empty part before an empty match at the start, and empty parts at the end. Returns (rows, parts)."""
    found = found.chosen(found.groups[WHOLE][1] > 0)
    rows, parts = between(strings, found, np.ones(len(strings), bool))
    last = np.full(len(strings), -1)
    filled = np.flatnonzero(spans.lengths(parts))
    np.maximum.at(last, rows[filled], filled)
    kept = np.arange(len(rows)) <= last[rows]
    kept |= np.bincount(found.rows, minlength=len(strings))[rows] == 0
    return rows[kept], parts.filter(pa.array(kept))


def _by_guava(strings: pa.Array, found: Spans) -> tuple[Ints, pa.Array]:
    """Splits as Guava's `Splitter.on`: ignores an empty match at the start of a part, and adds no part after one at the end. Returns (rows, parts)."""
    begins, ends = found.groups[WHOLE]
    empty = begins == ends
    rest = np.ones(len(strings), bool)
    rest[found.rows[empty & (begins == spans.lengths(strings)[found.rows])]] = False
    return between(strings, found.chosen(~empty | (begins > places_before(found))), rest)


pattern_function(scalar, "REGEXP_EXTRACT", extract, STRING, STRING, INT, gives=STRING, needs=2, subject=1)
pattern_function(
    scalar, "REGEXP_EXTRACT_ALL", extract_all, STRING, STRING, INT, gives=array(STRING), needs=2, subject=1
)
pattern_function(scalar, "REGEXP_REPLACE", replace, STRING, STRING, STRING, gives=STRING)
pattern_function(scalar, "REGEXP_SPLIT_TO_ARRAY", split, STRING, STRING, gives=array(STRING))
pattern_function(scalar, "REGEXP_LIKE", like, STRING, STRING, gives=BOOLEAN)
