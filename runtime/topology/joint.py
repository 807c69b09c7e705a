"""A joint micro-batch of several tasks of one sub-topology (`flowql.runtime.task.cohort`).

The rows of the tasks stand one after the other, numbered through. Projections, filters, new keys and encoders get the rows of all tasks at once. An
operator with state gets the rows of one task at a time, with the stores of that task.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, Protocol

import numpy as np
import pyarrow as pa

from flowql.compiler.plan.topology import ExchangeSink, Operator
from flowql.runtime.batch import Batch, Ints, Origins, concat, concat_origins
from flowql.runtime.operators.base import NO_STATE, MicroBatchContext
from flowql.runtime.operators.explode import ExplodeOperator
from flowql.runtime.operators.projections import ProjectionChain
from flowql.runtime.operators.rekey import RekeyOperator
from flowql.runtime.output.partitioner import placed
from flowql.runtime.task.program import InputSpec, JointPart, Output, SinkRecords

_BY_ROW = (ExplodeOperator, ProjectionChain, RekeyOperator)  # each output row is made from one row, without state


class JointProgram(Protocol):
    """The part of `flowql.runtime.topology.program.TaskProgram` that joint micro-batches need."""

    inputs: tuple[InputSpec, ...]
    steps: list[Any]
    sinks: list[Any]
    exchanges: list[Operator]
    partitions: Mapping[str, int]
    traced: set[str]

    def prepare(self, step: str, run: MicroBatchContext) -> None: ...

    def keys_of(self, op: Operator, batch: Batch) -> pa.BinaryArray: ...

    def traced_from(self, op: Operator, batch: Batch, origins: Origins) -> Batch: ...

    def sent(self, op: Operator, parts: Sequence[tuple[int, Batch]]) -> Output: ...


class JointMicroBatch:
    """One joint micro-batch. programs: of its tasks, in the order of `parts`."""

    def __init__(self, programs: Sequence[JointProgram], parts: Sequence[JointPart]) -> None:
        self._programs, self._parts = programs, parts
        self._starts = np.cumsum([0, *(part.rows for part in parts)])
        first = parts[0].run
        self._run = MicroBatchContext(NO_STATE, vector=first.vector, wall_ms=first.wall_ms, ticks=first.ticks)
        self._outputs: list[list[Output]] = [[] for _ in parts]

    def execute(self) -> list[list[Output]]:
        """The outputs of each task. Dead letters and counts go to the contexts of the parts."""
        lead = self._programs[0]
        given = {i.operator: self._joined([p.batches.get(i.operator) for p in self._parts]) for i in lead.inputs}
        for n, step in enumerate(lead.steps):
            inputs = [given.get(i) for i in step.inputs]
            if all(batch is None for batch in inputs):
                continue
            for run in (self._run, *(part.run for part in self._parts)):
                lead.prepare(step.id, run)
            if isinstance(step.operator, _BY_ROW):
                made = step.operator.process(inputs, self._run)
                given[step.id] = made if made is not None and len(made) else None
                self._share_out()
            else:
                given[step.id] = self._by_task(n, inputs)
        for n, sink in enumerate(lead.sinks):
            if (batch := given.get(sink.plan.inputs[0])) is not None:
                self._write(n, sink.after_images(batch))
        for op in lead.exchanges:
            if (batch := given.get(op.inputs[0])) is not None:
                self._exchange(op, batch)
        return self._outputs

    def _by_task(self, step: int, inputs: Sequence[Batch | None]) -> Batch | None:
        """The results of an operator with state, which each task has of its own."""
        parts = [self._split(batch) for batch in inputs]
        made = list[Batch | None]()
        for n, (program, part) in enumerate(zip(self._programs, self._parts, strict=True)):
            mine = [of[n] for of in parts]
            some = any(batch is not None for batch in mine)
            made.append(program.steps[step].operator.process(mine, part.run) if some else None)
        return self._joined(made)

    def _joined(self, batches: Sequence[Batch | None]) -> Batch | None:
        """The rows of all tasks, from those of each."""
        found = [
            b.numbered(b.seq + start) for b, start in zip(batches, self._starts[:-1], strict=True) if b is not None
        ]
        rows = concat(found[0].schema, found) if found else None
        return rows if rows is not None and len(rows) else None

    def _split(self, batch: Batch | None) -> list[Batch | None]:
        """The rows of each task, from those of all."""
        if batch is None:
            return [None] * len(self._parts)
        ends = np.searchsorted(batch.seq, self._starts).tolist()
        out = list[Batch | None]()
        for start, end, base in zip(ends[:-1], ends[1:], self._starts.tolist(), strict=False):
            rows = batch.slice(start, end)
            out.append(rows.numbered(rows.seq - base) if len(rows) else None)
        return out

    def _owners(self, batch: Batch) -> Ints:
        """For each row the index of its task."""
        return np.searchsorted(self._starts, batch.seq, side="right") - 1

    def _homes(self, owner: Ints) -> Ints:
        """For each row the partition of its task."""
        return np.array([part.run.partition for part in self._parts], np.int64)[owner]

    def _write(self, number: int, batch: Batch) -> None:
        """Records for the topic of a sink."""
        sink = self._programs[0].sinks[number]
        if sink.keeps:
            for program, part, rows in zip(self._programs, self._parts, self._split(batch), strict=True):
                if rows is not None:
                    program.sinks[number].keep(rows, part.run)
        records = sink.encoder.encode(batch, self._run)
        if records.num_rows == len(batch):
            self._share_out()
            self._send(sink.plan, records, self._owners(batch))
            return
        self._run.dead_letters.clear()  # which record is of which task is not known: each task encodes its rows
        for n, (part, rows) in enumerate(zip(self._parts, self._split(batch), strict=True)):
            if rows is not None:
                mine = self._programs[n].sinks[number].encoder.encode(rows, part.run)
                self._send(sink.plan, mine, np.full(mine.num_rows, n))

    def _send(self, sink: Operator, records: pa.RecordBatch, owner: Ints) -> None:
        spec: Any = sink.spec
        partitions = self._programs[0].partitions[spec.topic]
        order, parts = placed(records.column("key"), partitions, self._homes(owner), owner)
        ordered = records if order is None else records.take(pa.array(order))
        found: dict[int, list[tuple[int, pa.RecordBatch]]] = {}
        for n, partition, start, end in parts:
            found.setdefault(n, []).append((partition, ordered.slice(start, end - start)))
        for n, mine in found.items():
            self._outputs[n].append(SinkRecords(spec.topic, tuple(mine)))

    def _exchange(self, op: Operator, batch: Batch) -> None:
        """Rows for a repartition."""
        assert isinstance(op.spec, ExchangeSink)
        lead, owner = self._programs[0], self._owners(batch)
        if op.id in lead.traced:
            origins = [
                Origins.unknown(len(rows)) if part.run.origins is None else part.run.origins(rows.seq)
                for part, rows in zip(self._parts, self._split(batch), strict=True)
                if rows is not None
            ]
            batch = lead.traced_from(op, batch, concat_origins(origins))
        home = np.zeros(len(batch), np.int64) if op.spec.null_group else self._homes(owner)
        order, parts = placed(lead.keys_of(op, batch), lead.partitions[op.spec.topic], home, owner)
        ordered = batch if order is None else batch.take(order)
        found: dict[int, list[tuple[int, Batch]]] = {}
        for n, partition, start, end in parts:
            found.setdefault(n, []).append((partition, ordered.slice(start, end)))
        for n, mine in found.items():
            self._outputs[n].append(self._programs[n].sent(op, mine))

    def _share_out(self) -> None:
        """Gives dead letters to the tasks of their rows."""
        letters, self._run.dead_letters = self._run.dead_letters, []
        for letter in letters:
            n = int(np.searchsorted(self._starts, letter.seq, side="right")) - 1
            self._parts[n].run.dead_letters.append(replace(letter, seq=letter.seq - int(self._starts[n])))
