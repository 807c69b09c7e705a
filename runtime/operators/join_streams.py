"""Join of two streams within a bound on their row times."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from heapq import merge
from itertools import chain, repeat
from operator import itemgetter
from typing import Any, TypeVar

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from flowql.compiler.plan.logical import Join
from flowql.compiler.plan.schema import Schema
from flowql.compiler.plan.topology import Operator
from flowql.runtime.batch import DELETE, INSERT, Batch, Ints, Row, from_columns, to_arrow, to_python
from flowql.runtime.operators.base import NO_TIME, MicroBatchContext
from flowql.runtime.operators.join_rows import DICTIONARY_KEYS, NOT_ONE_KEY, VECTOR_ROWS, JoinedRow
from flowql.runtime.operators.keys import RowKey, value_fields
from flowql.runtime.operators.rows import Emitter, interleave
from flowql.runtime.operators.windows import DAY_MS
from flowql.runtime.state.rows import Key, Value
from flowql.runtime.state.store import Store

LEFT, RIGHT = 0, 1
T = TypeVar("T", int, Ints)
BUCKETS = 2  # a join window covers about so many buckets: few look-ups per row, short lists per bucket


class JoinBounds:
    """A right row matches if left.time - before <= right.time <= left.time + after; all in ms.

    retention: a side remembers rows younger than its own highest time minus this. bucket: the length of a bucket of row times in state.
    """

    __slots__ = ("after", "before", "bucket", "grace", "retention")

    def __init__(self, spec: Join) -> None:
        self.before, self.after = spec.before_ms, spec.after_ms
        size = self.before + self.after
        self.grace = max(DAY_MS - size, 0) if spec.grace_ms is None else spec.grace_ms
        self.retention = size + self.grace
        self.bucket = max(1, size // BUCKETS)

    def span(self, side: int, time: T) -> tuple[T, T]:
        """Times of the other side that match a row of `side`, or each of its rows."""
        return (time - self.before, time + self.after) if side == LEFT else (time - self.after, time + self.before)

    def buckets(self, low: int, high: int) -> range:
        """The buckets that cover these times, by their first time."""
        return range(low - low % self.bucket, high + 1, self.bucket)


@dataclass(slots=True)
class Clocks:
    """Stream time of both sides, and the late rows of a run; see `MicroBatchContext.late`."""

    times: list[int]
    late: int = 0
    behind: int = 0


Bools = npt.NDArray[np.bool_]


class ColumnStreamJoin:
    """The inner join in columns: one look-up per distinct key and time bucket, pairs by search in sorted times.

    Means the same as `_JoinMicroBatch` with the same state.
    """

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
        return from_columns(self._schema, columns, np.maximum(taken[LEFT][1], taken[RIGHT][1]), seq=seq)

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


NEVER = 2**62


class StreamStreamJoinOperator:
    """Each row meets the other side's rows of its key within the window, those in state and those earlier in the run.

    A right row matches if left.time - before <= right.time <= left.time + after. Output time: the later of both.
    Unmatched rows of an outer side come padded with nulls: with a grace period when stream time has passed the row's
    window plus grace, in order of time (right before left, then key); without one at once, as in ksqlDB's legacy joins.
    Rows without a key or a value are dropped.

    How long rows are seen: a side remembers rows younger than its own highest time minus (before + after + grace); this,
    and not a test on the arriving row, is what Kafka Streams' window stores do, so a late row may still meet the other
    side when that side has not gone on. Counted as late are rows that their own side does not remember, and those that come when
    the other side has forgotten all times they could meet.

    Stores 0 and 1, by side: (key..., time bucket) -> ((row time, value columns...)...). Store 2, only for outer joins
    with grace: (side, row time, key...) -> ((value columns...)...), rows that nothing has matched yet.
    """

    def __init__(self, plan: Operator, inputs: Sequence[Operator]) -> None:
        assert isinstance(plan.spec, Join)
        self.plan = plan
        spec = plan.spec
        self.bounds = JoinBounds(spec)
        self._outer = (spec.kind in ("left", "full"), spec.kind in ("right", "full"))
        self._deferred = any(self._outer) and spec.grace_ms is not None
        assert len(plan.stores) == (3 if self._deferred else 2), "a store per side, and one for rows that wait"
        self._keys = tuple(RowKey(i.schema) for i in inputs)
        self._joined = JoinedRow(plan, inputs[0].schema, inputs[1].schema)
        self._clocks = (plan.id + "#left", plan.id + "#right")
        # By side the lower bound of its times in store 2: all rows before it were given out.
        self._due = (plan.id + "#left#due", plan.id + "#right#due")
        self._columns = ColumnStreamJoin.of(plan, inputs, self.bounds)
        self.by_row = "" if self._columns else "an outer join" if any(self._outer) else NOT_ONE_KEY

    def process(self, inputs: Sequence[Batch | None], run: MicroBatchContext) -> Batch | None:
        if all(b is None or not len(b) for b in inputs):
            return None
        began = [run.stream_times.get(c, NO_TIME) for c in self._clocks]
        clocks = Clocks(list(began))
        if self._columns is not None and self._columns.takes(inputs, run):
            out = self._columns.process(inputs, run, clocks)
        else:
            run.took_by_row(self.plan.id, sum(len(b) for b in inputs if b is not None))
            out = _JoinMicroBatch(self, inputs, run, clocks).process()
        self._advance(run, began, clocks)
        return out

    def _advance(self, run: MicroBatchContext, began: Sequence[int], clocks: Clocks) -> None:
        """Stream time goes on, and rows that no other may meet any more expire."""
        size = self.bounds.bucket
        for side in (LEFT, RIGHT):
            run.stream_times[self._clocks[side]] = clocks.times[side]
            bound, before = ((t - self.bounds.retention) // size * size for t in (clocks.times[side], began[side]))
            if bound > before:
                run.state.store(self.plan.stores[side].name).expire(bound)
        run.drop_late(self.plan.id, clocks.late, clocks.behind)
        now = max(clocks.times)
        if now != NO_TIME:
            run.stream_times[self.plan.id] = now


class _JoinMicroBatch:
    """One run of a stream-stream join, row by row. Moves `clocks` on."""

    def __init__(
        self, join: StreamStreamJoinOperator, inputs: Sequence[Batch | None], run: MicroBatchContext, clocks: Clocks
    ) -> None:
        self.join, self.inputs, self.run = join, inputs, run
        self.bounds, self.clocks = join.bounds, clocks
        self.out = Emitter(join.plan.schema)
        self.stores: list[Store] = [run.state.store(s.name) for s in join.plan.stores]
        self.times: list[list[int]] = [[] if b is None else b.rowtime.tolist() for b in inputs]
        self.seqs: list[list[int]] = [[] if b is None else b.seq.tolist() for b in inputs]
        self.records = [[] if b is None else b.rows() for b in inputs]
        self.keys: list[list[Key | None]] = [self._keys_of(side) for side in (LEFT, RIGHT)]
        self.rows = self._load()
        self.written: list[dict[Key, list[Any]]] = [{}, {}]
        self.due = [run.stream_times.get(name, NEVER) for name in join._due]

    def process(self) -> Batch | None:
        for side, i in interleave(self.inputs):
            self._row(side, i)
        for side in (LEFT, RIGHT):
            values: list[Value | None] = [tuple(bucket) for bucket in self.written[side].values()]
            self.stores[side].put_many(list(self.written[side]), values)
        if self.join._deferred:
            self.run.stream_times.update(zip(self.join._due, self.due, strict=True))
        return self.out.batch()

    def _keys_of(self, side: int) -> list[Key | None]:
        """The key of each row; None for a row that takes no part."""
        batch, split = self.inputs[side], self.join._keys[side]
        if batch is None:
            return []
        keys = [split.of(r) for r in batch.rows()]
        return [
            None if op == DELETE or split.missing(key) else key for key, op in zip(keys, batch.op.tolist(), strict=True)
        ]

    def _load(self) -> list[dict[Key, Any]]:
        """The buckets in state that this run can read or write, by side: tuples until one is written to."""
        bounds = self.bounds
        wanted: list[dict[Key, None]] = [{}, {}]
        for side in (LEFT, RIGHT):
            times = self.times[side]
            for i, key in enumerate(self.keys[side]):
                if key is None:
                    continue
                wanted[side][(*key, times[i] - times[i] % bounds.bucket)] = None
                for b in bounds.buckets(*bounds.span(side, times[i])):
                    wanted[1 - side][(*key, b)] = None
        loaded = []
        for side in (LEFT, RIGHT):
            keys = list(wanted[side])
            values = self.stores[side].get_many(keys)
            loaded.append({k: v for k, v in zip(keys, values, strict=True) if v is not None})
        return loaded

    def _row(self, side: int, i: int) -> None:
        key = self.keys[side][i]
        if key is None:
            return
        join, batch = self.join, self.inputs[side]
        assert batch is not None
        time, seq = self.times[side][i], self.seqs[side][i]
        clocks = self.clocks.times
        clocks[side] = max(clocks[side], time)
        now = max(clocks)
        if time == now:
            self._give_unmatched(now, seq)
        row = self.records[side][i]
        head = batch.headers[i] if batch.headers is not None else None
        low, high = self.bounds.span(side, time)
        self._count_late(side, time, high)
        matched = self._probe(1 - side, key, low, high)
        for other_time, other in matched:
            if join._deferred and join._outer[1 - side]:
                self._matched((side, other_time, *key))  # the other row's entry: its side's code is `side`
            pair = (row, other) if side == LEFT else (other, row)
            self.out.add(join._joined(key, *pair), max(time, other_time), INSERT, seq, head)
        value = join._keys[side].value(row)
        if not matched and join._outer[side]:
            if not join._deferred or high + self.bounds.grace < now:
                self._pad(side, key, row, time, seq, head)
            else:
                self._wait(side, key, value, time)
        if time > clocks[side] - self.bounds.retention:
            self._remember(side, (*key, time - time % self.bounds.bucket), (time, *value))

    def _count_late(self, side: int, time: int, high: int) -> None:
        times, kept = self.clocks.times, self.bounds.retention
        if time <= times[side] - kept or high <= times[1 - side] - kept:
            self.clocks.late += 1
            self.clocks.behind = max(self.clocks.behind, max(times) - time)

    def _remember(self, side: int, slot: Key, entry: Row) -> None:
        bucket = self.written[side].get(slot)
        if bucket is None:
            bucket = list(self.rows[side].get(slot, ()))
            self.rows[side][slot] = self.written[side][slot] = bucket
        bucket.append(entry)

    def _probe(self, side: int, key: Key, low: int, high: int) -> list[tuple[int, Row]]:
        """Rows of `side` with times in [low, high] that it still remembers, by time, then arrival."""
        low = max(low, self.clocks.times[side] - self.bounds.retention + 1)
        split, buckets = self.join._keys[side], self.rows[side]
        found = [e for b in self.bounds.buckets(low, high) for e in buckets.get((*key, b), ()) if low <= e[0] <= high]
        if len(found) > 1:
            found.sort(key=lambda e: e[0])
        return [(e[0], split.row(key, e[1:])) for e in found]

    def _pad(self, side: int, key: Key, row: Row, time: int, seq: int, headers: Any = None) -> None:
        pair = (row, None) if side == LEFT else (None, row)
        self.out.add(self.join._joined(key, *pair), time, INSERT, seq, headers)

    def _wait(self, side: int, key: Key, value: Row, time: int) -> None:
        slot = (1 - side, time, *key)  # right sorts before left
        store = self.stores[2]
        store.put(slot, (*(store.get(slot) or ()), value))
        self.due[side] = min(self.due[side], time)
        self.run.hold(self.join.plan.id, 1)

    def _matched(self, slot: Key) -> None:
        """The row of this slot waits no more, if it did."""
        values = self.stores[2].get(slot)
        if values is not None:
            self.stores[2].put(slot, None)
            self.run.hold(self.join.plan.id, -len(values))

    def _give_unmatched(self, now: int, seq: int) -> None:
        """Pad the rows whose window and grace stream time has passed."""
        join = self.join
        if not join._deferred:
            return
        for slot, values in merge(*map(self._due_rows, (RIGHT, LEFT), repeat(now)), key=_by_time):
            side, time, key = 1 - int(slot[0]), int(slot[1]), slot[2:]  # type: ignore[call-overload]
            for value in values:
                self._pad(side, key, join._keys[side].row(key, value), time, seq)
            self.stores[2].put(slot, None)
            self.run.hold(join.plan.id, -len(values))

    def _due_rows(self, side: int, now: int) -> list[tuple[Key, Value]]:
        """Rows of a side that no other row can match any more. They leave store 2: what was given out before is not visited again."""
        begin, ahead = self.due[side], self.bounds.after if side == LEFT else self.bounds.before
        bound = now - self.bounds.grace - ahead
        if begin >= bound:
            return []
        self.due[side] = bound
        return list(self.stores[2].scan(low=(1 - side, begin), high=(1 - side, bound)))


def _by_time(row: tuple[Key, Value]) -> tuple[Any, Any]:
    return row[0][1], row[0][0]
