"""Explode: table functions in the select list."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pyarrow as pa

from flowql.compiler.plan.expr import Call, Expr, Literal
from flowql.compiler.plan.logical import Explode
from flowql.compiler.plan.topology import Operator
from flowql.runtime.batch import DELETE, INSERT, UPDATE_AFTER, UPDATE_BEFORE, Batch, Row, from_columns, to_arrow
from flowql.runtime.operators.base import MicroBatchContext
from flowql.runtime.operators.keys import picker
from flowql.runtime.operators.projections import compile_expr
from flowql.runtime.operators.rows import Emitter
from flowql.runtime.operators.sizes import ExplodedRows

VECTOR_ROWS = 32  # as for columns that are only passed on
_ALONE = {UPDATE_BEFORE: DELETE, UPDATE_AFTER: INSERT}  # old and new elements are in no pairs


class ExplodeOperator:
    """One output row per element; shorter lists are padded with null; a row whose lists are all null or empty is gone.

    Over relations that change: the elements of an old row go and those of the new one come, however many each has.
    A row for which a list fails has none where the plan says so. Raises RowsTooLarge. A null value of a stream (op DELETE) has no lists and is dropped, as ksqlDB's flat map does.
    """

    def __init__(self, plan: Operator, inputs: Sequence[Operator]) -> None:
        assert isinstance(plan.spec, Explode)
        self.plan = plan
        source = inputs[0].schema
        functions = plan.spec.functions
        self._drops = plan.spec.drop_failed
        self._functions = [compile_expr(f.expr, source) for f in functions]
        self._constants = _constants(plan)
        self._source_names = source.names
        self._made = ExplodedRows(source)
        stored = list(source.names) + [f.name for f in functions]
        self._arrange = picker([stored.index(n) for n in plan.schema.names])

    def process(self, inputs: Sequence[Batch | None], run: MicroBatchContext) -> Batch | None:
        batch = inputs[0]
        if batch is None:
            return None
        vector = run.vector if run.vector is not None else batch.is_columns and len(batch) >= VECTOR_ROWS
        if vector and self._constants is not None and len(batch):
            return self._columns(batch, self._constants)
        return self._rows(batch, run)

    def _columns(self, batch: Batch, constants: dict[str, pa.Array]) -> Batch | None:
        """Every row once for each element of lists that are the same for all rows."""
        if self.plan.change == "append" and (batch.op == DELETE).any():
            batch = batch.take(np.flatnonzero(batch.op != DELETE))
        count = max((len(c) for c in constants.values()), default=0)
        if not count or not len(batch):
            return None
        source = batch.arrow()
        self._made.begin()
        self._made.add_columns(source.columns, count)
        each = np.repeat(np.arange(len(batch)), count)
        taken = source.take(pa.array(each))
        every = pa.array(np.tile(np.arange(count), len(batch)))
        columns = [
            constants[n].take(every) if n in constants else taken.column(self._source_names.index(n))
            for n in self.plan.schema.names
        ]
        op = batch.op[each]
        if self.plan.change == "retract":
            op = np.where(op == UPDATE_BEFORE, DELETE, np.where(op == UPDATE_AFTER, INSERT, op)).astype(np.int8)
        headers = None if batch.headers is None else [batch.headers[i] for i in each.tolist()]
        times, seq = batch.rowtime[each], batch.seq[each]
        return from_columns(self.plan.schema, columns, times, op=op, seq=seq, headers=headers)

    def _rows(self, batch: Batch, run: MicroBatchContext) -> Batch | None:
        out = Emitter(self.plan.schema)
        headers = batch.headers
        self._made.begin()
        rows = zip(batch.rows(), batch.rowtime.tolist(), batch.op.tolist(), batch.seq.tolist(), strict=True)
        for i, (row, rowtime, op, seq) in enumerate(rows):
            if op == DELETE and self.plan.change == "append":
                continue
            if self.plan.change == "retract":
                op = _ALONE.get(op, op)
            lists = self._lists(row, rowtime, seq, run, old=op == DELETE)
            head = headers[i] if headers is not None else None
            count = max(map(len, lists), default=0)
            self._made.add(row, count)
            for n in range(count):
                made = tuple(items[n] if n < len(items) else None for items in lists)
                out.add(self._arrange(row + made), rowtime, op, seq, head)
        return out.batch()

    def _lists(self, row: Row, rowtime: int, seq: int, run: MicroBatchContext, *, old: bool) -> list[Sequence[object]]:
        """The elements of a row. old: the row goes, and what failed has been told when it came."""
        told = len(run.dead_letters)
        lists = [f(row, rowtime, seq, run) or () for f in self._functions]
        if len(run.dead_letters) > told:
            if old and self.plan.change == "retract":
                del run.dead_letters[told:]
            if self._drops:
                return []
        return lists


def _constants(plan: Operator) -> dict[str, pa.Array] | None:
    """The elements of each list, all of one length, NULL where the lists are shorter; None where a list differs from row to row."""
    assert isinstance(plan.spec, Explode)
    found: dict[str, Sequence[object]] = {}
    for f in plan.spec.functions:
        elements = _elements(f.expr)
        if elements is None:
            return None
        found[f.name] = elements
    count = max(map(len, found.values()), default=0)
    types = {f.name: f.expr.type for f in plan.spec.functions}
    return {n: to_arrow([*e, *[None] * (count - len(e))], types[n]) for n, e in found.items()}


def _elements(e: Expr) -> Sequence[object] | None:
    """The elements of EXPLODE(ARRAY[1, 2])."""
    if isinstance(e, Call) and e.name == "EXPLODE" and isinstance(e.args[0], Call) and e.args[0].name == "array":
        made = [a.value for a in e.args[0].args if isinstance(a, Literal)]
        return made if len(made) == len(e.args[0].args) else None
    return None
