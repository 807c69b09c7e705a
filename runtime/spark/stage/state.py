"""The state of one task inside a Spark group: the runtime's own task state over pages."""

from __future__ import annotations

from collections.abc import Sequence

from flowql.compiler.plan.topology import StoreSpec
from flowql.runtime.spark.stage.pages import Changes, PagedRows
from flowql.runtime.state.drops import Drops
from flowql.runtime.state.frozen import FrozenEpoch, FrozenStore
from flowql.runtime.state.layout import StoreEntry, TaskRecord, segment_length
from flowql.runtime.state.locks import NamedLock
from flowql.runtime.state.task_state import AbortCount, ManagedTask
from flowql.runtime.state.task_store import TaskStore

CACHED_ROWS_MAX = 200_000  # decoded rows kept in memory beyond what a batch touched


def entries_of(stores: Sequence[StoreSpec], partition: int) -> list[StoreEntry]:
    """Catalog entries of a sub-topology's stores: numbered in plan order, which a query keeps as long as it is the same."""
    return [StoreEntry(n, spec, segment_length(spec), (partition,)) for n, spec in enumerate(stores, 1)]


class GroupState:
    """Stores and metadata of one task. Owned by one thread; `cut` makes what was published physical."""

    def __init__(
        self, task_id: str, partition: int, stores: Sequence[StoreSpec], rows: PagedRows, metadata: bytes | None = None
    ) -> None:
        self.rows = rows
        self.lock = NamedLock("epoch lock", guards="the one task of this group")
        self._stores = [
            TaskStore(e, partition, rows, detached=False, is_empty=lambda: not len(rows))
            for e in entries_of(stores, partition)
        ]
        self._writes_cut = 0
        record = None if metadata is None else TaskRecord(partition, tuple(s.name for s in stores), metadata)
        self.task = ManagedTask(
            task_id, partition, self._stores, record, self.lock, AbortCount(), lambda _task, _rows: None
        )

    def cut(self) -> tuple[Changes, bytes]:
        """Everything published since the last cut as changed pages, and the task's metadata."""
        assert self.task.is_dirty, "nothing was published"
        with self.lock:
            metadata = self.task.freeze()
            overlays = [(s, s.freeze()) for s in self._stores]
            frozen = [FrozenStore(self.task.id, s, o) for s, o in overlays if o is not None]
            epoch = FrozenEpoch(
                1, stores=frozen, tasks={}, drops=Drops(), catalog={}, entries=None, has_changelog=lambda _spec: False
            )
            changes = self.rows.apply(epoch.writes())
            self.task.mark_applied()
            if sum(s.cached for s in self._stores) > CACHED_ROWS_MAX:
                for s in self._stores:
                    s.age()
        self._writes_cut = sum(s.metrics.writes for s in self._stores)
        return changes, metadata

    @property
    def uncommitted_rows(self) -> int:
        """How many rows were written since the last cut, each time counted."""
        return sum(s.metrics.writes for s in self._stores) - self._writes_cut
