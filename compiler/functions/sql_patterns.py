r"""Patterns of standard SQL: ILIKE, SIMILAR TO and PostgreSQL's regular expressions (`~`, REGEXP_MATCH, REGEXP_REPLACE)."""

from __future__ import annotations

import re
from functools import lru_cache

from flowql.compiler.functions.lazy_arrow import np, pa
from flowql.compiler.functions.pattern_calls import (
    FEW,
    Prepared,
    found_in,
    group_of_first,
    lists,
    pattern_calls,
    replacing,
    scattered,
)
from flowql.compiler.functions.patterns import engine, replacements, spans
from flowql.compiler.functions.patterns.like import ilike
from flowql.compiler.functions.patterns.postgres import FLAGS, parse_postgres, parse_postgres_match, parse_similar
from flowql.compiler.functions.patterns.program import WHOLE, Program
from flowql.compiler.functions.registry import standard, takes
from flowql.compiler.plan.types import BOOLEAN, STRING, array

_PLAIN = re.compile(r"[^\\]+")  # of a replacement
_TWO_OR_THREE = ((STRING, STRING), (STRING, STRING, STRING))


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
        made = Prepared(program, lambda strings: replacements.replaced(program, strings, pieces), every=True)
        return made.with_row(replacing(pieces), groups) if len(pieces) < FEW else made

    def over(strings: pa.Array) -> pa.Array:
        return replacements.spliced(strings, engine.first(program, strings, groups), pieces)

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
    return replacements.joined(out)


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


standard(
    "ILIKE",
    takes(STRING, STRING, gives=BOOLEAN),
    takes(STRING, STRING, STRING, gives=BOOLEAN),
    by=ilike,
)
standard(
    "SIMILAR",
    takes(STRING, STRING, gives=BOOLEAN),
    takes(STRING, STRING, STRING, gives=BOOLEAN),
    **pattern_calls("sql_similar", similar, BOOLEAN, *_TWO_OR_THREE),
)
standard(
    "REGEXP_LIKE",
    takes(STRING, STRING, gives=BOOLEAN),
    takes(STRING, STRING, STRING, gives=BOOLEAN),
    **pattern_calls("sql_regexp_like", matches, BOOLEAN, *_TWO_OR_THREE),
)
standard(
    "REGEXP_MATCH",
    takes(STRING, STRING, gives=array(STRING)),
    takes(STRING, STRING, STRING, gives=array(STRING)),
    **pattern_calls("sql_regexp_match", first_match, array(STRING), *_TWO_OR_THREE),
)
standard(
    "REGEXP_REPLACE",
    takes(STRING, STRING, STRING, gives=STRING),
    takes(STRING, STRING, STRING, STRING, gives=STRING),
    **pattern_calls("sql_regexp_replace", replaced, STRING, (STRING,) * 3, (STRING,) * 4),
)
