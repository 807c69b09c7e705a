"""Texts made of values in standard SQL: FORMAT, and what quotes a text so that it can stand in a statement."""

from __future__ import annotations

import re

from flowql.compiler.functions.bounds import check_bytes
from flowql.compiler.functions.registry import standard, takes, takes_many
from flowql.compiler.plan.types import STRING

_PLAIN = re.compile(r"[a-z_][a-z0-9_]*", re.ASCII)
_SPEC = re.compile(r"%(?:(%)|(?:(\d+)\$)?(-?)(\d*)([sIL]))?", re.ASCII)
# Words that PostgreSQL's QUOTE_IDENT quotes: those that are reserved there.
_WORDS = (
    "all analyse analyze and any array as asc asymmetric both case cast check collate column constraint create current_date "
    "current_role current_time current_timestamp current_user default deferrable desc distinct do else end except false fetch for "
    "foreign from grant group having in initially intersect into lateral leading limit localtime localtimestamp not null offset on "
    "only or order placing primary references returning select session_user some symmetric table then to trailing true union unique "
    "user using variadic when where window with"
)
_RESERVED = frozenset(_WORDS.split())


def quote_ident(name: str) -> str:
    """A name in double quotes, where it needs them."""
    if _PLAIN.fullmatch(name) and name not in _RESERVED:
        return name
    return '"' + name.replace('"', '""') + '"'


def quote_literal(text: str) -> str:
    """A text in single quotes."""
    quoted = "'" + text.replace("'", "''").replace("\\", "\\\\") + "'"
    return f" E{quoted}" if "\\" in text else quoted


def quote_nullable(text: str | None) -> str:
    """As `quote_literal`; NULL becomes the word NULL."""
    return "NULL" if text is None else quote_literal(text)


def formatted(pattern: str | None, *values: str | None) -> str | None:
    """PostgreSQL's FORMAT: %s is a text, %I a name, %L a constant, %2$s the second value, %-10s one of so many places. Raises ValueError."""
    if pattern is None:
        return None
    taken = total = 0

    def written(match: re.Match[str]) -> str:
        nonlocal taken, total
        percent, place, left, width, kind = match.groups()
        if percent:
            return "%"
        if not kind:
            raise ValueError(f'unrecognized format() type specifier in "{pattern}"')
        taken = int(place) if place else taken + 1
        if not 1 <= taken <= len(values):
            raise ValueError("too few arguments for format()")
        places = int(width or 0)
        check_bytes(places)
        text = _shown(values[taken - 1], kind)
        total += max(places, len(text))
        check_bytes(total)
        return text.ljust(places) if left else text.rjust(places)

    return _SPEC.sub(written, pattern)


def _shown(value: str | None, kind: str) -> str:
    if kind == "L":
        return quote_nullable(value)
    if kind == "I":
        if value is None:
            raise ValueError("null values cannot be formatted as an SQL identifier")
        return quote_ident(value)
    return "" if value is None else value


standard(
    "FORMAT",
    takes_many(STRING, STRING, gives=STRING, at_least=0),
    by=formatted,
    null_propagating=False,
)
for _name, _by in (
    ("QUOTE_IDENT", quote_ident),
    ("QUOTE_LITERAL", quote_literal),
    ("QUOTE_NULLABLE", quote_nullable),
):  # fmt: skip
    standard(_name, takes(STRING, gives=STRING), by=_by, null_propagating=_name != "QUOTE_NULLABLE")
