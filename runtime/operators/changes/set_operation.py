"""DISTINCT, INTERSECT and EXCEPT over changes, with and without ALL: how often each row is on each side."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa

from flowql.compiler.plan.changes import SetOperation
from flowql.compiler.plan.schema import Schema
from flowql.compiler.plan.topology import Operator
from flowql.runtime.batch import DELETE, INSERT, Batch, Row, to_python
from flowql.runtime.operators.base import MicroBatchContext
from flowql.runtime.operators.changes.deltas import by_columns, signs
from flowql.runtime.operators.keys import freeze, picker, thaw
from flowql.runtime.operators.rows import Emitter
from flowql.runtime.operators.winners import group_codes
from flowql.runtime.state.rows import Key


@dataclass(slots=True)
class _Delta:
    """How many more of a row each side has; the highest time and seq of these changes."""

    counts: list[int]
    time: int
    seq: int


class SetOperationOperator:
    """State: the values of a row -> (how often it is on the left, on the right). Touches per run: one row of state per distinct row
    that changed.
    """

    def __init__(self, plan: Operator, inputs: Sequence[Operator]) -> None:
        assert isinstance(plan.spec, SetOperation)
        self.plan, self._spec = plan, plan.spec
        self._sides = [_Side(i.schema) for i in inputs]
        self._types = self._sides[0].types
        keys = [f.name for f in plan.schema.key]
        made = [*keys, *(f.name for f in plan.schema if f.role != "key")]
        self._arrange = None if tuple(made) == plan.schema.names else picker([made.index(n) for n in plan.schema.names])

    def process(self, inputs: Sequence[Batch | None], run: MicroBatchContext) -> Batch | None:
        deltas: dict[Key, _Delta] = {}
        for side, (of, batch) in enumerate(zip(self._sides, inputs, strict=True)):
            if (
                batch is not None
                and len(batch)
                and not (by_columns(batch, run) and of.add_columns(batch, side, deltas))
            ):
                of.add_rows(batch, side, deltas)
        keys = [k for k, d in deltas.items() if any(d.counts)]
        store = run.state.store(self.plan.stores[0].name)
        written = []
        out: list[tuple[int, int, Row, int, int]] = []  # seq, place, row, time, +1 or -1
        for key, known in zip(keys, store.get_many(keys), strict=True):
            delta = deltas[key]
            before = (0, 0) if known is None else known
            after = (before[0] + delta.counts[0], before[1] + delta.counts[1])
            assert min(after) >= 0, f"{self.plan.id}: a row was removed that never came"
            written.append(after if any(after) else None)
            shown, now = self._copies(*before), self._copies(*after)
            for copy in range(min(shown, now), max(shown, now)):
                out.append((delta.seq, len(out), self._row(key, copy), delta.time, 1 if now > shown else -1))
        store.put_many(keys, written)
        emitter = Emitter(self.plan.schema)
        for seq, _, row, time, sign in sorted(out, key=lambda o: o[:2]):
            emitter.add(row, time, INSERT if sign > 0 else DELETE, seq)
        return emitter.batch()

    def _copies(self, left: int, right: int) -> int:
        """How often a row is in the result."""
        kind, all_ = self._spec.kind, self._spec.all
        if kind == "distinct":
            return left if all_ else int(left > 0)
        if kind == "intersect":
            return min(left, right) if all_ else int(left > 0 and right > 0)
        return max(0, left - right) if all_ else int(left > 0 and not right)

    def _row(self, key: Key, copy: int) -> Row:
        values = tuple([thaw(v, t) for v, t in zip(key, self._types, strict=True)])
        row = (*values, copy, *values) if self._spec.all else values + values
        return row if self._arrange is None else self._arrange(row)


class _Side:
    """One input: counts of its rows, by rows (the reference) or by columns."""

    def __init__(self, schema: Schema) -> None:
        self._at = [i for i, f in enumerate(schema) if f.role != "key"]
        self.types = [schema.fields[i].type for i in self._at]
        self._pick = picker(self._at)

    def add_rows(self, batch: Batch, side: int, deltas: dict[Key, _Delta]) -> None:
        columns = (batch.rows(), signs(batch.op).tolist(), batch.rowtime.tolist(), batch.seq.tolist())
        for row, sign, time, seq in zip(*columns, strict=True):
            self._add(deltas, self._pick(row), side, sign, time, seq)

    def add_columns(self, batch: Batch, side: int, deltas: dict[Key, _Delta]) -> bool:
        """False where a type has no columnar form."""
        columns = [batch.arrow().column(i) for i in self._at]
        try:
            codes, count = group_codes(columns, sort=False)
        except pa.ArrowNotImplementedError:
            return False
        net = np.bincount(codes, signs(batch.op), count).astype(np.int64)
        last = np.zeros(count, np.int64)
        last[codes] = np.arange(len(codes))  # the last row of each
        times = np.full(count, np.iinfo(np.int64).min)
        np.maximum.at(times, codes, batch.rowtime)
        present = np.flatnonzero(net)
        index = pa.array(last[present])
        values: list[list[Any]] = [to_python(c.take(index), t) for c, t in zip(columns, self.types, strict=True)]
        facts = (net[present].tolist(), times[present].tolist(), batch.seq[last[present]].tolist())
        for row, n, time, seq in zip(zip(*values, strict=True), *facts, strict=True):
            self._add(deltas, row, side, n, time, seq)
        return True

    def _add(self, deltas: dict[Key, _Delta], values: Row, side: int, n: int, time: int, seq: int) -> None:
        key = tuple([freeze(v, t) for v, t in zip(values, self.types, strict=True)])
        delta = deltas.get(key)
        if delta is None:
            delta = deltas[key] = _Delta([0, 0], time, seq)
        delta.counts[side] += n
        delta.time, delta.seq = max(delta.time, time), max(delta.seq, seq)
