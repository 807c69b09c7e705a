"""Join of two tables on their keys."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress

from flowql.compiler.plan.logical import Join
from flowql.compiler.plan.topology import Operator
from flowql.runtime.batch import DELETE, UPDATE_BEFORE, Batch, Row
from flowql.runtime.operators.base import MicroBatchContext
from flowql.runtime.operators.join_rows import VECTOR_ROWS, JoinedRow
from flowql.runtime.operators.join_tables_columns import Declined, TableColumns
from flowql.runtime.operators.keys import RowKey, without_key_columns
from flowql.runtime.operators.rows import Changes, interleave
from flowql.runtime.state.rows import Key, Value

LEFT, RIGHT = 0, 1


def _vector(inputs: Sequence[Batch | None], run: MicroBatchContext) -> bool:
    if not run.coalesce:
        return False
    given = [b for b in inputs if b is not None]
    return (
        run.vector
        if run.vector is not None
        else all(b.is_columns for b in given) and sum(map(len, given)) >= VECTOR_ROWS
    )


class TableTableJoinOperator:
    """Each change of either side changes the joined row of its key: what it was and what it is are compared.

    Stores: left rows and right rows, key -> (value columns..., row time), so inputs may be upserts. A removal is given
    only for a key that was joined. Row time: the later of both sides; of a removal, of the change and the other side.
    """

    def __init__(self, plan: Operator, inputs: Sequence[Operator]) -> None:
        assert isinstance(plan.spec, Join)
        assert len(plan.stores) == 2, "a table-table join keeps both sides"
        self.plan = plan
        kind = plan.spec.kind
        # Which sides must be present for a joined row.
        self._needs = (kind in ("inner", "left"), kind in ("inner", "right"))
        self._keys = tuple(RowKey(i.schema) for i in inputs)
        self._joined = JoinedRow(plan, inputs[0].schema, inputs[1].schema)
        self._retract = plan.change == "retract"
        self._columns = TableColumns.of(plan, [i.schema for i in inputs], self._needs)
        self.by_row = next(filter(None, (without_key_columns(k.types) for k in self._keys)), "")

    def process(self, inputs: Sequence[Batch | None], run: MicroBatchContext) -> Batch | None:
        if self._columns is not None and _vector(inputs, run):
            with suppress(Declined, UnicodeEncodeError):
                return self._columns.apply(inputs, [run.state.store(s.name) for s in self.plan.stores], run)
        return self._rows(inputs, run)

    def _rows(self, inputs: Sequence[Batch | None], run: MicroBatchContext) -> Batch | None:
        keys = [[] if b is None else [k.of(r) for r in b.rows()] for k, b in zip(self._keys, inputs, strict=True)]
        distinct = list(dict.fromkeys(key for side in keys for key in side))
        if not distinct:
            return None
        run.took_by_row(self.plan.id, sum(map(len, keys)))
        stores = [run.state.store(s.name) for s in self.plan.stores]
        known = [dict(zip(distinct, s.get_many(distinct), strict=True)) for s in stores]
        written: list[dict[Key, None]] = [{}, {}]
        changes = Changes(self.plan.schema, retract=self._retract, coalesce=run.coalesce)
        for side, i in interleave(inputs):
            batch, split, key = inputs[side], self._keys[side], keys[side][i]
            assert batch is not None
            op, rowtime = int(batch.op[i]), int(batch.rowtime[i])
            if op == UPDATE_BEFORE or split.missing(key):
                continue
            before = self._row(key, known[LEFT][key], known[RIGHT][key])
            known[side][key] = None if op == DELETE else (*split.value(batch.rows()[i]), rowtime)
            written[side][key] = None
            after = self._row(key, known[LEFT][key], known[RIGHT][key])
            if before is None and after is None:
                continue
            other = known[1 - side][key]
            time = rowtime if other is None else max(rowtime, other[-1])
            head = batch.headers[i] if batch.headers is not None else None
            changes.add(key, before, after, time, int(batch.seq[i]), head)
        for store, values, keyed in zip(stores, known, written, strict=True):
            store.put_many(list(keyed), [values[k] for k in keyed])
        return changes.batch()

    def _row(self, key: Key, left: Value | None, right: Value | None) -> Row | None:
        """The joined row of a key, or None where the join kind gives none."""
        if (left is None and (self._needs[LEFT] or right is None)) or (right is None and self._needs[RIGHT]):
            return None
        return self._joined(
            key,
            None if left is None else self._keys[LEFT].row(key, left[:-1]),
            None if right is None else self._keys[RIGHT].row(key, right[:-1]),
        )
