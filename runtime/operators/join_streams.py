"""Join of two streams within a bound on their row times."""

from __future__ import annotations

from collections.abc import Sequence
from heapq import merge
from itertools import repeat
from typing import Any

from flowql.compiler.plan.logical import Join
from flowql.compiler.plan.topology import Operator
from flowql.runtime.batch import DELETE, INSERT, Batch, Row
from flowql.runtime.operators.base import NO_TIME, MicroBatchContext
from flowql.runtime.operators.join_bounds import LEFT, RIGHT, Clocks, JoinBounds
from flowql.runtime.operators.join_rows import NOT_ONE_KEY, JoinedRow
from flowql.runtime.operators.join_streams_columns import ColumnStreamJoin
from flowql.runtime.operators.keys import RowKey
from flowql.runtime.operators.rows import Emitter, interleave
from flowql.runtime.state.rows import Key, Value
from flowql.runtime.state.store import Store

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
