"""A snapshot of several commits: for each sub-topology, the commit at which its results are of the wanted moment."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from flowql.compiler.plan.topology import StoreSpec
from flowql.runtime.state.rows import Key, Rows, Value
from flowql.runtime.state.store import Snapshot


class CombinedSnapshot:
    """Implements `flowql.runtime.state.store.Snapshot`. Closes what it is made of."""

    def __init__(self, by_part: Mapping[str, Snapshot], others: Snapshot, stores: Mapping[str, str]) -> None:
        """by_part: by query and number of a sub-topology. stores: to which of these each store belongs. others: for all other stores and tasks."""
        self._by_part, self._others, self._stores = by_part, others, stores
        self.sequence = others.sequence

    @property
    def newest(self) -> Snapshot:
        """The last commit, which may have rows of a later moment. It is closed with this snapshot."""
        return self._others

    def stores(self) -> Sequence[StoreSpec]:
        return [spec for s in self._parts() for spec in s.stores() if self.of(spec.name) is s]

    def tasks(self) -> dict[str, dict[str, Any]]:
        found = {t: data for t, data in self._others.tasks().items() if _part_of(t) not in self._by_part}
        for part, snapshot in self._by_part.items():
            found |= {t: data for t, data in snapshot.tasks().items() if _part_of(t) == part}
        return found

    def get(self, store: str, key: Key) -> Value | None:
        return self.of(store).get(store, key)

    def scan(
        self, store: str, *, low: Key | None = None, high: Key | None = None, limit: int | None = None
    ) -> Iterator[tuple[Key, Value]]:
        return self.of(store).scan(store, low=low, high=high, limit=limit)

    def chunks(self, store: str, *, low: Key | None = None, high: Key | None = None) -> Iterator[Rows]:
        return self.of(store).chunks(store, low=low, high=high)

    def size(self, store: str) -> tuple[int, int]:
        return self.of(store).size(store)

    def rows_read(self) -> int:
        return sum(s.rows_read() for s in self._parts())

    def close(self) -> None:
        for snapshot in self._parts():
            snapshot.close()

    def of(self, store: str) -> Snapshot:
        """The commit that has the rows of this store."""
        return self._by_part.get(self._stores.get(store, ""), self._others)

    def _parts(self) -> list[Snapshot]:
        return [self._others, *self._by_part.values()]


def _part_of(task_id: str) -> str:
    return task_id.rpartition("_")[0]
