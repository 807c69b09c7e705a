"""A task of the runtime, fed with the rows of one Spark group. Knows no Spark.

Everything a batch has for the task is given at once and counts as all there is: inputs without more rows are idle, so the task
merges by time and processes to the end, as the runtime does when it has caught up. Rows that wait for asynchronous calls are waited for: none is left in
the state that a batch leaves.
"""

from __future__ import annotations

import json
import threading
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from flowql.compiler.plan.logical import Scan
from flowql.compiler.plan.partitioners import meeting_scans
from flowql.compiler.plan.topology import ExchangeSource, StoreSpec
from flowql.runtime.clock import SystemClock
from flowql.runtime.config import InstanceConfig
from flowql.runtime.functions.metrics import counts_since
from flowql.runtime.functions.shipping import register_shipped
from flowql.runtime.log.base import RawBatch, TopicPartition
from flowql.runtime.metrics import Metrics
from flowql.runtime.output.collector import suppress
from flowql.runtime.serde.registry import KNOWN
from flowql.runtime.spark.function_counts import FUNCTIONS
from flowql.runtime.spark.key_places import SampledKeys
from flowql.runtime.spark.shapes import (
    DEAD,
    DONE,
    ENVELOPE,
    EXCHANGE,
    LOG,
    NOTE,
    SINK,
    WAKE,
    Row,
    from_ipc,
    read_rows,
    to_ipc,
    write_rows,
)
from flowql.runtime.spark.stage import layout as layouts
from flowql.runtime.spark.stage.layout import Layout
from flowql.runtime.spark.stage.pages import Changes, LoadedPages, PagedRows
from flowql.runtime.state.computed_history import ROWS, ROWS_PER_PAGE, TASK, changelog_rows, encode_page
from flowql.runtime.state.frozen import Drops, FrozenEpoch, FrozenStore
from flowql.runtime.state.layout import StoreEntry, TaskRecord, segment_length
from flowql.runtime.state.locks import NamedLock
from flowql.runtime.state.task_state import AbortCount, ManagedTask
from flowql.runtime.state.task_store import TaskStore
from flowql.runtime.state.values import decode_metadata, encode_metadata
from flowql.runtime.task import dead_letters
from flowql.runtime.task.batch_ipc import decode_batch, encode_batch
from flowql.runtime.task.channels import ConsumerChannels, ExchangeInput
from flowql.runtime.task.id import TaskId
from flowql.runtime.task.input_buffer import LogInput
from flowql.runtime.task.program import ExchangeRows
from flowql.runtime.task.publisher import MicroBatchResult
from flowql.runtime.task.task import Task
from flowql.runtime.topology.program import TaskProgram
from flowql.runtime.topology.scans import Scans

CACHED_ROWS_MAX = 200_000  # decoded rows kept in memory beyond what a batch touched


def entries_of(stores: Sequence[StoreSpec], partition: int) -> list[StoreEntry]:
    """Catalog entries of a sub-topology's stores: numbered in plan order, which a query keeps as long as it is the same."""
    return [StoreEntry(n, spec, segment_length(spec), (partition,)) for n, spec in enumerate(stores, 1)]


class GroupState:
    """The state of one task inside a Spark group: the task state of the runtime over pages.

    Stores and metadata of one task. Owned by one thread; `cut` makes what was published physical.
    """

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


LOOK_S = 0.01  # between two looks whether a call is to be made again
TOTALS = "totals"  # in a task's metadata
CONFIG = InstanceConfig(rows_per_run=20_000, ticks=False)  # of every task
# Merged updates of a table wait for the end of the batch, but not more of them than this between two merges.
WAITING_ROWS_MAX = 500_000
# A bounded run keeps what it wrote decoded in memory up to this many rows, then as pages.
UNCUT_ROWS_MAX = 400_000


@dataclass(slots=True)
class Totals:
    """The counts of a task in one batch."""

    records_in: int = 0
    records_out: int = 0
    dead: int = 0
    late: Counter[str] = field(default_factory=Counter)

    def add(self, result: MicroBatchResult) -> None:
        self.records_in += result.source_rows
        self.dead += dead_letters.records_of(result.dead_letters)
        self.late.update(result.late)

    @staticmethod
    def of(data: Mapping[str, Any]) -> Totals:
        """The totals from `data`; zeros for {}."""
        return Totals(**{**data, "late": Counter(data.get("late", {}))})

    def data(self) -> dict[str, Any]:
        return {
            "records_in": self.records_in,
            "records_out": self.records_out,
            "dead": self.dead,
            "late": dict(self.late),
        }


class StageProgram:
    """The compiled program of one task; `run` may be called for one batch after the other, each with its state."""

    def __init__(self, layout: Layout, subtopology: int, partition: int) -> None:
        self.layout, self.id = layout, TaskId(layout.query, subtopology, partition)
        self.sub = layout.sub(subtopology)
        self.stores = [s for op in self.sub.operators for s in op.stores]
        self._program = TaskProgram(
            layout.query, self.sub.operators, partition, layout.partitions, Scans(Metrics()), CONFIG
        )
        self._program.coalesce = layout.coalesce
        meeting = meeting_scans(self.sub.operators).values()
        self._placed = {scan.topic: (layout.partitions[scan.topic], scan.partitioner) for scan in meeting}

    def run(self, state: GroupState, rows: Sequence[Row], *, cut_between: bool = False) -> Iterator[Row]:
        """Process rows that are meant for this task; gives rows of ENVELOPE, a note last.

        State is published into `state` by the time this ends, for the caller to cut. cut_between: states larger than memory
        likes are made physical on the way (for runs whose pages stay in this process).
        """
        results: list[MicroBatchResult] = []
        publisher = _Publisher(state, results)
        task = self._task(state, publisher)
        keys = SampledKeys(self._placed)
        self._feed(task, rows, keys)
        out = _Outbox(self.layout, self.id)
        while task.runnable or task.holds_rows:
            if not task.runnable:
                publisher.rest()  # until a call ends, or is due
            elif not task.process(1) and not task.holds_rows:
                break
            for result in results:
                yield from out.take(result)
            results.clear()
            if cut_between and state.uncommitted_rows > UNCUT_ROWS_MAX:
                state.cut()
        assert not task.buffered_rows, f"task {task.id} stopped with {task.buffered_rows} rows to process"
        yield from out.records()
        yield out.note({"since_start": _remember(state, out.totals), **keys.told()})

    def _task(self, state: GroupState, publisher: _Publisher) -> Task:
        task = Task(self.id, self._program, state.task, publisher, SystemClock(), CONFIG)
        positions = state.task.metadata.get("positions", {})
        partition = self.id.partition
        for op in self.sub.operators:
            if isinstance(op.spec, Scan):
                tp = TopicPartition(op.spec.topic, partition)
                task.logs[op.id] = LogInput(op.id, tp, positions.get(tp.topic, 0))
            elif isinstance(op.spec, ExchangeSource):
                for source in range(self.layout.counts[self.layout.writers[op.spec.topic]]):
                    task.exchanges[f"{op.id}#{source}"] = ExchangeInput(op.id, op.spec.topic, partition, source)
        task.channels = ConsumerChannels.joined(list(task.exchanges.values()))
        return task

    def _feed(self, task: Task, rows: Iterable[Row], keys: SampledKeys) -> None:
        """Put rows into the task's inputs, those of each input in its order."""
        schemas = {op.id: op.schema for op in self.sub.operators}
        for row in sorted(rows, key=lambda r: (r.kind, r.topic, r.source, r.seq)):
            if row.kind == LOG:
                raw = _raw(row)
                keys.look(raw)
                for log in task.logs.values():
                    if log.tp == raw.tp and raw.records.num_rows:
                        log.add(raw)
            elif row.kind == EXCHANGE:
                for channel in task.exchanges.values():
                    if (channel.topic, channel.source) == (row.topic, row.source):
                        channel.push(decode_batch(row.ipc, schemas[channel.operator]))


class _Publisher:
    """Implements `flowql.runtime.task.task.Publisher`: results are kept for who runs the task."""

    def __init__(self, state: GroupState, results: list[MicroBatchResult]) -> None:
        self._state, self._results = state, results
        self._woken = threading.Event()

    def lock(self) -> Any:
        return self._state.lock

    def publish(self, _task: Task, result: MicroBatchResult) -> None:
        self._results.append(result)

    def has_room(self, _task: Task) -> bool:
        return True  # results are taken after each run

    def wake(self) -> None:
        """A call has ended. Any thread."""
        self._woken.set()

    def rest(self) -> None:
        """Until a call ends, or another may be due."""
        self._woken.wait(LOOK_S)
        self._woken.clear()

    def broke(self, task: Task, error: BaseException) -> None:
        """Nothing of a stage that fails is kept."""


class _Outbox:
    """Results of runs as rows; updates of a table that may be merged wait until the end."""

    def __init__(self, layout: Layout, task: TaskId) -> None:
        self._layout, self._task = layout, task
        self._seq = 0
        self.totals = Totals()
        self._waiting: dict[TopicPartition, list[pa.RecordBatch]] = {}
        self._waiting_rows = 0

    def take(self, result: MicroBatchResult) -> Iterator[Row]:
        self.totals.add(result)
        for output in result.outputs:
            if isinstance(output, ExchangeRows):
                target = self._layout.consumers[output.topic]
                for p, batch in output.parts:
                    yield self._row(EXCHANGE, output.topic, p, encode_batch(batch), target)
            elif self._layout.coalesce:
                for p, records in output.parts:
                    self._wait(TopicPartition(output.topic, p), records)
            else:
                for p, records in output.parts:
                    yield self._sink(output.topic, p, records)
        if result.dead_letters:
            yield self._row(
                DEAD, self._task.query, 0, to_ipc(dead_letters.encode(self._task.query, result.dead_letters))
            )

    def records(self) -> Iterator[Row]:
        """The waiting records."""
        for tp, batches in self._waiting.items():
            yield self._sink(tp.topic, tp.partition, suppress(batches))

    def note(self, more: Mapping[str, Any]) -> Row:
        names = {"query": self._task.query, "subtopology": self._task.subtopology, "partition": self._task.partition}
        counts = {FUNCTIONS: counts_since({module for module, *_ in self._layout.functions})}
        data = json.dumps({**names, **self.totals.data(), **counts, **more}).encode()
        return self._row(NOTE, self._task.query, self._task.partition, data)

    def _wait(self, tp: TopicPartition, records: pa.RecordBatch) -> None:
        self._waiting.setdefault(tp, []).append(records)
        self._waiting_rows += records.num_rows
        if self._waiting_rows > WAITING_ROWS_MAX:
            self._waiting = {tp: [suppress(batches)] for tp, batches in self._waiting.items()}
            self._waiting_rows = 0

    def _sink(self, topic: str, partition: int, records: pa.RecordBatch) -> Row:
        self.totals.records_out += records.num_rows
        return self._row(SINK, topic, partition, to_ipc(records))

    def _row(self, kind: str, topic: str, partition: int, data: bytes, target: int = DONE) -> Row:
        self._seq += 1
        return Row(target, kind, topic, partition, self._task.partition, self._seq - 1, data)


def _remember(state: GroupState, totals: Totals) -> dict[str, Any]:
    """Add what a batch did to what the task has done since it began, which is kept with its positions."""
    with state.lock:
        metadata = state.task.metadata
        sums = Totals.of(metadata.get(TOTALS, {}))
        sums.records_in += totals.records_in
        sums.records_out += totals.records_out
        sums.dead += totals.dead
        sums.late += totals.late
        state.task.publish({**metadata, TOTALS: sums.data()})
    return sums.data()


def _raw(row: Row) -> RawBatch:
    records = from_ipc(row.ipc)
    return RawBatch(TopicPartition(row.topic, row.partition), records, row.next_offset, records.nbytes)


@lru_cache(maxsize=64)
def layout_from(text: str) -> Layout:
    """The layout a stage was made with; built once per process, which knows its schemas and functions from then on."""
    layout = layouts.loads(text)
    KNOWN.remember(layout.schemas)
    register_shipped(layout.functions)
    return layout


@lru_cache(maxsize=512)
def program_from(text: str, subtopology: int, partition: int) -> StageProgram:
    """The compiled program of a task; built once per process. Only one run of it is under way at a time."""
    return StageProgram(layout_from(text), subtopology, partition)


# Outputs of one run of records that was cut anywhere are ordered by where it began: so many rows fit behind one offset.
SEQ_BITS = 20


def begun(layout: str, records: Iterable[RawBatch]) -> Iterator[pa.RecordBatch]:
    """Records of the log as ENVELOPE rows, one for each sub-topology that reads them; of free ones what they make of it.

    Rows that such a query filters out are never sent to Java and back. Tasks that may have results without input get a wake-up row.
    """
    yield from write_rows(Row(sub, WAKE, "", p, 0, 0, b"") for sub, p in layout_from(layout).starting)
    for raw in records:
        yield from write_rows(_begun(layout, raw))


def _begun(text: str, raw: RawBatch) -> Iterator[Row]:
    layout, (topic, partition) = layout_from(text), raw.tp
    data = to_ipc(raw.records)
    for sub in layout.readers.get(topic, ()):
        row = Row(sub, LOG, topic, partition, 0, raw.first_offset, data, raw.next_offset)
        if sub in layout.free:
            program = program_from(text, sub, partition)
            for made in program.run(empty_state(program), [row]):
                yield made._replace(seq=(row.seq << SEQ_BITS) + made.seq)
        else:
            yield row


@dataclass(frozen=True)
class GroupedStage:
    """The tasks of one level in a bounded run: every row of a group is in the same Spark partition. Other rows pass.

    hands_over: the state that a task ends with is emitted as well (`stage.handing`).
    """

    layout: str
    level: int
    hands_over: bool = False

    def __call__(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        here = sorted({sub for sub, _ in layout_from(self.layout).groups(self.level)})
        waiting: list[Row] = []
        for batch in batches:
            mine, others = split(batch, here)
            yield from others
            waiting += mine
        for (sub, partition), rows in grouped(waiting):
            program = program_from(self.layout, sub, partition)
            state = empty_state(program)
            yield from write_rows(program.run(state, rows, cut_between=True))
            if self.hands_over:
                yield from write_rows(kept_rows(program, state))


def empty_state(program: StageProgram) -> GroupState:
    """State of a task that begins."""
    return GroupState(str(program.id), program.id.partition, program.stores, PagedRows(LoadedPages({})))


def grouped(rows: Iterable[Row]) -> list[tuple[tuple[int, int], list[Row]]]:
    """Rows by task."""
    found: dict[tuple[int, int], list[Row]] = {}
    for row in rows:
        found.setdefault((row.target, row.partition), []).append(row)
    return sorted(found.items())


def split(batch: pa.RecordBatch, targets: list[int]) -> tuple[list[Row], list[pa.RecordBatch]]:
    """Rows for these sub-topologies, and the others as they are."""
    mask = pc.is_in(batch.column(0), pa.array(targets, pa.int32()))
    mine = batch.filter(mask)
    if mine.num_rows == batch.num_rows:
        return list(read_rows(batch)), []
    others = batch.filter(pc.invert(mask))
    # Spark marks columns as never null where it knows: all batches of an answer need one schema.
    return list(read_rows(mine)), [pa.RecordBatch.from_arrays(others.columns, schema=ENVELOPE)]


# The state that a task of a bounded run ends with, as rows that an instance of the runtime loads. Imports no pyspark.


def kept_rows(program: StageProgram, state: GroupState) -> Iterator[Row]:
    """Everything a task keeps, published before, as rows of kinds `rows` and `task`. Ends the use of the state here."""
    _, metadata = state.cut()
    sub, partition = program.id.subtopology, program.id.partition
    pages: dict[str, tuple[list[bytes], list[bytes]]] = {}
    seq = 0
    for store, key, value in changelog_rows(entries_of(program.stores, partition), state.rows.rows()):
        keys, values = pages.setdefault(store, ([], []))
        keys.append(key)
        values.append(value)
        if len(keys) == ROWS_PER_PAGE:
            yield Row(DONE, ROWS, store, partition, sub, seq, encode_page(keys, values))
            del pages[store]
            seq += 1
    for store, (keys, values) in pages.items():
        yield Row(DONE, ROWS, store, partition, sub, seq, encode_page(keys, values))
        seq += 1
    kept = {k: v for k, v in decode_metadata(metadata).items() if k != TOTALS}
    yield Row(DONE, TASK, program.id.query, partition, sub, seq, encode_metadata(kept))
