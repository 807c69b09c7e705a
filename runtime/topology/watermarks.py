"""How far the watermark of each operator of a task is, and how it passes through repartitions.

A watermark begins at an `AppendOnly`, one per partition of a source. Within a task it is at once where the rows of its run are: that of
an operator is the lowest of those that it depends on. Through a repartition it travels as the rows do, behind the rows of
the run that it belongs to, as a row of its own (a *mark*), to every task that reads the repartition. So a task that receives a mark has received
all rows before it, and what a mark says is processed, committed and restored as rows are. A reader knows a watermark when all writers
have sent one: a partition that has no rows holds it back.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from flowql.compiler.plan.changes import TemporalJoin
from flowql.compiler.plan.logical import Scan
from flowql.compiler.plan.topology import ExchangeSink, ExchangeSource, Operator
from flowql.compiler.plan.watermarks import MARK, AppendOnly
from flowql.runtime.batch import Batch, from_rows
from flowql.runtime.operators.base import MicroBatchContext

_HEADER = "watermark"


class Watermarks:
    """Of the operators of one task. What it knows is in `MicroBatchContext.watermarks`, and so in the metadata of the task."""

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
        """What the readers of a repartition are to be told: once per watermark."""
        assert isinstance(op.spec, ExchangeSink)
        at = self.at(op.inputs[0], run) if op.spec.marks else None
        if at is None or run.watermarks.get(op.id) == at:
            return None
        run.watermarks[op.id] = at
        said = f"{self._partition} {self._tasks} {at}".encode()
        blank = (None,) * len(op.schema.names)
        return from_rows(op.schema, [blank], [run.last_ms], [MARK], [run.last_seq], [[(_HEADER, said)]])
