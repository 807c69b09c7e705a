"""Explode: table functions in the select list."""

from __future__ import annotations

from collections.abc import Sequence

from compiler.plan.logical import Explode
from compiler.plan.topology import Operator
from runtime.batch import DELETE, INSERT, UPDATE_AFTER, UPDATE_BEFORE, Batch
from runtime.operators.base import RunContext
from runtime.operators.expressions import compile_expr
from runtime.operators.keys import picker
from runtime.operators.rows import Emitter

_ALONE = {UPDATE_BEFORE: DELETE, UPDATE_AFTER: INSERT}  # old and new elements are in no pairs


class ExplodeOperator:
    """One output row per element; shorter lists are padded with null; a row whose lists are all null or empty is gone.

    Over relations that change: the elements of an old row go and those of the new one come, however many each has.
    A null value of a stream (op DELETE) has no lists and is dropped, as ksqlDB's flat map does.
    """

    def __init__(self, plan: Operator, inputs: Sequence[Operator]) -> None:
        assert isinstance(plan.spec, Explode)
        self.plan = plan
        source = inputs[0].schema
        functions = plan.spec.functions
        self._functions = [compile_expr(f.expr, source) for f in functions]
        stored = list(source.names) + [f.name for f in functions]
        self._arrange = picker([stored.index(n) for n in plan.schema.names])

    def process(self, inputs: Sequence[Batch | None], run: RunContext) -> Batch | None:
        batch = inputs[0]
        if batch is None:
            return None
        out = Emitter(self.plan.schema)
        headers = batch.headers
        rows = zip(batch.rows(), batch.rowtime.tolist(), batch.op.tolist(), batch.seq.tolist(), strict=True)
        for i, (row, rowtime, op, seq) in enumerate(rows):
            if op == DELETE and self.plan.change == "append":
                continue
            if self.plan.change == "retract":
                op = _ALONE.get(op, op)
            lists = [f(row, rowtime, seq, run) or () for f in self._functions]
            head = headers[i] if headers is not None else None
            for n in range(max(map(len, lists), default=0)):
                made = tuple(items[n] if n < len(items) else None for items in lists)
                out.add(self._arrange(row + made), rowtime, op, seq, head)
        return out.batch()
