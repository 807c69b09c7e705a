"""The join over changes: every kind, any number of equalities, any residual condition."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from flowql.compiler.plan.changes import EquiJoin
from flowql.compiler.plan.topology import Operator
from flowql.runtime.batch import INSERT, Batch, Row
from flowql.runtime.operators.base import MicroBatchContext
from flowql.runtime.operators.changes.buckets import Buckets
from flowql.runtime.operators.changes.deltas import Change, Deltas, Out, out_batch, same_by
from flowql.runtime.operators.changes.join_appends import AppendingJoin
from flowql.runtime.operators.changes.join_closing import JoinClosing
from flowql.runtime.operators.changes.join_inline import InlineJoin
from flowql.runtime.operators.changes.join_side import JoinRow, JoinSide, KeyedSide
from flowql.runtime.operators.changes.residual import Residual
from flowql.runtime.operators.keys import RowKey, picker
from flowql.runtime.state.rows import Key, Value

LEFT, RIGHT = 0, 1
_NULL_EXTENDED = {"left": (True, False), "right": (False, True), "full": (True, True)}


@dataclass(slots=True)
class _Candidate:
    """A pair with equal keys. sign: of the side that changes; that is `changed`."""

    left: JoinRow
    right: JoinRow
    changed: int
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
                    yield _Candidate(l_, r, LEFT, sign, seq)
        if rights and left.any_after:
            new = [r for r in left.rows() if r.now]
            for sign, r, seq in rights:
                for l_ in new:
                    yield _Candidate(l_, r, RIGHT, sign, seq)

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
