"""Grouped aggregation without a window."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress

from flowql.compiler.plan.logical import Aggregate
from flowql.compiler.plan.topology import Operator
from flowql.runtime.batch import DELETE, UPDATE_AFTER, UPDATE_BEFORE, Batch, Row
from flowql.runtime.operators.accumulate import RowsRefused
from flowql.runtime.operators.base import MicroBatchContext
from flowql.runtime.operators.closing_groups import ClosingGroups
from flowql.runtime.operators.fold import Accs, Fold, Step
from flowql.runtime.operators.fold_groups import Rows, add_changes, fold_groups
from flowql.runtime.operators.partials import Partials, use_vector, without_columns
from flowql.runtime.operators.rows import KNOWN, Changes
from flowql.runtime.operators.unapplied import ALL_APPLIED, NO_RESULT, NOT_ADDED, NOT_RETRACTED, Unapplied
from flowql.runtime.state.rows import Key, Value


class AggregateOperator:
    """Folds rows into one tuple per group: (accumulator..., row time), with `Unapplied` before the row time if it has any.

    Over a stream each row is added. Over a table removals are undone and a pair within one group is one change; a group
    whose last row goes stays, with the aggregates of no rows, as in ksqlDB, or goes, where the plan says that rows are counted. Row time of
    a change: the highest of the group so far. Null values of streams are skipped, and rows without a key unless NULL is a group.
    Groups that a watermark closes are forgotten then.
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
        self.by_row = "its input is a table" if self._table else without_columns(self._fold, inputs[0].schema)
        self._work = _CountedWork if plan.spec.counted else _Work
        self._closing: ClosingGroups | None = None
        if plan.spec.closing:
            assert not self._table, "a watermark closes groups of rows that only come"
            self._closing = ClosingGroups(plan, inputs[0].schema, self._fold, self._partials)
        self.follows_watermark = self._closing is not None
        self._final = plan.spec.emit_final

    def process(self, inputs: Sequence[Batch | None], run: MicroBatchContext) -> Batch | None:
        batch = inputs[0]
        if self._closing is None:
            return None if batch is None or not len(batch) else self._folded(batch, run)
        store = run.state.store(self._store)
        self._closing.begin(store, run)
        updates = None if batch is None or not len(batch) else self._folded(batch, run)
        closed = self._closing.end(store, run)
        return closed if self._final else updates

    def _folded(self, batch: Batch, run: MicroBatchContext) -> Batch | None:
        partials = self._partials
        if partials is not None and use_vector(batch, run, silent=self._final) and not partials.declines(batch):
            with suppress(RowsRefused):
                return partials.unwindowed(batch, self.plan, run.state.store(self._store), run, self._closing)
        run.took_by_row(self.plan.id, len(batch))
        if not self._table and (run.coalesce or self._final):
            return self._coalesced(batch, run)
        return self._rows(batch, run)

    def _coalesced(self, batch: Batch, run: MicroBatchContext) -> Batch | None:
        """Rows of a stream, where one change per group is shown: results are made once per group."""
        store, fold = run.state.store(self._store), self._fold
        rows, ops, seqs = batch.rows(), batch.op.tolist(), batch.seq.tolist()
        keys = [fold.key.of(r) for r in rows]
        work = [(i, key) for i, key in enumerate(keys) if ops[i] != DELETE and not fold.left_out(key)]
        distinct = list(dict.fromkeys(key for _, key in work))
        groups = dict(zip(distinct, store.get_many(distinct), strict=True))
        given = Rows(rows, batch.rowtime.tolist(), seqs, work)
        folded = fold_groups(fold, given, groups, run)
        store.put_many(list(folded), [(*fold.kept(k, accs), time) for k, (accs, time, _) in folded.items()])
        if self._closing is not None:
            self._closing.note_keys([k for k in folded if groups[k] is None], run)
        if self._final:
            return None
        changes = Changes(self.plan.schema, retract=self._retract, coalesce=True)
        add_changes(changes, fold, groups, folded, given, batch.headers, run)
        return changes.batch()

    def _rows(self, batch: Batch, run: MicroBatchContext) -> Batch | None:
        store = run.state.store(self._store)
        fold = self._fold
        rows = batch.rows()
        keys = [fold.key.of(r) for r in rows]
        distinct = list(dict.fromkeys(keys))
        groups = dict(zip(distinct, store.get_many(distinct), strict=True))
        unknown = {k for k, group in groups.items() if group is None}
        work = self._work(self, groups, Changes(self.plan.schema, retract=self._retract, coalesce=run.coalesce), run)
        headers = batch.headers
        before: tuple[Key, Row] | None = None
        times = zip(batch.rowtime.tolist(), batch.op.tolist(), batch.seq.tolist(), strict=True)
        for i, (rowtime, op, seq) in enumerate(times):
            key, row = keys[i], rows[i]
            work.headers = headers[i] if headers is not None else None
            if fold.left_out(key) or (op == DELETE and not self._table):
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
        store.put_many(list(work.written), [_checked(fold, k, groups[k]) for k in work.written])
        if self._closing is not None:
            self._closing.note_keys([k for k in work.written if k in unknown], run)
        return work.changes.batch()


def _checked(fold: Fold, key: Key, group: Value | None) -> Value | None:
    if group is not None:
        fold.kept(key, group[: len(fold.bound)])
    return group


class _Work:
    """Groups being folded in one run."""

    __slots__ = ("_fold", "_retract", "changes", "groups", "headers", "run", "written")

    def __init__(
        self, operator: AggregateOperator, groups: dict[Key, Value | None], changes: Changes, run: MicroBatchContext
    ) -> None:
        self._fold, self._retract = operator._fold, operator._retract
        self.groups, self.changes, self.run = groups, changes, run
        self.written: dict[Key, None] = {}
        self.headers: object = None

    def apply(self, key: Key, old: Row | None, new: Row | None, rowtime: int, seq: int) -> None:
        """Undo `old`, add `new`, note one change."""
        fold, group = self._fold, self.groups.get(key)
        if group is None:
            if new is None:
                return  # a removal from a group that is not there
            accs, unapplied = fold.initial, Unapplied((NO_RESULT,))
        else:
            accs, unapplied = fold.parted(group)
        begun, unapplied_before = accs, unapplied
        if group is not None and fold.undo is not None:
            accs, unapplied = self._retried(fold.undo, accs, unapplied, rowtime, seq)
            if old is not None:
                accs, unapplied = self._retracted(fold.undo, accs, unapplied, old, rowtime, seq)
        if new is not None:
            added = fold.try_step(fold.add, accs, new, rowtime, seq, self.run)
            if added is not None:
                accs = added
            elif fold.undo is not None:  # of a stream no row ever leaves
                unapplied = unapplied.with_row(NOT_ADDED, new)
        time = rowtime if group is None else max(rowtime, group[-1])
        if accs is begun and fold.bound:
            if unapplied is not unapplied_before:
                self._keep(key, accs, unapplied, time)
            return
        if not fold.bound and group is not None:  # a group without aggregates does not change
            self._keep(key, accs, unapplied, time)
            return
        before = None
        if not unapplied_before.has_no_result:
            before = fold.row(key, begun) if self._retract else KNOWN
        self._keep(key, accs, unapplied.with_result(), time)
        self.changes.add(key, before, fold.row(key, accs, run=self.run, seq=seq), time, seq, self.headers)

    def _retracted(
        self, undo: Step, accs: Accs, unapplied: Unapplied, old: Row, rowtime: int, seq: int
    ) -> tuple[Accs, Unapplied]:
        """Without a row. One that could not be added is not undone; one that cannot be undone is kept until that succeeds."""
        if (without := unapplied.without_row(NOT_ADDED, old)) is not None:
            return accs, without
        undone = self._fold.try_step(undo, accs, old, rowtime, seq, self.run)
        return (accs, unapplied.with_row(NOT_RETRACTED, old)) if undone is None else (undone, unapplied)

    def _retried(self, undo: Step, accs: Accs, unapplied: Unapplied, rowtime: int, seq: int) -> tuple[Accs, Unapplied]:
        """Retries rows that could not be retracted; their dead letters were written when they failed first."""
        for row in unapplied.not_retracted:
            undone = self._fold.try_step(undo, accs, row, rowtime, seq, self.run, again=True)
            if undone is not None and (without := unapplied.without_row(NOT_RETRACTED, row)) is not None:
                accs, unapplied = undone, without
        return accs, unapplied

    def _keep(self, key: Key, accs: Accs, unapplied: Unapplied, time: int) -> None:
        self.groups[key] = (*accs, unapplied.entries, time) if unapplied.entries else (*accs, time)
        self.written[key] = None


class _CountedWork(_Work):
    """Groups as SQL has them: a group is there as long as it has rows."""

    __slots__ = ()

    def apply(self, key: Key, old: Row | None, new: Row | None, rowtime: int, seq: int) -> None:
        fold, group = self._fold, self.groups.get(key)
        assert fold.undo is not None
        if group is None and new is None:
            return  # a removal from a group that is not there
        accs, unapplied = (fold.initial, ALL_APPLIED) if group is None else fold.parted(group)
        begun = accs
        accs, unapplied = self._retried(fold.undo, accs, unapplied, rowtime, seq)
        if old is not None:
            accs, unapplied = self._retracted(fold.undo, accs, unapplied, old, rowtime, seq)
        if new is not None:
            added = fold.try_step(fold.add, accs, new, rowtime, seq, self.run)
            accs, unapplied = (accs, unapplied.with_row(NOT_ADDED, new)) if added is None else (added, unapplied)
        time = rowtime if group is None else max(rowtime, group[-1])
        if fold.lives(accs) or unapplied.entries:
            self._keep(key, accs, unapplied, time)
        else:
            self.groups[key] = None
            self.written[key] = None
        if accs is not begun:
            before = fold.row(key, begun) if fold.lives(begun) else None
            after = fold.row(key, accs, run=self.run, seq=seq) if fold.lives(accs) else None
            self.changes.add(key, before, after, time, seq, self.headers)
