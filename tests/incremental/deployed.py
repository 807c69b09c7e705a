"""A logical plan as it is deployed, without a log: tasks per partition with real state, and channels between them.

Each channel from one task to another keeps its order; the order among channels, and where they are cut into runs, is random. That is
all that repartitions promise.
"""

from __future__ import annotations

import random
from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pyarrow as pa

from flowql.compiler.physical.planner import plan_query
from flowql.compiler.plan.codec import from_data, to_data
from flowql.compiler.plan.logical import Format, Node, Scan, Sink, walk_nodes
from flowql.compiler.plan.topology import ExchangeSource, SubTopology
from flowql.compiler.plan.verify import verify_spec
from flowql.runtime.batch import Batch, Row, concat, from_rows
from flowql.runtime.config import InstanceConfig
from flowql.runtime.metrics import Metrics
from flowql.runtime.operators.base import DeadLetter, MicroBatchContext
from flowql.runtime.operators.changes.group_deltas import PlacementKeys
from flowql.runtime.state.manager import StateManager
from flowql.runtime.state.memory import MemoryPhysical
from flowql.runtime.task.program import ExchangeRows
from flowql.runtime.topology.program import TaskProgram
from flowql.runtime.topology.scans import Scans

JSON = Format("JSON")
Piece = tuple[int, Row, int]  # op, row, row time


def sunk(node: Node, name: str = "OUT") -> Node:
    """A plan with a sink, so that its rows can be asked for."""
    return Node(Sink(name, name, "table", JSON, JSON), (node,), node.schema, node.change)


@dataclass
class DeployedTask:
    """One task: its program, its state, and per input operator the channels it reads."""

    sub: SubTopology
    partition: int
    program: TaskProgram
    state: Any
    channels: dict[tuple[str, Any], deque[Batch]] = field(default_factory=dict)
    times: dict[str, int] = field(default_factory=dict)

    @property
    def waiting(self) -> bool:
        return any(self.channels.values())


class Deployed:
    """The tasks of one plan. vector: which kernels; None: as sizes say."""

    def __init__(self, node: Node, partitions: int, rng: random.Random, *, vector: bool | None = None) -> None:
        for n in walk_nodes(node):
            verify_spec(n.spec, [i.schema for i in n.inputs], n.schema, type(n.spec).__name__)
        node = from_data(to_data(node))  # a plan is data: what it says must survive being written
        self.topology = plan_query(node, "Q", {})
        self._rng, self._partitions = rng, partitions
        self._manager = StateManager(MemoryPhysical())
        self._scans = Scans(Metrics())
        self.dead: list[DeadLetter] = []
        self.given = 0  # rows of the view
        self.tasks: list[DeployedTask] = []
        topics = [op.spec.topic for s in self.topology.subtopologies for op in s.operators if hasattr(op.spec, "topic")]
        counts = dict.fromkeys(topics, partitions)
        config = InstanceConfig(vector=vector)
        for sub in self.topology.subtopologies:
            for p in range(partitions):
                program = TaskProgram("Q", sub.operators, p, counts, self._scans, config)
                stores = [s for op in sub.operators for s in op.stores]
                state = self._manager.open_task(f"{sub.number}_{p}", p, stores)
                task = DeployedTask(sub, p, program, state)
                self.tasks.append(task)
        for task in self.tasks:
            if task.program.starts:
                self._publish(task, task.program.start)

    def feed(self, source: str, pieces: Sequence[Piece]) -> None:
        """Changes of a source; those of one row identity stay in order."""
        for task in self.tasks:
            for op in task.sub.operators:
                if isinstance(op.spec, Scan) and op.spec.source == source:
                    batch = from_rows(
                        op.schema,
                        [r for _, r, _ in pieces],
                        [t for *_, t in pieces],
                        [o for o, _, _ in pieces],
                        range(len(pieces)),
                    )
                    keys = PlacementKeys(op.schema, [f.name for f in op.schema.key]).of(batch, vector=False)
                    here = [i for i, k in enumerate(keys.to_pylist()) if hash_of(k, self._partitions) == task.partition]
                    if here:
                        task.channels.setdefault((op.id, "log"), deque()).append(batch.take(np.array(here)))

    def settle(self) -> None:
        """Until nothing waits in any channel."""
        while ready := [t for t in self.tasks if t.waiting]:
            self._run(self._rng.choice(ready))

    def commit(self) -> None:
        """Everything that is published reaches the physical store; caches are dropped."""
        self._manager.apply(self._manager.cut(), self._manager.applied_sequence + 1)

    def reopen(self) -> None:
        """Commit, and open every task again: state is what its bytes say."""
        self.commit()
        for task in self.tasks:
            name = f"{task.sub.number}_{task.partition}"
            self._manager.close_task(name)
            stores = [s for op in task.sub.operators for s in op.stores]
            task.state = self._manager.open_task(name, task.partition, stores)

    def rows(self, name: str = "OUT") -> list[Row]:
        """The values that a sink's table shows, in no order."""
        found: list[Row] = []
        for task in self.tasks:
            if name in task.state.stores:
                found += [tuple(v) for _, v in task.state.store(name).scan()]
        return found

    def touched(self) -> tuple[int, int]:
        """(rows of state read, rows written) so far, sinks left out."""
        metrics = [s.metrics for t in self.tasks for n, s in t.state.stores.items() if n.startswith("Q-")]
        return sum(m.reads for m in metrics), sum(m.writes for m in metrics)

    def _run(self, task: DeployedTask) -> None:
        """A prefix of each of some channels as one run."""
        parts: dict[str, list[Batch]] = {}
        chosen = [c for c, q in task.channels.items() if q]
        self._rng.shuffle(chosen)
        for operator, channel in chosen[: self._rng.randint(1, len(chosen))]:
            queue = task.channels[operator, channel]
            batch = queue.popleft()
            n = len(batch) if self._rng.random() < 0.6 else self._rng.randint(1, len(batch))
            parts.setdefault(operator, []).append(batch.slice(0, n))
            if n < len(batch):
                queue.appendleft(batch.slice(n, len(batch)))
        batches, start = {}, 0
        for operator, pieces in parts.items():
            joined = concat(pieces[0].schema, pieces)
            batches[operator] = joined.numbered(np.arange(start, start + len(joined)))
            start += len(joined)
        self._publish(task, lambda run: task.program.execute(batches, run))

    def _publish(self, task: DeployedTask, call: Any) -> None:
        run = MicroBatchContext(state=task.state, vector=task.program._vector, stream_times=dict(task.times))
        outputs = call(run)
        with self._manager.epoch_lock:
            task.state.publish({"times": run.stream_times})
        task.times = run.stream_times
        self.dead += run.dead_letters
        for out in outputs:
            if isinstance(out, ExchangeRows):
                self._deliver(out, task)
            else:
                self.given += sum(r.num_rows for _, r in out.parts)

    def _deliver(self, out: ExchangeRows, writer: DeployedTask) -> None:
        parts = dict(out.parts)
        for task in self.tasks:
            for op in task.sub.operators:
                if isinstance(op.spec, ExchangeSource) and op.spec.topic == out.topic and task.partition in parts:
                    channel = (op.id, (writer.sub.number, writer.partition))
                    task.channels.setdefault(channel, deque()).append(columned(parts[task.partition], self._rng))


def hash_of(key: bytes, n: int) -> int:
    return sum(key) % n


def columned(batch: Batch, rng: random.Random) -> Batch:
    """As rows or as columns: operators take both."""
    if rng.random() < 0.5 or batch.is_columns:
        return batch
    return Batch(batch.schema, arrow=batch.arrow(), rowtime=batch.rowtime, op=batch.op, seq=batch.seq)


def counted(rows: Sequence[Any]) -> Mapping[Any, int]:
    """A bag of rows."""
    found: dict[Any, int] = {}
    for row in rows:
        found[row] = found.get(row, 0) + 1
    return found


def table_of(columns: Mapping[str, pa.DataType], rows: Sequence[Row]) -> pa.Table:
    """Rows as an Arrow table for DuckDB."""
    arrays = [pa.array([r[i] for r in rows], t) for i, t in enumerate(columns.values())]
    return pa.Table.from_arrays(arrays, names=list(columns))
