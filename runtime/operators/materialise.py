"""Materialise: the latest row of each key, and upserts made into retractions."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from flowql.compiler.plan.logical import Materialise
from flowql.compiler.plan.topology import Operator
from flowql.runtime.batch import DELETE, UPDATE_BEFORE, Batch
from flowql.runtime.operators.base import MicroBatchContext
from flowql.runtime.operators.group_results import ChangedRows, unchanged
from flowql.runtime.operators.keys import RowKey, without_key_columns
from flowql.runtime.operators.row_columns import RowColumns, last_changes
from flowql.runtime.operators.rows import Changes
from flowql.runtime.state.columns.values import ABSENT
from flowql.runtime.state.store import Store

VECTOR_ROWS = 64


class MaterialiseOperator:
    """Keeps (value columns..., rowtime) by key; gives INSERT, an update pair, or DELETE with the old values.

    A removal of a key that is not there gives nothing: there is no old row to retract. Rows without a key are dropped, as
    table sources do, unless NULL is the key of a group.
    """

    def __init__(self, plan: Operator, inputs: Sequence[Operator]) -> None:
        assert isinstance(plan.spec, Materialise)
        self.plan, self._null_group = plan, plan.spec.null_group
        schema = inputs[0].schema
        self._key = RowKey(schema)
        self._store = plan.stores[0].name
        self._retract = plan.change == "retract"
        self.by_row = without_key_columns(self._key.types)
        self._columns = None if self.by_row else RowColumns(schema, timed=True)

    def process(self, inputs: Sequence[Batch | None], run: MicroBatchContext) -> Batch | None:
        batch = inputs[0]
        if batch is None or not len(batch):
            return None
        store = run.state.store(self._store)
        if self._columns is not None and self._vector(batch, run):
            try:
                return self._in_columns(self._columns, batch, store, run)
            except UnicodeEncodeError:  # a row of the state has a lone surrogate
                pass
        return self._rows(batch, store, run)

    def _vector(self, batch: Batch, run: MicroBatchContext) -> bool:
        if not run.coalesce:
            return False
        return run.vector if run.vector is not None else batch.is_columns and len(batch) >= VECTOR_ROWS

    def _in_columns(self, split: RowColumns, batch: Batch, store: Store, run: MicroBatchContext) -> Batch | None:
        rows = split.changing(batch, null_group=self._null_group)
        if not len(rows):
            return None
        keys = split.keys(batch, rows)
        last = last_changes(keys, batch.op[rows] == DELETE)
        rows, keys = rows[last], keys.take(last)
        columns = store.columns(split.layout)
        found = columns.find(keys)
        if found.values.odd:
            return self._rows(batch, store, run)
        after = split.values(batch, rows)
        before, known, lives = found.values, found.values.known, after.states != ABSENT
        changed = np.flatnonzero(known | lives)
        same = unchanged(before.columns[:-1], after.columns[:-1], len(rows))
        headers = None if batch.headers is None else [batch.headers[i] for i in rows.tolist()]
        changes = ChangedRows(known, lives, ~same, batch.rowtime[rows], batch.seq[rows], rows, headers)
        out = changes.batch(
            self.plan.schema,
            lambda at: split.record(batch, rows[at], before.take(at)),
            lambda at: split.record(batch, rows[at], after.take(at)),
            befores=self._retract and run.befores,
        )
        columns.stage(found.take(changed), after.take(changed))
        return out

    def _rows(self, batch: Batch, store: Store, run: MicroBatchContext) -> Batch | None:
        run.took_by_row(self.plan.id, len(batch))
        split = self._key
        rows = batch.rows()
        keys = [split.of(r) for r in rows]
        distinct = list(dict.fromkeys(keys))
        known = {k: v[:-1] if v else None for k, v in zip(distinct, store.get_many(distinct), strict=True)}
        latest: dict[object, tuple[object, ...] | None] = {}
        out = Changes(self.plan.schema, retract=self._retract, coalesce=run.coalesce)
        headers = batch.headers
        times = zip(batch.rowtime.tolist(), batch.op.tolist(), batch.seq.tolist(), strict=True)
        for i, (rowtime, op, seq) in enumerate(times):
            key = keys[i]
            if op == UPDATE_BEFORE or (split.missing(key) and not self._null_group):
                continue
            old = known[key]
            new = None if op == DELETE else split.value(rows[i])
            if old is None and new is None:
                continue
            known[key] = new
            latest[key] = None if new is None else (*new, rowtime)
            before = None if old is None else split.row(key, old)
            after = None if new is None else rows[i]
            out.add(key, before, after, rowtime, seq, headers[i] if headers is not None else None)
        store.put_many(list(latest), list(latest.values()))  # type: ignore[arg-type]
        return out.batch()
