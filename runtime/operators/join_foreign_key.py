"""Join of a table with another through a column that holds the other's key."""

from __future__ import annotations

from collections.abc import Hashable, Iterator, Sequence

from flowql.compiler.plan.logical import Join
from flowql.compiler.plan.topology import Operator
from flowql.runtime.batch import DELETE, UPDATE_BEFORE, Batch, Row
from flowql.runtime.operators.base import MicroBatchContext
from flowql.runtime.operators.join_rows import JoinedRow
from flowql.runtime.operators.keys import RowKey, freeze
from flowql.runtime.operators.projections import compile_expr
from flowql.runtime.operators.rows import Emitter, interleave
from flowql.runtime.state.rows import Key, Value
from flowql.runtime.state.store import Store


class ForeignKeyJoinOperator:
    """Inner and left, both tables in one task; the output is keyed by the left key.

    Stores: left rows under (foreign key, left key...) as (value columns..., row time); right rows under their key. A
    change of the left is joined with the right row it names; a change of the right with all left rows that name it, in
    order of their keys. The left input must carry old rows (change kind `retract`).

    With an upsert output, removals are given as Kafka Streams gives them: a removed left row always, and a left row that
    changes to a foreign key without a match, though it may not have been joined before. A retract output is exact.
    """

    def __init__(self, plan: Operator, inputs: Sequence[Operator]) -> None:
        assert isinstance(plan.spec, Join)
        assert plan.spec.foreign_key is not None
        assert plan.spec.kind in ("inner", "left"), "a foreign-key join is inner or left"
        assert len(plan.stores) == 2, "a foreign-key join keeps both sides"
        assert inputs[0].change == "retract", "the left of a foreign-key join carries old rows"
        self.plan, self.by_row = plan, "a join through a foreign key"
        left, right = inputs[0].schema, inputs[1].schema
        self._inner = plan.spec.kind == "inner"
        self._foreign, self._type = compile_expr(plan.spec.foreign_key, left), plan.spec.foreign_key.type
        self._left, self._right = RowKey(left), RowKey(right)
        self._joined = JoinedRow(plan, left, right, keyed_by_left=True)
        self._retract = plan.change == "retract"

    def process(self, inputs: Sequence[Batch | None], run: MicroBatchContext) -> Batch | None:
        subscribers, rights = (run.state.store(s.name) for s in self.plan.stores)
        run.took_by_row(self.plan.id, sum(len(b) for b in inputs if b is not None))
        out = Emitter(self.plan.schema)
        old: Row | None = None
        for side, i in interleave(inputs):
            batch = inputs[side]
            assert batch is not None
            row, op = batch.rows()[i], int(batch.op[i])
            if op == UPDATE_BEFORE:
                old = row if side == 0 else old
            elif side == 1:
                self._right_change(out, batch, i, subscribers, rights)
            else:
                before = row if op == DELETE else old
                self._left_change(out, batch, i, before, None if op == DELETE else row, subscribers, rights, run)
                old = None
        return out.batch()

    def _left_change(
        self,
        out: Emitter,
        batch: Batch,
        i: int,
        old: Row | None,
        new: Row | None,
        subscribers: Store,
        rights: Store,
        run: MicroBatchContext,
    ) -> None:
        rowtime, seq = int(batch.rowtime[i]), int(batch.seq[i])
        key = self._left.of(new if new is not None else old or ())
        if self._left.missing(key):
            return
        was, is_ = (self._key_of(r, rowtime, seq, run) for r in (old, new))
        if was is not None and was != is_:
            subscribers.put((was, *key), None)
        if is_ is not None and new is not None:
            subscribers.put((is_, *key), (*self._left.value(new), rowtime))
        matched = None if is_ is None else rights.get((is_,))
        before = self._row(key, old, None if was is None else self._right_row((was,), rights.get((was,))))
        after = self._row(key, new, None if is_ is None else self._right_row((is_,), matched))
        time = rowtime if matched is None else max(rowtime, matched[-1])
        if after is None and before is None and old is not None and not self._retract:
            out.add(self._joined(key, old, None), time, DELETE, seq)
        else:
            out.change(before, after, time, seq, retract=self._retract)

    def _right_change(self, out: Emitter, batch: Batch, i: int, subscribers: Store, rights: Store) -> None:
        row, op, rowtime, seq = batch.rows()[i], int(batch.op[i]), int(batch.rowtime[i]), int(batch.seq[i])
        key = self._right.of(row)
        if self._right.missing(key):
            return
        old = rights.get(key)
        new = None if op == DELETE else (*self._right.value(row), rowtime)
        rights.put(key, new)
        was, is_ = self._right_row(key, old), self._right_row(key, new)
        for left_key, left in _subscribed(subscribers, key):
            left_row = self._left.row(left_key, left[:-1])
            before, after = self._row(left_key, left_row, was), self._row(left_key, left_row, is_)
            out.change(before, after, max(rowtime, left[-1]), seq, retract=self._retract)

    def _key_of(self, row: Row | None, rowtime: int, seq: int, run: MicroBatchContext) -> Hashable:
        return None if row is None else freeze(self._foreign(row, rowtime, seq, run), self._type)

    def _right_row(self, key: Key, value: Value | None) -> Row | None:
        return None if value is None else self._right.row(key, value[:-1])

    def _row(self, key: Key, left: Row | None, right: Row | None) -> Row | None:
        """The joined row, or None where the join kind gives none."""
        if left is None or (right is None and self._inner):
            return None
        return self._joined(key, left, right)


def _subscribed(store: Store, key: Key) -> Iterator[tuple[Key, Value]]:
    """Left keys and rows that name the right row `key`, by left key."""
    for stored, value in store.scan(low=key):
        if stored[: len(key)] != key:
            return
        yield stored[len(key) :], value
