"""Names of relations with a schema in front."""

from __future__ import annotations

from collections.abc import Sequence

from flowql.compiler.dialect.standard.refuse import fail
from flowql.compiler.dialect.standard.tree import Node


def plain_name(parts: Sequence[str], node: Node) -> str:
    """The name of a relation. There is one schema, `public`."""
    if len(parts) > 1 and tuple(parts[:-1]) != ("public",):
        title = f"there is no schema {'.'.join(parts[:-1])}"
        help = f"write  {parts[-1]}: there are no schemas but public"
        fail("FQ2001", title, node.span, label="unknown schema", help=help)
    return parts[-1]
