"""EMIT ON WINDOW CLOSE: rows when the watermark has closed them."""

from __future__ import annotations

from collections.abc import Sequence

from compiler.plan.topology import Operator
from compiler.plan.watermarks import EmitClosed
from runtime.batch import Batch, Row
from runtime.operators.base import RunContext
from runtime.operators.changes.closing import Waiting, closing_time
from runtime.operators.changes.deltas import Deltas, deltas_of, same_by
from runtime.operators.changes.order import SortPart, order_text
from runtime.operators.keys import RowKey
from runtime.state.store import Value


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
        self._identity = RowKey(plan.schema)
        self._text = order_text([SortPart(t) for t in self._identity.types])
        self._same = same_by(f.type for f in plan.schema)
        self._width = len(plan.schema.names) + 1

    def process(self, inputs: Sequence[Batch | None], run: RunContext) -> Batch | None:
        batch, watermark = inputs[0], run.watermark
        heads, rows = (run.state.store(s.name) for s in self.plan.stores)
        waiting, out = Waiting(heads, rows), Deltas(self._identity.of, self._same)
        for _, changes in deltas_of(batch, self._identity, self._same) if batch is not None else ():
            for sign, row, time, seq in sorted(changes, key=lambda c: c[0]):
                due = self._due(row)
                if due is None:
                    continue
                if watermark is not None and due <= watermark:
                    out.add(sign, row, time, seq)
                else:
                    self._wait(waiting, due, sign, row, time)
        if watermark is not None:
            for entry, payload in list(waiting.closed(watermark)):
                for stored in self._rows(payload):
                    out.add(1, stored[:-1], stored[-1], run.last_seq)
                waiting.bucket.put(entry, None)
        waiting.flush()
        return out.batch(self.plan.schema)

    def _wait(self, waiting: Waiting, due: int, sign: int, row: Row, time: int) -> None:
        """Add or remove one row; an identity has two rows while a change of it is on its way."""
        entry = waiting.entry(due, self._text(self._identity.of(row)))
        rows = self._rows(waiting.bucket.get(entry) or ())
        if sign > 0:
            rows.append((*row, time))
        else:
            at = next((i for i, r in enumerate(rows) if self._same(r[:-1], row)), None)
            assert at is not None, f"{self.plan.id}: a row was removed that never came: {row}"
            del rows[at]
        waiting.bucket.put(entry, tuple(v for r in rows for v in r) or None)

    def _rows(self, payload: Value) -> list[Row]:
        return [payload[i : i + self._width] for i in range(0, len(payload), self._width)]
