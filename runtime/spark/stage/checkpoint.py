"""The tasks in a streaming query's checkpoint, read through Spark's state data source.

A committed view like the runtime's snapshots: all tasks as of one micro-batch, none of a later one.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import islice
from typing import TYPE_CHECKING, Any

from flowql.compiler.plan.topology import StoreSpec
from flowql.runtime.spark.folders import Folder
from flowql.runtime.spark.stage.durable import decode_head
from flowql.runtime.spark.stage.layout import Layout
from flowql.runtime.spark.stage.pages import LoadedPages, PagedRows
from flowql.runtime.spark.stage.processor import DIRECTORY, HEAD, PAGES
from flowql.runtime.spark.stage.state import GroupState
from flowql.runtime.state.chunks import chunked
from flowql.runtime.state.rows import Key, Rows, Value
from flowql.runtime.state.task_store import TaskStore
from flowql.runtime.state.values import encode_value

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


class CheckpointSnapshot:
    """Implements `flowql.runtime.state.store.Snapshot`. `sequence` is the micro-batch plus one.

    Reading a task's pages is one Spark job per level of the query, done here; asking costs no more jobs. One thread.
    """

    def __init__(self, spark: SparkSession, checkpoint: Folder, layout: Layout, batch: int) -> None:
        self._layout = layout
        self._tasks: dict[str, GroupState] = {}
        self.sequence = batch + 1
        for operator in range(len(layout.grouped_levels())):
            self._load(spark, checkpoint, operator, batch)

    def stores(self) -> Sequence[StoreSpec]:
        return [s for sub in self._layout.subtopologies for op in sub.operators for s in op.stores]

    def tasks(self) -> dict[str, dict[str, Any]]:
        return {name: state.task.metadata for name, state in self._tasks.items()}

    def get(self, store: str, key: Key) -> Value | None:
        found = (s.get(key) for s in self._parts(store))
        return next((v for v in found if v is not None), None)

    def scan(
        self, store: str, *, low: Key | None = None, high: Key | None = None, limit: int | None = None
    ) -> Iterator[tuple[Key, Value]]:
        rows = (row for part in self._parts(store) for row in part.scan(low=low, high=high))
        return rows if limit is None else islice(rows, limit)

    def chunks(self, store: str, *, low: Key | None = None, high: Key | None = None) -> Iterator[Rows]:
        return chunked(self.scan(store, low=low, high=high))

    def size(self, store: str) -> tuple[int, int]:
        sizes = [len(encode_value(k)) + len(encode_value(v)) for k, v in self.scan(store)]
        return len(sizes), sum(sizes)

    def rows_read(self) -> int:
        return sum(s.metrics.physical for state in self._tasks.values() for s in state.task.stores.values())

    def close(self) -> None:
        self._tasks.clear()

    def _parts(self, store: str) -> list[TaskStore]:
        return [state.task.stores[store] for state in self._tasks.values() if store in state.task.stores]

    def _load(self, spark: SparkSession, checkpoint: Folder, operator: int, batch: int) -> None:
        def read(variable: str) -> list[Any]:
            options = {"operatorId": operator, "stateVarName": variable, "batchId": batch}
            return spark.read.format("statestore").options(**options).load(str(checkpoint)).collect()

        pages: dict[int, dict[int, bytes]] = {}
        for row in read(PAGES):
            pages.setdefault(row.key.slot, {})[row.user_map_key.page] = bytes(row.user_map_value.data)
        directories = {row.key.slot: bytes(row.value.data) for row in read(DIRECTORY)}
        for row in read(HEAD):
            head = decode_head(bytes(row.value.data))
            slot = row.key.slot
            sub, _, partition = head.task.rpartition("/")[2].partition("_")
            stores = [s for op in self._layout.sub(int(sub)).operators for s in op.stores]
            rows = PagedRows(LoadedPages(pages.get(slot, {})), directories.get(slot))
            self._tasks[head.task] = GroupState(head.task, int(partition), stores, rows, head.metadata)
