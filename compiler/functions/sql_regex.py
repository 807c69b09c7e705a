r"""Functions of regular expressions in standard SQL whose arguments ksqlDB has in another order: the text comes first.

REGEXP_EXTRACT is Flink's and DuckDB's, with Java's expressions as Flink has them (look-behind, `\b`); REGEXP_SPLIT_TO_ARRAY is PostgreSQL's.
"""

from __future__ import annotations

from flowql.compiler.functions.regex import extract, extract_all
from flowql.compiler.functions.registry import standard, takes
from flowql.compiler.functions.sql_patterns import ignores_case, posix
from flowql.compiler.plan.types import INT, STRING, array


def _extract_all(s: str, pattern: str, group: int) -> list[str | None]:
    """Raises ValueError for a group that the expression does not have."""
    found = extract_all(pattern, s, group)
    if found is None:
        raise ValueError(f"the regular expression {pattern!r} has no group {group}")
    return found


def _extract(s: str, pattern: str, group: int = 0) -> str | None:
    """The group of the first match; NULL where nothing matches. Raises ValueError for a group that the expression does not have."""
    found = extract(pattern, s, group)
    if found is None:
        _extract_all("", pattern, group)
    return found


def split(s: str, pattern: str, flags: str = "") -> list[str]:
    """The parts between matches. An empty match at an end of the text, or behind another match, is none (PostgreSQL)."""
    parts, start = [], 0
    for m in posix(pattern, ignore_case=ignores_case(flags, "i")).finditer(s):
        if m.end() > m.start() or start < m.start() < len(s):
            parts.append(s[start : m.start()])
            start = m.end()
    return [*parts, s[start:]]


standard(
    "REGEXP_EXTRACT",
    takes(STRING, STRING, gives=STRING),
    takes(STRING, STRING, INT, gives=STRING),
    by=_extract,
    summary="The first match of a pattern in a text, or one of its groups; NULL when nothing matches.",
    example="sql_regexp_extract('big river', '(.*) (.*)', 2) -> 'river'",
)
standard(
    "REGEXP_EXTRACT_ALL",
    takes(STRING, STRING, INT, gives=array(STRING)),
    by=_extract_all,
    summary="One group of each match of a pattern in a text; 0 is the whole match. Where the group is left out systems differ: it must be given.",
    example="sql_regexp_extract_all('abacad', 'a(.)', 1) -> ['b', 'c', 'd']",
)
standard(
    "REGEXP_SPLIT_TO_ARRAY",
    takes(STRING, STRING, gives=array(STRING)),
    takes(STRING, STRING, STRING, gives=array(STRING)),
    by=split,
    summary="The parts of a text between matches of a POSIX regular expression; with the flag i whatever the case.",
    example="sql_regexp_split_to_array('the fox', '') -> ['t', 'h', 'e', ' ', 'f', 'o', 'x']",
)
