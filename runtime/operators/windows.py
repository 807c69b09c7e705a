"""Grouped aggregation over tumbling, hopping and cumulating windows."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import suppress
from functools import partial

import numpy as np

from flowql.compiler.plan.logical import Aggregate, Window
from flowql.compiler.plan.topology import Operator
from flowql.runtime.batch import DELETE, Batch, Ints, Row, from_rows
from flowql.runtime.operators.accumulate import RowsRefused
from flowql.runtime.operators.base import NO_TIME, MicroBatchContext
from flowql.runtime.operators.fold import Accs, Fold
from flowql.runtime.operators.fold_groups import Rows, Wanted, add_changes, fold_groups, result_rows
from flowql.runtime.operators.open_keys import OpenKeys
from flowql.runtime.operators.partials import VECTOR_ROWS, Partials, use_vector, without_columns
from flowql.runtime.operators.rows import KNOWN, Changes
from flowql.runtime.state.columns.packed import Flags, PackedKeys, pack
from flowql.runtime.state.layout import store_key_codec
from flowql.runtime.state.rows import Key, Value
from flowql.runtime.state.store import Store

DAY_MS = 86_400_000


def grace_of(window: Window) -> int:
    """Grace in ms; without GRACE PERIOD ksqlDB keeps a window open until 24 h after its start."""
    return max(DAY_MS - window.size_ms, 0) if window.grace_ms is None else window.grace_ms


class WindowedAggregateOperator:
    """Folds rows into one tuple per group and window, stored under (key..., window start).

    A window [start, end) takes rows until stream time reaches end + grace; later rows are dropped from that window and
    counted. Stream time is taken per row, from rows with a key and a value (rule R4).

    EMIT CHANGES gives every update. EMIT FINAL gives a window once, with the row that closes it: windows closed by the
    same row come by start, then key. As in ksqlDB the store forgets a window when the newest window is more than the
    retention (size + grace, if none is given) ahead of it: a jump of stream time that closes a window and outruns its
    retention at once loses it; such windows are counted with the late rows.

    A cumulating window is kept under its end minus the size: so it lives as a hopping window of that start does.
    """

    def __init__(self, plan: Operator, inputs: Sequence[Operator]) -> None:
        assert isinstance(plan.spec, Aggregate)
        assert plan.spec.window is not None
        self.plan, self.emits_final = plan, plan.spec.emit_final
        window = plan.spec.window
        self.size = window.size_ms
        self.advance = window.advance_ms or window.size_ms
        self.grace = grace_of(window)
        self.over_1970 = window.over_1970 or window.kind != "hopping"  # others never reach over it
        self._cumulates = window.kind == "cumulating"
        self.step = self.size if self._cumulates else self.advance
        self.memory = max(self.size + self.grace, window.retention_ms or 0)
        self.retention = max(self.memory, plan.stores[0].retention_ms or 0)
        self._retract = plan.change == "retract"
        self._fold = Fold(plan, inputs[0].schema)
        self._store, self._codec = plan.stores[0].name, store_key_codec(plan.stores[0])
        self._partials = Partials.of(self._fold, inputs[0].schema)
        self.by_row = without_columns(self._fold, inputs[0].schema)
        self.open = OpenKeys() if self.emits_final else None  # by the starts of windows

    def process(self, inputs: Sequence[Batch | None], run: MicroBatchContext) -> Batch | None:
        batch = inputs[0]
        if batch is None or not len(batch):
            return None
        began = run.stream_times.get(self.plan.id, NO_TIME)
        store = run.state.store(self._store)
        if self.open is not None:
            self.open.begin(began, partial(self._open_in, store, self._closed_before(began)))
        times, seqs, out = self._columns(batch, run, store) or self._rows(batch, run, store)
        now = run.stream_times.get(self.plan.id, NO_TIME)
        if self.open is not None:
            out = self._closed(self.open, store, began, times, seqs, run)
            self.open.end(now)
        self._expire(store, began, now)
        return out

    def starts(self, rowtime: int) -> range:
        """The starts of the windows of a row, rising; state is kept under them.

        Rows from 1970 on are in none that starts before it, as in ksqlDB. So a window over 1970 would hold a part of its rows only:
        there is none, unless the source says that its times begin before (`Window.over_1970`).
        """
        if self._cumulates:
            shortest = rowtime - rowtime % self.advance + self.advance - self.size
            return range(shortest, rowtime - rowtime % self.size + 1, self.advance)
        last = rowtime - rowtime % self.advance
        first = rowtime - self.size + self.advance
        if not self.over_1970 and rowtime >= 0:
            first = max(0, first)
        elif not self.over_1970:
            last = min(last, -self.size - -self.size % self.advance)
        return range(first - first % self.advance, last + 1, self.advance)

    def bounds(self, start: int) -> tuple[int, int]:
        """Start and end of the window that is kept under `start`."""
        end = start + self.size
        return (end - 1) // self.size * self.size if self._cumulates else start, end

    def bounds_of(self, starts: Ints) -> tuple[Ints, Ints]:
        """`bounds` of each."""
        return self.bounds(starts)  # type: ignore[arg-type, return-value]

    def _columns(self, batch: Batch, run: MicroBatchContext, store: Store) -> tuple[Ints, Ints, Batch | None] | None:
        """As `_rows`; None for a batch that has to be folded by rows."""
        partials = self._partials
        if partials is None or not use_vector(batch, run, silent=self.emits_final) or partials.declines(batch):
            return None
        with suppress(RowsRefused):
            return self._fold_columns(partials, batch, run, store)
        return None

    def _fold_columns(
        self, partials: Partials, batch: Batch, run: MicroBatchContext, store: Store
    ) -> tuple[Ints, Ints, Batch | None]:
        """(stream time of each row taken, their seqs, updates). Raises RowsRefused."""
        taken = partials.taken(batch)
        rowtime, seqs = batch.rowtime[taken], batch.seq[taken]
        times = run.times(self.plan.id, rowtime)
        copies = -(-self.size // self.advance)
        newest = rowtime - rowtime % self.step
        rows, starts, order = [], [], []
        late = behind = 0
        for back in range(copies):
            start = newest - back * self.advance
            falls = start > rowtime - self.size
            if not self.over_1970:
                falls &= np.where(rowtime < 0, start + self.size <= 0, start >= 0)
            open_ = falls & (start + self.size + self.grace > times)
            dropped = int(falls.sum() - open_.sum())
            if dropped:
                late += dropped
                behind = max(behind, int((times - rowtime)[falls & ~open_].max()))
            rows.append(taken[open_])
            starts.append(start[open_])
            order.append(taken[open_] * copies + (copies - 1 - back))  # rows in order, windows rising within
        at = np.concatenate(rows)
        merged = groups = None
        if len(at):
            groups = partials.grouped(batch, at, np.concatenate(order), np.concatenate(starts))
            merged = partials.merge(groups, store)
        run.advance(self.plan.id, rowtime)
        run.drop_late(self.plan.id, late, behind)
        if merged is None or groups is None:
            return times, seqs, None
        if self.open is not None:
            new, _ = merged.new_groups
            self.open.add(new.last_times(), new)
            run.hold(self.plan.id, len(new))
            return times, seqs, None
        results = partials.results(self.plan, merged.columns, self.bounds_of)
        return times, seqs, merged.batch(self.plan, results, batch, groups.last // copies, run)

    def _rows(self, batch: Batch, run: MicroBatchContext, store: Store) -> tuple[Ints, Ints, Batch | None]:
        run.took_by_row(self.plan.id, len(batch))
        fold, all_rows = self._fold, batch.rows()
        keys = [fold.key.of(r) for r in all_rows]
        ops = batch.op.tolist()
        taken = [i for i, k in enumerate(keys) if ops[i] != DELETE and not fold.left_out(k)]
        index = np.asarray(taken, np.int64)
        times = run.advance(self.plan.id, batch.rowtime[index])
        work: list[tuple[int, Key, int]] = []
        late = behind = 0
        rowtimes = batch.rowtime.tolist()
        for i, now in zip(taken, times.tolist(), strict=True):
            for start in self.starts(rowtimes[i]):
                if start + self.size + self.grace <= now:
                    late += 1
                    behind = max(behind, now - rowtimes[i])
                else:
                    work.append((i, (*keys[i], start), start))
        run.drop_late(self.plan.id, late, behind)
        changes = self._fold_rows(batch, work, run, store)
        return times, batch.seq[index], changes.batch()

    def _fold_rows(
        self, batch: Batch, work: list[tuple[int, Key, int]], run: MicroBatchContext, store: Store
    ) -> Changes:
        fold, rows, headers = self._fold, batch.rows(), batch.headers
        rowtimes, seqs = batch.rowtime.tolist(), batch.seq.tolist()
        distinct = list(dict.fromkeys(k for _, k, _ in work))
        groups: dict[Key, Value | None] = dict(zip(distinct, store.get_many(distinct), strict=True))
        changes = Changes(self.plan.schema, retract=self._retract, coalesce=run.coalesce)
        if run.coalesce or self.open is not None:
            self._fold_groups(
                batch, Rows(rows, rowtimes, seqs, [(i, k) for i, k, _ in work]), groups, changes, run, store
            )
            return changes
        written: dict[Key, None] = {}
        for i, key, start in work:
            group = groups[key]
            accs: Accs = fold.initial if group is None else group[:-1]
            made = fold.try_step(fold.add, accs, rows[i], rowtimes[i], seqs[i], run)
            if made is None:
                continue
            time = rowtimes[i] if group is None else max(rowtimes[i], group[-1])
            groups[key] = (*fold.kept(key, made), time)
            written[key] = None
            bounds = self.bounds(start)
            before = None
            if group is not None:
                before = fold.row(key[:-1], accs, bounds) if self._retract else KNOWN
            head = headers[i] if headers is not None else None
            changes.add(key, before, fold.row(key[:-1], made, bounds, run=run, seq=seqs[i]), time, seqs[i], head)
        store.put_many(list(written), [groups[k] for k in written])
        return changes

    def _fold_groups(
        self,
        batch: Batch,
        given: Rows,
        groups: Mapping[Key, Value | None],
        changes: Changes,
        run: MicroBatchContext,
        store: Store,
    ) -> None:
        """Where no more than one change per window is shown, or none before it closes."""
        folded = fold_groups(self._fold, given, groups, run)
        kept = self._fold.kept
        store.put_many(list(folded), [(*kept(k, accs), time) for k, (accs, time, _) in folded.items()])
        if self.open is not None:
            new = [k for k in folded if groups[k] is None]
            keys = pack(self._codec.encode_many(new))
            self.open.add(keys.last_times(), keys)
            run.hold(self.plan.id, len(new))
        else:
            add_changes(changes, self._fold, groups, folded, given, batch.headers, run, self._shown)

    def _shown(self, key: Key) -> tuple[Row, Row]:
        return key[:-1], self.bounds(int(key[-1]))  # type: ignore[call-overload]

    def _open_in(self, store: Store, closed: int) -> tuple[Ints, PackedKeys]:
        """Windows that the store holds, but those that start at or before `closed` and were given."""
        keys = pack(self._codec.encode_many([k for k, _ in store.scan() if k[-1] > closed]))  # type: ignore[operator]
        return keys.last_times(), keys

    def _closed_before(self, began: int) -> int:
        """The last start of a window that was closed when stream time was at `began`; below all if none was."""
        return began - self.size - self.grace if began != NO_TIME else NO_TIME

    def _closed(
        self, windows: OpenKeys, store: Store, began: int, times: Ints, seqs: Ints, run: MicroBatchContext
    ) -> Batch | None:
        """Windows that the rows of this run closed, each with the first row whose stream time reached its close.

        No row enters a window once it is closed, so what the store holds after the run is what it held at the close.
        """
        if not len(times):
            return None
        life = self.size + self.grace
        known = self._closed_before(began)
        now = int(times[-1]) - life
        if now // self.advance == known // self.advance:
            return None
        starts, due = windows.due(now)
        rows = np.searchsorted(times, starts + life)
        lost = starts < times[rows] // self.advance * self.advance - self.memory
        return self._results(due, lost, seqs[rows], store, run)

    def _results(self, due: PackedKeys, lost: Flags, seqs: Ints, store: Store, run: MicroBatchContext) -> Batch | None:
        """The results of windows that are closed. lost: those that the store has forgotten by then."""
        partials = self._partials
        if partials is None or not (len(due) >= VECTOR_ROWS if run.vector is None else run.vector):
            found = store.get_many(self._codec.decode_many(due.to_bytes()))
            shown = self._give(np.array([v is not None for v in found], bool), lost, run)
            return self._result_rows(due.take(shown), [found[i] for i in shown.tolist()], seqs[shown], run)
        values = store.columns(partials.layout).find(due).values
        shown = self._give(values.known, lost, run)
        due, values, seqs = due.take(shown), values.take(shown), seqs[shown]
        made = partials.closed(self.plan, due, values, seqs, run, self.bounds_of)
        return self._result_rows(due, values.to_list(), seqs, run) if made is None else made

    def _give(self, held: Flags, lost: Flags, run: MicroBatchContext) -> Ints:
        """Places of the windows that are given, of those that the store holds."""
        run.hold(self.plan.id, -int(np.count_nonzero(held)))
        run.drop_late(self.plan.id, int(np.count_nonzero(held & lost)))
        return np.flatnonzero(held & ~lost)

    def _result_rows(
        self, due: PackedKeys, values: Sequence[Value | None], seqs: Ints, run: MicroBatchContext
    ) -> Batch | None:
        wanted: list[Wanted] = []
        ends: list[int] = []
        for key, value, seq in zip(self._codec.decode_many(due.to_bytes()), values, seqs.tolist(), strict=True):
            assert value is not None
            wanted.append((*self._shown(key), value[:-1], seq))
            ends.append(value[-1])
        if not wanted:
            return None
        made = result_rows(self._fold, wanted, run)
        return from_rows(self.plan.schema, made, ends, np.zeros(len(made), np.int8), seqs)

    def _expire(self, store: Store, began: int, now: int) -> None:
        """Forget windows past retention; starts are multiples of the advance, so only its steps matter."""
        bound, before = now - self.retention, began - self.retention
        if bound > 0 and bound // self.advance != before // self.advance:
            store.expire(bound)
