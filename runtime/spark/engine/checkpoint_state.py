"""The state of the queries of a Spark target at their last committed batches, read from checkpoints by the session of a live instance, or by a new one."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias

from flowql.compiler.plan.topology import Plan, QueryPlan, StoreSpec
from flowql.runtime.errors import StateError
from flowql.runtime.log.base import TopicPartition
from flowql.runtime.spark.engine.causes import cause_of
from flowql.runtime.spark.engine.checkpoints import NONE, REBUILD
from flowql.runtime.spark.engine.deployed import Deployed
from flowql.runtime.spark.engine.order import topics_followed
from flowql.runtime.spark.engine.site import Site
from flowql.runtime.spark.errors import CheckpointLost
from flowql.runtime.spark.folders import Folder
from flowql.runtime.spark.log_offsets import partition_offsets
from flowql.runtime.spark.session import close_session, open_session
from flowql.runtime.spark.settings import SparkSettings
from flowql.runtime.spark.stage.layout import Layout, layout_of
from flowql.runtime.spark.stage.pages import LoadedPages, PagedRows
from flowql.runtime.spark.stage.processor import DIRECTORY, HEAD, PAGES, decode_head
from flowql.runtime.spark.stage.program import GroupState
from flowql.runtime.state.physical import chunked
from flowql.runtime.state.rows import Key, Rows, Value
from flowql.runtime.state.store import Snapshot
from flowql.runtime.state.task_store import TaskStore
from flowql.runtime.state.values import encode_value

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


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


LazySession: TypeAlias = "Callable[[], SparkSession]"  # started when it is first called


def reader(session: LazySession, site: Site, plan: Plan) -> Callable[[Pinned], Snapshot]:
    """Opens the state of a query at a batch; some Spark jobs. session: asked for then."""

    def read(at: Pinned) -> Snapshot:
        layout, spark = layout_of(plan, at.query, site.partitions(), buckets=at.buckets), session()
        try:
            assert (
                spark.streams.active is not None
            )  # asking for it makes the coordinator of state stores, which readers call
            return CheckpointSnapshot(spark, site.checkpoint(at.query.id), layout, at.batch)
        except Exception as error:  # what Spark raises has no common root, and its text dies with the session
            raise CheckpointLost(
                f"the state of {at.query.id} cannot be read: {cause_of(error)}", help=REBUILD
            ) from error

    return read


@contextmanager
def session_at_rest(settings: SparkSettings, application_id: str, state_dir: Path) -> Iterator[LazySession]:
    """A session without a live instance: Spark is started when it is first asked for (some seconds)."""
    opened: list[SparkSession] = []

    def session() -> SparkSession:
        if not opened:
            opened.append(open_session(settings, f"{application_id}-query", state_dir))
        return opened[0]

    try:
        yield session
    finally:
        for each in opened:
            close_session(each)


SHOWN = 2  # partitions that a reason names


def apart(site: Site, deployed: Deployed, queries: Collection[str]) -> str:
    """Where queries (ids) are not at one place in the topics they share; empty if they are.

    Each query commits its batches alone, so the results of two are at one place of their input only at some moments. A reader of both waits for
    such a moment, or the answer says where each is. No query is delayed.
    """
    positions: dict[TopicPartition, dict[str, int]] = {}
    for query in (q for q in deployed.plan.queries if q.id in queries):
        read = partition_offsets(site.positions(query, deployed.records.get(query.id)))
        for topic in topics_followed(query, deployed.records.get(query.id)):
            for partition in range(site.partitions().get(topic, 0)):
                tp = TopicPartition(topic, partition)
                positions.setdefault(tp, {})[query.id] = read.get(tp, site.log.admin().begin_offset(tp))
    differing = [(tp, at) for tp, at in sorted(positions.items()) if len(set(at.values())) > 1]
    said = [_said(tp, at) for tp, at in differing[:SHOWN]]
    more = [f"and {len(differing) - SHOWN} more partitions"] if len(differing) > SHOWN else []
    return "; ".join([*said, *more])


def _said(tp: TopicPartition, at: Mapping[str, int]) -> str:
    return f"of {tp} " + ", ".join(f"{query} has read up to offset {offset}" for query, offset in sorted(at.items()))
