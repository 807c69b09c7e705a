"""The state of the queries of a Spark target, each at its last committed batch: read from the checkpoints when first asked for."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from flowql.compiler.plan.topology import QueryPlan, StoreSpec
from flowql.runtime.errors import StateError
from flowql.runtime.spark.engine.checkpoints import NONE
from flowql.runtime.spark.engine.deployed import Deployed
from flowql.runtime.spark.engine.site import Site
from flowql.runtime.state.rows import Key, Rows, Value
from flowql.runtime.state.store import Snapshot


@dataclass(frozen=True, slots=True)
class Pinned:
    """A query and the batch at which it is asked; NONE before its first. buckets: see `Record`."""

    query: QueryPlan
    batch: int
    buckets: int = 0

    @property
    def stores(self) -> list[StoreSpec]:
        return [s for sub in self.query.subtopologies for op in sub.operators for s in op.stores]


def sequence_of(site: Site, deployed: Deployed) -> int:
    """How many batches all queries have committed: equal numbers mean that nothing was committed in between."""
    found = (site.epochs_of_record(q.id, deployed.records.get(q.id)) for q in deployed.plan.queries)
    return sum(p.next_epoch for p in found if p is not None)


def pin(site: Site, deployed: Deployed) -> list[Pinned]:
    """Where each query is now whose state can be read: streams of the exact way. Others keep nothing, or in a form of Spark's."""
    found = []
    for query in deployed.plan.queries:
        record = deployed.records.get(query.id)
        if record is not None and (record.form, record.how) == ("stream", "exact"):
            committed = site.epochs_of_record(query.id, record)
            found.append(Pinned(query, NONE if committed is None else committed.next_epoch - 1, record.buckets))
    return found


class SparkSnapshot:
    """Implements `flowql.runtime.state.store.Snapshot` over all queries. `read` opens the state of one; it is called at most once for each.

    Spark keeps the last batches of a query (`spark.sql.streaming.minBatchesToRetain`), so pinned ones can be read for a while.
    """

    def __init__(self, queries: Sequence[Pinned], sequence: int, read: Callable[[Pinned], Snapshot]) -> None:
        self.sequence = sequence
        self._queries, self._read = queries, read
        self._query_of: Mapping[str, Pinned] = {s.name: p for p in queries for s in p.stores}
        self._open: dict[str, Snapshot] = {}

    def stores(self) -> Sequence[StoreSpec]:
        return [s for p in self._queries for s in p.stores]

    def tasks(self) -> dict[str, dict[str, Any]]:
        """The tasks of the queries that were requested so far."""
        return {name: data for s in self._open.values() for name, data in s.tasks().items()}

    def get(self, store: str, key: Key) -> Value | None:
        kept = self._of(store)
        return None if kept is None else kept.get(store, key)

    def scan(
        self, store: str, *, low: Key | None = None, high: Key | None = None, limit: int | None = None
    ) -> Iterator[tuple[Key, Value]]:
        kept = self._of(store)
        return iter(()) if kept is None else kept.scan(store, low=low, high=high, limit=limit)

    def chunks(self, store: str, *, low: Key | None = None, high: Key | None = None) -> Iterator[Rows]:
        kept = self._of(store)
        return iter(()) if kept is None else kept.chunks(store, low=low, high=high)

    def size(self, store: str) -> tuple[int, int]:
        kept = self._of(store)
        return (0, 0) if kept is None else kept.size(store)

    def rows_read(self) -> int:
        return sum(s.rows_read() for s in self._open.values())

    def close(self) -> None:
        for snapshot in self._open.values():
            snapshot.close()
        self._open.clear()

    def _of(self, store: str) -> Snapshot | None:
        """None before the first batch: there is no checkpoint to read, and no row in it."""
        at = self._query_of.get(store)
        if at is None:
            raise StateError(f"there is no store {store} at this batch")
        if at.batch == NONE:
            return None
        if at.query.id not in self._open:
            self._open[at.query.id] = self._read(at)
        return self._open[at.query.id]
