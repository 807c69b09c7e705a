"""The objects of a topology in a task, and what they are given of it."""

from __future__ import annotations

import contextlib
import pickle
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from datetime import timedelta
from typing import Any, get_args

import numpy as np
import pyarrow as pa

from flowql.compiler.functions.registry import FAILURES, QueryFailure
from flowql.compiler.functions.user_types import DefinitionError, called
from flowql.compiler.plan.processors import RESULT_OF, Process, ProcessorStep
from flowql.compiler.plan.schema import Schema
from flowql.compiler.plan.topology import Operator
from flowql.compiler.plan.types import arrow_type
from flowql.compiler.processors.processor import AsyncProcessor, BatchProcessor, ClockKind, Headers, Processor
from flowql.compiler.processors.stores import milliseconds
from flowql.compiler.processors.topology import Topology, topology_in_plan
from flowql.runtime.batch import DELETE, INSERT, UPDATE_AFTER, UPDATE_BEFORE, Batch, Row, concat, from_columns
from flowql.runtime.errors import BadRecord
from flowql.runtime.functions.failures import described
from flowql.runtime.operators.base import NO_TIME, MicroBatchContext
from flowql.runtime.operators.processors.stores import store_of
from flowql.runtime.operators.processors.values import (
    RecordOfRow,
    RowOfRecord,
    checked_headers,
    checked_time,
    checked_times,
)
from flowql.runtime.operators.rows import Emitter, interleave


@dataclass(slots=True)
class Schedule:
    """method: of the processor. next_ms: of stream time or the wall clock; NO_TIME where no stream time is known yet.

    of_init: made by `init`, which makes it again for each object. Implements `flowql.compiler.processors.processor.Cancellable`.
    """

    processor: str
    method: str
    clock: ClockKind
    every_ms: int
    next_ms: int
    of_init: bool
    ended: bool = False

    def cancel(self) -> None:
        self.ended = True

    def is_due(self, now_ms: int) -> bool:
        """Whether it is to be called. The first stream time that is known only starts it."""
        if self.ended:
            return False
        if self.next_ms == NO_TIME:
            self.advance(now_ms)
            return False
        return now_ms >= self.next_ms

    def advance(self, now_ms: int) -> None:
        """Once for all that have passed."""
        if self.clock == "stream":
            self.next_ms = now_ms - now_ms % self.every_ms + self.every_ms
        else:
            self.next_ms = now_ms + self.every_ms

    @property
    def identity(self) -> tuple[str, str, str, int]:
        return (self.processor, self.method, self.clock, self.every_ms)


class Schedules:
    """All schedules of a task's topology. The task commits them with its metadata, so they continue after a restart."""

    def __init__(self, saved: Sequence[Sequence[Any]]) -> None:
        """saved: of the objects before these, as `to_data` gives them."""
        self._saved = [Schedule(*fields) for fields in saved]
        self._all: list[Schedule] = []

    def add(self, made: Schedule) -> Schedule:
        """The same schedule of the object before goes on."""
        before = next((s for s in self._saved if s.identity == made.identity), None)
        if before is not None:
            self._saved.remove(before)
            made.next_ms = before.next_ms
        self._all.append(made)
        return made

    def initialised(self) -> None:
        """Schedules that were made by `process` or `punctuate` go on; those that `init` made before and does not any more end."""
        self._all += [s for s in self._saved if not s.of_init]
        self._saved = []

    def due(self, clock: ClockKind, now_ms: int) -> list[Schedule]:
        """In the order of their times, and of being made."""
        found = [s for s in self._all if s.clock == clock and s.is_due(now_ms)]
        return sorted(found, key=lambda s: s.next_ms)

    def next_ms(self, clock: ClockKind) -> int | None:
        """The earliest; None if there is none. NO_TIME: it waits for the first stream time."""
        return min((s.next_ms for s in self._all if s.clock == clock and not s.ended), default=None)

    def follow_wall(self, now_ms: int) -> None:
        """A clock that was set back must not keep punctuations waiting."""
        for s in self._all:
            if s.clock == "wall":
                s.next_ms = min(s.next_ms, now_ms + s.every_ms)

    def are(self, saved: Sequence[Sequence[Any]]) -> bool:
        """Whether these are the same, whatever their next times."""
        return [s.identity for s in self._all if not s.ended] == [Schedule(*fields).identity for fields in saved]

    def to_data(self) -> list[list[Any]]:
        self._all = [s for s in self._all if not s.ended]
        return [[s.processor, s.method, s.clock, s.every_ms, s.next_ms, s.of_init] for s in self._all]


WALL_CLOCK = "processor {name} schedules by the wall clock, and a task inside Spark runs only when rows come: schedule by stream time, or run it on the runtime"
_OPS = {INSERT: "insert", UPDATE_AFTER: "update", DELETE: "delete"}


class ProcessingFailed(BadRecord, code="FQ4032"):
    """A processor raised for a record; it goes to the dead letters."""


@dataclass(slots=True)
class Current:
    """The record that is processed; of a punctuation its time alone. previous: of a table's row, its value before."""

    source: str | None = None
    timestamp: int = 0
    headers: Headers = ()
    previous: dict[str, Any] | None = None
    is_record: bool = False


class Context:
    """Implements `flowql.compiler.processors.processor.ProcessorContext` for one processor of a task."""

    def __init__(self, running: RunningTopology, step: ProcessorStep) -> None:
        self._running, self._step = running, step
        self._children = running.children[step.name]

    def forward(
        self,
        key: Any,
        value: Any,
        *,
        to: str | None = None,
        timestamp: int | None = None,
        headers: Headers | None = None,
    ) -> None:
        if to is not None and to not in self._children:
            raise ValueError(f"{to} is not a child of {self.name}: {', '.join(self._children) or 'it has none'}")
        children = self._children if to is None else (to,)
        if timestamp is None and headers is None and len(children) == 1:
            self._running.deliver(children[0], key, value)
            return
        with self._as(timestamp, headers):
            for child in children:
                self._running.deliver(child, key, value)

    def send(
        self, sink: str, key: Any, value: Any, *, timestamp: int | None = None, headers: Headers | None = None
    ) -> None:
        if not self._running.is_sink(sink):
            raise ValueError(f"{sink} is not a sink of the topology: {', '.join(self._running.sinks)}")
        with self._as(timestamp, headers):
            self._running.deliver(sink, key, value)

    def forward_batch(self, batch: pa.RecordBatch, *, to: str | None = None) -> None:
        if to is not None and to not in self._children:
            raise ValueError(f"{to} is not a child of {self.name}: {', '.join(self._children) or 'it has none'}")
        for child in self._children if to is None else (to,):
            if not self._running.is_sink(child):
                raise ValueError(f"{child} is not a sink: only sinks take batches")
            self._running.emit_batch(child, batch)

    def schedule(
        self, every: timedelta | int, callback: Callable[[int], None] | None = None, *, clock: ClockKind = "stream"
    ) -> Schedule:
        try:
            every_ms = milliseconds(every, f"schedule of {self.name}")
        except DefinitionError as error:
            raise ValueError(str(error)) from None
        if clock not in get_args(ClockKind):
            raise ValueError(f"clock={clock!r}: it is 'stream' or 'wall'")
        if clock == "wall" and not self._running.run_context.ticks:
            raise QueryFailure(WALL_CLOCK.format(name=self.name))
        made = Schedule(self.name, self._method(callback), clock, every_ms, NO_TIME, not self._running.is_initialised)
        if clock == "wall" or self._running.stream_time != NO_TIME:
            made.advance(self.wall_time if clock == "wall" else self._running.stream_time)
        return self._running.schedules.add(made)

    def _method(self, callback: Callable[[int], None] | None) -> str:
        """A schedule outlives the object, so it is of a method by name."""
        processor = self._running.processors[self.name]
        if callback is None:
            return "punctuate"
        name = getattr(callback, "__name__", "")
        if getattr(callback, "__self__", None) is not processor or not hasattr(processor, name):
            raise ValueError(f"{callback!r} is not a method of processor {self.name}; schedule one, which calls it")
        return name

    def store(self, name: str) -> Any:
        if name not in self._step.stores:
            given = ", ".join(self._step.stores) or "it has none"
            raise ValueError(f"processor {self.name} was not given the store {name}: {given}")
        return self._running.stores[name]

    def commit(self) -> None:
        self._running.run_context.wants_commit = True

    @contextmanager
    def _as(self, timestamp: int | None, headers: Headers | None) -> Iterator[None]:
        """Children see the record that they are given."""
        before = self._running.current
        if timestamp is not None or headers is not None:
            ms = before.timestamp if timestamp is None else checked_time(timestamp)
            found = before.headers if headers is None else checked_headers(headers)
            self._running.current = replace(before, timestamp=ms, headers=found)
        try:
            yield
        finally:
            self._running.current = before

    @property
    def name(self) -> str:
        return self._step.name

    @property
    def partition(self) -> int:
        return self._running.run_context.partition

    @property
    def topic(self) -> str | None:
        origin = self._running.origin() if self._running.current.is_record else None
        return None if origin is None else origin[0]

    @property
    def offset(self) -> int | None:
        origin = self._running.origin() if self._running.current.is_record else None
        return None if origin is None else origin[2]

    @property
    def source(self) -> str | None:
        return self._running.current.source

    @property
    def timestamp(self) -> int:
        return self._running.current.timestamp

    @property
    def headers(self) -> Headers:
        return self._running.current.headers

    @property
    def previous(self) -> dict[str, Any] | None:
        return self._running.current.previous

    @property
    def stream_time(self) -> int | None:
        ms = self._running.stream_time
        return None if ms == NO_TIME else ms

    @property
    def wall_time(self) -> int:
        return self._running.run_context.wall_ms


class RunningTopology:
    """The objects of a task's topology."""

    def __init__(
        self,
        plan: Operator,
        inputs: Sequence[Operator],
        stores: Mapping[str, str],
        schedules: Sequence[Sequence[Any]],
        stream_time: int,
    ) -> None:
        assert isinstance(plan.spec, Process)
        spec = plan.spec
        topology = topology_in_plan(spec.topology)
        self._plan, self._state_names = plan, stores
        self.stream_time = stream_time
        self.schedules = Schedules(schedules)
        self.current = Current()
        self.is_initialised = False
        self.stores = {s.name: store_of(s, topology.store(s.name).value) for s in spec.stores}
        self._retention = {s.name: s.retention_ms for s in spec.stores if s.retention_ms is not None}
        self._is_table = plan.change != "append"
        sinks = [s for s in spec.steps if s.kind == "sink"]
        self._sink_of = {n: s.relations[0] for s in sinks for n in (s.name, s.relations[0])}
        schemas_of = {r.relation: r.schema for r in spec.routes} or {s.relations[0]: plan.schema for s in sinks}
        self._rows = {name: RowOfRecord(schema, name) for name, schema in schemas_of.items()}
        self._routed = [r.relation for r in spec.routes]
        self._schemas = [_without_results(i.schema) for i in inputs]
        self._readers = [RecordOfRow(schema) for schema in self._schemas]
        self._has_old = [i.change == "retract" for i in inputs]  # a deleted row has its values
        self._relations = [r for s in topology.steps for r in s.relations]
        self.processors = {s.name: self._made(topology, s) for s in spec.steps if s.kind == "processor"}
        self.children = {p: tuple(s.name for s in spec.steps if p in s.parents) for p in (s.name for s in spec.steps)}
        self.contexts = {s.name: Context(self, s) for s in spec.steps if s.kind == "processor"}
        by_input = [self._first_steps(spec, r) for r in spec.reads]
        self._batches = [[n for n in steps if self._is_batch(n)] for steps in by_input]
        self._plain = [[n for n in steps if not self._is_batch(n)] for steps in by_input]
        self._results = [
            {n: place for n in steps if (place := _place_of_result(n, i.schema)) is not None}
            for steps, i in zip(by_input, inputs, strict=True)
        ]
        self._reads = spec.reads
        self.run_context: MicroBatchContext
        self._out: Emitter
        self._parts: list[Batch]
        self.seq = 0

    @staticmethod
    def _first_steps(spec: Process, relation: str) -> list[str]:
        """The steps that get the records of a relation, in the order of the topology, once for each of its sources."""
        sources = [s.name for s in spec.steps if s.kind == "source" and relation in s.relations]
        return [s.name for source in sources for s in spec.steps if source in s.parents]

    def _made(self, topology: Topology, step: ProcessorStep) -> Processor:
        made = topology.make(step.name)
        sources = {s.name for s in topology.steps if s.kind == "source"}
        if isinstance(made, AsyncProcessor) and not any(step.name in topology.calls(r) for r in self._relations):
            raise QueryFailure(
                f"processor {step.name} is asynchronous: give the class to add_processor, and not what makes its objects"
            )
        if isinstance(made, BatchProcessor) and not sources.issuperset(step.parents):
            raise QueryFailure(f"processor {step.name} processes batches, and gets records of another processor")
        return made

    def _is_batch(self, step: str) -> bool:
        return isinstance(self.processors.get(step), BatchProcessor)

    # -- life

    def begin(self, run: MicroBatchContext) -> None:
        """Before anything is called in a run."""
        self.run_context, self.seq = run, run.last_seq
        self._out, self._parts = Emitter(self._plan.schema), []
        for name, store in self.stores.items():
            store.bind(run.state.store(self._state_names[name]))
        self.current = Current(timestamp=self.stream_time if self.stream_time != NO_TIME else run.wall_ms)

    def initialise(self) -> None:
        """Calls `init` of all, parents first. Raises QueryFailure."""
        for name, processor in self.processors.items():
            with _failing(f"init of processor {name}"):
                called(name, processor.init, self.contexts[name])
            processor.context = self.contexts[name]  # also where `init` is overridden
        self.is_initialised = True
        self.schedules.initialised()

    def close(self) -> None:
        """Calls `close` of all. What they raise is of no consequence any more."""
        for processor in self.processors.values():
            with contextlib.suppress(Exception):
                called("close", processor.close)

    def run(self, inputs: Sequence[Batch | None], run: MicroBatchContext) -> Batch | None:
        """One run: the rows of all inputs in their order, then what is due by the wall clock."""
        if self.run_context is not run:
            self.begin(run)
        self._by_row(inputs)
        for i, batch in enumerate(inputs):
            if batch is not None and len(batch) and self._batches[i]:
                self._at_once(i, batch)
        self.schedules.follow_wall(run.wall_ms)
        for s in self.schedules.due("wall", run.wall_ms):
            self.current = Current(timestamp=run.wall_ms)
            self._punctuate(s, run.wall_ms)
        if self.stream_time != NO_TIME:
            run.stream_times[self._plan.id] = self.stream_time
            for name, ms in self._retention.items():
                run.state.store(self._state_names[name]).expire(self.stream_time - ms)
        return self._batch()

    def has_changed(self, saved: Sequence[Sequence[Any]]) -> bool:
        """Whether this run has written to a store, or there are other schedules than `saved`."""
        return any(s.has_written for s in self.stores.values()) or not self.schedules.are(saved)

    # -- records

    def _by_row(self, inputs: Sequence[Batch | None]) -> None:
        columns = [None if b is None else (b.rows(), b.rowtime.tolist(), b.op.tolist(), b.seq.tolist()) for b in inputs]
        before: Row | None = None
        for i, n in interleave(inputs):
            batch, of = inputs[i], columns[i]
            assert batch is not None
            assert of is not None
            row, ms, op, self.seq = of[0][n], of[1][n], of[2][n], of[3][n]
            if op == UPDATE_BEFORE:
                before = row
                continue
            has_advanced = ms > self.stream_time
            self.stream_time = max(ms, self.stream_time)
            if self._plain[i]:
                self._record(i, row, before, ms, op, batch.headers[n] if batch.headers is not None else None)
            before = None
            if has_advanced:
                self._punctuate_stream()

    def _record(self, i: int, row: Row, before: Row | None, ms: int, op: int, headers: Any) -> None:
        reader = self._readers[i]
        old = row if op == DELETE and self._has_old[i] else before
        self.current = Current(
            self._reads[i],
            ms,
            () if headers is None else tuple(headers),
            None if old is None else reader.value(old),
            True,
        )
        key, value = reader.key(row), None if op == DELETE else reader.value(row)
        for step in self._plain[i]:
            if step in self._results[i]:
                self._deliver_result(step, key, value, row[self._results[i][step]])
            else:
                self.deliver(step, key, value)

    def _deliver_result(self, step: str, key: Any, value: Any, result: bytes | None) -> None:
        """A record and what the call of a processor returned. Without any, all attempts have failed: it is a dead letter already."""
        if result is not None or value is None:
            given = None if result is None else pickle.loads(result)
            self._call(step, self.processors[step].process, key, value, given)

    def deliver(self, step: str, key: Any, value: Any) -> None:
        """Gives a record to a processor or sink. Raises ProcessingFailed."""
        if step in self._sink_of:
            self.emit(step, key, value)
        else:
            self._call(step, self.processors[step].process, key, value)

    def is_sink(self, name: str) -> bool:
        """Whether it is the name of a sink, or of what one writes."""
        return name in self._sink_of

    @property
    def sinks(self) -> list[str]:
        return sorted(self._sink_of)

    def _call(self, step: str, method: Callable[..., None], *args: Any) -> None:
        """Raises ProcessingFailed where the record is to blame, QueryFailure where the code is."""
        try:
            called(step, method, *args)
        except (ProcessingFailed, QueryFailure):
            raise
        except FAILURES as error:
            raise QueryFailure(f"processor {step}: {described(error)}") from error
        except Exception as error:
            raise ProcessingFailed(f"processor {step}: {described(error)}") from error

    def emit(self, sink: str, key: Any, value: Any) -> None:
        """A record for a sink. Raises TypeError, ValueError."""
        relation = self._sink_of[sink]
        rows = self._rows[relation]
        parts = rows.key(key)
        if self._is_table and (not parts or any(p is None for p in parts)):
            raise ValueError("a row of a table needs a key")
        op = DELETE if value is None else UPDATE_AFTER if self._is_table else INSERT
        headers = list(self.current.headers) or None
        if value is None and self._routed:
            raise ValueError("records without a value are for topologies that write one stream or table")
        row = self._on_its_way(relation, (*parts, *rows.value(value)))
        self._out.add(row, self.current.timestamp, op, self.seq, headers)

    def _on_its_way(self, relation: str, row: Row) -> Row:
        """A record in the column of its stream, where there are several."""
        if not self._routed:
            return row
        record = dict(zip(self._rows[relation].schema.names, row, strict=True))
        return (relation, *(record if r == relation else None for r in self._routed))

    def emit_batch(self, sink: str, batch: pa.RecordBatch) -> None:
        """Records for a sink. Raises TypeError, ValueError."""
        rows, n = self._rows[self._sink_of[sink]], len(batch)
        columns = rows.columns(batch)
        if self._is_table and any(c.null_count for c in columns[: len(rows.schema.key)]):
            raise ValueError("a row of a table needs a key")
        if self._routed:
            columns = self._columns_on_their_way(self._sink_of[sink], columns, n)
        times = np.full(n, self.current.timestamp, np.int64)
        if "ROWTIME" in batch.schema.names:
            times = checked_times(batch.column("ROWTIME"))
        op = np.full(n, UPDATE_AFTER if self._is_table else INSERT, np.int8)
        self._take_rows()
        self._parts.append(from_columns(self._plan.schema, columns, times, op=op, seq=np.full(n, self.seq)))

    def _columns_on_their_way(self, relation: str, columns: Sequence[pa.Array], n: int) -> list[pa.Array]:
        """As `_on_its_way`, for many records."""
        record = pa.StructArray.from_arrays(columns, names=list(self._rows[relation].schema.names))
        others = [arrow_type(f.type) for f in self._plan.schema][1:]
        routed = zip(self._routed, others, strict=True)
        return [pa.array([relation] * n), *(record if r == relation else pa.nulls(n, t) for r, t in routed)]

    def _at_once(self, i: int, batch: Batch) -> None:
        kept = batch.take(np.flatnonzero(batch.op != UPDATE_BEFORE)) if (batch.op == UPDATE_BEFORE).any() else batch
        columns = kept.arrow().select(list(self._schemas[i].names))
        arrays = [*columns.columns, pa.array(kept.rowtime), pa.array([_OPS[o] for o in kept.op.tolist()])]
        given = pa.RecordBatch.from_arrays(arrays, [*columns.schema.names, "ROWTIME", "ROWOP"])
        self.seq = int(kept.seq[-1])
        self.current = Current(self._reads[i], int(kept.rowtime[-1]))
        for step in self._batches[i]:
            processor = self.processors[step]
            assert isinstance(processor, BatchProcessor)
            self._call(step, processor.process_batch, given)

    def origin(self) -> tuple[str, int, int] | None:
        """Topic, partition and offset of the record that is processed."""
        if self.run_context.origins is None:
            return None
        return self.run_context.origins(np.array([self.seq])).of(0)

    def _take_rows(self) -> None:
        """Takes the rows emitted so far: columns that follow come behind them."""
        made = self._out.batch()
        if made is not None:
            self._parts.append(made)
            self._out = Emitter(self._plan.schema)

    def _batch(self) -> Batch | None:
        self._take_rows()
        return concat(self._plan.schema, self._parts) if self._parts else None

    # -- punctuations

    def _punctuate_stream(self) -> None:
        next_ms = self.schedules.next_ms("stream")
        if next_ms is None or next_ms > self.stream_time:
            return
        for s in self.schedules.due("stream", self.stream_time):
            self.current = Current(timestamp=self.stream_time)
            self._punctuate(s, self.stream_time)

    def _punctuate(self, s: Schedule, now_ms: int) -> None:
        s.advance(now_ms)
        processor = self.processors.get(s.processor)
        method = getattr(processor, s.method, None)
        if method is None:  # it was edited away
            s.cancel()
            return
        with _failing(f"{s.method} of processor {s.processor}"):
            called(s.processor, method, now_ms)


def _without_results(schema: Schema) -> Schema:
    """The columns of the source: results of calls are behind them."""
    return Schema(tuple(f for f in schema if not f.name.startswith(RESULT_OF)), schema.window)


def _place_of_result(step: str, schema: Schema) -> int | None:
    name = f"{RESULT_OF}{step}"
    return schema.names.index(name) if name in schema.names else None


@contextlib.contextmanager
def _failing(what: str) -> Iterator[None]:
    """Raises QueryFailure for whatever is raised: no record is to blame."""
    try:
        yield
    except QueryFailure:
        raise
    except Exception as error:
        raise QueryFailure(f"{what}: {described(error)}") from error
