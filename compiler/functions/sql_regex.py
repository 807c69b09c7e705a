r"""Functions of regular expressions in standard SQL whose arguments ksqlDB has in another order: the text comes first.

REGEXP_EXTRACT is Flink's and DuckDB's, with Java's expressions as Flink has them (`\b`, `(?i)`); REGEXP_SPLIT_TO_ARRAY is PostgreSQL's.
"""

from __future__ import annotations

from flowql.compiler.functions import regex
from flowql.compiler.functions.lazy_arrow import np, pa
from flowql.compiler.functions.pattern_calls import Prepared, between, lists, pattern_calls, places_before
from flowql.compiler.functions.patterns import all_matches, spans
from flowql.compiler.functions.patterns.program import WHOLE
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
