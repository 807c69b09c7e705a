"""Materialise: the latest row of each key, and upserts made into retractions."""

from __future__ import annotations

from collections.abc import Sequence

from flowql.compiler.plan.logical import Materialise
from flowql.compiler.plan.topology import Operator
from flowql.runtime.batch import DELETE, UPDATE_BEFORE, Batch
from flowql.runtime.operators.base import MicroBatchContext
from flowql.runtime.operators.keys import RowKey
from flowql.runtime.operators.rows import Changes


class MaterialiseOperator:
    """Keeps (value columns..., rowtime) by key; gives INSERT, an update pair, or DELETE with the old values.

    A removal of a key that is not there gives nothing: there is no old row to retract. Rows without a key are dropped, as
    table sources do, unless NULL is the key of a group.
    """

    def __init__(self, plan: Operator, inputs: Sequence[Operator]) -> None:
        assert isinstance(plan.spec, Materialise)
        self.plan, self._null_group = plan, plan.spec.null_group
        self._key = RowKey(inputs[0].schema)
        self._store = plan.stores[0].name

    def process(self, inputs: Sequence[Batch | None], run: MicroBatchContext) -> Batch | None:
        batch = inputs[0]
        if batch is None or not len(batch):
            return None
        split = self._key
        store = run.state.store(self._store)
        rows = batch.rows()
        keys = [split.of(r) for r in rows]
        distinct = list(dict.fromkeys(keys))
        known = {k: v[:-1] if v else None for k, v in zip(distinct, store.get_many(distinct), strict=True)}
        latest: dict[object, tuple[object, ...] | None] = {}
        out = Changes(self.plan.schema, retract=self.plan.change == "retract", coalesce=run.coalesce)
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
