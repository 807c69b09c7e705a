"""The relations of a commit by name: tables and stores, streams and source tables, dead letters, the list of stores."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from flowql.compiler.plan.topology import Plan, SourceDef, stores_of
from flowql.query.letters import LettersRelation
from flowql.query.of_plan import OfPlan
from flowql.query.relations import STORES, Relation, StoreRelation, StoresRelation, TopicRelation
from flowql.query.views import ViewMaker, store_views
from flowql.runtime.log.base import Log, TopicPartition
from flowql.runtime.state.store import Snapshot


def relations_of(
    plan: Plan, snapshot: Snapshot, log: Log, letters: SourceDef, ends: Mapping[TopicPartition, int]
) -> dict[str, Callable[[], Relation]]:
    """Name -> how to make the relation. letters: the dead letters as a stream. ends: see `Commit`."""
    found: dict[str, Callable[[], Relation]] = {}
    for source in plan.sources:
        found[source.name] = _topic(log, source, ends)
    found[letters.name] = lambda: LettersRelation(_topic(log, letters, ends)(), letters.name)
    found[STORES] = lambda: StoresRelation([(q.id, s) for q, s in stores_of(plan)], snapshot)
    for name, make in _views(plan):
        found[name] = _store(snapshot, name, make)
    for source in plan.sources:
        if source.relation:  # as it is declared, whatever stores have its name
            found[source.name] = _topic(log, source, ends)
    return found


def _topic(log: Log, source: SourceDef, ends: Mapping[TopicPartition, int]) -> Callable[[], TopicRelation]:
    return lambda: TopicRelation.newest(source, log, ends)


def _store(snapshot: Snapshot, name: str, make: ViewMaker) -> Callable[[], Relation]:
    return lambda: StoreRelation(name, make(), snapshot, make.spec in snapshot.stores(), make)


_views = OfPlan(lambda plan: list(store_views(plan)))
