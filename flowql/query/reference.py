"""A bound query over the rows of a commit, computed by the operators of views: they give what it means, and what is wrong with a row.

Each task of its plan runs once, with all rows of its inputs as one micro-batch, and keeps its state in memory.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence

import numpy as np
import pyarrow as pa

from flowql.compiler.analyze.relations.relation import Names, with_identity
from flowql.compiler.optimize.mark_appends import mark_appends
from flowql.compiler.physical.planner import plan_query
from flowql.compiler.plan.changes import Consolidate
from flowql.compiler.plan.logical import Node, Scan
from flowql.compiler.plan.topology import ExchangeSink, ExchangeSource, Operator, SubTopology
from flowql.compiler.plan.types import arrow_type
from flowql.query.errors import QueryError
from flowql.runtime.batch import INSERT, Batch, Row, concat, to_arrow
from flowql.runtime.config import InstanceConfig
from flowql.runtime.metrics import Metrics
from flowql.runtime.operators.base import MicroBatchContext
from flowql.runtime.state.manager import StateManager
from flowql.runtime.state.memory import MemoryPhysical
from flowql.runtime.state.store import TaskState
from flowql.runtime.task.program import ExchangeRows, Output
from flowql.runtime.topology.program import TaskProgram
from flowql.runtime.topology.scans import Scans

_QUERY = "asked"


def computed(node: Node, tables: Mapping[str, pa.Table]) -> pa.Table:
    """The rows of a plan, with its columns but those of the row identity. tables: the rows of each relation that it reads. Raises QueryError."""
    below = with_identity(mark_appends(node), Names())
    return _Run(Node(Consolidate(), (below,), below.schema, "retract"), tables).rows()


class _Run:
    """One computation: its state, and the rows that wait in repartitions."""

    def __init__(self, node: Node, tables: Mapping[str, pa.Table]) -> None:
        self._node, self._tables = node, tables
        self._waiting: dict[str, list[Batch]] = {}
        self._manager, self._scans = StateManager(MemoryPhysical()), Scans(Metrics())

    def rows(self) -> pa.Table:
        subs = plan_query(self._node, _QUERY, {}).subtopologies
        counts = dict.fromkeys([t for s in subs for t in (*s.topics, *_written(s))], 1)
        found: list[Row] = []
        for sub in _inputs_first(subs):
            state = self._run(sub, counts)
            for op in sub.operators:
                if isinstance(op.spec, Consolidate):  # the last one: the binder makes none
                    found = [tuple(v) for _, v in state.store(op.stores[0].name).scan()]
        fields = [f for f in self._node.schema if f.role != "key"]
        columns = [to_arrow([r[i] for r in found], f.type) for i, f in enumerate(fields)]
        return pa.Table.from_arrays(columns, names=[f.name for f in fields])

    def _run(self, sub: SubTopology, counts: Mapping[str, int]) -> TaskState:
        program = TaskProgram(_QUERY, sub.operators, 0, counts, self._scans, InstanceConfig())
        stores = [s for op in sub.operators for s in op.stores]
        state = self._manager.open_task(f"{sub.number}_0", 0, stores)
        if program.starts:
            self._publish(state, program.start)
        if batches := dict(self._inputs(sub)):
            self._publish(state, lambda run: program.execute(batches, run))
        return state

    def _inputs(self, sub: SubTopology) -> Iterator[tuple[str, Batch]]:
        start = 0
        for op in sub.operators:
            batch = None
            if isinstance(op.spec, Scan):
                batch = self._scanned(op, op.spec)
            elif isinstance(op.spec, ExchangeSource) and (parts := self._waiting.pop(op.spec.topic, None)):
                batch = concat(parts[0].schema, parts)
            if batch is not None and len(batch):
                yield op.id, batch.numbered(np.arange(start, start + len(batch)))
                start += len(batch)

    def _scanned(self, op: Operator, spec: Scan) -> Batch | None:
        """A row has its place as its identity."""
        table = self._tables.get(spec.source)
        if table is None:
            return None
        n = table.num_rows
        places = {"ROWPARTITION": np.zeros(n, np.int32), "ROWOFFSET": np.arange(n)}
        given = {name.casefold(): table.column(i) for i, name in enumerate(table.column_names)}
        columns = [
            pa.array(places[f.name])
            if f.role == "pseudo"
            else _whole(given[f.name.casefold()].cast(arrow_type(f.type)), arrow_type(f.type))
            for f in op.schema
        ]
        arrow = pa.RecordBatch.from_arrays(columns, names=list(op.schema.names))
        zeros = np.zeros(n, np.int64)
        return Batch(op.schema, rowtime=zeros, op=np.full(n, INSERT, np.int8), seq=np.arange(n), arrow=arrow)

    def _publish(self, state: TaskState, call: Callable[[MicroBatchContext], Sequence[Output]]) -> None:
        run = MicroBatchContext(state=state)
        outputs = call(run)
        if run.dead_letters:
            first = run.dead_letters[0]
            if first.message.removesuffix(": ").endswith("MemoryError"):  # the row is not to blame
                raise MemoryError(first.message)
            raise QueryError(first.message, code=first.code)
        with self._manager.epoch_lock:
            state.publish({"times": run.stream_times})
        for out in outputs:
            if isinstance(out, ExchangeRows):
                self._waiting.setdefault(out.topic, []).extend(rows for _, rows in out.parts)


def _whole(column: pa.ChunkedArray, t: pa.DataType) -> pa.Array:
    return pa.concat_arrays(column.chunks) if column.num_chunks else pa.nulls(0, t)


def _written(sub: SubTopology) -> list[str]:
    return [op.spec.topic for op in sub.operators if isinstance(op.spec, ExchangeSink)]


def _inputs_first(subs: Sequence[SubTopology]) -> list[SubTopology]:
    """Those that write a repartition before those that read it."""
    done: list[SubTopology] = []
    left = list(subs)
    while left:
        unwritten = {topic for s in left for topic in _written(s)}
        ready = [s for s in left if unwritten.isdisjoint(s.topics)]
        assert ready, "a sub-topology reads what it writes"
        done += ready
        left = [s for s in left if s not in ready]
    return done
