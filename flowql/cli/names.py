"""The names for interactive queries: relations with their columns, queries, topics, functions."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from flowql.compiler.plan.schema import Schema
from flowql.compiler.plan.topology import Plan, SourceDef, StoreSpec, stores_of

DEAD_LETTERS, STORES = "DEAD_LETTERS", "FLOWQL_STORES"  # relations every instance has
_STORES_COLUMNS = ("STORE", "QUERY", "KIND", "ROWS", "BYTES")
_NO_TOPICS: Mapping[str, int] = {}


@dataclass(frozen=True, slots=True)
class Names:
    """The names of a deployed plan. relations: streams, tables and internal stores -> their columns as interactive queries see them."""

    relations: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    queries: tuple[str, ...] = ()
    topics: tuple[str, ...] = ()

    @staticmethod
    def of(plan: Plan, topics: Mapping[str, int] = _NO_TOPICS) -> Names:
        found = {s.name: s.visible if s.relation else columns_of(s.schema) for s in plan.listed}
        for _, store in stores_of(plan):
            found.setdefault(store.name, columns_of(Schema((*store.key.fields, *store.value.fields))))
        found |= {DEAD_LETTERS: (), STORES: _STORES_COLUMNS}
        return Names(found, tuple(q.id for q in plan.queries), tuple(topics))


def columns_of(schema: Schema) -> tuple[str, ...]:
    """As interactive queries see them, with the time of a row and the bounds of its window."""
    bounds = ("WINDOWSTART", "WINDOWEND") if schema.window is not None else ()
    return tuple(dict.fromkeys((*schema.names, *bounds, "ROWTIME")))


def find(plan: Plan, name: str) -> SourceDef | StoreSpec | None:
    """The stream, table or store of that name; as written before any other spelling."""
    known: dict[str, SourceDef | StoreSpec] = {store.name: store for _, store in stores_of(plan)}
    known |= {s.name: s for s in plan.sources}
    return known.get(name) or next((v for k, v in known.items() if k.casefold() == name.casefold()), None)
