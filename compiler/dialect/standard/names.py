"""Names of relations with a schema in front."""

from __future__ import annotations

from collections.abc import Sequence

from flowql.compiler.diagnostics.source import Span
from flowql.compiler.dialect.standard.reader import Reader
from flowql.compiler.dialect.standard.refuse import fail


def plain_name(parts: Sequence[str], at: Span) -> str:
    """The name of a relation. There is one schema, `public`. at: where it stands."""
    if len(parts) > 1 and tuple(parts[:-1]) != ("public",):
        title = f"there is no schema {'.'.join(parts[:-1])}"
        help = f"write  {parts[-1]}: there are no schemas but public"
        fail("FQ2001", title, at, label="unknown schema", help=help)
    return parts[-1]


def expect_relation(cur: Reader, what: str) -> tuple[str, Span]:
    """The name that stands next, and where. what: is named, for the message."""
    start = cur.tok
    parts = cur.expect_dotted(what)
    span = cur.span_since(start)
    return plain_name(parts, span), span
