"""Push queries: unlike persistent queries they need not select their key."""

from __future__ import annotations

from dataclasses import replace

from flowql.compiler.catalog.catalog import Catalog
from flowql.compiler.dialect.ast import Ast, Func, Lit, Name, Query, SelectItem

PUSH = "this query"  # the name of its result, for messages; not an identifier, so no relation has this name
HIDDEN = "__PUSH_"
INCOMPLETE = {"FQ2022", "FQ2024"}  # the key is not selected; nothing but the key is


def complete(query: Query, catalog: Catalog) -> Query | None:
    """The query with its key as a hidden column, and at least one other column; None where the key cannot be determined."""
    keys = _keys(query, catalog)
    if keys is None:
        return None
    hidden = [SelectItem(k, f"{HIDDEN}KEY_{i}") for i, k in enumerate(keys) if not _is_selected(k, query)]
    return replace(query, select=(*query.select, *hidden, SelectItem(Lit("bool", True), f"{HIDDEN}ROW")))


def _keys(query: Query, catalog: Catalog) -> list[Ast] | None:
    """The identity of rows: groups, partitions, the joined expression, or the key of the source."""
    if query.group_by or query.partition_by:
        return [*query.group_by, *query.partition_by]
    if query.joins:
        on = query.joins[0].on
        return [on.args[0]] if isinstance(on, Func) and on.name == "eq" else None
    source = catalog.sources.get(query.source.name)
    return None if source is None else [Name((f.name,)) for f in source.schema.key]


def _is_selected(key: Ast, query: Query) -> bool:
    last = key.parts[-1] if isinstance(key, Name) else None
    return any(
        s.expr == key or (last is not None and isinstance(s.expr, Name) and s.expr.parts[-1] == last)
        for s in query.select
    )
