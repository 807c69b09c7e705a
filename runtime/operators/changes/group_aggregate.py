"""Grouped aggregation over changes, with or without keys."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from contextlib import suppress
from operator import itemgetter
from typing import Any

import numpy as np
import pyarrow as pa

from flowql.compiler.functions.aggregate_forms import Linear, Ordered
from flowql.compiler.functions.bounds import PART_BYTES
from flowql.compiler.functions.registry import FAILURES
from flowql.compiler.functions.user import plain_name
from flowql.compiler.plan.changes import GroupAggregate
from flowql.compiler.plan.schema import Field, Schema
from flowql.compiler.plan.topology import Operator
from flowql.compiler.plan.types import BIGINT, arrow_type
from flowql.runtime.batch import INSERT, Batch, Ints, Row, from_rows
from flowql.runtime.functions.failures import described
from flowql.runtime.operators.base import MicroBatchContext
from flowql.runtime.operators.changes.buckets import Bucket, Buckets
from flowql.runtime.operators.changes.closing import ClosingKeys, drop_buckets
from flowql.runtime.operators.changes.deltas import Deltas, by_columns, same_by
from flowql.runtime.operators.changes.group_columns import Declined, GroupColumns, without_columns
from flowql.runtime.operators.changes.group_deltas import BoundCall, GroupDelta, GroupDeltas
from flowql.runtime.operators.changes.order import SortPart, order_text
from flowql.runtime.operators.fold import AGGREGATE_FAILED, check_group, check_kept, kept_bytes
from flowql.runtime.operators.keys import RowKey, frozen_picker, picker, thaw
from flowql.runtime.operators.rows import Emitter
from flowql.runtime.operators.session import sessions_of
from flowql.runtime.operators.winners import group_codes
from flowql.runtime.state.rows import Key, Value

_ROWS, _TIME, _ACCS = 0, 1, 2  # places in the value of a group
_FAILED = 3  # parts of the accumulator of a call that shows all values, where its result failed


class GroupAggregateOperator:
    """One result row per group that has rows; without keys one, always.

    State: groups, key -> (rows, row time, an accumulator per call); for calls that need the values (MIN, MAX, DISTINCT, ordered
    ones) buckets under (key, call) of entry -> (value, count) or (count,). Of such a call the accumulator is the value that the
    result shows, with its entry; of one that shows all values the result alone, or why it failed.

    Touches per run: one group per distinct key, one bucket head per (key, call), two entries per distinct value; and one entry
    more where the first value is removed. A call that shows all values (STRING_AGG, ARRAY_AGG) reads as many as it shows. Where rows
    only come, MIN, MAX and their like keep the value that the result shows and no bucket.

    Groups whose keys follow a watermark wait to be closed, in a bucket of (when, key) -> key: one entry per new group. One that is
    closed is forgotten with all its values. If the plan says `final`, its result is given out then, and never before.
    """

    def __init__(self, plan: Operator, inputs: Sequence[Operator]) -> None:
        spec = plan.spec
        assert isinstance(spec, GroupAggregate)
        self.plan = plan
        self._appends = spec.appends
        self._deltas = GroupDeltas(spec.keys, spec.calls, inputs[0].schema, appends=self._appends)
        self._calls = self._deltas.calls
        self._keeping = [c for c in self._calls if c.keeps_values]
        self._names = [plain_name(c.call.function) for c in self._calls]
        self._always = not spec.keys
        self._final = spec.final
        self._closing = ClosingKeys(inputs[0].schema, spec.keys, spec.closing, plan.stores) if spec.closing else None
        self.follows_watermark = self._closing is not None
        names = inputs[0].schema.names
        at = [names.index(k) for k in spec.keys]
        counts = self._closing is None and spec.sessions is None
        self._columns = GroupColumns.of(plan, self._deltas, at) if counts else None
        self.by_row = without_columns(self._deltas) if counts else "a watermark closes its groups"
        made = [*(f.name for f in plan.schema.key), *(c.name for c in spec.calls)]
        assert len(plan.schema.key) == len(spec.keys), "the output is keyed by the group"
        self._arrange = None if tuple(made) == plan.schema.names else picker([made.index(n) for n in plan.schema.names])
        self._same = same_by(f.type for f in plan.schema)
        self._nothing: Value = (0, 0, *(c.kind.zero if isinstance(c.kind, Linear) else None for c in self._calls))

    @property
    def starts(self) -> bool:
        """Whether `start` gives something."""
        return self._always

    def start(self, run: MicroBatchContext) -> Batch | None:
        """The result of no rows, once in the life of the only task that has the group."""
        if not self._always or run.state.store(self.plan.stores[0].name).get(()) is not None:
            return None
        run.state.store(self.plan.stores[0].name).put((), self._nothing)
        out = Emitter(self.plan.schema)
        out.change(None, self._row((), self._nothing), 0, 0, retract=True)
        return out.batch()

    def process(self, inputs: Sequence[Batch | None], run: MicroBatchContext) -> Batch | None:
        batch = inputs[0]
        if self._appends and batch is not None:
            assert (batch.op == INSERT).all(), f"{self.plan.id}: a row leaves where rows only come"
        out = None if batch is None or not len(batch) else self._changed(batch, run)
        if self._closing is not None:
            taken = self._closing.taken(run)
            out = self._results_of(taken, run) if self._final else out
            self._forget(taken, run)
        return out

    def _changed(self, batch: Batch, run: MicroBatchContext) -> Batch | None:
        if self._columns is not None and by_columns(batch, run):
            with suppress(Declined):
                return self._columns.apply(batch, run.state.store(self.plan.stores[0].name), run)
        run.took_by_row(self.plan.id, len(batch))
        return self._apply(self._changes(batch, run), run)

    def _changes(self, batch: Batch, run: MicroBatchContext) -> dict[Key, GroupDelta]:
        deltas = self._deltas.of_columns(batch) if by_columns(batch, run) else None
        return self._deltas.of_rows(batch) if deltas is None else deltas

    def _apply(self, deltas: dict[Key, GroupDelta], run: MicroBatchContext) -> Batch | None:
        store = run.state.store(self.plan.stores[0].name)
        keys = list(deltas)
        groups = store.get_many(keys)
        buckets = self._buckets(deltas, run)
        written: list[Value | None] = []
        changes: list[tuple[int, Row | None, Row | None, int]] = []  # seq, before, after, time
        for key, before in zip(keys, groups, strict=True):
            delta = deltas[key]
            after = self._after(key, self._nothing if before is None else before, delta, buckets)
            written.append(after if after[_ROWS] or self._always else None)
            if self._final:
                continue
            old = None if before is None else self._row(key, before)
            new = None if written[-1] is None else self._row(key, after, run, delta.seq)
            if not self._same(old, new):
                changes.append((delta.seq, old, new, after[_TIME]))
        store.put_many(keys, written)
        if buckets is not None:
            buckets.flush()
        if self._closing is not None:
            noted = self._closing.note([k for k, before in zip(keys, groups, strict=True) if before is None], run)
            run.hold(self.plan.id, noted if self._final else 0)
        out = Emitter(self.plan.schema)
        for seq, old, new, time in sorted(changes, key=lambda c: c[0]):
            out.change(old, new, time, seq, retract=True)
        return out.batch()

    def _results_of(self, keys: Sequence[Key], run: MicroBatchContext) -> Batch | None:
        """The results of groups that are closed."""
        run.hold(self.plan.id, -len(keys))
        out = Emitter(self.plan.schema)
        for key, group in zip(keys, run.state.store(self.plan.stores[0].name).get_many(keys), strict=True):
            assert group is not None, f"group {key} of {self.plan.id} is closed and has no rows"
            out.change(None, self._row(key, group, run, run.last_seq), group[_TIME], run.last_seq, retract=True)
        return out.batch()

    def _forget(self, keys: Sequence[Key], run: MicroBatchContext) -> None:
        """Drop the state of these groups."""
        run.state.store(self.plan.stores[0].name).put_many(keys, [None] * len(keys))
        if self._keeping:
            _, heads, rows = (run.state.store(s.name) for s in self.plan.stores[:3])
            drop_buckets(
                [(*k, 2 * c.place + back) for k in keys for c in self._keeping for back in range(2)], heads, rows
            )

    def _buckets(self, deltas: dict[Key, GroupDelta], run: MicroBatchContext) -> Buckets | None:
        """All buckets and entries that the run touches, read at once."""
        if not self._keeping:
            return None
        _, heads, rows = (run.state.store(s.name) for s in self.plan.stores[:3])
        buckets = Buckets(heads, rows)
        wanted = {
            (*key, 2 * c.place): list(d.values[c.place])
            for key, d in deltas.items()
            for c in self._keeping
            if d.values[c.place]
        }
        backwards = [
            (*key, 2 * c.place + 1) for key, d in deltas.items() for c in self._keeping if c.back and d.values[c.place]
        ]
        buckets.load([*wanted, *backwards])
        buckets.expect(wanted)
        return buckets

    def _after(self, key: Key, group: Value, delta: GroupDelta, buckets: Buckets | None) -> Value:
        """A group with its changes."""
        rows = group[_ROWS] + delta.rows
        assert rows >= 0, f"group {key} of {self.plan.id} would have {rows} rows: a row was removed that never came"
        accs = list(group[_ACCS:])
        for c in self._calls:
            if isinstance(c.kind, Linear) and not c.keeps_values:
                if (part := delta.parts[c.place]) is not None:
                    accs[c.place] = c.kind.add(accs[c.place], part)
            elif c.best:
                accs[c.place] = _best(accs[c.place], delta.values[c.place])
            elif values := delta.values[c.place]:
                assert buckets is not None
                bucket = buckets[(*key, 2 * c.place)]
                if isinstance(c.kind, Linear):
                    accs[c.place] = _distinct(c.kind, accs[c.place], values, bucket)
                elif c.back is not None:
                    back = buckets[(*key, 2 * c.place + 1)]
                    accs[c.place] = _place(c, accs[c.place], values, bucket, back)
                else:
                    accs[c.place] = _ordered(c, c.kind, accs[c.place], values, bucket, self.plan.id)
        check_group(self.plan.id, key, self._names, accs)
        return (rows, max(group[_TIME], delta.time), *accs)

    def _row(self, key: Key, group: Value, run: MicroBatchContext | None = None, seq: int = 0) -> Row | None:
        """A result row; None, with a dead letter of `run`, where a result fails or its type cannot hold it."""
        results = []
        failed = False
        for c, acc in zip(self._calls, group[_ACCS:], strict=True):
            try:
                results.append(_result(c, acc))
                if not (isinstance(c.kind, Ordered) and acc is not None and len(acc) == _FAILED):
                    continue
                message = f"the result of {plain_name(c.call.function)} failed: {acc[2]}"
            except ArithmeticError as error:
                message = f"{c.call.name}: {error}"
            failed = True
            if run is not None:
                run.fail_row(seq, AGGREGATE_FAILED, message)
        if failed:
            return None
        if not self._deltas.plain_keys:
            key = tuple(thaw(v, t) for v, t in zip(key, self._deltas.key_types, strict=True))
        row = (*key, *results)
        return row if self._arrange is None else self._arrange(row)


def _result(c: BoundCall, acc: Any) -> Any:
    if isinstance(c.kind, Linear):
        return c.kind.result(acc)
    return None if acc is None else acc[0]


def _of_all(result: Callable[[Sequence[tuple[Any, int]]], Any], shown: Sequence[tuple[Any, int]]) -> tuple[Any, ...]:
    """(value); (None, "", message) where the result fails."""
    try:
        return (result(shown),)
    except FAILURES:
        raise
    except Exception as error:
        return None, "", described(error)


def _counted(bucket: Bucket, entry: str, net: int, value: Row) -> tuple[int, int]:
    """Count a value so many times more: (before, after)."""
    known = bucket.get(entry)
    before = 0 if known is None else known[-1]
    after = before + net
    assert after >= 0, f"a value of {bucket.prefix} would be there {after} times: it was removed and never came"
    bucket.put(entry, (*value, after) if after else None)
    return before, after


def _distinct(kind: Linear, acc: Any, values: dict[str, list[Any]], bucket: Bucket) -> Any:
    """A linear aggregate of distinct values: one counts when it is there first, and no more when it is gone."""
    for entry, (args, net) in values.items():
        before, after = _counted(bucket, entry, net, ())
        if bool(before) != bool(after):
            acc = kind.add(acc, kind.part(args, 1 if after else -1))
    return acc


def _best(acc: Any, values: dict[str, list[Any]]) -> Any:
    """(value, entry) of the first entry, where none is ever removed."""
    for entry, (args, _) in values.items():
        if acc is None or entry < acc[1]:
            acc = (args[0], entry)
    return acc


def _ordered(c: BoundCall, kind: Ordered, acc: Any, values: dict[str, list[Any]], bucket: Bucket, operator: str) -> Any:
    """The result after these changes: (value, entry); None without values."""
    if kind.reading == "all":
        for entry, (args, net) in values.items():
            _counted(bucket, entry, net, args)
        assert kind.result is not None
        one = len(c.args) == 1
        shown = (
            [(p[0] if one else p[:-1], 1 if c.call.distinct else p[-1]) for _, p in bucket.entries()]
            if bucket.size
            else []
        )
        check_kept(
            operator, bucket.prefix[:-1], c.call.function, sum((PART_BYTES + kept_bytes(v)) * n for v, n in shown)
        )
        return _of_all(kind.result, shown) if shown else None
    best, gone = acc, False
    for entry, (args, net) in values.items():
        _, after = _counted(bucket, entry, net, args)
        if not after:
            gone = gone or (acc is not None and acc[1] == entry)
        elif best is None or entry < best[1]:
            best = (args[0], entry)
    if not gone:
        return best
    first = bucket.first()
    return None if first is None else (first[1][0], first[0])


def _place(c: BoundCall, acc: Any, values: dict[str, list[Any]], bucket: Bucket, back: Bucket) -> Any:
    """A percentile: (result, entry, its text in the opposite order, values below it, all values).

    The place moves by as many entries as have changed, forwards in one order or forwards in the other.
    """
    assert isinstance(c.kind, Ordered)
    assert c.back is not None
    cursor = _Cursor(c, bucket, back, *((None, None, 0) if acc is None else acc[1:4]))
    total = 0 if acc is None else acc[4]
    for text, (args, net) in values.items():
        before, after = _counted(bucket, text, net, args)
        _counted(back, c.back(args), net, (*args, text))
        step = (bool(after) - bool(before)) if c.call.distinct else net
        total += step
        if cursor.entry is not None and text < cursor.entry:
            cursor.below += step
    if not total:
        return None
    exact = c.kind.fraction * (total - 1)
    index = math.floor(exact) if c.kind.continuous else max(0, math.ceil(c.kind.fraction * total) - 1)
    value = cursor.seek(index)
    at = cursor.entry, cursor.back_entry, cursor.below
    if c.kind.continuous:
        value = float(value)
        if exact > index:
            value += (float(cursor.seek(index + 1)) - value) * (exact - index)
    return value, *at, total


class _Cursor:
    """A place in a multiset that is kept in both orders. below: how many values are below `entry`, which may be gone."""

    def __init__(
        self, c: BoundCall, bucket: Bucket, back: Bucket, entry: str | None, back_entry: str | None, below: int
    ) -> None:
        self._c, self._bucket, self._back = c, bucket, back
        self.entry, self.back_entry, self.below = entry, back_entry, below

    def seek(self, index: int) -> Any:
        """The value that has so many before it."""
        if self.entry is None:
            first = self._bucket.first()
            assert first is not None
            self._be_at(*first)
        assert self.entry is not None
        at = self._bucket.get(self.entry)
        while index < self.below:
            self.back_entry, (_, self.entry, count) = next(self._back.entries(after=self.back_entry))
            self.below -= self._count(count)
            at = self._bucket.get(self.entry)
        while at is None or index >= self.below + self._count(at[-1]):
            self.below += 0 if at is None else self._count(at[-1])
            at = self._be_at(*next(self._bucket.entries(after=self.entry)))
        return at[0]

    def _be_at(self, entry: str, payload: Value) -> Value:
        assert self._c.back is not None
        self.entry, self.back_entry = entry, self._c.back(payload[:1])
        return payload

    def _count(self, count: int) -> int:
        return 1 if self._c.call.distinct else count


_LAST = order_text([SortPart(BIGINT)])


class SessionGroupsOperator(GroupAggregateOperator):
    """One result row per session: rows of equal keys where each is at most the gap behind the one before.

    The last two keys of the result are the first and the last time of the session. The rows of a run are grouped by the sessions
    that they make alone. Each of these is then put together with the sessions that it meets.

    State: a bucket per partition, of last time -> (first time, last time, what a group keeps).

    Touches per run: one head per distinct partition; per session of the run its own entry, those that it meets, and one more.
    """

    def __init__(self, plan: Operator, inputs: Sequence[Operator]) -> None:
        spec, source = plan.spec, inputs[0]
        assert isinstance(spec, GroupAggregate)
        assert spec.sessions is not None
        assert spec.appends
        bounds = [Field(f.name, f.type) for f in plan.schema.key[-2:]]
        super().__init__(
            plan, [Operator(source.id, source.spec, (), Schema((*source.schema.fields, *bounds)), source.change)]
        )
        self._schema = Schema((*source.schema.fields, *bounds))
        self._gap, self._time_type = spec.sessions.gap, arrow_type(bounds[0].type)
        self._by = [source.schema.names.index(k) for k in spec.partition]
        self._at = source.schema.names.index(spec.sessions.time)
        self._partition_of = frozen_picker(source.schema, spec.partition)
        self._identity = RowKey(plan.schema)

    def _changes(self, batch: Batch, run: MicroBatchContext) -> dict[Key, GroupDelta]:
        return super()._changes(self._with_bounds(batch), run)

    def _with_bounds(self, batch: Batch) -> Batch:
        """Each row with the bounds of the session that rows of the batch make."""
        given: dict[str, Any] = {"rowtime": batch.rowtime, "op": batch.op, "seq": batch.seq, "headers": batch.headers}
        if not batch.is_columns:
            numbers: dict[Key, int] = {}
            rows = batch.rows()
            codes = np.array([numbers.setdefault(self._partition_of(r), len(numbers)) for r in rows], np.int64)
            first, last = self._bounds(codes, np.array([r[self._at] for r in rows], np.int64))
            made = [(*r, a, b) for r, a, b in zip(rows, first.tolist(), last.tolist(), strict=True)]
            return from_rows(self._schema, made, batch.rowtime, batch.op, batch.seq, batch.headers)
        arrow = batch.arrow()
        times = arrow.column(self._at).view(pa.int64()).to_numpy(zero_copy_only=False)
        bounds = self._bounds(group_codes([arrow.column(i) for i in self._by], sort=False)[0], times)
        columns = [*arrow.columns, *(pa.array(b).view(self._time_type) for b in bounds)]
        return Batch(self._schema, arrow=pa.RecordBatch.from_arrays(columns, [*self._schema.names]), **given)

    def _bounds(self, codes: Ints, times: Ints) -> tuple[Ints, Ints]:
        """First and last time of the sessions of rows, per row. codes: of their partitions."""
        made = sessions_of(codes, times, self._gap)
        return made.first[made.of_rows], made.last[made.of_rows]

    def _apply(self, deltas: dict[Key, GroupDelta], run: MicroBatchContext) -> Batch | None:
        buckets = Buckets(*(run.state.store(s.name) for s in self.plan.stores[:2]))
        buckets.load(key[:-2] for key in deltas)
        changes = Deltas(self._identity.of, self._same)
        for key in sorted(deltas, key=itemgetter(-2, -1)):
            self._put_together(key, deltas[key], buckets[key[:-2]], changes, run)
        buckets.flush()
        return changes.batch(self.plan.schema)

    def _put_together(
        self, key: Key, delta: GroupDelta, bucket: Bucket, changes: Deltas, run: MicroBatchContext
    ) -> None:
        """The rows of a session of the run with the sessions that they meet."""
        first: int
        last: int
        *by, first, last = key  # type: ignore[assignment]
        group = self._nothing
        for entry, (begun, ended, *kept) in self._met(bucket, first, last):
            bucket.put(entry, None)
            if (row := self._row((*by, begun, ended), tuple(kept))) is not None:
                changes.add(-1, row, kept[_TIME], delta.seq)
            group = self._of_both(group, kept)
            first, last = min(first, begun), max(last, ended)
        group = self._after(key, group, delta, None)
        bucket.put(_LAST((last,)), (first, last, *group))
        if (row := self._row((*by, first, last), group, run, delta.seq)) is not None:
            changes.add(1, row, group[_TIME], delta.seq)

    def _met(self, bucket: Bucket, first: int, last: int) -> list[tuple[str, Value]]:
        """Sessions at most the gap away, in order; those of a partition do not overlap."""
        found = []
        for entry, kept in bucket.entries(after=_LAST((first - self._gap - 1,))) if bucket.size else ():
            if kept[0] > last + self._gap:
                break
            found.append((entry, kept))
        return found

    def _of_both(self, group: Value, other: Sequence[Any]) -> Value:
        accs = zip(self._calls, group[_ACCS:], other[_ACCS:], strict=True)
        return (
            group[_ROWS] + other[_ROWS],
            max(group[_TIME], other[_TIME]),
            *(c.kind.add(a, b) if isinstance(c.kind, Linear) else _first(a, b) for c, a, b in accs),
        )


def _first(a: Any, b: Any) -> Any:
    """The value with the lower entry; either may be missing."""
    return min((v for v in (a, b) if v is not None), key=itemgetter(1), default=None)
