"""The inner join of two streams in columns: one look-up per distinct key and time bucket, pairs by search in sorted times."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import chain
from operator import itemgetter
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from flowql.compiler.plan.logical import Join
from flowql.compiler.plan.schema import Schema
from flowql.compiler.plan.topology import Operator
from flowql.runtime.batch import DELETE, Batch, Ints, to_arrow, to_python
from flowql.runtime.operators.base import MicroBatchContext
from flowql.runtime.operators.join_bounds import LEFT, RIGHT, Clocks, JoinBounds
from flowql.runtime.operators.join_rows import DICTIONARY_KEYS, VECTOR_ROWS
from flowql.runtime.operators.keys import value_fields
from flowql.runtime.operators.rows import record_of
from flowql.runtime.state.rows import Key, Value
from flowql.runtime.state.store import Store

Bools = npt.NDArray[np.bool_]


class ColumnStreamJoin:
    """Means the same as `flowql.runtime.operators.join_streams._JoinMicroBatch` with the same state."""

    def __init__(self, plan: Operator, inputs: tuple[Schema, Schema], bounds: JoinBounds) -> None:
        self._schema, self._inputs, self._bounds = plan.schema, inputs, bounds
        self._stores = [s.name for s in plan.stores]
        self._keys = [s.names.index(s.key[0].name) for s in inputs]
        left, right = inputs
        # Where each output column comes from: the side, and the column there.
        self._from: list[tuple[int, int]] = []
        for f in plan.schema:
            if f.role == "key":
                self._from.append((LEFT, self._keys[LEFT]))
            elif f.name in left.names:
                self._from.append((LEFT, left.names.index(f.name)))
            else:
                self._from.append((RIGHT, right.names.index(f.name)))

    @staticmethod
    def of(plan: Operator, inputs: Sequence[Operator], bounds: JoinBounds) -> ColumnStreamJoin | None:
        """None for outer joins, and where keys cannot be dictionary-encoded: several columns, windowed or nested keys."""
        assert isinstance(plan.spec, Join)
        left, right = (i.schema for i in inputs)
        if plan.spec.kind != "inner" or any(len(s.key) != 1 or s.window is not None for s in (left, right)):
            return None
        t = left.key[0].type
        if (
            t.kind not in DICTIONARY_KEYS
            or any(f.type != t for f in (*right.key, *plan.schema.key))
            or len(plan.schema.key) > 1
        ):
            return None
        return ColumnStreamJoin(plan, (left, right), bounds)

    @staticmethod
    def takes(inputs: Sequence[Batch | None], run: MicroBatchContext) -> bool:
        given = [b for b in inputs if b is not None and len(b)]
        if any(b.headers is not None for b in given):
            return False
        if run.vector is not None:
            return run.vector
        return all(b.is_columns for b in given) and sum(map(len, given)) >= VECTOR_ROWS

    def process(self, inputs: Sequence[Batch | None], run: MicroBatchContext, clocks: Clocks) -> Batch | None:
        """Moves `clocks` on to the last row of the run."""
        keys, sides = self._split(inputs)
        if not any(len(s) for s in sides):
            return None
        _place(sides)
        for side, rows in enumerate(sides):
            rows.own = np.maximum(np.maximum.accumulate(rows.time), clocks.times[side])
        for side, rows in enumerate(sides):
            rows.other = sides[1 - side].clock_before(rows.place, clocks.times[1 - side])
            self._count_late(side, rows, clocks)
        buckets = _Buckets(keys, sides, self._bounds, clocks.times)
        stores = [run.state.store(name) for name in self._stores[:2]]
        for side, rows in enumerate(sides):
            rows.look_up(stores[side], buckets.wanted(side))
        out = self._output(keys, sides, [self._pairs(side, sides) for side in (LEFT, RIGHT)])
        for side, rows in enumerate(sides):
            self._remember(side, rows, stores[side], buckets)
            clocks.times[side] = int(rows.own[-1]) if len(rows) else clocks.times[side]
        return out

    def _split(self, inputs: Sequence[Batch | None]) -> tuple[list[Any], list[_Rows]]:
        """Distinct keys, and the rows of both sides that have one."""
        batches, columns = [], []
        for side, (batch, at, schema) in enumerate(zip(inputs, self._keys, self._inputs, strict=True)):
            if batch is not None:
                valid = batch.arrow().column(at).is_valid().to_numpy(zero_copy_only=False)
                keep = np.flatnonzero((batch.op != DELETE) & valid)
                batch = batch if len(keep) == len(batch) else batch.take(keep)
            batches.append(batch)
            columns.append(
                to_arrow([], schema.key[0].type) if batch is None else batch.arrow().column(self._keys[side])
            )
        encoded = pa.concat_arrays(columns).dictionary_encode()
        codes = encoded.indices.to_numpy(zero_copy_only=False).astype(np.int64)
        n = len(columns[LEFT])
        return to_python(encoded.dictionary, self._inputs[LEFT].key[0].type), [
            _Rows(batches[LEFT], codes[:n]),
            _Rows(batches[RIGHT], codes[n:]),
        ]

    def _count_late(self, side: int, rows: _Rows, clocks: Clocks) -> None:
        kept = self._bounds.retention
        _, high = self._bounds.span(side, rows.time)
        late = (rows.time <= rows.own - kept) | (high <= rows.other - kept)
        if late.any():
            clocks.late += int(np.count_nonzero(late))
            behind = np.maximum(rows.own, rows.other) - rows.time
            clocks.behind = max(clocks.behind, int(behind[late].max()))
        rows.kept = rows.time > rows.own - kept

    def _pairs(self, side: int, sides: Sequence[_Rows]) -> tuple[Ints, Ints]:
        """Rows of `side` of this run, and the earlier rows of the other side that each meets, by time, then arrival.

        The latter as indices of the other side: its rows of the run, then those in state.
        """
        rows, other = sides[side], sides[1 - side]
        codes, times, place, index = other.seen()
        low, high = self._bounds.span(side, rows.time)
        low = np.maximum(low, rows.other - self._bounds.retention + 1)
        distinct, rank = np.unique(times, return_inverse=True)
        width = len(distinct) + 1
        slot = codes * width + rank
        order = np.argsort(slot, kind="stable")
        slot = slot[order]
        begin = np.searchsorted(slot, rows.code * width + np.searchsorted(distinct, low, side="left"))
        end = np.searchsorted(slot, rows.code * width + np.searchsorted(distinct, high, side="right"))
        count = np.maximum(end - begin, 0)
        probing = np.repeat(np.arange(len(rows)), count)
        within = np.arange(len(probing)) - np.repeat(np.cumsum(count) - count, count)
        met = order[begin[probing] + within]
        earlier = place[met] < rows.place[probing]
        return probing[earlier], index[met[earlier]]

    def _output(self, keys: Sequence[Any], sides: Sequence[_Rows], pairs: Sequence[tuple[Ints, Ints]]) -> Batch | None:
        (left_new, right_old), (right_new, left_old) = pairs
        place = np.concatenate([sides[LEFT].place[left_new], sides[RIGHT].place[right_new]])
        if not len(place):
            return None
        order = np.argsort(place, kind="stable")
        index = [np.concatenate([left_new, left_old])[order], np.concatenate([right_old, right_new])[order]]
        seq = np.concatenate([sides[LEFT].seq[left_new], sides[RIGHT].seq[right_new]])[order]
        taken = [self._taken(side, keys, sides[side], index[side]) for side in (LEFT, RIGHT)]
        columns = [taken[side][0][column] for side, column in self._from]
        return Batch(
            self._schema,
            arrow=record_of(columns, self._schema),
            rowtime=np.maximum(taken[LEFT][1], taken[RIGHT][1]),
            op=np.zeros(len(order), np.int8),
            seq=seq,
        )

    def _taken(self, side: int, keys: Sequence[Any], rows: _Rows, index: Ints) -> tuple[dict[int, pa.Array], Ints]:
        """The columns that the output has of a side, and row times, at these indices."""
        used, place = np.unique(index[index >= len(rows)] - len(rows), return_inverse=True)
        index = index.copy()
        index[index >= len(rows)] = len(rows) + place
        old = [rows.entries[i] for i in used.tolist()]
        schema, values = self._inputs[side], [f.name for f in value_fields(self._inputs[side])]
        at, columns = pa.array(index), {}
        for i in {column for of, column in self._from if of == side}:
            f = schema.fields[i]
            if i == self._keys[side]:
                of_state = [keys[c] for c in rows.entry_code[used].tolist()]
            else:
                of_state = list(map(itemgetter(1 + values.index(f.name)), old))
            parts = [] if rows.batch is None else [rows.batch.arrow().column(i)]
            columns[i] = pa.concat_arrays([*parts, to_arrow(of_state, f.type)]).take(at)
        return columns, np.concatenate([rows.time, rows.entry_time[used]])[index]

    def _remember(self, side: int, rows: _Rows, store: Store, buckets: _Buckets) -> None:
        kept = np.flatnonzero(rows.kept)
        if rows.batch is None or not len(kept):
            return
        slot = buckets.own(rows)[kept]
        order = np.argsort(slot, kind="stable")
        batch = rows.batch.take(kept[order])
        arrow, schema = batch.arrow(), self._inputs[side]
        columns = [to_python(arrow.column(schema.names.index(f.name)), f.type) for f in value_fields(schema)]
        entries = list(zip(batch.rowtime.tolist(), *columns, strict=True))
        slots, begin = np.unique(slot[order], return_index=True)
        ends = [*begin[1:].tolist(), len(entries)]
        written = buckets.keys(slots)
        values: list[Value | None] = [
            (*(rows.found.get(key) or ()), *entries[a:b])
            for key, a, b in zip(written, begin.tolist(), ends, strict=True)
        ]
        store.put_many(written, values)


@dataclass(slots=True)
class _Rows:
    """Rows of one side: n of this run, and m in state that they may meet.

    code: the distinct key of each. place: its number among the rows of both sides. own, other: stream time of its own side (the row
    included) and of the other one, as of the row. kept: whether its side remembers it.
    found: buckets in state. entries: their rows, as stored, with their times and keys.
    """

    batch: Batch | None
    code: Ints
    place: Ints = field(init=False)
    own: Ints = field(init=False)
    other: Ints = field(init=False)
    kept: Bools = field(init=False)
    found: dict[Key, Value] = field(default_factory=dict)
    entries: list[Any] = field(default_factory=list)
    entry_time: Ints = field(init=False)
    entry_code: Ints = field(init=False)

    def __len__(self) -> int:
        return len(self.code)

    @property
    def time(self) -> Ints:
        return np.empty(0, np.int64) if self.batch is None else self.batch.rowtime

    @property
    def seq(self) -> Ints:
        return np.empty(0, np.int64) if self.batch is None else self.batch.seq

    def clock_before(self, place: Ints, start: int) -> Ints:
        """Stream time of this side as of rows of the other one at these places."""
        return np.concatenate([[start], self.own])[np.searchsorted(self.place, place)]

    def look_up(self, store: Store, wanted: tuple[list[Key], Ints]) -> None:
        """wanted: keys of the store, and which distinct key each is of."""
        keys, codes = wanted
        values = store.get_many(keys)
        self.found = {k: v for k, v in zip(keys, values, strict=True) if v is not None}
        lengths = [0 if v is None else len(v) for v in values]
        self.entries = list(chain.from_iterable(v for v in values if v is not None))
        self.entry_time = np.fromiter(map(itemgetter(0), self.entries), np.int64, len(self.entries))
        self.entry_code = np.repeat(codes, lengths)

    def seen(self) -> tuple[Ints, Ints, Ints, Ints]:
        """Key, time and place of all rows that others can meet, those in state first, in the order of arrival; and their index."""
        kept = np.flatnonzero(self.kept)
        old = np.arange(len(self.entries))
        return (
            np.concatenate([self.entry_code, self.code[kept]]),
            np.concatenate([self.entry_time, self.time[kept]]),
            np.concatenate([np.full(len(old), -1), self.place[kept]]),
            np.concatenate([old + len(self), kept]),
        )


class _Buckets:
    """The time buckets of each key that a run reads or writes. A slot is a number for a distinct key and a bucket.

    clocks: the highest times of rows in state, by side; no bucket begins after them.
    """

    def __init__(self, keys: Sequence[Any], sides: Sequence[_Rows], bounds: JoinBounds, clocks: Sequence[int]) -> None:
        self._keys, self._bucket = keys, bounds.bucket
        own = [rows.time // bounds.bucket for rows in sides]
        reads: list[list[tuple[Ints, Ints]]] = [[], []]  # by the side that is read: keys and buckets
        for side, rows in enumerate(sides):
            low, high = (t // bounds.bucket for t in bounds.span(side, rows.time))
            high = np.minimum(high, clocks[1 - side] // bounds.bucket)
            for step in range(int((high - low).max()) + 1 if len(rows) else 0):
                inside = low + step <= high
                reads[1 - side].append((rows.code[inside], low[inside] + step))
            reads[side].append((rows.code, own[side]))
        self._numbers = np.unique(np.concatenate([b for of in reads for _, b in of]))
        self._slots = [
            np.unique(np.concatenate([self._slot(code, bucket) for code, bucket in of]))
            if of
            else np.empty(0, np.int64)
            for of in reads
        ]

    def _slot(self, code: Ints, bucket: Ints) -> Ints:
        return code * len(self._numbers) + np.searchsorted(self._numbers, bucket)

    def own(self, rows: _Rows) -> Ints:
        return self._slot(rows.code, rows.time // self._bucket)

    def keys(self, slots: Ints) -> list[Key]:
        """Keys of the store."""
        codes, numbers = np.divmod(slots, len(self._numbers))
        times = (self._numbers[numbers] * self._bucket).tolist()
        return [(self._keys[c], t) for c, t in zip(codes.tolist(), times, strict=True)]

    def wanted(self, side: int) -> tuple[list[Key], Ints]:
        return self.keys(self._slots[side]), self._slots[side] // len(self._numbers)


def _place(sides: Sequence[_Rows]) -> None:
    """Numbers the rows of both sides in the order of the run; at equal `seq` the left one goes first."""
    seq = np.concatenate([rows.seq for rows in sides])
    side = np.repeat([LEFT, RIGHT], [len(rows) for rows in sides])
    place = np.empty(len(seq), np.int64)
    place[np.lexsort((side, seq))] = np.arange(len(seq))
    sides[LEFT].place, sides[RIGHT].place = place[: len(sides[LEFT])], place[len(sides[LEFT]) :]
