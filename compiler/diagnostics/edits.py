"""Changes of a text that a diagnostic proposes."""

from __future__ import annotations

import re
from dataclasses import dataclass, replace

from flowql.compiler.diagnostics.source import NOWHERE, Span

_PLAIN = re.compile(r"[a-z_][a-z0-9_]*|[A-Z_][A-Z0-9_]*", re.ASCII)


@dataclass(frozen=True, slots=True)
class Edit:
    """`text` in the place of what `span` covers. inserted: behind it, which stays."""

    span: Span
    text: str
    inserted: bool = False


def before(span: Span, text: str) -> Edit:
    """Insert in front of a span."""
    return Edit(replace(span, length=0), text)


def behind(span: Span, text: str) -> Edit:
    """Insert behind a span."""
    return Edit(span, text, inserted=True)


def renamed(span: Span, old: str, new: str, *, first: bool = False) -> Edit | None:
    """Another word in the place of the last (or first) `old` that the span covers on its first line, whatever its case; None without one.

    >>> line = "SELECT o.custmer FROM orders o"
    >>> renamed(Span("", 1, 8, 9, line), "CUSTMER", "customer").span.column
    10
    """
    if span == NOWHERE or not new:
        return None
    start = span.column - 1
    word = re.compile(rf"""(?<!\w)["`]?{re.escape(old)}["`]?(?!\w)""", re.IGNORECASE)
    found = list(word.finditer(span.line_text, start, min(start + span.length, len(span.line_text))))
    if not found:
        return None
    match = found[0 if first else -1]
    return Edit(replace(span, column=match.start() + 1, length=len(match[0])), new)


def exchanged(span: Span, sign: str, new: str) -> Edit | None:
    """Another sign in the place of the only `sign` that the span covers on its first line; None where there is none, or more."""
    text = written(span)
    if text.count(sign) != 1:
        return None
    return Edit(replace(span, column=span.column + text.index(sign), length=len(sign)), new)


def written(span: Span) -> str:
    """The text that the span covers on its first line."""
    return span.line_text[span.column - 1 :][: span.length]


def quoted(name: str) -> str:
    """A name as it can be written: in double quotes where it needs them."""
    return name if _PLAIN.fullmatch(name) else '"' + name.replace('"', '""') + '"'


def applied(text: str, edit: Edit) -> str:
    """The text after the change.

    >>> applied("SELECT a FORM t", Edit(Span("", 1, 10, 4), "FROM"))
    'SELECT a FROM t'
    """
    lines = text.split("\n")
    start = sum(len(line) + 1 for line in lines[: edit.span.line - 1]) + edit.span.column - 1
    end = start + edit.span.length
    return text[: end if edit.inserted else start] + edit.text + text[end:]
