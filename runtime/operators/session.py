"""Grouped aggregation over session windows."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
import pyarrow as pa

from flowql.compiler.plan.logical import Aggregate
from flowql.compiler.plan.schema import Schema
from flowql.compiler.plan.topology import Operator
from flowql.runtime.batch import DELETE, INSERT, TEMPORAL, UPDATE_AFTER, UPDATE_BEFORE, Batch, Ints, Row, concat
from flowql.runtime.operators.accumulate import RowsRefused
from flowql.runtime.operators.base import NO_TIME, MicroBatchContext
from flowql.runtime.operators.fold import Fold
from flowql.runtime.operators.group_results import GroupResults, unchanged
from flowql.runtime.operators.open_keys import OpenKeys
from flowql.runtime.operators.partials import Partials, call_text, use_vector, without_columns
from flowql.runtime.operators.rows import Changes, Emitter
from flowql.runtime.operators.windows import grace_of
from flowql.runtime.operators.winners import group_codes
from flowql.runtime.state.columns.layer import Found
from flowql.runtime.state.columns.packed import Flags, PackedKeys, pack, packed_keys
from flowql.runtime.state.columns.sessions import BOUNDS, OLDER, SessionLayout
from flowql.runtime.state.columns.values import PRESENT, RowValues, ValueColumn, ValueLayout, concatenated, objects
from flowql.runtime.state.layout import store_key_codec
from flowql.runtime.state.rows import Key, Value
from flowql.runtime.state.store import Store

_NEVER = np.iinfo(np.int64).min


@dataclass(frozen=True, slots=True)
class Known:
    """For each code of a key, whether the state has a session, and its bounds."""

    there: Flags
    first: Ints
    last: Ints


@dataclass(frozen=True, slots=True)
class Sessions:
    """Numbered by code and time. of_rows: the session of each row. of_known: the session that each known one becomes, -1 without a known one."""

    of_rows: Ints
    of_known: Ints
    code: Ints
    first: Ints
    last: Ints


def sessions_of(codes: Ints, times: Ints, gap: int, known: Known | None = None) -> Sessions:
    """The sessions that rows make together with the known ones. codes: of the keys of rows, 0, 1, ... without holes."""
    n, begins_known = len(codes), np.zeros(0, np.int64)
    starts, ends, keys = times, times, codes
    if known is not None:
        begins_known = np.flatnonzero(known.there)
        keys = np.concatenate([codes, begins_known])
        starts = np.concatenate([times, known.first[begins_known]])
        ends = np.concatenate([times, known.last[begins_known]])
    order = np.lexsort((starts, keys))
    by, start, end = keys[order], starts[order], ends[order]
    reached = start.copy()
    if known is not None and len(begins_known):
        place = np.empty(len(order), np.int64)
        place[order] = np.arange(len(order))
        begun = np.full(len(known.there), len(order), np.int64)
        begun[begins_known] = place[n:]
        reached = np.maximum(start, np.where(begun[by] <= np.arange(len(by)), known.last[by], _NEVER))
    begins = np.ones(len(by), np.bool_)
    begins[1:] = (by[1:] != by[:-1]) | (start[1:] - reached[:-1] > gap)
    first_at = np.flatnonzero(begins)
    numbers = np.empty(len(by), np.int64)
    numbers[order] = np.cumsum(begins) - 1
    of_known = np.full(0 if known is None else len(known.there), -1, np.int64)
    of_known[begins_known] = numbers[n:]
    return Sessions(numbers[:n], of_known, by[first_at], start[first_at], np.maximum.reduceat(end, first_at))


_NOT_YET = np.iinfo(np.int64).max


@dataclass(frozen=True, slots=True)
class Taken:
    """Rows of a batch that have a key and a value. rows: their places in it. times: the time of each, and stream time as of it."""

    rows: Ints
    times: Ints
    now: Ints

    def take(self, at: Ints) -> Taken:
        return Taken(self.rows[at], self.times[at], self.now[at])


@dataclass(frozen=True, slots=True)
class Columned:
    """The result of folding a batch by columns.

    out: changes, with the place of the row that made each as `seq`. left: which rows taken are to be folded row by row. new, ends: the keys
    and last times of new sessions.
    """

    out: Batch | None
    left: Ints
    new: PackedKeys
    ends: Ints


def session_without_columns(fold: Fold, source: Schema) -> str:
    """As `without_columns`: the accumulators of sessions have to be columns, too."""
    if reason := without_columns(fold, source):
        return reason
    parts = zip(fold.bound, Partials(fold, source).parts, strict=True)
    return next((call_text(b) for b, part in parts if part.fold is None), "")


class SessionColumns:
    """Folds a batch into sessions, together with the newest stored session of each key. life: gap and grace.

    The rows of a key are folded row by row (`Columned.left`) if their order may matter, or if they may meet an older session: a row is behind
    stream time by more than the grace; a row is before the newest session and does not meet it; the newest session grows until it meets an
    older one; or the stored value of the key does not fit columns.
    """

    def __init__(self, plan: Operator, fold: Fold, partials: Partials, *, gap: int, life: int, retention: int) -> None:
        self._plan, self._fold, self._partials = plan, fold, partials
        self._gap, self._grace, self._retention = gap, life - gap, retention
        self._retract = plan.change == "retract"
        self._width = len(partials.layout.kinds) - 1  # columns of the accumulators
        self._layout = SessionLayout.of(partials.layout.parts[:-1])

    @staticmethod
    def of(plan: Operator, fold: Fold, source: Schema, *, gap: int, life: int, retention: int) -> SessionColumns | None:
        """None if a key or an aggregate has no columnar form (`session_without_columns`)."""
        if session_without_columns(fold, source):
            return None
        return SessionColumns(plan, fold, Partials(fold, source), gap=gap, life=life, retention=retention)

    def taken(self, batch: Batch) -> Ints | None:
        """Places of the rows with a key and a value; None for a batch that Arrow would fold otherwise than the reference."""
        return None if self._partials.declines(batch) else self._partials.taken(batch)

    def fold(
        self, batch: Batch, taken: Taken, began: int, store: Store, run: MicroBatchContext, *, silent: bool
    ) -> Columned:
        """State after the batch is staged, but for the keys of rows that are left. silent: no changes. Raises RowsRefused."""
        codes, keys = self._keys(batch, taken.rows)
        packed = packed_keys(store_key_codec(store.spec), keys)
        columns = store.columns(self._layout)
        found = columns.find(packed)
        held = _Held(found.values, self._width)
        sessions = sessions_of(codes, taken.times, self._gap, held.known)
        apart = self._by_row(codes, taken, held, sessions)
        whole = ~apart[codes]
        if not whole.any():
            return Columned(None, np.arange(len(codes)), packed.between(0, 0), taken.times[:0])
        groups = self._grouped(batch, taken.rows[whole], sessions, sessions.of_rows[whole], held)
        out = None if silent else self._changes(batch, taken, codes, keys, _Both(held, groups), run)
        columns.stage(*self._state(found, groups, held, sessions, began))
        new = np.flatnonzero(~groups.met)
        return Columned(out, np.flatnonzero(~whole), packed.take(groups.code[new]), groups.last_time[new])

    def _keys(self, batch: Batch, rows: Ints) -> tuple[Ints, list[pa.Array]]:
        """A code for the key of each row, and the columns of the keys by code."""
        arrow, names = batch.arrow(), batch.schema.names
        pick = None if len(rows) == len(batch) else pa.array(rows)
        columns = [arrow.column(names.index(f.name)) for f in self._fold.key.fields]
        columns = [c.cast(TEMPORAL.get(t.kind, c.type)) for c, t in zip(columns, self._fold.key.types, strict=True)]
        columns = columns if pick is None else [c.take(pick) for c in columns]
        codes, count = group_codes(columns, sort=False)
        codes = codes.astype(np.int64, copy=False)
        first = np.empty(count, np.int64)
        first[codes[::-1]] = np.arange(len(codes))[::-1]
        return codes, [c.take(pa.array(first)) for c in columns]

    def _by_row(self, codes: Ints, taken: Taken, held: _Held, sessions: Sessions) -> Flags:
        """By code."""
        apart = held.odd.copy()
        apart[codes[taken.times < taken.now - self._grace]] = True
        of_known = sessions.of_known
        behind = sessions.of_rows < of_known[codes]  # -1 for keys that the state does not have
        apart[codes[behind]] = True
        older = np.flatnonzero(held.has_older)
        apart[older[sessions.first[of_known[older]] - held.older_last[older] <= self._gap]] = True
        return apart

    def _grouped(self, batch: Batch, rows: Ints, sessions: Sessions, numbers: Ints, held: _Held) -> _Groups:
        partials = self._partials
        partial = partials.grouped(batch, rows, rows, numbers, by_keys=False)
        session = partial.array(0).to_numpy()
        code = sessions.code[session]
        met = sessions.of_known[code] == session
        before = concatenated([held.newest(partials.layout), partials.initial])
        before = before.take(np.where(met, code, len(before) - 1))
        after = partials.folded(partial, before)
        if after is None:
            raise RowsRefused
        return _Groups(session, code, met, sessions.first[session], sessions.last[session], after, partial.last)

    def _state(
        self, found: Found, groups: _Groups, held: _Held, sessions: Sessions, began: int
    ) -> tuple[Found, RowValues]:
        """The values of the keys of groups: the last group of each key is its newest session, the others become older ones."""
        layout, n = self._layout, len(groups.session)
        order = np.argsort(groups.session)
        code = groups.code[order]
        newest = np.append(code[1:] != code[:-1], True)
        kept = code[newest]
        count, last, older = held.older(kept, began - self._retention)
        none = [ValueColumn(np.zeros(n, np.int64))] * (OLDER - 1) + [ValueColumn(np.full(n, None))]
        bounds = [ValueColumn(groups.first), ValueColumn(groups.last_time)]
        made = RowValues(layout, groups.after.states, [*groups.after.columns[:-1], *bounds, *none], {}).take(order)
        place = np.full(len(held.has_older), -1, np.int64)
        place[kept] = np.arange(len(kept))
        left = np.ones(len(held.has_older), bool)
        left[groups.code[groups.met]] = False
        own = kept[left[kept] & held.known.there[kept] & (held.known.last[kept] >= began - self._retention)]
        others = np.flatnonzero(~newest)
        for keys, values, ends in (
            (own, held.values.take(own), held.known.last[own]),
            (code[others], made.take(others), groups.last_time[order][others]),
        ):
            if len(keys):
                at = place[keys]
                for i, data in zip(at.tolist(), layout.sessions(values.columns), strict=True):
                    older[i] = data if older[i] is None else older[i] + data
                np.add.at(count, at, 1)
                last[at] = ends  # rising for each key
        values = made.take(np.flatnonzero(newest))
        tail = [ValueColumn(count), ValueColumn(last), objects(older)]
        return found.take(kept), RowValues(layout, values.states, [*values.columns[:-OLDER], *tail], {})

    def _changes(
        self, batch: Batch, taken: Taken, codes: Ints, keys: Sequence[pa.Array], of: _Both, run: MicroBatchContext
    ) -> Batch | None:
        """One change of each session, as the row path coalesces them."""
        groups, known = of.groups, of.held.known
        old = np.flatnonzero(groups.met)
        code = groups.code[old]
        stays = (groups.first[old] == known.first[code]) & (groups.last_time[old] == known.last[code])
        op = np.full(len(groups.last), INSERT, np.int8)
        op[old[stays]] = UPDATE_AFTER
        shown = self._results(keys, groups.code, groups.first, groups.last_time)
        after = shown.batch(shown.of(groups.after, run, batch.seq[groups.last]), groups.after, op, groups.last)
        if not len(old):
            return after
        images = self._results(keys, code, known.first[code], known.last[code])
        newest = of.held.newest(self._partials.layout).take(code)
        before = images.of(newest, None, groups.last[old])
        same = unchanged(before, images.of(groups.after.take(old), None, groups.last[old]), len(old))
        given = np.ones(len(after), bool)
        given[old] = ~(stays & same)
        gone = np.where(stays, np.int8(UPDATE_BEFORE), np.int8(DELETE))
        place = np.where(stays, groups.last[old], self._first_changes(taken, codes, known)[code])
        removed = images.batch(before, newest, gone, place)
        kept = np.append(~stays | (~same & self._retract), given)
        order = np.lexsort((np.arange(len(kept)), np.append(place, groups.last)))
        return concat(self._plan.schema, [removed, after]).take(order[kept[order]])

    def _first_changes(self, taken: Taken, codes: Ints, known: Known) -> Ints:
        """By code, the place of the first row that gives the known session other bounds."""
        t, first, last = taken.times, known.first[codes], known.last[codes]
        reaches = ((t < first) & (t >= first - self._gap)) | ((t > last) & (t <= last + self._gap))
        rows = np.flatnonzero(reaches & known.there[codes])[::-1]
        found = np.full(len(known.there), _NOT_YET)
        found[codes[rows]] = taken.rows[rows]
        return found

    def _results(self, keys: Sequence[pa.Array], code: Ints, first: Ints, last: Ints) -> GroupResults:
        at = pa.array(code)
        return GroupResults(self._plan, self._fold, self._partials.parts, [k.take(at) for k in keys], (first, last))


@dataclass(frozen=True, slots=True)
class _Groups:
    """The sessions that rows of the batch are in. met: those that the state has the beginning of. after: accumulators and last time. last: places of their last rows."""

    session: Ints
    code: Ints
    met: Flags
    first: Ints
    last_time: Ints
    after: RowValues
    last: Ints


@dataclass(frozen=True, slots=True)
class _Both:
    """Sessions before and after the batch."""

    held: _Held
    groups: _Groups


class _Held:
    """The stored sessions of the keys of a batch, by code."""

    def __init__(self, values: RowValues, width: int) -> None:
        self.values, self._width = values, width
        columns = values.columns
        there = values.states == PRESENT
        self.odd: Flags = np.zeros(len(values), bool)
        self.odd[list(values.odd)] = True
        self.known = Known(there, columns[width].data, columns[width + 1].data)
        self._counts, self.older_last = columns[width + BOUNDS].data, columns[width + BOUNDS + 1].data
        self.has_older: Flags = there & (self._counts > 0)

    def newest(self, layout: ValueLayout) -> RowValues:
        """Accumulators and last times of the newest sessions."""
        columns = [*self.values.columns[: self._width], self.values.columns[self._width + 1]]
        return RowValues(layout, np.full(len(self.values), PRESENT, np.int8), columns, {})

    def older(self, codes: Ints, bound: int) -> tuple[Ints, Ints, list[bytes | None]]:
        """How many older sessions keys have, the last time of the newest of them, and their bytes; none where all ended before the bound."""
        live = self.has_older[codes] & (self.older_last[codes] >= bound)
        data = self.values.columns[self._width + BOUNDS + OLDER - 1].data[codes]
        count, last = np.where(live, self._counts[codes], 0), np.where(live, self.older_last[codes], 0)
        data[~live] = None  # taken at places, so a copy
        return count, last, data.tolist()


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

    Large batches are folded by columns, except for keys whose rows depend on their order (`flowql.runtime.operators.session`).
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
