"""The program of a task: operators of its sub-topology in order, stateless chains as one kernel, sinks at the end."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial

import numpy as np
import pyarrow as pa

from flowql.compiler.plan.asynchronous import AsyncMap
from flowql.compiler.plan.changes import TemporalJoin
from flowql.compiler.plan.logical import Explode, Filter, Materialise, Project, Rekey, Scan, Sink, Union
from flowql.compiler.plan.partitioners import meeting_scans
from flowql.compiler.plan.topology import ExchangeSink, ExchangeSource, Operator
from flowql.compiler.plan.watermarks import MARK, AppendOnly
from flowql.runtime import formats
from flowql.runtime.batch import DELETE, UNKNOWN, UPDATE_BEFORE, Batch, Ints, Origins, concat, from_rows
from flowql.runtime.config import InstanceConfig
from flowql.runtime.log.base import RawBatch
from flowql.runtime.operators import factory
from flowql.runtime.operators.base import (
    AsyncFacts,
    Following,
    MicroBatchContext,
    RuntimeOperator,
    Starting,
    Timed,
    Waits,
)
from flowql.runtime.operators.changes.group_deltas import PlacementKeys
from flowql.runtime.operators.encode import VECTOR_ROWS, Encoder, KeyEncoder
from flowql.runtime.operators.fused import FusedPipeline
from flowql.runtime.operators.keys import RowKey
from flowql.runtime.operators.projections import ProjectionChain
from flowql.runtime.operators.row_columns import RowColumns
from flowql.runtime.output.partitioner import groups, partitions_of, split
from flowql.runtime.state.store import TaskState
from flowql.runtime.task.input_buffer import DecodedRows
from flowql.runtime.task.key_places import KNOWN, PARTITIONERS, check_alike, known_partitioners
from flowql.runtime.task.program import ExchangeRows, InputSpec, JointDecoder, JointPart, Output, SinkRecords
from flowql.runtime.task.repartition import enclose, open_envelopes, topic_of
from flowql.runtime.topology.joint import JointMicroBatch
from flowql.runtime.topology.scans import Scans, SharedScan, reader_of

Stage = tuple[Operator, ...]
NONE_START: Mapping[str, Starting] = {}
# A row that such an operator gives was made from the one row whose `seq` it has; a row of a join or an aggregation from several.
_STATELESS = (Project, Filter, AsyncMap)
_ONE_TO_ONE = (Scan, AppendOnly, AsyncMap, ExchangeSource, Project, Filter, Rekey, Explode, Union, Materialise)


@dataclass(frozen=True, slots=True)
class _Step:
    """One call in a run: an operator (or a chain of stateless ones under its last operator's id) and where its rows come from."""

    id: str
    inputs: tuple[str, ...]
    operator: RuntimeOperator


class TaskProgram:
    """Implements `flowql.runtime.task.program.Program`."""

    def __init__(
        self,
        query: str,
        operators: Sequence[Operator],
        partition: int,
        partitions: Mapping[str, int],
        scans: Scans,
        config: InstanceConfig,
        written: Callable[[str], int] = formats.newest,
    ) -> None:
        """written: the format in which records of a kind are written."""
        self._query = query
        self._by_id = {op.id: op for op in operators}
        self._partition, self.partitions, self._vector = partition, partitions, config.vector
        self._config, self._written = config, written
        self.coalesce = False  # whether every reader of the sink treats it as a table; told by `Instance`
        self._may_coalesce = _coalescible(operators)
        self._ends_in_table = _coalescible(operators, _renames)
        self._scans: dict[str, SharedScan] = {
            op.id: scans.attach(query, op) for op in operators if isinstance(op.spec, Scan)
        }
        self.inputs = tuple(_input_spec(op) for op in operators if isinstance(op.spec, (Scan, ExchangeSource)))
        self.steps = [self._step(s) for s in _stages(operators)]
        self._starting = self._results_of_no_rows()
        self.starts = bool(self._starting)
        self._timed: dict[str, Timed] = {s.id: s.operator for s in self.steps if isinstance(s.operator, Timed)}
        self._waiting: tuple[Waits, ...] = tuple(t for t in self._timed.values() if isinstance(t, Waits))
        self._watermarks = Watermarks(operators, partition, partitions)
        self._marked = {op.id for op in operators if isinstance(op.spec, ExchangeSource) and op.spec.marks}
        self._following = {
            s.id for s in self.steps if isinstance(s.operator, Following) and s.operator.follows_watermark
        }
        ends = [op.spec for op in operators if isinstance(op.spec, (ExchangeSink, ExchangeSource))]
        self._follows = bool(self._following) or any(e.marks for e in ends)
        self.sinks = [_SinkEnd(op) for op in operators if isinstance(op.spec, Sink)]
        self.exchanges = [op for op in operators if isinstance(op.spec, ExchangeSink)]
        self.traced = {op.id for op in self.exchanges if _is_traced(op, self._by_id)}
        self._pipeline = _fusible(operators, scans)
        meeting = meeting_scans(operators)
        self._meeting = {op: scan.topic for op, scan in meeting.items()}
        # By topic whose records of one key have to come to one task; shared by the tasks of this reader.
        self.key_places = {t: self._scans[op].places_of(reader_of(query, op)) for op, t in self._meeting.items()}
        for scan in meeting.values():
            self.key_places[scan.topic].declare(scan.partitioner)
        self._is_told = not self._meeting  # of what earlier instances found out about the places of keys

    @property
    def fused(self) -> bool:
        return self._pipeline is not None and all(s.single for s in self._scans.values())

    def decode(self, operator: str, state: TaskState, raw: RawBatch, fetched: Sequence[RawBatch]) -> DecodedRows:
        """Batches that others read too are decoded as they were fetched, once for all of them; else all at once.

        fetched: the parts of `raw` as they came to all readers; none where the input catches up with the others.
        """
        schema, scan = self._by_id[operator].schema, self._scans.get(operator)
        if scan is None:
            return open_envelopes(raw, schema)
        parts: list[DecodedRows] = []
        shared = not scan.single and scan.meets(reader_of(self._query, operator), raw, at_head=bool(fetched))
        for piece in fetched if shared else [raw]:
            run = MicroBatchContext(state=state, vector=self._vector)  # for dead letters; decoding touches no state
            parts.append(scan.decode(schema, piece, run))
        if operator in self._meeting:
            self._look_at_keys(state, raw)
        return parts[0] if len(parts) == 1 else DecodedRows.joined(parts, raw)

    def joint_decoder(self, operator: str) -> JointDecoder | None:
        scan, schema = self._scans.get(operator), self._by_id[operator].schema
        if scan is None or not scan.decodes_jointly(schema):
            return None
        return partial(scan.decode_jointly, schema, self._vector)

    def _look_at_keys(self, state: TaskState, raw: RawBatch) -> None:
        """KeysMisplaced if rows of one key come to different tasks."""
        topics = self.key_places
        if not self._is_told:
            for topic, name in state.metadata.get(PARTITIONERS, {}).items():
                if topic in topics and name in KNOWN:
                    topics[topic].trust(name)
            self._is_told = True
        topic = raw.tp.topic
        topics[topic].look(raw.records.column("key"), raw.tp.partition, self.partitions[topic])
        check_alike(self._query, topics, repartitions=len(self._scans) < len(self.inputs))

    def start(self, run: MicroBatchContext) -> list[Output]:
        """The results before the first row: those of aggregates over no rows."""
        return self._execute({}, run, self._starting)

    @property
    def due_ms(self) -> int | None:
        return (
            min((t.due_ms for t in self._timed.values() if t.due_ms is not None), default=None) if self._timed else None
        )

    def tick(self, run: MicroBatchContext) -> list[Output]:
        """Runs the operators whose timer is due, without input rows."""
        run.is_tick, run.origins = True, partial(_origins_of_retired, run)
        return self._execute({}, run)

    @property
    def room(self) -> int | None:
        if not self._waiting:
            return None
        return min((room for w in self._waiting if (room := w.room) is not None), default=None)

    @property
    def waiting(self) -> list[AsyncFacts]:
        return [w.facts for w in self._waiting]

    def execute(self, batches: Mapping[str, Batch], run: MicroBatchContext) -> list[Output]:
        return self._execute(batches, run)

    def _execute(
        self, batches: Mapping[str, Batch], run: MicroBatchContext, starting: Mapping[str, Starting] = NONE_START
    ) -> list[Output]:
        given: dict[str, Batch | None] = dict(batches)
        self._begin(given, run)
        if self._meeting:
            run.partitioners = known_partitioners(self.key_places)
        for step in self.steps:
            inputs = [given.get(i) for i in step.inputs]
            first = starting[step.id].start(run) if step.id in starting else None
            is_due = step.id in self._timed and not batches
            if is_due or self._moved(step.id, run) or any(b is not None and len(b) for b in inputs):
                self.prepare(step.id, run)
                given[step.id] = step.operator.process(inputs, run)
            if first is not None:
                more = given.get(step.id)
                given[step.id] = first if more is None else concat(first.schema, [first, more])
        out: list[Output] = []
        for sink in self.sinks:
            batch = given.get(sink.plan.inputs[0])
            if batch is not None and len(batch):
                batch = sink.after_images(batch)
                sink.keep(batch, run)
                out += self._records(sink.plan, sink.encoder.encode(batch, run))
        for op in self.exchanges:
            batch = given.get(op.inputs[0])
            if batch is not None and len(batch):
                out.append(self._exchange(op, self._with_origins(op, batch, run)))
            if (mark := self._watermarks.mark(op, run)) is not None:
                out.append(self._to_all(op, mark))
        return out

    def prepare(self, step: str, run: MicroBatchContext) -> None:
        """An operator is called next."""
        run.coalesce = self.coalesce and step in self._may_coalesce
        run.befores = step not in self._ends_in_table

    @property
    def joins(self) -> bool:
        return not (self._timed or self._follows or self._meeting or self.fused)

    def execute_jointly(self, parts: Sequence[JointPart]) -> list[list[Output]]:
        programs = [p.program for p in parts]
        return JointMicroBatch([p for p in programs if isinstance(p, TaskProgram)], parts).execute()

    def _begin(self, given: dict[str, Batch | None], run: MicroBatchContext) -> None:
        """Where the run ends, and what the marks among its rows say."""
        if not self._follows:
            return
        batches = [b for b in given.values() if b is not None and len(b)]
        run.last_seq = max((int(b.seq[-1]) for b in batches), default=0)
        run.last_ms = max((int(b.rowtime.max()) for b in batches), default=0)
        for source in self._marked:
            batch = given.get(source)
            if batch is not None:
                given[source] = self._watermarks.received(source, batch, run)

    def _moved(self, step: str, run: MicroBatchContext) -> bool:
        """Tell an operator that follows its watermark where that is; whether it is elsewhere than when it was called last."""
        if step not in self._following:
            return False
        run.watermark, name = self._watermarks.at(step, run), f"{step}!"
        if run.watermark is None or run.watermarks.get(name) == run.watermark:
            return False
        run.watermarks[name] = run.watermark
        return True

    def _to_all(self, op: Operator, mark: Batch) -> Output:
        """A mark for every partition of a repartition."""
        assert isinstance(op.spec, ExchangeSink)
        every = range(self.partitions[op.spec.topic])
        if self._config.shared:
            records = enclose(mark, self._partition, self._written("envelope"))
            topic = topic_of(self._config.application_id, op.spec.topic)
            return SinkRecords(topic, tuple((p, records) for p in every), internal=True)
        return ExchangeRows(op.spec.topic, tuple((p, mark) for p in every))

    def execute_raw(self, raw: RawBatch, run: MicroBatchContext) -> list[Output]:
        assert self._pipeline is not None
        (scan,) = self._scans.values()
        scan.metrics.add_decoded(raw.tp.topic, raw.records.num_rows)
        return self._records(self.sinks[0].plan, self._pipeline.process(raw, run))

    def _records(self, sink: Operator, records: pa.RecordBatch) -> list[Output]:
        assert isinstance(sink.spec, Sink)
        if not records.num_rows:
            return []
        topic = sink.spec.topic
        return [SinkRecords(topic, tuple(split(records, self.partitions[topic], self._partition)))]

    def _with_origins(self, op: Operator, batch: Batch, run: MicroBatchContext) -> Batch:
        """Rows for a repartition, with the record each was made from if it is one. What leaves a table was made from an older record
        than the one that makes it leave.
        """
        if run.origins is None or op.id not in self.traced:
            return batch
        return self.traced_from(op, batch, run.origins(batch.seq))

    def traced_from(self, op: Operator, batch: Batch, origins: Origins) -> Batch:
        """Rows with the records they were made from."""
        if op.change != "append":
            origins = origins.without((batch.op == DELETE) | (batch.op == UPDATE_BEFORE))
        return batch.with_origins(origins)

    def _exchange(self, op: Operator, batch: Batch) -> Output:
        assert isinstance(op.spec, ExchangeSink)
        n, home = self.partitions[op.spec.topic], 0 if op.spec.null_group else self._partition
        order, placed = groups(partitions_of(self.keys_of(op, batch), n, home))
        ordered = batch if order is None else batch.take(order)
        return self.sent(op, [(p, ordered.slice(start, end)) for p, start, end in placed])

    def keys_of(self, op: Operator, batch: Batch) -> pa.BinaryArray:
        """The bytes that rows for a repartition are placed by."""
        assert isinstance(op.spec, ExchangeSink)
        if op.spec.by is not None:
            return PlacementKeys(op.schema, op.spec.by).of(batch)
        return _keys(KeyEncoder(op.schema, op.spec.key_format), batch)

    def sent(self, op: Operator, parts: Sequence[tuple[int, Batch]]) -> Output:
        """Rows of this task for partitions of a repartition."""
        assert isinstance(op.spec, ExchangeSink)
        if self._config.shared:
            number = self._written("envelope")
            records = tuple((p, enclose(part, self._partition, number)) for p, part in parts)
            return SinkRecords(topic_of(self._config.application_id, op.spec.topic), records, internal=True)
        return ExchangeRows(op.spec.topic, tuple(parts))

    def _results_of_no_rows(self) -> dict[str, Starting]:
        """Operators that give something before the first row. They keep one group: it lives where rows without a key go."""
        found = {s.id: s.operator for s in self.steps if isinstance(s.operator, Starting) and s.operator.starts}
        counts = {self.partitions[op.spec.topic] for op in self._by_id.values() if isinstance(op.spec, ExchangeSource)}
        if not found:
            return {}
        assert len(counts) == 1, "one group is behind repartitions, which have one number of partitions"
        no_key = pa.array([b""], pa.binary())  # what rows are placed by that are placed by no column
        home = [partitions_of(no_key, n, 0)[0] for n in counts]
        return found if home == [self._partition] else {}

    def _step(self, stage: Stage) -> _Step:
        last = stage[-1]
        if isinstance(last.spec, (Project, Filter)):
            source = self._by_id[stage[0].inputs[0]]
            return _Step(last.id, stage[0].inputs, ProjectionChain(stage, source.schema, source.change))
        inputs = [self._by_id[i] for i in last.inputs]
        return _Step(last.id, last.inputs, factory.build(last, inputs))


def _origins_of_retired(run: MicroBatchContext, seq: Ints) -> Origins:
    """Origins of rows that continue in a micro-batch without input, by `seq`."""
    found = [run.retired[s] for s in seq.tolist()]
    places = {(r.topic, r.partition): 0 for r in found if r is not None}
    for n, place in enumerate(places):
        places[place] = n
    which = [0 if r is None else places[r.topic, r.partition] for r in found]
    offsets = [UNKNOWN if r is None or r.offset is None else r.offset for r in found]
    return Origins(tuple(places), np.array(which, np.int16), np.array(offsets, np.int64))


class _SinkEnd:
    """A sink: encodes records, and keeps the rows of a table so that it can be asked."""

    def __init__(self, plan: Operator) -> None:
        assert isinstance(plan.spec, Sink)
        self.plan = plan
        self.encoder = Encoder(plan.spec, plan.schema)
        self._store = plan.stores[0] if plan.stores else None
        self._row_key = RowKey(plan.schema)
        self._columns: RowColumns | None = None
        if self._store is not None and self._store.kind == "table" and self._row_key.flat:
            self._columns = RowColumns(plan.schema)

    @property
    def keeps(self) -> bool:
        """Whether it has a store."""
        return self._store is not None

    @staticmethod
    def after_images(batch: Batch) -> Batch:
        """Rows without before-images, of which a sink writes none."""
        kept = np.flatnonzero(batch.op != UPDATE_BEFORE)
        return batch if len(kept) == len(batch) else batch.take(kept)

    def keep(self, batch: Batch, run: MicroBatchContext) -> None:
        if self._store is None:
            return
        store = run.state.store(self._store.name)
        if self._columns is not None and batch.is_columns and len(batch) >= VECTOR_ROWS:
            store.append(*self._columns.split(batch))
            return
        key_of, rows, op = self._row_key, batch.rows(), batch.op.tolist()
        kept = [
            (key_of.of(r), None if o == DELETE else key_of.value(r))
            for r, o in zip(rows, op, strict=True)
            if o != UPDATE_BEFORE
        ]
        store.put_many([k for k, _ in kept], [v for _, v in kept])


def _keys(encoder: KeyEncoder, batch: Batch) -> pa.BinaryArray:
    """Key bytes of the rows: what their partition is computed from."""
    if encoder.has_vector and batch.is_columns:
        return encoder.columns(batch.arrow().columns, len(batch))
    return pa.array([encoder.encode(r) for r in batch.rows()], pa.binary())


def _input_spec(op: Operator) -> InputSpec:
    spec = op.spec
    assert isinstance(spec, (Scan, ExchangeSource))
    is_table = op.change != "append" if isinstance(spec, ExchangeSource) else spec.kind == "table"
    return InputSpec(op.id, spec.topic, is_table, isinstance(spec, ExchangeSource))


def _stages(operators: Sequence[Operator]) -> list[Stage]:
    """Operators that are called in a run, in order; Project and Filter operators that follow each other alone form one stage."""
    readers: dict[str, int] = {}
    for op in operators:
        for i in op.inputs:
            readers[i] = readers.get(i, 0) + 1
    stages: list[list[Operator]] = []
    for op in operators:
        if isinstance(op.spec, (Scan, ExchangeSource, Sink, ExchangeSink)):
            continue
        stateless = isinstance(op.spec, (Project, Filter))
        before = next((s for s in stages if op.inputs and s[-1].id == op.inputs[0]), None)
        if (
            stateless
            and before is not None
            and isinstance(before[-1].spec, (Project, Filter))
            and readers[before[-1].id] == 1
        ):
            before.append(op)
        else:
            stages.append([op])
    order = {op.id: n for n, op in enumerate(operators)}
    return [tuple(s) for s in sorted(stages, key=lambda s: order[s[-1].id])]


def _is_stateless(op: Operator) -> bool:
    return isinstance(op.spec, _STATELESS)


def _renames(op: Operator) -> bool:
    """Whether it gives each image that it takes."""
    return isinstance(op.spec, Project) and not op.spec.drop_failed


def _coalescible(operators: Sequence[Operator], passes: Callable[[Operator], bool] = _is_stateless) -> set[str]:
    """Operators whose rows meet nothing but projections and filters, or others that `passes` names, on their way into a table (rule R13).

    An aggregation over a table is no such reader: a row that came and went leaves a group with count 0 behind.
    """
    readers: dict[str, list[Operator]] = {}
    for op in operators:
        for i in op.inputs:
            readers.setdefault(i, []).append(op)
    found: set[str] = set()
    for op in reversed(operators):
        after = readers.get(op.id, [])
        if after and all(_is_table_sink(r) or (passes(r) and r.id in found) for r in after):
            found.add(op.id)
    return found


def why_by_row(operators: Sequence[Operator]) -> dict[str, str]:
    """Operators of a sub-topology that process all rows one by one (`MicroBatchContext.took_by_row`), with the reason."""
    by_id, merged = {op.id: op for op in operators}, _coalescible(operators)
    found = {op.id: factory.why_by_row(op, [by_id[i] for i in op.inputs]) for op in operators}
    for op in operators:
        if isinstance(op.spec, Materialise) and op.id not in merged:
            found[op.id] = found[op.id] or "it gives every change of a row"
    return {op: reason for op, reason in found.items() if reason}


def _is_traced(op: Operator, by_id: Mapping[str, Operator]) -> bool:
    """All operators on the way to it are of those that give rows of one record each."""
    above = [by_id[i] for i in op.inputs]
    return all(isinstance(a.spec, _ONE_TO_ONE) and _is_traced(a, by_id) for a in above)


def _is_table_sink(op: Operator) -> bool:
    return isinstance(op.spec, Sink) and op.spec.kind == "table"


def _fusible(operators: Sequence[Operator], scans: Scans) -> FusedPipeline | None:
    """One stream source, its watermark, projections and filters, one sink to a stream: a single kernel from record to record."""
    first, *middle, last = operators
    if not (isinstance(first.spec, Scan) and first.spec.kind == "stream" and isinstance(last.spec, Sink)):
        return None
    stages = middle[1:] if middle and isinstance(middle[0].spec, AppendOnly) else middle
    if last.spec.kind != "stream" or not all(isinstance(op.spec, (Project, Filter)) for op in stages):
        return None
    return FusedPipeline(first, tuple(middle), last, scans.wall_ms)


# How far the watermark of each operator of a task is, and how it passes through repartitions.
#
# A watermark begins at an `AppendOnly`, one per partition of a source. Within a task it is at once where the rows of its run are: that of
# an operator is the lowest of those that it depends on. Through a repartition it travels as the rows do, behind the rows of
# the run that it belongs to, as a row of its own (a *mark*), to every task that reads the repartition. So a task that receives a mark has received
# all rows before it, and what a mark says is processed, committed and restored as rows are. A reader knows a watermark when all writers
# have sent one: a partition that has no rows holds it back.

_HEADER = "watermark"


class Watermarks:
    """The watermarks of one task's operators, kept in `MicroBatchContext.watermarks` and so in the metadata of the task."""

    def __init__(self, operators: Sequence[Operator], partition: int, partitions: Mapping[str, int]) -> None:
        self._partition = partition
        topics = [op.spec.topic for op in operators if isinstance(op.spec, (Scan, ExchangeSource))]
        self._tasks = partitions.get(topics[0], 1)  # of this sub-topology
        self._of: dict[str, tuple[str, ...]] = {}
        for op in operators:
            self._of[op.id] = self._origins(op)

    def _origins(self, op: Operator) -> tuple[str, ...]:
        """The operators of the task that its watermark comes from."""
        if isinstance(op.spec, AppendOnly) or (isinstance(op.spec, ExchangeSource) and op.spec.marks):
            return (op.id,)
        followed = op.inputs[:1] if isinstance(op.spec, TemporalJoin) else op.inputs
        below = [self._of[i] for i in followed]
        return tuple(dict.fromkeys(o for b in below for o in b)) if all(below) else ()

    def at(self, operator: str, run: MicroBatchContext) -> int | None:
        """The watermark of an operator now; None while it is not known."""
        found = [run.watermarks.get(o) for o in self._of[operator]]
        known = [w for w in found if w is not None]
        return min(known) if known and len(known) == len(found) else None

    def received(self, operator: str, batch: Batch, run: MicroBatchContext) -> Batch:
        """The rows of a repartition without the marks, which are noted."""
        marks = batch.op == MARK
        if not marks.any():
            return batch
        assert batch.headers is not None, "a mark says something"
        writers = 0
        for i in np.flatnonzero(marks).tolist():
            said = dict(batch.headers[i] or ())[_HEADER]
            assert said is not None
            source, writers, value = map(int, said.split())
            run.watermarks[f"{operator}#{source}"] = value
        found = [run.watermarks.get(f"{operator}#{n}") for n in range(writers)]
        known = [w for w in found if w is not None]
        if len(known) == writers:
            run.watermarks[operator] = min(known)
        rest = batch.take(np.flatnonzero(~marks))
        if rest.headers is not None and not any(rest.headers):
            rest.headers = None
        return rest

    def mark(self, op: Operator, run: MicroBatchContext) -> Batch | None:
        """The watermarks for readers of a repartition, each once."""
        assert isinstance(op.spec, ExchangeSink)
        at = self.at(op.inputs[0], run) if op.spec.marks else None
        if at is None or run.watermarks.get(op.id) == at:
            return None
        run.watermarks[op.id] = at
        said = f"{self._partition} {self._tasks} {at}".encode()
        blank = (None,) * len(op.schema.names)
        return from_rows(op.schema, [blank], [run.last_ms], [MARK], [run.last_seq], [[(_HEADER, said)]])
