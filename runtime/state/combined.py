"""A snapshot of several commits: of each query the commit at which its results are of the wanted moment."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from flowql.compiler.plan.topology import StoreSpec
from flowql.runtime.state.rows import Key, Rows, Value
from flowql.runtime.state.store import Snapshot


class CombinedSnapshot:
    """Implements `flowql.runtime.state.store.Snapshot`. Closes what it is made of."""

    def __init__(self, by_query: Mapping[str, Snapshot], others: Snapshot, stores: Mapping[str, str]) -> None:
        """stores: the query of each store. others: for all stores and tasks of queries that are not in `by_query`."""
        self._by_query, self._others, self._stores = by_query, others, stores
        self.sequence = others.sequence

    @property
    def newest(self) -> Snapshot:
        """The last commit, which may have rows of a later moment. It is closed with this snapshot."""
        return self._others

    def stores(self) -> Sequence[StoreSpec]:
        return [spec for s in self._parts() for spec in s.stores() if self._of(spec.name) is s]

    def tasks(self) -> dict[str, dict[str, Any]]:
        found = {t: data for t, data in self._others.tasks().items() if _query_of(t) not in self._by_query}
        for query, snapshot in self._by_query.items():
            found |= {t: data for t, data in snapshot.tasks().items() if _query_of(t) == query}
        return found

    def get(self, store: str, key: Key) -> Value | None:
        return self._of(store).get(store, key)

    def scan(
        self, store: str, *, low: Key | None = None, high: Key | None = None, limit: int | None = None
    ) -> Iterator[tuple[Key, Value]]:
        return self._of(store).scan(store, low=low, high=high, limit=limit)

    def chunks(self, store: str, *, low: Key | None = None, high: Key | None = None) -> Iterator[Rows]:
        return self._of(store).chunks(store, low=low, high=high)

    def size(self, store: str) -> tuple[int, int]:
        return self._of(store).size(store)

    def rows_read(self) -> int:
        return sum(s.rows_read() for s in self._parts())

    def close(self) -> None:
        for snapshot in self._parts():
            snapshot.close()

    def _of(self, store: str) -> Snapshot:
        return self._by_query.get(self._stores.get(store, ""), self._others)

    def _parts(self) -> list[Snapshot]:
        return [self._others, *self._by_query.values()]


def _query_of(task_id: str) -> str:
    return task_id.rpartition("/")[0]
