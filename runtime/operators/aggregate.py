"""Grouped aggregation without a window."""

from __future__ import annotations

from collections.abc import Sequence

from compiler.plan.logical import Aggregate
from compiler.plan.topology import Operator
from runtime.batch import DELETE, UPDATE_AFTER, UPDATE_BEFORE, Batch, Row
from runtime.operators.base import RunContext
from runtime.operators.fold import Accs, Fold, Step
from runtime.operators.partials import Partials, use_vector
from runtime.operators.rows import Changes
from runtime.state.store import Key, Value

KNOWN: Row = ()  # stands for a before-image nobody will read


class AggregateOperator:
    """Folds rows into one tuple per group: (accumulator..., row time).

    Over a stream each row is added. Over a table removals are undone and a pair within one group is one change; a group
    whose last row goes stays, with the aggregates of no rows, as in ksqlDB. Row time of a change: the highest of the
    group so far. Null values of streams and rows without a key are skipped.
    """

    def __init__(self, plan: Operator, inputs: Sequence[Operator]) -> None:
        assert isinstance(plan.spec, Aggregate)
        assert plan.spec.window is None
        self.plan = plan
        self._table = inputs[0].change != "append"
        self._retract = plan.change == "retract"
        self._fold = Fold(plan, inputs[0].schema, undo=self._table)
        self._store = plan.stores[0].name
        self._partials = None if self._table else Partials.of(self._fold, inputs[0].schema)

    def process(self, inputs: Sequence[Batch | None], run: RunContext) -> Batch | None:
        batch = inputs[0]
        if batch is None or not len(batch):
            return None
        if self._partials is not None and use_vector(batch, run) and not self._partials.declines(batch):
            return self._partials.unwindowed(batch, self.plan, run.state.store(self._store))
        return self._rows(batch, run)

    def _rows(self, batch: Batch, run: RunContext) -> Batch | None:
        store = run.state.store(self._store)
        fold = self._fold
        rows = batch.rows()
        keys = [fold.key.of(r) for r in rows]
        distinct = list(dict.fromkeys(keys))
        groups = dict(zip(distinct, store.get_many(distinct), strict=True))
        work = _Work(self, groups, Changes(self.plan.schema, retract=self._retract, coalesce=run.coalesce), run)
        headers = batch.headers
        before: tuple[Key, Row] | None = None
        times = zip(batch.rowtime.tolist(), batch.op.tolist(), batch.seq.tolist(), strict=True)
        for i, (rowtime, op, seq) in enumerate(times):
            key, row = keys[i], rows[i]
            work.headers = headers[i] if headers is not None else None
            if fold.key.missing(key) or (op == DELETE and not self._table):
                continue
            if op == UPDATE_BEFORE:
                before = (key, row)
                continue
            old: Row | None = None
            if op == UPDATE_AFTER and before is not None:
                if before[0] == key:
                    old = before[1]
                else:
                    work.apply(before[0], before[1], None, rowtime, seq)
                before = None
            if op == DELETE:
                work.apply(key, row, None, rowtime, seq)
            else:
                work.apply(key, old, row, rowtime, seq)
        store.put_many(list(work.written), [groups[k] for k in work.written])
        return work.changes.batch()


class _Work:
    """Groups being folded in one run."""

    __slots__ = ("_fold", "_retract", "changes", "groups", "headers", "run", "written")

    def __init__(
        self, operator: AggregateOperator, groups: dict[Key, Value | None], changes: Changes, run: RunContext
    ) -> None:
        self._fold, self._retract = operator._fold, operator._retract
        self.groups, self.changes, self.run = groups, changes, run
        self.written: dict[Key, None] = {}
        self.headers: object = None

    def apply(self, key: Key, old: Row | None, new: Row | None, rowtime: int, seq: int) -> None:
        """Undo `old`, add `new`, note one change."""
        fold, group = self._fold, self.groups.get(key)
        accs: Accs | None = fold.initial if group is None else group[:-1]
        if old is not None and group is not None:
            assert fold.undo is not None
            accs = self._step(fold.undo, accs, old, rowtime, seq)
        if new is not None:
            accs = self._step(fold.add, accs, new, rowtime, seq)
        elif group is None:
            return  # a removal from a group that is not there
        if accs is None:
            return
        time = rowtime if group is None else max(rowtime, group[-1])
        self.groups[key] = (*accs, time)
        self.written[key] = None
        before = None
        if group is not None:
            before = fold.row(key, group[:-1]) if self._retract else KNOWN
        self.changes.add(key, before, fold.row(key, accs), time, seq, self.headers)

    def _step(self, step: Step, accs: Accs | None, row: Row, rowtime: int, seq: int) -> Accs | None:
        return None if accs is None else self._fold.try_step(step, accs, row, rowtime, seq, self.run)
