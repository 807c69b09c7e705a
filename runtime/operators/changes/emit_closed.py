"""EMIT ON WINDOW CLOSE: rows when the watermark has closed them."""

from __future__ import annotations

from collections.abc import Sequence

from flowql.compiler.plan.topology import Operator
from flowql.compiler.plan.watermarks import EmitClosed
from flowql.runtime.batch import Batch
from flowql.runtime.operators.base import MicroBatchContext
from flowql.runtime.operators.changes.closing import WaitingForm, WaitingRows, closing_time
from flowql.runtime.operators.changes.deltas import Deltas, deltas_of


class EmitClosedOperator:
    """State: rows that are not closed, the text of (when they are, row identity) -> (row..., row time) for each row.

    Touches per run: the head; the entry of each changed row that is not closed, and of each that is closed now. A change of a
    row that is closed already is passed on.
    """

    follows_watermark = True

    def __init__(self, plan: Operator, inputs: Sequence[Operator]) -> None:
        assert isinstance(plan.spec, EmitClosed)
        self.plan = plan
        self._due = closing_time(plan.schema, plan.spec.columns)
        self._form = WaitingForm(plan.schema, plan.id)
        self._identity, self._same = self._form.identity, self._form.same

    def process(self, inputs: Sequence[Batch | None], run: MicroBatchContext) -> Batch | None:
        batch, watermark = inputs[0], run.watermark
        heads, rows = (run.state.store(s.name) for s in self.plan.stores)
        waiting, out = WaitingRows(self._form, heads, rows), Deltas(self._identity.of, self._same)
        for _, changes in deltas_of(batch, self._identity, self._same) if batch is not None else ():
            for sign, row, time, seq in sorted(changes, key=lambda c: c[0]):
                due = self._due(row)
                if due is None:
                    continue
                if watermark is not None and due <= watermark:
                    out.add(sign, row, time, seq)
                else:
                    waiting.change(due, sign, row, time)
        if watermark is not None:
            for row, time in waiting.taken(watermark):
                out.add(1, row, time, run.last_seq)
        waiting.flush()
        run.hold(self.plan.id, waiting.change_rows)
        return out.batch(self.plan.schema)
