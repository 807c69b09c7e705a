"""Commits without rows, from which a statement gets its columns and types."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

from flowql.compiler.plan.topology import SourceDef, StoreSpec
from flowql.pg.pins import Pin
from flowql.query.committed import Commit, dead_letter_source
from flowql.query.letters import LettersRelation
from flowql.query.of_plan import OfPlan
from flowql.query.relations import STORES, Relation, StoreRelation, StoresRelation, TopicRelation
from flowql.query.views import ViewMaker, store_views
from flowql.runtime.log.base import Log
from flowql.runtime.state.store import Snapshot

store_views_of = OfPlan(lambda plan: list(store_views(plan)))


class NoState:
    """The state of a commit of which topics alone are read. pin: of one statement, released with the commit."""

    def __init__(self, sequence: int, pin: Pin | None = None) -> None:
        self.sequence, self._pin = sequence, pin

    def stores(self) -> Sequence[StoreSpec]:
        return ()

    def tasks(self) -> dict[str, dict[str, Any]]:
        return {}

    def close(self) -> None:
        if self._pin is not None:
            self._pin.release()


@dataclass(frozen=True, slots=True)
class EmptyCommit(Commit):
    """A commit in which no relation has rows: it tells columns and types. visible: folded names of the relations that it has; None: all."""

    visible: frozenset[str] | None = None

    def relations(self) -> dict[str, Callable[[], Relation]]:
        names = self.visible
        return {n: make for n, make in self._all().items() if names is None or n.casefold() in names}

    def _all(self) -> dict[str, Callable[[], Relation]]:
        letters = dead_letter_source(self.application_id)
        found: dict[str, Callable[[], Relation]] = {s.name: partial(_topic, self.log, s) for s in self.plan.sources}
        found[letters.name] = lambda: LettersRelation(_topic(self.log, letters), letters.name)
        found[STORES] = lambda: StoresRelation((), self.snapshot)
        for name, make in store_views_of(self.plan):
            found[name] = partial(_store, name, make, self.snapshot)
        return found | {s.name: partial(_topic, self.log, s) for s in self.plan.sources if s.relation}

    def at_rest(self) -> bool:
        return True


def _topic(log: Log, source: SourceDef) -> TopicRelation:
    return TopicRelation(source.name, source, log, {})


def _store(name: str, make: ViewMaker, snapshot: Snapshot) -> StoreRelation:
    return StoreRelation(name, make(), snapshot, False, make)
