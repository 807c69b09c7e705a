"""Folds the rows of a whole batch into sessions, together with the newest stored session of each key.

The rows of a key are folded row by row (`Columned.left`) if their order may matter, or if they may meet an older session: a row is behind stream
time by more than the grace, so a session may have closed before it; a row is before the newest session and does not meet it; the newest session
grows until it meets an older one; or the stored value of the key does not fit columns.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from flowql.compiler.plan.schema import Schema
from flowql.compiler.plan.topology import Operator
from flowql.runtime.batch import DELETE, INSERT, TEMPORAL, UPDATE_AFTER, UPDATE_BEFORE, Batch, Ints, concat
from flowql.runtime.operators.accumulate import RowsRefused
from flowql.runtime.operators.base import MicroBatchContext
from flowql.runtime.operators.fold import Fold
from flowql.runtime.operators.group_results import GroupResults, unchanged
from flowql.runtime.operators.partials import Partials, call_text, without_columns
from flowql.runtime.operators.session_bounds import Known, Sessions, sessions_of
from flowql.runtime.operators.winners import group_codes
from flowql.runtime.state.columns.key_columns import packed_keys
from flowql.runtime.state.columns.layer import Found
from flowql.runtime.state.columns.packed import Flags, PackedKeys
from flowql.runtime.state.columns.sessions import BOUNDS, OLDER, SessionLayout
from flowql.runtime.state.columns.values import PRESENT, RowValues, ValueColumn, ValueLayout, concatenated, objects
from flowql.runtime.state.layout import store_key_codec
from flowql.runtime.state.store import Store

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
    """The columnar form of an aggregation of sessions. life: how long after its end a session takes rows, gap and grace."""

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
