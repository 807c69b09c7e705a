"""Grouped aggregation over session windows."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from contextlib import suppress
from functools import partial
from typing import Any

import numpy as np

from flowql.compiler.plan.logical import Aggregate
from flowql.compiler.plan.topology import Operator
from flowql.runtime.batch import DELETE, INSERT, Batch, Ints, Row, concat
from flowql.runtime.operators.accumulate import RowsRefused
from flowql.runtime.operators.base import NO_TIME, MicroBatchContext
from flowql.runtime.operators.fold import Fold
from flowql.runtime.operators.open_keys import OpenKeys
from flowql.runtime.operators.partials import use_vector
from flowql.runtime.operators.rows import Changes, Emitter
from flowql.runtime.operators.session_columns import SessionColumns, Taken, session_without_columns
from flowql.runtime.operators.windows import grace_of
from flowql.runtime.state.columns.packed import PackedKeys, pack
from flowql.runtime.state.layout import store_key_codec
from flowql.runtime.state.rows import Key, Value
from flowql.runtime.state.store import Store

Session = tuple[int, int, tuple[Any, ...]]  # first and last row time, accumulators
Record = tuple[Row, int, int, int]  # row, its time, number, and place in the batch
FORGETS = 8  # in a period of the retention, sessions past it are forgotten so often


class SessionAggregateOperator:
    """Folds rows into sessions: rows of a key no further apart than the gap.

    State: key -> (session...), rising by start. A session is closed when stream time passes end + gap + grace; a row
    that would make a closed session is dropped and counted; a closed session never grows (Kafka Streams has then expired
    it from its store). A session that changes is removed under its old bounds and given under its new ones, each with
    its end as row time; only a session of a single instant is updated in place (KStreamSessionWindowAggregate).

    EMIT FINAL gives a session once, with the row that closes it, by end, start and key.

    A key waits under the earliest time at which one of its sessions is given or forgotten, so neither looks at keys whose sessions stay.

    Large batches are folded by columns, except for keys whose rows depend on their order (`flowql.runtime.operators.session_columns`).
    """

    def __init__(self, plan: Operator, inputs: Sequence[Operator]) -> None:
        assert isinstance(plan.spec, Aggregate)
        assert plan.spec.window is not None
        self.plan, self._final = plan, plan.spec.emit_final
        window = plan.spec.window
        self._gap = window.size_ms
        self._life = self._gap + grace_of(window)
        self._retention = max(self._life, window.retention_ms or 0, plan.stores[0].retention_ms or 0)
        self._fold = Fold(plan, inputs[0].schema, merge=True)
        self._columns = SessionColumns.of(
            plan, self._fold, inputs[0].schema, gap=self._gap, life=self._life, retention=self._retention
        )
        self.by_row = session_without_columns(self._fold, inputs[0].schema)
        self._retract = plan.change == "retract"
        self._store, self._codec = plan.stores[0].name, store_key_codec(plan.stores[0])
        self._step = max(self._retention // FORGETS, 1)
        self._waiting = OpenKeys()  # by the stream time at which a session of the key is to be given or forgotten

    def process(self, inputs: Sequence[Batch | None], run: MicroBatchContext) -> Batch | None:
        batch = inputs[0]
        if batch is None or not len(batch):
            return None
        columns = self._columns if use_vector(batch, run, silent=self._final) else None
        rows = None if columns is None else columns.taken(batch)
        if rows is None:
            columns, rows = None, self._taken(batch)
        if not len(rows):
            return None
        began, store = run.stream_times.get(self.plan.id, NO_TIME), run.state.store(self._store)
        taken = Taken(rows, batch.rowtime[rows], run.advance(self.plan.id, batch.rowtime[rows]))
        now = int(taken.now[-1])
        follows = self._follow(store, began, now)
        out, left = self._fold_columns(columns, batch, taken, began, store, run)
        if len(left):
            of_rows = self._fold_rows(batch, taken.take(left), began, store, run)
            out = concat(self.plan.schema, [b for b in (out, of_rows) if b is not None])
        given = self._pass(store, began, taken.now, batch.seq[rows], run) if follows else None
        if self._final:
            out = given
        elif out is not None:
            out = out.take(np.argsort(out.seq, kind="stable")) if len(left) else out
            head = None if batch.headers is None else [batch.headers[i] for i in out.seq.tolist()]
            out = out.numbered(batch.seq[out.seq])
            out.headers = head
        if follows:
            self._waiting.end(now)
        return out if out is None or len(out) else None

    def _taken(self, batch: Batch) -> Ints:
        """Places of the rows with a key and a value."""
        fold, ops = self._fold, batch.op.tolist()
        taken = [i for i, r in enumerate(batch.rows()) if ops[i] != DELETE and not fold.left_out(fold.key.of(r))]
        return np.array(taken, np.int64)

    def _fold_columns(
        self,
        columns: SessionColumns | None,
        batch: Batch,
        taken: Taken,
        began: int,
        store: Store,
        run: MicroBatchContext,
    ) -> tuple[Batch | None, Ints]:
        """Changes, with the places of their rows as `seq`, and which rows taken are left."""
        if columns is not None:
            with suppress(RowsRefused):
                made = columns.fold(batch, taken, began, store, run, silent=self._final)
                if self._final:
                    run.hold(self.plan.id, len(made.ends))
                self._waiting.add(self._wakes(made.ends, began), made.new)
                return made.out, made.left
        return None, np.arange(len(taken.rows))

    def _fold_rows(self, batch: Batch, taken: Taken, began: int, store: Store, run: MicroBatchContext) -> Batch | None:
        """Changes, with the places of their rows as `seq`."""
        fold, n = self._fold, len(taken.rows)
        run.took_by_row(self.plan.id, n)
        rows = (batch if n == len(batch) else batch.take(taken.rows)).rows()
        keys = [fold.key.of(r) for r in rows]
        distinct = list(dict.fromkeys(keys))
        live: dict[Key, list[Session]] = {
            k: [s for s in v or () if s[1] >= began - self._retention]
            for k, v in zip(distinct, store.get_many(distinct), strict=True)
        }
        changes = Changes(self.plan.schema, retract=self._retract, coalesce=run.coalesce)
        seqs = batch.seq[taken.rows].tolist()
        new: dict[Key, list[Session]] = {}  # keys of which a session began
        records = zip(rows, taken.times.tolist(), seqs, taken.rows.tolist(), strict=True)
        for record, key, now in zip(records, keys, taken.now.tolist(), strict=True):
            if self._row(record, key, live[key], now - self._life, changes, run):
                new[key] = live[key]
        store.put_many(distinct, [tuple(live[k]) or None for k in distinct])
        if new:
            self._waiting.add(self._first_wakes(new.values(), began), pack(self._codec.encode_many(new)))
        return changes.batch()

    def _row(
        self, record: Record, key: Key, sessions: list[Session], closed: int, changes: Changes, run: MicroBatchContext
    ) -> bool:
        """Put a row into the sessions of its key; sessions that ended before `closed` are closed. Whether one began."""
        fold, (row, t, seq, place) = self._fold, record
        first, last = t - self._gap, t + self._gap
        met = [s for s in sessions if s[1] >= first and s[0] <= last and s[1] >= closed]  # neighbours, as none overlap
        start, end = (min(t, met[0][0]), max(t, met[-1][1])) if met else (t, t)
        if end < closed:
            run.drop_late(self.plan.id, 1, closed + self._life - t)
            return False
        assert fold.merge is not None
        accs = met[0][2] if met else fold.initial
        for s in met[1:]:
            accs = fold.merge(accs, s[2])
        made = fold.try_step(fold.add, accs, row, t, seq, run)
        if made is None:
            return False
        at = sessions.index(met[0]) if met else sum([s[0] < start for s in sessions])
        sessions[at : at + len(met)] = [(start, end, fold.kept(key, made))]
        if self._final:
            run.hold(self.plan.id, 1 - len(met))
            return not met
        before = None
        for s in met:
            old = fold.row(key, s[2], s[:2])
            if start == end:
                before = old
            else:
                changes.add((key, s[:2]), old, None, s[1], place)
        changes.add((key, (start, end)), before, fold.row(key, made, (start, end), run=run, seq=seq), end, place)
        return not met

    def _pass(self, store: Store, began: int, times: Ints, seqs: Ints, run: MicroBatchContext) -> Batch | None:
        """Gives the sessions that this run closed, if the plan says so, and forgets those past retention."""
        now = int(times[-1])
        _, due = self._waiting.due(now)
        if not len(due):
            return None
        due = due.take(due.order())
        keys = self._codec.decode_many(due.to_bytes())
        before = store.get_many(keys)
        after = [tuple(s for s in v or () if s[1] >= now - self._retention) for v in before]
        shorter = [i for i, v in enumerate(after) if len(v) != len(before[i] or ())]
        store.put_many([keys[i] for i in shorter], [after[i] or None for i in shorter])
        left = [i for i, v in enumerate(after) if v]
        self._waiting.add(self._first_wakes([after[i] for i in left], now), due.take(np.array(left, np.int64)))
        return self._results(zip(keys, before, strict=True), began, times, seqs, run) if self._final else None

    def _results(
        self, held: Iterable[tuple[Key, Value | None]], began: int, times: Ints, seqs: Ints, run: MicroBatchContext
    ) -> Batch | None:
        """Those of the held sessions that this run closed, each with the first row whose stream time is past its close."""
        closed, known = int(times[-1]) - self._life, began - self._life if began != NO_TIME else NO_TIME
        closing = [(s[1], s[0], k, s) for k, sessions in held for s in sessions or () if known <= s[1] < closed]
        run.hold(self.plan.id, -len(closing))
        closing.sort(key=lambda c: c[:2])  # stable: by key within; the row of a close rises with its end
        rows = np.searchsorted(times, np.array([c[0] for c in closing], np.int64) + self._life, side="right")
        out = Emitter(self.plan.schema)
        for (end, start, key, s), seq in zip(closing, seqs[rows].tolist(), strict=True):
            out.add(self._fold.row(key, s[2], (start, end), run=run, seq=seq), end, INSERT, seq)
        return out.batch()

    def _wakes(self, ends: Ints, now: int) -> Ints:
        """The stream time, past `now`, at which each session is given or forgotten."""
        forgotten = -(-(ends + self._retention + 1) // self._step) * self._step
        return np.where(ends + self._life >= now, ends + self._life + 1, forgotten) if self._final else forgotten

    def _first_wakes(self, held: Collection[Sequence[Session]], now: int) -> Ints:
        """For each key with these sessions, the earliest time."""
        ends = np.array([end for sessions in held for _, end, _ in sessions], np.int64)
        begins = np.cumsum([0, *map(len, held)])[:-1]
        return np.minimum.reduceat(self._wakes(ends, now), begins) if len(ends) else ends

    def _in_store(self, store: Store, now: int) -> tuple[Ints, PackedKeys]:
        held = dict(store.scan())
        return self._first_wakes(held.values(), now), pack(self._codec.encode_many(held))

    def _follow(self, store: Store, began: int, now: int) -> bool:
        """Whether this run knows which keys wait. Reading them from the store is put off until one may be due."""
        follows = (
            self._final or began == NO_TIME or self._waiting.is_at(began) or began // self._step != now // self._step
        )
        if follows:
            self._waiting.begin(began, partial(self._in_store, store, began))
        return follows
