"""The join over changes: every kind, any number of equalities, any residual condition."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain

from flowql.compiler.plan.changes import EquiJoin
from flowql.compiler.plan.schema import Schema
from flowql.compiler.plan.topology import Operator, StoreSpec
from flowql.runtime.batch import INSERT, Batch, Row
from flowql.runtime.operators.base import MicroBatchContext
from flowql.runtime.operators.changes import buckets
from flowql.runtime.operators.changes.buckets import Buckets
from flowql.runtime.operators.changes.closing import Waiting, closing_time, drop_buckets
from flowql.runtime.operators.changes.deltas import Change, Deltas, Out, out_batch, same_by
from flowql.runtime.operators.changes.join_inline import InlineJoin
from flowql.runtime.operators.changes.join_side import JoinRow, JoinSide, KeyedSide, Residual
from flowql.runtime.operators.keys import RowKey, picker
from flowql.runtime.state.rows import Key, Value
from flowql.runtime.state.store import Store

_Timed = tuple[Row, int]  # row, row time


class AppendingJoin:
    """An inner join whose inputs only add rows: every row that comes is new, and so is every pair. Holds no data.

    It keeps what the general way keeps, so either can go on from the state of the other. pair: (left row, right row) -> row of the result.
    """

    def __init__(self, sides: Sequence[JoinSide], residual: Residual | None, pair: Callable[[Row, Row], Row]) -> None:
        self._sides, self._residual, self._pair = sides, residual, pair

    def apply(
        self,
        keys: Sequence[Key],
        by_key: Sequence[Mapping[Key, list[Change]]],
        stores: Sequence[Store],
        run: MicroBatchContext,
    ) -> tuple[list[Out], list[Key]]:
        """stores: heads and entries of the left side, then of the right side. The pairs that come, and the keys that neither side had."""
        heads = [stores[0].get_many(keys), stores[2].get_many(keys)]
        pairs: list[tuple[Row, Row]] = []
        times: list[int] = []
        seqs: list[int] = []
        left, right = by_key
        for key, left_head, right_head in zip(keys, *heads, strict=True):
            lefts, rights = left.get(key, ()), right.get(key, ())
            if lefts and right_head is not None:
                for other, other_time in self._rows(1, key, right_head, stores[3]):
                    for _, row, time, seq in lefts:
                        pairs.append((row, other))
                        times.append(time if time > other_time else other_time)
                        seqs.append(seq)
            if rights:
                olds = [] if left_head is None else self._rows(0, key, left_head, stores[1])
                for other, other_time in chain(olds, ((row, time) for _, row, time, _ in lefts)):
                    for _, row, time, seq in rights:
                        pairs.append((other, row))
                        times.append(time if time > other_time else other_time)
                        seqs.append(seq)
        for side in range(2):
            self._keep(side, keys, by_key[side], heads[side], stores[2 * side], stores[2 * side + 1])
        kept: Sequence[int] = range(len(pairs))
        if self._residual is not None and pairs:
            kept = self._residual.true_of(pairs, times, seqs, run)
        pair = self._pair
        new = [key for key, one, other in zip(keys, *heads, strict=True) if one is None and other is None]
        return [(seqs[i], INSERT, pair(*pairs[i]), times[i]) for i in kept], new

    def _rows(self, side: int, key: Key, head: Value, entries: Store) -> list[_Timed]:
        """The rows of a bucket."""
        form = self._sides[side]
        if len(head) > 1:
            return form.rows(head)
        return [row for _, payload in entries.scan_prefix(key) for row in form.rows((1, "", payload))]

    def _keep(
        self,
        side: int,
        keys: Sequence[Key],
        changes: Mapping[Key, list[Change]],
        heads: Sequence[Value | None],
        to: Store,
        entries: Store,
    ) -> None:
        """Write the rows that come."""
        entry_of = self._sides[side].entry
        changed: list[Key] = []
        written: list[Value | None] = []
        rows: dict[Key, Value | None] = {}
        for key, head in zip(keys, heads, strict=True):
            come = changes.get(key)
            if not come:
                continue
            new = [(entry_of(row), (*row, time)) for _, row, time, _ in come]
            size = len(new) + (0 if head is None else head[0])
            changed.append(key)
            if head is not None and len(head) == 1:
                written.append((size,))
            elif size <= buckets.INLINE_MAX:
                written.append((size, *(() if head is None else head[1:]), *chain.from_iterable(new)))
                continue
            else:
                written.append((size,))
                if head is not None:
                    new += zip(head[1::2], head[2::2], strict=True)
            for entry, payload in new:
                rows[(*key, entry)] = payload
        to.put_many(changed, written)
        entries.put_many(list(rows), list(rows.values()))


_KEYS_MAX = 128  # of one entry: a record of the changelog stays small
_KEYS = 2  # the side of an entry that holds keys


class JoinClosing:
    """Drops rows that no row of the other side can meet any more.

    State: one bucket of (when, side, row identity) -> (side, entry, join key), an entry for each row that is ever dropped.

    If the time follows from the join key, all rows of a key are dropped together, and an entry may hold many keys:
    (when, first row of its first key) -> (2, "", key...). Both kinds may wait at once.

    Touches: one entry per changed row, or for up to 128 new keys; per dropped row that, and the row in its bucket.
    """

    def __init__(
        self, spec: EquiJoin, schemas: Sequence[Schema], sides: Sequence[JoinSide], stores: Sequence[StoreSpec]
    ) -> None:
        """stores: heads and entries of the left side, of the right side, and of what waits."""
        self._due = [closing_time(s, c) for s, c in zip(schemas, spec.closing, strict=True)]
        self._sides, self._stores = sides, stores
        left, right = (
            {(keys.index(c.column) if c.column in keys else -1, c.after) for c in closing}
            for keys, closing in zip((spec.left_keys, spec.right_keys), spec.closing, strict=True)
        )
        self.by_key = left == right and all(n >= 0 for n, _ in left)

    def note_keys(
        self, keys: Sequence[Key], by_key: Sequence[Mapping[Key, Sequence[Change]]], run: MicroBatchContext
    ) -> None:
        """keys: of which neither side had a row before these."""
        by_due: dict[int, list[tuple[Key, int, Row]]] = {}
        for key in keys:
            n = 0 if key in by_key[0] else 1
            row = by_key[n][key][0][1]
            due = self._due[n](row)
            if due is not None:
                by_due.setdefault(due, []).append((key, n, row))
        waiting = self._waiting(run)
        edits: list[tuple[str, Value | None]] = []
        for due, found in by_due.items():
            for n in range(0, len(found), _KEYS_MAX):
                some = found[n : n + _KEYS_MAX]
                _, side, row = some[0]
                text = f"{_KEYS}{side}{self._sides[side].entry(row)}"
                edits.append((waiting.entry(due, text), (_KEYS, "", *(key for key, _, _ in some))))
        waiting.bucket.put_many(edits, new=True)
        waiting.flush()

    def note(self, by_key: Sequence[Mapping[Key, Sequence[Change]]], run: MicroBatchContext, *, new: bool) -> None:
        """The changes of both sides. Removals first: the row that takes the place of another may be closed at the same time.

        new: none of these rows has been there before.
        """
        waiting = self._waiting(run)
        edits: list[tuple[str, Value | None]] = []
        for n, (side, due_of, of) in enumerate(zip(self._sides, self._due, by_key, strict=True)):
            changes = [(c, key) for key, cs in of.items() for c in cs]
            for (sign, row, _, _), key in sorted(changes, key=lambda c: c[0][0]):
                due = due_of(row)
                if due is not None:
                    entry = side.entry(row)
                    edits.append((waiting.entry(due, f"{n}{entry}"), (n, entry, key) if sign > 0 else None))
        waiting.bucket.put_many(edits, new=new)
        waiting.flush()

    def drop(self, watermark: int, run: MicroBatchContext) -> None:
        waiting = self._waiting(run)
        closed = list(waiting.closed(watermark))
        if not closed:
            return
        whole = self._whole(closed) if self.by_key else []
        for n in range(len(self._sides)):
            heads, rows = (run.state.store(s.name) for s in self._stores[2 * n : 2 * n + 2])
            if self.by_key:
                drop_buckets(whole, heads, rows)
                continue
            buckets = Buckets(heads, rows)
            gone = [(tuple(key), entry) for _, (side, entry, key) in closed if side == n]
            buckets.load([key for key, _ in gone])
            by_key: dict[Key, list[str]] = {}
            for key, entry in gone:
                by_key.setdefault(key, []).append(entry)
            buckets.expect(by_key)
            for key, entries in by_key.items():
                buckets[key].put_many([(e, None) for e in entries])
            buckets.flush()
        waiting.bucket.put_many([(entry, None) for entry, _ in closed])
        waiting.flush()

    @staticmethod
    def _whole(closed: Sequence[tuple[str, Value]]) -> list[Key]:
        """The keys of closed entries: the rows of a key are closed together."""
        return list(dict.fromkeys(tuple(key) for _, (_, _, *keys) in closed for key in keys))

    def _waiting(self, run: MicroBatchContext) -> Waiting:
        heads, rows = (run.state.store(s.name) for s in self._stores[-2:])
        return Waiting(heads, rows)


LEFT, RIGHT = 0, 1
_NULL_EXTENDED = {"left": (True, False), "right": (False, True), "full": (True, True)}


@dataclass(slots=True)
class _Candidate:
    """A pair with equal keys. sign: of the side that changes."""

    left: JoinRow
    right: JoinRow
    sign: int
    seq: int


class EquiJoinOperator:
    """Changes of the result are dL x R + L' x dR: changes of the left with the right as it was, and the left as it is with changes of
    the right. A row of a side that the result shows by itself (outer, semi, anti) is looked at again when it gets its first match or
    loses its last.

    Keys with few rows and without a residual take the quick way (`InlineJoin`), and inner joins of rows that only come have one of
    their own (`AppendingJoin`), unless the row kernel is asked for.

    State: see `JoinSide`. With a residual an outer, semi or anti join counts the matches of each row that it may show; without one
    a row is matched when the other side has any row.

    Touches per run and join key: both heads; the entry of each changed row; the other side's rows of that key where pairs are shown
    (one per row that is given out), where a residual has to be asked (one per pair with equal keys), or where a side without a
    residual becomes empty or stops to be (one per row that is given out). A changed count of matches is one write.
    """

    def __init__(self, plan: Operator, inputs: Sequence[Operator]) -> None:
        spec = plan.spec
        assert isinstance(spec, EquiJoin)
        assert len(plan.stores) >= 4, "a join keeps both sides"
        self.plan = plan
        self._kind = spec.kind
        self._pairs = spec.kind not in ("semi", "anti")
        shows = _NULL_EXTENDED.get(spec.kind, (spec.kind in ("semi", "anti"), False))
        self._shows = shows  # which sides' rows are shown by themselves
        schemas = [i.schema for i in inputs]
        self._residual = None if spec.residual is None else Residual(plan, spec.residual, schemas)
        self._sides = [
            JoinSide(s, keys, null_safe=spec.null_safe, counted=shown and spec.residual is not None)
            for s, keys, shown in zip(schemas, (spec.left_keys, spec.right_keys), shows, strict=True)
        ]
        self.follows_watermark = any(spec.closing)
        self._closing = JoinClosing(spec, schemas, self._sides, plan.stores) if any(spec.closing) else None
        names = [n for s in schemas for n in s.names]
        if spec.kind == "full":
            names.append(plan.schema.key[-1].name)
        self._arrange = picker([names.index(n) for n in plan.schema.names])
        self._blank: list[Row] = [(None,) * len(s.names) for s in schemas]
        self._identity = RowKey(plan.schema)
        self._same = same_by(f.type for f in plan.schema)
        self._inline = InlineJoin(
            self._sides,
            pairs=self._pairs,
            shows=shows,
            wants=spec.kind == "semi",
            pair=lambda left, right: self._arrange((*left, *right, 0)),
            single=self._single,
            same=self._same,
        )

        self._appending = (
            AppendingJoin(self._sides, self._residual, lambda left, right: self._arrange((*left, *right, 0)))
            if spec.appends
            else None
        )
        assert spec.kind == "inner" or not spec.appends, "rows of other joins leave when their matches come"

    def process(self, inputs: Sequence[Batch | None], run: MicroBatchContext) -> Batch | None:
        if self._appending is not None:
            for batch in inputs:
                assert batch is None or (batch.op == INSERT).all(), f"{self.plan.id}: a row leaves where rows only come"
        found = [s.changes(b) for s, b in zip(self._sides, inputs, strict=True)]
        out = Deltas(self._identity.of, self._same)
        rows: list[Out] = []
        for side, (_, alone) in enumerate(found):
            if self._shows[side] and self._kind != "semi":  # it matches nothing, now and ever
                for sign, row, time, seq in alone:
                    out.add(sign, self._single(side, row), time, seq)
        by_key = [changes for changes, _ in found]
        keys = list(dict.fromkeys((*by_key[LEFT], *by_key[RIGHT])))
        heads: dict[Key, list[Value | None]] | None = None
        new: list[Key] | None = None  # keys without a row before, where they are known
        if keys and run.vector is not False and self._appending is not None:
            stores = [run.state.store(s.name) for s in self.plan.stores[:4]]
            rows, new = self._appending.apply(keys, by_key, stores, run)
            keys = []
        elif keys and run.vector is not False and self._residual is None:
            stores = [run.state.store(self.plan.stores[i].name) for i in (0, 2)]
            heads = self._inline.apply(keys, by_key, stores, rows, out)
            keys = list(heads)
        if keys:
            self._join(keys, by_key, out, run, heads)
        if self._closing is not None:
            if new is not None and self._closing.by_key:
                self._closing.note_keys(new, by_key, run)
            else:
                self._closing.note(by_key, run, new=self._appending is not None)
            if run.watermark is not None:
                self._closing.drop(run.watermark, run)
        return out_batch(self.plan.schema, rows + out.rows())

    def _join(
        self,
        keys: Sequence[Key],
        by_key: Sequence[dict[Key, list[Change]]],
        out: Deltas,
        run: MicroBatchContext,
        heads: dict[Key, list[Value | None]] | None,
    ) -> None:
        """heads: of both sides, where they are known."""
        stores = [run.state.store(s.name) for s in self.plan.stores[:4]]
        buckets = [Buckets(stores[0], stores[1]), Buckets(stores[2], stores[3])]
        for side, of in enumerate(buckets):
            if heads is None:
                of.load(keys)
            else:
                of.know({k: both[side] for k, both in heads.items()})
            large = {k: by_key[side][k] for k in keys if k in by_key[side] and of[k].items is None}
            of.expect({k: [self._sides[side].entry(c[1]) for c in cs] for k, cs in large.items()})
        groups = [_Group([KeyedSide(s, b[k]) for s, b in zip(self._sides, buckets, strict=True)]) for k in keys]
        candidates: list[_Candidate] = []
        for key, group in zip(keys, groups, strict=True):
            candidates += group.candidates(
                [c.get(key, ()) for c in by_key], pairs=self._pairs or self._residual is not None
            )
        for c in candidates if self._residual is None else self._residual.passing(candidates, run):
            if self._pairs:
                out.add(c.sign, self._arrange((*c.left.row, *c.right.row, 0)), max(c.left.time, c.right.time), c.seq)
            if self._residual is not None:
                _count(c, self._shows)
        for group in groups:
            for side in (LEFT, RIGHT):
                if self._shows[side]:
                    self._show(group, side, out)
            for of_side in group.sides:
                of_side.flush()
        for of in buckets:
            of.flush()

    def _show(self, group: _Group, side: int, out: Deltas) -> None:
        """Rows of a side that appear by themselves, or no more."""
        wants = self._kind == "semi"  # a row with a match is shown, else one without
        for r, before, after in group.matched(side, counted=self._residual is not None):
            was, now = r.was and before == wants, r.now and after == wants
            if was != now:
                out.add(1 if now else -1, self._single(side, r.row), max(r.time, group.time), group.seq)

    def _single(self, side: int, row: Row) -> Row:
        """A row without the other side."""
        if side == LEFT:
            return self._arrange((*row, *self._blank[RIGHT], 2))
        return self._arrange((*self._blank[LEFT], *row, 1))


class _Group:
    """One join key in one run."""

    __slots__ = ("seq", "sides", "time")

    def __init__(self, sides: Sequence[KeyedSide]) -> None:
        self.sides = sides
        self.seq = self.time = 0

    def candidates(self, changes: Sequence[Sequence[Change]], *, pairs: bool) -> Iterator[_Candidate]:
        """Applies the changes; pairs that come or go, if they are wanted."""
        left, right = self.sides
        both = (*changes[LEFT], *changes[RIGHT])
        self.seq, self.time = max(c[3] for c in both), max(c[2] for c in both)
        lefts, rights = left.apply(changes[LEFT]), right.apply(changes[RIGHT])
        if not pairs:
            return
        if lefts and right.any_before:
            old = [r for r in right.rows() if r.was]
            for sign, l_, seq in lefts:
                for r in old:
                    yield _Candidate(l_, r, sign, seq)
        if rights and left.any_after:
            new = [r for r in left.rows() if r.now]
            for sign, r, seq in rights:
                for l_ in new:
                    yield _Candidate(l_, r, sign, seq)

    def matched(self, side: int, *, counted: bool) -> Iterator[tuple[JoinRow, bool, bool]]:
        """(row, it had a match, it has one) for rows where that, or the row itself, may have changed."""
        mine, other = self.sides[side], self.sides[1 - side]
        if counted:
            for r in mine.known_rows():
                if r.dirty:
                    yield r, r.matches_before > 0, r.matches > 0
            return
        before, after = other.any_before, other.any_after
        for r in mine.rows() if before != after else mine.known_rows():
            yield r, before, after


def _count(c: _Candidate, shows: Sequence[bool]) -> None:
    """A pair that passes is a match of both its rows, more or less."""
    if shows[LEFT]:
        c.left.match(c.sign)
    if shows[RIGHT]:
        c.right.match(c.sign)
