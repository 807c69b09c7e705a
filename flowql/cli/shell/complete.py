"""Completion: what may follow the text before the cursor. Pure, so that it can be tested without a terminal."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from flowql.cli.names import Names

KEYWORDS = (
    *("SELECT", "FROM", "WHERE", "GROUP BY", "HAVING", "ORDER BY", "LIMIT", "EMIT CHANGES", "AS", "DISTINCT", "WITH"),
    *("JOIN", "LEFT JOIN", "ON", "WITHIN", "WINDOW TUMBLING", "WINDOW HOPPING", "WINDOW SESSION", "GRACE PERIOD"),
    *("AND", "OR", "NOT", "IN", "IS NULL", "IS NOT NULL", "BETWEEN", "LIKE", "CASE", "WHEN", "THEN", "ELSE", "END"),
    *("ASC", "DESC", "NULL", "TRUE", "FALSE", "CAST", "UNION ALL", "PARTITION BY"),
)
STATEMENTS = (
    *("SELECT", "WITH", "DESCRIBE", "EXPLAIN", "SUMMARIZE", "SET 'auto.offset.reset' = 'earliest'"),
    *("SHOW STREAMS", "SHOW TABLES", "SHOW QUERIES", "SHOW TOPICS", "SHOW FUNCTIONS", "SHOW TYPES", "SHOW VARIABLES"),
    *(
        "SHOW PROPERTIES",
        "DESCRIBE STREAMS",
        "DESCRIBE TABLES",
        "PRINT",
        "PAUSE",
        "RESUME",
        "ASSERT TOPIC",
        "RUN SCRIPT",
    ),
    *("DEFINE", "UNDEFINE"),
)
COMMANDS = ("\\d", "\\ds", "\\dt", "\\df", "\\q", "\\timing", "\\x", "\\?")
_WORD = re.compile(r"[\\\w.`\"]*$")
_RELATION_AFTER = re.compile(r"\b(from|join|describe|summarize)\s+[`\"]?\w*$", re.IGNORECASE)
_QUERY_AFTER = re.compile(r"\bexplain\s+\w*$", re.IGNORECASE)
_MENTIONED = re.compile(r"\b(?:from|join)\s+[`\"]?(\w+)[`\"]?(?:\s+(?:as\s+)?(\w+))?", re.IGNORECASE)
_NO_ALIAS = frozenset(
    [
        "WHERE",
        "GROUP",
        "ON",
        "JOIN",
        "LEFT",
        "INNER",
        "FULL",
        "WINDOW",
        "EMIT",
        "ORDER",
        "LIMIT",
        "HAVING",
        "WITHIN",
        "PARTITION",
    ]
)


@dataclass(frozen=True, slots=True)
class Suggestion:
    """text takes the place of the `length` characters before the cursor."""

    text: str
    length: int
    kind: str


def suggestions(before: str, after: str, names: Names, functions: tuple[str, ...]) -> Iterator[Suggestion]:
    """The possible completions. before, after: the statement on both sides of the cursor."""
    match = _WORD.search(before)
    word = match.group() if match is not None else ""
    if word.startswith("\\"):
        yield from _starting(word, COMMANDS, "command", len(word))
        return
    if re.match(r"\\d\w*\s+\w*$", before):
        yield from _starting(word, names.relations, "relation", len(word))
        return
    if "." in word:
        qualifier, _, part = word.rpartition(".")
        relation = _relation(qualifier, before + after, names)
        yield from _starting(part, names.relations.get(relation, ()), "column", len(part))
        return
    word = word.lstrip('`"')
    if _RELATION_AFTER.search(before):
        yield from _starting(word, names.relations, "relation", len(word))
        return
    if _QUERY_AFTER.search(before):
        yield from _starting(word, names.queries, "query", len(word))
    begun = before.lstrip()
    if not begun[: len(begun) - len(word)].strip() or begun.upper().startswith("SHOW "):
        yield from _starting(begun, STATEMENTS, "statement", len(begun))
        return
    mentioned = [_relation(m[1], before + after, names) for m in _MENTIONED.finditer(before + after)]
    columns = [c for r in mentioned for c in names.relations.get(r, ())]
    yield from _starting(word, dict.fromkeys(columns), "column", len(word))
    if word:  # everything that could be typed is no help
        yield from _starting(word, KEYWORDS, "keyword", len(word))
        yield from _starting(word, (f"{f}(" for f in functions), "function", len(word))
    else:
        yield from _starting(word, KEYWORDS[:8], "keyword", 0)


def _starting(word: str, candidates: Iterable[str], kind: str, length: int) -> Iterator[Suggestion]:
    folded = word.casefold()
    for candidate in candidates:
        if candidate.casefold().startswith(folded):
            text = candidate.lower() if kind in _FOLLOWS_CASE and word.islower() else candidate
            quoted = kind == "relation" and re.search(r"\W", text)
            yield Suggestion(f'"{text}"' if quoted else text, length, kind)


_FOLLOWS_CASE = ("keyword", "function", "statement")


def _relation(name: str, statement: str, names: Names) -> str:
    """The relation of that name, or the one that has it as an alias."""
    for match in _MENTIONED.finditer(statement):
        if match[2] is not None and match[2].upper() not in _NO_ALIAS and match[2].casefold() == name.casefold():
            name = match[1]
    return next((r for r in names.relations if r.casefold() == name.casefold()), name)
