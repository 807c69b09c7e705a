"""Large views read from the state of their queries. Their topics hold every version of each row, which costs several times as much to read."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

import pyarrow as pa

from flowql.compiler.plan.schema import Field, Schema
from flowql.query.committed import Commit
from flowql.query.last_records import is_large
from flowql.query.relations import Relation, StoreRelation, TopicRelation, arrow_schema
from flowql.query.room import Room
from flowql.query.statement import Condition
from flowql.query.view_rows import keyed_rows
from flowql.query.views import ViewMaker
from flowql.runtime.state.combined import CombinedSnapshot


@dataclass(frozen=True, slots=True)
class ViewRelation:
    """A view of standard SQL, read from the store of its query. parts: see `KeyedRows`."""

    name: str
    schema: Schema
    store: StoreRelation
    parts: Mapping[str, Field]

    def batches(
        self, conditions: Sequence[Condition], columns: frozenset[str] | None, room: Room
    ) -> Iterator[pa.RecordBatch]:
        """The visible columns of the stored rows. Conditions on columns of the key limit which rows are read."""
        of_key = [replace(c, column=self.parts[c.column].name.casefold()) for c in conditions if c.column in self.parts]
        shown, stored = arrow_schema(self.schema), self.store.schema.names
        for batch in self.store.batches(of_key, columns, room):
            yield pa.RecordBatch.from_arrays([batch.column(stored.index(name)) for name in shown.names], schema=shown)


def in_state(commit: Commit, name: str, view: ViewMaker | None) -> StoreRelation | None:
    """The store of a view's query, as of the tick or commit as of which its topic would be read. None if the commit does not have all of its rows."""
    if view is None or commit.restoring or commit.others is not None:
        return None
    snapshot = commit.snapshot
    if isinstance(snapshot, CombinedSnapshot) and not commit.is_whole:
        snapshot = snapshot.newest
    return StoreRelation(name, view(), snapshot) if view.spec in snapshot.stores() else None


def from_state(commit: Commit, relations: Mapping[str, Relation]) -> dict[str, Relation]:
    """The relations, with the stored rows of views whose topics are large."""
    return {name: _from_state(commit, relation) for name, relation in relations.items()}


def _from_state(commit: Commit, relation: Relation) -> Relation:
    if not (is_large(relation) and isinstance(relation, TopicRelation) and relation.source.relation):
        return relation
    keyed = keyed_rows(commit.plan, relation.source)
    store = in_state(commit, relation.name, keyed.view)
    if store is None or not set(relation.schema.names) <= set(store.schema.names):
        return relation
    return ViewRelation(relation.name, relation.schema, store, keyed.parts)
