"""Parameters of an interactive query: `$1`, `$2`, ... in its text become literals, so that values never have to be quoted by hand."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

from flowql.compiler.diagnostics.source import Span
from flowql.query.errors import INVALID, QueryError, place

COUNT_MAX = 1_000
# Strings, quoted names and comments, in which nothing is a parameter; where a dollar-quoted string begins; and parameters. Two quotes in a string
# are the end of one and the beginning of the next.
_TOKEN = re.compile(
    r"""(?<!\w)[eE]'(?:[^'\\]|\\.|'')*(?:'|\Z) | '[^']*(?:'|\Z) | "[^"]*(?:"|\Z) | `[^`]*(?:`|\Z)"""
    r""" | --[^\n]* | /\*.*?(?:\*/|\Z) | (?<!\w)(?P<dollars>\$(?:[A-Za-z_]\w*)?\$) | (?<!\w)\$(?P<number>\d+)\b""",
    re.DOTALL | re.VERBOSE,
)


@dataclass(frozen=True, slots=True)
class Bound:
    """A statement with its parameters in place. edits: start in `sql`, length in `sql`, and length in the given text of each."""

    given: str
    sql: str
    edits: tuple[tuple[int, int, int], ...]

    def placed(self, error: QueryError) -> QueryError:
        """The error with its place in the given text."""
        if not (error.span.line and self.edits):
            return error
        at = _offset(self.sql, error.span)
        moved = sum(was - now for start, now, was in self.edits if start + now <= at)
        inside = [start for start, now, _ in self.edits if start <= at < start + now]
        origin = (inside[0] if inside else at) + moved
        span = place(self.given, origin, 2 if inside else error.span.length)
        return QueryError(error.title, code=error.code, help=error.help, span=replace(span, path=error.span.path))


def with_parameters(sql: str, values: Sequence[Any]) -> Bound:
    """values: strings, numbers, booleans and None, for `$1` and what follows. Raises QueryError for others, and for a number that has no value."""
    parts: list[str] = []
    edits: list[tuple[int, int, int]] = []
    end = size = 0
    used = set[int]()
    for found in _parameters(sql):
        number = int(found["number"])
        if not 1 <= number <= len(values):
            given = f"{len(values)} value{'s' if len(values) != 1 else ''}"
            at = place(sql, found.start(), len(found[0]))
            raise QueryError(f"parameter {found[0]} has no value", code=INVALID, help=f"{given} given", span=at)
        used.add(number)
        parts += [sql[end : found.start()], literal := _literal(values[number - 1], number)]
        size += len(parts[-2])
        edits.append((size, len(literal), len(found[0])))
        size, end = size + len(literal), found.end()
    if unused := [n for n in range(1, len(values) + 1) if n not in used]:
        title = f"the statement has no parameter ${unused[0]}, for which a value is given"
        raise QueryError(title, code=INVALID, help="write parameters as $1, $2, ...")
    return Bound(sql, "".join([*parts, sql[end:]]), tuple(edits))


def _parameters(sql: str) -> Iterator[re.Match[str]]:
    at = 0
    while (found := _TOKEN.search(sql, at)) is not None:
        at = found.end()
        if (dollars := found["dollars"]) is not None:
            end = sql.find(dollars, at)
            at = len(sql) if end < 0 else end + len(dollars)
        elif found["number"] is not None:
            yield found


def _literal(value: Any, number: int) -> str:
    match value:
        case None:
            return "NULL"
        case bool():
            return "TRUE" if value else "FALSE"
        case int() | float():
            text = json.dumps(value)
            if text[-1].isdigit():
                return f"({text})" if value < 0 or text[0] == "-" else text
        case str() if "\0" not in value:
            return "'" + value.replace("'", "''") + "'"
    title = f"the value of ${number} is not a string, a number, a boolean or null"
    raise QueryError(title, code=INVALID, help="pass dates and other types as strings, and CAST($1 AS DATE)")


def _offset(sql: str, span: Span) -> int:
    lines = sql.split("\n")
    return sum(len(line) + 1 for line in lines[: span.line - 1]) + span.column - 1
