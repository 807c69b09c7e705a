"""Positions as rows of the physical store: read, written by a commit, and renewed."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping

from flowql.runtime.state.frozen import FrozenEpoch
from flowql.runtime.state.layout import StoreEntry
from flowql.runtime.state.physical import PhysicalReader
from flowql.runtime.state.positions import RENEW_MS, ChangelogPosition, StorePartition, position_from_record
from flowql.runtime.state.task_state import ManagedTask


class PositionRenewals:
    """When the positions of tasks that may write nothing are renewed: once in `RENEW_MS`. The epoch lock is held."""

    def __init__(self) -> None:
        self._renewed_ms = 0

    def due(
        self, tasks: Iterable[ManagedTask], restoring: Collection[str], now_ms: int
    ) -> list[tuple[StoreEntry, int]]:
        """Stores and partitions of open tasks, if it is time. Their rows are all that the log has for them."""
        if abs(now_ms - self._renewed_ms) < RENEW_MS:
            return []
        self._renewed_ms = now_ms
        whole = [t for t in tasks if t.id not in restoring]
        return [(s.entry, s.partition) for t in whole for s in t.stores.values() if not s.detached]


def position_rows(
    physical: PhysicalReader, epoch: FrozenEpoch, positions: Mapping[StorePartition, ChangelogPosition]
) -> tuple[list[bytes], list[bytes]]:
    """The new positions of a committed epoch, and those that it renews."""
    rows: dict[bytes, bytes] = {}
    for entry, partition in epoch.to_renew:
        key = entry.position_key(partition)
        if (known := physical.get(key)) is not None:
            rows[key] = position_from_record(known).renewed(epoch.as_of_ms).record()
    for changed in epoch.stores:
        position = positions.get((changed.store.spec.name, changed.store.partition))
        if position is not None:
            rows[changed.store.entry.position_key(changed.store.partition)] = position.record()
    return list(rows), list(rows.values())


def read_positions(
    physical: PhysicalReader, entries: Iterable[StoreEntry], partition: int
) -> dict[StorePartition, ChangelogPosition]:
    """Those of one partition of these stores that there are."""
    found = ((e.spec.name, physical.get(e.position_key(partition))) for e in entries)
    return {(name, partition): position_from_record(data) for name, data in found if data is not None}
