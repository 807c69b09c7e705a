"""Window functions over changes: ROW_NUMBER, LAG, running and moving aggregates, and whatever else OVER computes."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import chain, islice
from typing import Any

from flowql.compiler.plan.changes import Over, SortKey
from flowql.compiler.plan.schema import Schema
from flowql.compiler.plan.topology import Operator
from flowql.runtime.batch import Batch, Row
from flowql.runtime.operators.base import MicroBatchContext
from flowql.runtime.operators.changes.buckets import Bucket, Buckets
from flowql.runtime.operators.changes.closing import ClosingKeys, drop_buckets
from flowql.runtime.operators.changes.deltas import Change, Deltas, deltas_of, place_of, same, same_by
from flowql.runtime.operators.changes.order import SortPart, order_text
from flowql.runtime.operators.changes.window_calls import (
    NOWHERE,
    BoundWindow,
    Failed,
    Line,
    Lines,
    Position,
    Reach,
    apart,
    bind_window,
    is_within,
    position_of,
    shown,
)
from flowql.runtime.operators.fold import AGGREGATE_FAILED
from flowql.runtime.operators.keys import RowKey, frozen_picker, picker
from flowql.runtime.state.rows import Key, Value
from flowql.runtime.state.store import Store


@dataclass(slots=True, eq=False)
class Item:
    """The rows under one entry: one, or two while a change of an identity is on its way, or none where one comes or goes."""

    entry: str
    lines: list[Line]

    @property
    def tie(self) -> str:
        return self.lines[0].tie

    @property
    def at(self) -> Position:
        return self.lines[0].at


class RowForm:
    """How rows are kept: (row..., row time, a state per running call) for each row of an entry. Holds no data.

    ties, positions: whether peers and distances in the order are asked for.
    """

    def __init__(self, schema: Schema, order: Sequence[SortKey], states: int, *, ties: bool, positions: bool) -> None:
        names, types = schema.names, [f.type for f in schema]
        by = [names.index(k.column) for k in order]
        parts = [SortPart(types[i], k.descending, k.nulls_first) for i, k in zip(by, order, strict=True)]
        identity = [(names.index(f.name), SortPart(f.type)) for f in schema.key]
        every = [*parts, *(p for _, p in identity)]
        self._sort, self._tie = picker(by), order_text(parts) if ties else None
        self._entry_of = picker([*by, *(i for i, _ in identity)])
        self._text, self._back = order_text(every), order_text([p.reversed() for p in every])
        self._first = by[0] if positions else 0
        self._position: Callable[[Any], Position] | None = None
        if positions:
            (key,) = order
            self._position = position_of(types[by[0]], descending=key.descending, nulls_first=key.nulls_first)
        self._columns = len(names)
        self._states = states
        self._width = self._columns + 1 + states

    def entry(self, row: Row) -> str:
        return self._text(self._entry_of(row))

    def back(self, row: Row) -> str:
        """The entry in the opposite order."""
        return self._back(self._entry_of(row))

    def line(self, row: Row, time: int, states: tuple[Any, ...] = ()) -> Line:
        tie = "" if self._tie is None else self._tie(self._sort(row))
        at = NOWHERE if self._position is None else self._position(row[self._first])
        return Line(row, time, tie, at, states)

    def read(self, entry: str, payload: Value | None) -> Item:
        n, width = self._columns, self._width
        starts = range(0, len(payload), width) if payload is not None else ()
        return Item(
            entry,
            [self.line(payload[i : i + n], payload[i + n], payload[i + n + 1 : i + width]) for i in starts]
            if payload is not None
            else [],
        )

    def write(self, item: Item) -> Value | None:
        states = self._states
        return tuple([v for line in item.lines for v in (*line.row, line.time, *line.states[:states])]) or None


class PartitionRows:
    """The rows of one partition in order during one run, readable forwards and backwards: reading comes first, then writing.

    A large partition has beside its bucket a row per entry in the store `backwards`, in the opposite order: its entry.
    """

    def __init__(self, form: RowForm, bucket: Bucket, backwards: Store | None) -> None:
        self._form, self._bucket, self._backwards = form, bucket, backwards
        self._was_large = bucket.items is None
        self._come: dict[str, Row] = {}
        self._gone: dict[str, Row] = {}

    @property
    def empty(self) -> bool:
        return not self._bucket.size

    def get(self, entry: str) -> Item:
        return self._form.read(entry, self._bucket.get(entry))

    def after(self, entry: str | None) -> Iterator[Item]:
        """In order; of None, from the first one."""
        for found, payload in self._bucket.entries(after=entry):
            self._bucket.know(found, payload)
            yield self._form.read(found, payload)

    def before(self, origin: Item, wanted: int) -> Iterator[Item]:
        """Those before it, the nearest first. wanted: how many will be consumed if there are as many: these are read at once."""
        if self._bucket.items is not None:
            for entry in sorted((e for e in self._bucket.items if e < origin.entry), reverse=True):
                yield self.get(entry)
            return
        assert self._backwards is not None
        prefix = self._bucket.prefix
        place = (*prefix, self._form.back(origin.lines[0].row))
        entries = (entry for _, (entry,) in self._backwards.scan_prefix(prefix, after=place))
        known = list(islice(entries, wanted))
        self._bucket.expect(known)
        for entry in chain(known, entries):
            yield self.get(entry)

    def put(self, old: Item, new: Item) -> None:
        """Replace the rows of an entry; `old` and `new` are its item before and after."""
        self._bucket.put(new.entry, self._form.write(new))
        if not old.lines:
            self._come[new.entry] = new.lines[0].row
        elif not new.lines:
            self._gone[new.entry] = old.lines[0].row

    def flush(self) -> None:
        """Bring the opposite order up to date, after the heads are written."""
        if self._backwards is None:
            return
        large = self._bucket.items is None
        come, gone = self._come, self._gone
        if large and not self._was_large:
            come, gone = {i.entry: i.lines[0].row for i in self.after(None)}, {}
        elif not large and self._was_large:
            assert self._bucket.items is not None
            kept = {e: self.get(e).lines[0].row for e in self._bucket.items if e not in come}
            come, gone = {}, {**gone, **kept}
        elif not large:
            return
        prefix, back = self._bucket.prefix, self._form.back
        keys = [(*prefix, back(row)) for row in (*gone.values(), *come.values())]
        values: list[Value | None] = [None] * len(gone)
        self._backwards.put_many(keys, [*values, *((entry,) for entry in come)])


_Edits = dict[str, tuple[Item, Item]]  # entry -> its rows before and after
_CHANGED, _SEEN, _BEYOND = range(3)


@dataclass(slots=True)
class _Stretch:
    """Consecutive rows of a partition, as they were and as they are. body: what may have other results now; around it are rows
    that those results depend on.
    """

    before: list[Item] = field(default_factory=list)
    body: list[tuple[Item, Item]] = field(default_factory=list)
    after: list[Item] = field(default_factory=list)


class OverOperator:
    """State: all rows, in buckets by partition: the text of (sort key, row identity) -> (row..., row time, a state per running call)
    for each row; of large buckets also the text in the opposite order -> entry, to find the rows before one.

    Touches per run and partition that changed: its head and the entry of each changed row, and per change, with its frames

    - near (offsets on both sides, LAG, LEAD): the rows that see it and those that they see: b + a rows on either side for frames of b
      rows before and a behind, the rows within these distances for RANGE and GROUPS; a row before it counts 2;
    - running (up to the current row, ranks): from the change on until the states are what they were, read and written: to the end
      of the partition for what counts or adds all rows, to the next row for FIRST_VALUE, LAST_VALUE and a MIN or MAX that stays;
    - whole (unbounded behind the row, or before it with an offset at the other end; NTILE, PERCENT_RANK, CUME_DIST, IGNORE NULLS of
      LAG and LEAD, STRING_AGG and ARRAY_AGG unless near): the partition.

    Frames by RANGE and GROUPS include whole groups of peers. A change of a row is one more write for the opposite order.
    """

    def __init__(self, plan: Operator, inputs: Sequence[Operator]) -> None:
        spec, schema = plan.spec, inputs[0].schema
        assert isinstance(spec, Over)
        assert plan.schema.names == (*schema.names, *(c.name for c in spec.calls))
        self.plan = plan
        self._calls = [bind_window(c, schema, spec.order) for c in spec.calls]
        self._whole = any(c.whole for c in self._calls)
        self._running = [c.running for c in self._calls if c.running is not None]
        self._first = tuple([r.first for r in self._running])
        # A running call goes on from the state of the row before.
        self._before = _widest([c.before for c in self._calls], Reach(rows=1 if self._running else 0))
        self._after = _widest([c.after for c in self._calls], Reach())
        frames = [c.call.frame for c in self._calls if c.results is not None]
        self._form = RowForm(
            schema,
            spec.order,
            0 if self._whole else len(self._running),
            ties=self._whole
            or max(self._before.groups, self._after.groups) >= 0
            or any(r.needs_peers for r in self._running)
            or any(f.exclude in ("group", "ties") for f in frames),
            positions=any(f.unit == "session" or (f.unit == "range" and (f.start or f.end)) for f in frames),
        )
        self._key = frozen_picker(schema, spec.keys)
        self._in_key, self._out_key = RowKey(schema), RowKey(plan.schema)
        self._same_in, self._same_out = same_by(f.type for f in schema), same_by(f.type for f in plan.schema)

        self._closing = ClosingKeys(schema, spec.keys, spec.closing, plan.stores) if spec.closing else None
        self.follows_watermark = self._closing is not None

    def process(self, inputs: Sequence[Batch | None], run: MicroBatchContext) -> Batch | None:
        batch = inputs[0]
        out = None if batch is None or not len(batch) else self._changed(batch, run)
        if self._closing is not None:
            self._forget(self._closing.taken(run), run)
        return out

    def _forget(self, keys: Sequence[Key], run: MicroBatchContext) -> None:
        """Drop the state of these partitions."""
        heads, rows, back = (run.state.store(s.name) for s in self.plan.stores[:3])
        drop_buckets(keys, heads, rows)
        opposite = [] if self._whole else [k for key in keys for k, _ in back.scan_prefix(key)]
        back.put_many(opposite, [None] * len(opposite))

    def _changed(self, batch: Batch, run: MicroBatchContext) -> Batch | None:
        by_key: dict[Key, list[Change]] = {}
        for _, changes in deltas_of(batch, self._in_key, self._same_in):
            for change in changes:
                by_key.setdefault(self._key(change[1]), []).append(change)
        heads, rows, back = (run.state.store(s.name) for s in self.plan.stores[:3])
        buckets = Buckets(heads, rows)
        buckets.load(by_key)
        if self._closing is not None:
            self._closing.note([k for k in by_key if not buckets[k].size], run)
        large = {k: cs for k, cs in by_key.items() if buckets[k].items is None}
        buckets.expect({k: {self._form.entry(c[1]): None for c in cs} for k, cs in large.items()})
        out = Deltas(self._out_key.of, self._same_out)
        partitions = {k: PartitionRows(self._form, buckets[k], None if self._whole else back) for k in by_key}
        for key, changes in by_key.items():
            self._change(partitions[key], changes, out, run)
        buckets.flush()
        for partition in partitions.values():
            partition.flush()
        return out.batch(self.plan.schema)

    def _change(self, partition: PartitionRows, changes: Sequence[Change], out: Deltas, run: MicroBatchContext) -> None:
        edits = self._edits(partition, changes)
        stretches = [self._everything(partition, edits)] if self._whole else list(self._stretches(partition, edits))
        now, seq = max(c[2] for c in changes), max(c[3] for c in changes)
        for stretch in stretches:
            self._give(stretch, now, seq, out, run)
            for old, new in stretch.body:
                if new is not old and not (self._whole and new.entry not in edits):
                    partition.put(old, new)

    def _edits(self, partition: PartitionRows, changes: Sequence[Change]) -> _Edits:
        edits: _Edits = {}
        for sign, row, time, _ in changes:
            entry = self._form.entry(row)
            if entry not in edits:
                old = partition.get(entry)
                edits[entry] = old, Item(entry, list(old.lines))
            lines = edits[entry][1].lines
            if sign > 0:
                lines.append(self._form.line(row, time))
                continue
            del lines[place_of((line.row for line in lines), row, self._same_in, self.plan.id)]
        return edits

    def _everything(self, partition: PartitionRows, edits: _Edits) -> _Stretch:
        """The whole partition, with the states that it does not keep."""
        known = {} if partition.empty else {i.entry: (i, i) for i in partition.after(None)}
        body = [pair for _, pair in sorted({**known, **edits}.items())]
        if self._running:
            sides = []
            for side in (0, 1):
                last: Line | None = None
                items = []
                for pair in body:
                    items.append(self._stepped(pair[side], last))
                    last = items[-1].lines[-1] if items[-1].lines else last
                sides.append(items)
            body = list(zip(*sides, strict=True))
        return _Stretch(body=body)

    def _stretches(self, partition: PartitionRows, edits: _Edits) -> Iterator[_Stretch]:
        """One for each change, or for several that share rows."""
        entries = sorted(edits)
        at = 0
        while at < len(entries):
            stretch = self._backwards(partition, edits[entries[at]])
            at = self._forwards(partition, edits, entries, at, stretch)
            yield stretch

    def _backwards(self, partition: PartitionRows, edit: tuple[Item, Item]) -> _Stretch:
        """The rows before a change that see it, and those that they see."""
        seeing: list[Item] = []
        seen: list[Item] = []
        origin = _origin(edit)
        walk = _Walk(self._after, self._before, origin)
        if not walk.done() and not partition.empty:
            for item in partition.before(origin, self._after.rows + self._before.rows):
                where = walk.take(item)
                if where == _BEYOND:
                    break
                (seeing if where == _CHANGED else seen).append(item)
                if walk.done():
                    break
        return _Stretch(seen[::-1], [(i, i) for i in reversed(seeing)])

    def _forwards(
        self, partition: PartitionRows, edits: _Edits, entries: Sequence[str], at: int, stretch: _Stretch
    ) -> int:
        """From a change on: the changes and the rows that see them or go on from them, and those that they see.

        Returns the number of the first change that is too far away to be of this stretch.
        """
        lines = [line for i in (*stretch.before, *(new for _, new in stretch.body)) for line in i.lines]
        last = lines[-1] if lines else None
        scan = iter(()) if partition.empty else (i for i in partition.after(entries[at]) if i.entry not in edits)
        ahead: Item | None = None  # read from the scan and not yet used
        read = False
        changed = True
        while True:
            if changed:
                stretch.body += [(i, i) for i in stretch.after]
                stretch.after.clear()
                old, new = edits[entries[at]]
                if self._running:
                    last = next((i.lines[-1] for _, i in reversed(stretch.body) if i.lines), last)
                    new = self._stepped(new, last)
                    last = new.lines[-1] if new.lines else last
                stretch.body.append((old, new))
                walk, running = _Walk(self._before, self._after, _origin((old, new))), bool(self._running)
                at += 1
            if walk.done() and not running:
                return at
            if not read:
                ahead, read = next(scan, None), True
            changed = at < len(entries) and (ahead is None or entries[at] < ahead.entry)
            item = _origin(edits[entries[at]]) if changed else ahead
            if item is None:
                return at
            where = walk.take(item, running=running)
            if where == _BEYOND:
                return at
            if changed:
                continue
            read = False
            if where == _SEEN:
                stretch.after.append(item)
                continue
            new = item
            if running:
                new = self._stepped(item, last)
                running = not all(same(a.states, b.states) for a, b in zip(item.lines, new.lines, strict=True))
                new = new if running else item
                last = new.lines[-1]
            stretch.body.append((item, new))

    def _stepped(self, item: Item, last: Line | None) -> Item:
        """Its rows with the states of running calls, which go on from the row before; None: there is none."""
        lines = []
        for line in item.lines:
            states, new = (self._first, True) if last is None else (last.states, last.tie != line.tie)
            stepped = [r.step(s, line.row, new) for r, s in zip(self._running, states, strict=True)]
            last = Line(line.row, line.time, line.tie, line.at, tuple(stepped))
            lines.append(last)
        return Item(item.entry, lines)

    def _give(self, stretch: _Stretch, now: int, seq: int, out: Deltas, run: MicroBatchContext) -> None:
        """Rows with their results before, as gone, and now, as come: what is equal is no change. A row whose result fails is not shown."""
        failed: set[tuple[str, int]] = set()
        for side, sign in ((0, -1), (1, 1)):
            lines = [pair[side] for pair in stretch.body]
            for entry, line, results in self._results(stretch.before, lines, stretch.after):
                wrong = [(n, v) for n, v in enumerate(results) if isinstance(v, Failed)]
                for n, v in wrong:
                    if sign < 0:
                        failed.add((entry, n))
                    elif (entry, n) not in failed:
                        run.fail_row(seq, AGGREGATE_FAILED, f"{self._calls[n].call.name}: {v.message}")
                if wrong:
                    continue
                out.add(sign, (*line.row, *results), max(line.time, now), seq)

    def _results(
        self, before: Sequence[Item], body: Sequence[Item], after: Sequence[Item]
    ) -> Iterator[tuple[str, Line, list[Any]]]:
        """(entry, row, result of each call) of the rows in `body`."""
        low = sum(len(i.lines) for i in before)
        named = [(i.entry, line) for i in body for line in i.lines]
        high = low + len(named)
        lines = Lines([line for i in chain(before, body, after) for line in i.lines])
        columns: list[list[Any]] = []
        running = 0
        for c in self._calls:
            if c.running is None:
                assert c.results is not None
                columns.append(c.results(lines, low, high))
            else:
                columns.append(_running_results(c, running, lines, low, high))
                running += 1
        for n, (entry, line) in enumerate(named):
            yield entry, line, [c[n] for c in columns]


class _Walk:
    """Goes away from a change, row by row: which rows are affected by it, which ones do those depend on?

    A row is of the first sort while it is in reach `first` of the change, then of the second while it is in reach `then` of the
    last one of the first sort. Whether two changes meet is the same from both ends, as reach backwards is the opposite one.
    """

    __slots__ = ("_count", "_edge", "_first", "_groups", "_last", "_linked", "_origin", "_then", "_tie", "_walking")

    def __init__(self, first: Reach, then: Reach, origin: Item) -> None:
        self._first, self._then, self._edge = first, then, origin
        self._walking = _CHANGED
        self._start(origin)

    def _start(self, origin: Item) -> None:
        self._origin, self._count, self._groups, self._tie = origin, 0, 0, origin.tie
        self._last, self._linked = origin.at, True

    def done(self) -> bool:
        """The next row is neither, whatever it is."""
        if not self._then.counts_rows or (self._walking == _CHANGED and not self._first.counts_rows):
            return False
        if self._walking == _SEEN:
            return self._count >= self._then.rows
        return self._count >= self._first.rows and not self._then.rows

    def take(self, item: Item, *, running: bool = False) -> int:
        """The next row. running: it is affected however far it is."""
        near = self._near(self._first if self._walking == _CHANGED else self._then, item)
        if self._walking == _CHANGED:
            if near or running:
                self._edge = item
                return _CHANGED
            self._walking = _SEEN
            self._start(self._edge)
            near = self._near(self._then, item)
        return _SEEN if near else _BEYOND

    def _near(self, reach: Reach, item: Item) -> bool:
        self._count += 1
        if item.tie != self._tie:
            self._tie = item.tie
            self._groups += 1
        if reach.gap is not None:
            self._linked = self._linked and is_within(self._last, item.at, reach.gap)
            self._last = item.at
        if self._linked and reach.gap is not None:
            return True
        if self._count <= reach.rows or self._groups <= reach.groups:
            return True
        distance = None if reach.distance is None else apart(self._origin.at, item.at)
        return distance is not None and bool(distance <= reach.distance)


def _origin(edit: tuple[Item, Item]) -> Item:
    """Where a change is."""
    old, new = edit
    return new if new.lines else old


def _widest(reaches: Sequence[Reach], least: Reach) -> Reach:
    for reach in reaches:
        least = least.widened(reach)
    return least


def _running_results(c: BoundWindow, at: int, lines: Lines, low: int, high: int) -> list[Any]:
    """From the states, of which it is number `at`."""
    assert c.running is not None
    result = c.running.result
    if not c.running.peers:
        return [shown(result, line.states[at]) for line in lines.lines[low:high]]
    of, starts = lines.groups
    found: dict[int, Any] = {}
    for group in of[low:high]:
        if group not in found:
            found[group] = shown(result, lines.lines[starts[group + 1] - 1].states[at])
    return [found[group] for group in of[low:high]]
