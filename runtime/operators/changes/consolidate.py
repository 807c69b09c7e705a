"""One row per row identity where changes of one row may come by different ways."""

from __future__ import annotations

from collections.abc import Sequence

from flowql.compiler.plan.changes import Consolidate
from flowql.compiler.plan.topology import Operator
from flowql.runtime.batch import INSERT, Batch, Row
from flowql.runtime.operators.base import MicroBatchContext
from flowql.runtime.operators.changes.deltas import deltas_of, kept_rows, place_of, same_by
from flowql.runtime.operators.keys import RowKey
from flowql.runtime.operators.rows import Emitter
from flowql.runtime.state.rows import Value


class ConsolidateOperator:
    """Shows the row of an identity that came last and was not removed.

    State: identity -> the values of its rows, one after the other, the newest last; mostly it is one row. Touches per run: one
    row of state per identity that changed. Where rows only come nothing is kept, and they are passed on.
    """

    def __init__(self, plan: Operator, inputs: Sequence[Operator]) -> None:
        assert isinstance(plan.spec, Consolidate)
        self.plan, self._appends = plan, plan.spec.appends
        self._key = RowKey(plan.schema)
        self._same = same_by(f.type for f in plan.schema)
        self._width = len(plan.schema.names) - len(self._key.fields)

    def process(self, inputs: Sequence[Batch | None], run: MicroBatchContext) -> Batch | None:
        batch = inputs[0]
        if batch is None or not len(batch):
            return None
        if self._appends:
            assert (batch.op == INSERT).all(), f"{self.plan.id}: a row leaves where rows only come"
            return batch
        changed = list(deltas_of(batch, self._key, self._same))
        store = run.state.store(self.plan.stores[0].name)
        keys = [key for key, _ in changed]
        out: list[tuple[int, Row | None, Row | None, int]] = []  # seq, before, after, time
        written: list[Value | None] = []
        for (key, changes), known in zip(changed, store.get_many(keys), strict=True):
            rows = self._rows(known)
            before = rows[-1] if rows else None
            for sign, row, _, _ in sorted(changes, key=lambda c: c[3]):
                value = self._key.value(row)
                if sign > 0:
                    rows.append(value)
                else:
                    del rows[place_of(rows, value, self._same, self.plan.id)]
            after = rows[-1] if rows else None
            written.append(
                tuple(v for r in rows for v in r) if rows and self._width else (len(rows),) if rows else None
            )
            if not self._same(before, after):
                images = [None if r is None else self._key.row(key, r) for r in (before, after)]
                out.append((max(c[3] for c in changes), images[0], images[1], max(c[2] for c in changes)))
        store.put_many(keys, written)
        emitter = Emitter(self.plan.schema)
        for seq, old, new, time in sorted(out, key=lambda o: o[0]):
            emitter.change(old, new, time, seq, retract=True)
        return emitter.batch()

    def _rows(self, known: Value | None) -> list[Row]:
        if known is not None and not self._width:
            return [()] * known[0]
        return kept_rows(known, self._width)
