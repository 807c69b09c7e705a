"""Grouped aggregation without a window."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from flowql.compiler.plan.logical import Aggregate
from flowql.compiler.plan.schema import Schema
from flowql.compiler.plan.topology import Operator
from flowql.runtime.batch import DELETE, INSERT, UPDATE_AFTER, UPDATE_BEFORE, Batch, Ints, Row, from_rows
from flowql.runtime.operators.accumulate import RowsRefused
from flowql.runtime.operators.base import NO_TIME, MicroBatchContext
from flowql.runtime.operators.changes.closing import closing_time
from flowql.runtime.operators.fold import ALL_APPLIED, NO_RESULT, NOT_ADDED, NOT_RETRACTED, Accs, Fold, Step, Unapplied
from flowql.runtime.operators.fold_groups import Rows, add_changes, fold_groups, result_rows
from flowql.runtime.operators.open_keys import OpenKeys
from flowql.runtime.operators.partials import VECTOR_ROWS, Partials, use_vector, without_columns
from flowql.runtime.operators.rows import KNOWN, Changes
from flowql.runtime.state.columns.packed import PackedKeys, pack
from flowql.runtime.state.columns.values import RowValues
from flowql.runtime.state.layout import store_key_codec
from flowql.runtime.state.rows import Key, Value
from flowql.runtime.state.store import Store

_NEVER = np.iinfo(np.int64).max


class ClosingGroups:
    """The open groups of one aggregation, in order of the watermark that closes them.

    A closed group is deleted from the store. If the plan says `emit_final`, its result is given then. The watermark up to which groups were closed
    is the stream time of the operator. A group of which no column closes it stays for good.
    """

    def __init__(self, plan: Operator, source: Schema, fold: Fold, partials: Partials | None) -> None:
        assert isinstance(plan.spec, Aggregate)
        names = [f.name for f in source.key]
        self._plan, self._fold, self._partials = plan, fold, partials
        self._at = [(names.index(c.column), c.after) for c in plan.spec.closing]
        self._due_of = closing_time(Schema(source.key), plan.spec.closing)
        self._codec = store_key_codec(plan.stores[0])
        self._open = OpenKeys()
        self.is_final = plan.spec.emit_final

    def begin(self, store: Store, run: MicroBatchContext) -> None:
        """Before the rows of a run are folded."""
        self._open.begin(self._closed_up_to(run), lambda: self._timed([k for k, _ in store.scan()]))

    def note(self, keys: PackedKeys, columns: Sequence[pa.Array], run: MicroBatchContext) -> None:
        """Groups that are new. columns: the parts of their keys."""
        times = np.full(len(keys), _NEVER)
        for i, after in self._at:
            known = columns[i].is_valid().to_numpy(zero_copy_only=False)
            values = pc.fill_null(columns[i], 0).to_numpy().astype(np.int64, copy=False)
            times = np.minimum(times, np.where(known, values + after, _NEVER))
        waits = np.flatnonzero(times != _NEVER)
        self._add(times[waits], keys.take(waits), run)

    def note_keys(self, keys: Sequence[Key], run: MicroBatchContext) -> None:
        """Groups that are new, by their keys."""
        self._add(*self._timed(keys), run)

    def end(self, store: Store, run: MicroBatchContext) -> Batch | None:
        """After the rows of a run were folded: closes groups. Their results, if the plan says so."""
        out = None
        if run.watermark is not None:
            _, keys = self._open.due(run.watermark)
            out = self._close(keys, store, run) if len(keys) else None
            run.stream_times[self._plan.id] = run.watermark
        self._open.end(self._closed_up_to(run))
        return out

    def _closed_up_to(self, run: MicroBatchContext) -> int:
        return run.stream_times.get(self._plan.id, NO_TIME)

    def _timed(self, keys: Sequence[Key]) -> tuple[Ints, PackedKeys]:
        """Those of the keys that a watermark closes, and when."""
        due = [(ms, k) for k in keys if (ms := self._due_of(k)) is not None]
        return np.array([ms for ms, _ in due], np.int64), pack(self._codec.encode_many([k for _, k in due]))

    def _add(self, times: Ints, keys: PackedKeys, run: MicroBatchContext) -> None:
        self._open.add(times, keys)
        if self.is_final:
            run.hold(self._plan.id, len(keys))

    def _close(self, keys: PackedKeys, store: Store, run: MicroBatchContext) -> Batch | None:
        partials = self._partials
        if partials is None or not (len(keys) >= VECTOR_ROWS if run.vector is None else run.vector):
            decoded = self._codec.decode_many(keys.to_bytes())
            found = store.get_many(decoded) if self.is_final else []
            store.put_many(decoded, [None] * len(decoded))
            return self._result_rows(decoded, found, run)
        columns = store.columns(partials.layout)
        held = columns.find(keys)
        columns.stage(held, held.values.without(np.ones(len(keys), bool)))
        if not self.is_final:
            return None
        at = np.flatnonzero(held.values.known)
        return self._results(partials, keys.take(at), held.values.take(at), run)

    def _results(self, partials: Partials, keys: PackedKeys, values: RowValues, run: MicroBatchContext) -> Batch | None:
        made = partials.closed(self._plan, keys, values, np.full(len(keys), run.last_seq), run)
        if made is None:
            return self._result_rows(self._codec.decode_many(keys.to_bytes()), values.to_list(), run)
        run.hold(self._plan.id, -len(keys))
        return made

    def _result_rows(self, keys: Sequence[Key], values: Sequence[Value | None], run: MicroBatchContext) -> Batch | None:
        """values: none where the plan wants no results."""
        held = [(k, v) for k, v in zip(keys, values, strict=False) if v is not None]
        if not held:
            return None
        run.hold(self._plan.id, -len(held))
        wanted = [(key, (), value[: len(self._fold.bound)], run.last_seq) for key, value in held]
        made, n = result_rows(self._fold, wanted, run), len(held)
        ops = np.full(n, INSERT, np.int8)
        return from_rows(self._plan.schema, made, [v[-1] for _, v in held], ops, np.full(n, run.last_seq))


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
                return self._by_columns(partials, batch, run)
        run.took_by_row(self.plan.id, len(batch))
        if not self._table and (run.coalesce or self._final):
            return self._coalesced(batch, run)
        return self._rows(batch, run)

    def _by_columns(self, partials: Partials, batch: Batch, run: MicroBatchContext) -> Batch | None:
        """Raises RowsRefused."""
        rows = partials.taken(batch)
        if not len(rows):
            return None
        groups = partials.grouped(batch, rows, rows, None)
        merged = partials.merge(groups, run.state.store(self._store))
        if self._closing is not None:
            self._closing.note(*merged.new_groups, run)
        if self._final:
            return None
        return merged.batch(self.plan, partials.results(self.plan, merged.columns), batch, groups.last, run)

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
