"""The temporal join: each left row meets the version of the right relation at its arrival."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import chain

from flowql.compiler.plan.changes import TemporalJoin
from flowql.compiler.plan.topology import Operator
from flowql.runtime.batch import Batch, Row
from flowql.runtime.operators.base import MicroBatchContext
from flowql.runtime.operators.changes.buckets import Bucket, Buckets
from flowql.runtime.operators.changes.deltas import Deltas, out_batch, place_of, same_by, signs
from flowql.runtime.operators.changes.join_side import JoinRow, JoinSide, KeyedSide, Residual
from flowql.runtime.operators.keys import RowKey, frozen_picker, picker
from flowql.runtime.state.rows import Key, Value

RIGHT, LEFT = 0, 1  # of changes with one place in the run the right one is first
_Step = tuple[int, int, int, Row, int]  # seq, side, sign, row, row time


@dataclass(slots=True, eq=False)
class _Given:
    """A left row and what it was joined with. time: the latest row time of the pairs. shown: of the right rows the columns that the
    output has. was, now: it is there before and after the run. seq: of the last change of it.
    """

    row: Row
    time: int
    shown: list[Row]
    was: bool
    now: bool = True
    seq: int = 0


@dataclass(slots=True, eq=False)
class _Candidate:
    """A pair with equal keys that a left row met when it arrived."""

    given: _Given
    left: JoinRow
    right: JoinRow
    seq: int
    sign: int = 1


class TemporalJoinOperator:
    """Applies the changes of both inputs one by one in the order of `seq`: a change of the right side alters its rows, a left row
    that comes is joined with those of that moment, and one that goes retracts its results.

    State: the right rows in buckets by join key, as an `EquiJoin` keeps them; and left identity -> (row..., row time, n, the shown
    columns of n right rows) for each row of the identity. Of an inner join a left row without a match is not kept, and none where left rows
    only come.

    Touches per run: the head of each join key; the entry of each changed right row; the other right rows of a key once, if a left
    row with that key comes; one row of state for each changed left identity, read and written. That row is as large as what
    the left row has given. The residual is asked once for all pairs with equal keys.
    """

    def __init__(self, plan: Operator, inputs: Sequence[Operator]) -> None:
        spec = plan.spec
        assert isinstance(spec, TemporalJoin)
        assert len(plan.stores) == 3 - spec.appends, (
            "a temporal join keeps the right side, and what left rows have given"
        )
        self.plan = plan
        self._outer = spec.kind == "left"
        left, right = (i.schema for i in inputs)
        self._side = JoinSide(right, spec.right_keys, null_safe=False, counted=False)
        self._keys = (frozen_picker(right, spec.right_keys), frozen_picker(left, spec.left_keys))
        self._left_identity = RowKey(left)
        self._same_left = same_by(f.type for f in left)
        self._columns = len(left.names)
        shown = [n for n in right.names if n in plan.schema.names]
        self._shown = picker([right.names.index(n) for n in shown])
        self._width = len(shown)
        self._blank: Row = (None,) * len(shown)
        names = [*left.names, *shown]
        self._arrange = picker([names.index(n) for n in plan.schema.names])
        self._residual = None if spec.residual is None else Residual(plan, spec.residual, (left, right))
        self._identity = RowKey(plan.schema)
        self._same = same_by(f.type for f in plan.schema)

    def process(self, inputs: Sequence[Batch | None], run: MicroBatchContext) -> Batch | None:
        left, right = inputs
        steps = sorted(chain(_steps(right, RIGHT), _steps(left, LEFT)), key=lambda s: s[:2])
        if not steps:
            return None
        heads, rows, *given = (run.state.store(s.name) for s in self.plan.stores)
        keys = [self._keys[side](row) for _, side, _, row, _ in steps]
        there = _There(self._side, Buckets(heads, rows), steps, keys)
        identities = list(dict.fromkeys(self._left_identity.of(s[3]) for s in steps if s[1] == LEFT))
        known: dict[Key, list[_Given]] = {i: [] for i in identities}
        for store in given:
            known = {i: self._read(p) for i, p in zip(identities, store.get_many(identities), strict=True)}
        candidates: list[_Candidate] = []
        for step, key in zip(steps, keys, strict=True):
            _, side, sign, row, time = step
            if side == RIGHT:
                there.change(key, sign, row, time)
            elif sign > 0:
                candidates += self._come(step, there.rows(key), known)
            else:
                self._go(step, known)
        self._match([c for c in candidates if c.given.now], run)
        out = Deltas(self._identity.of, self._same)
        for of in known.values():
            self._show(of, out)
        there.flush()
        for store in given:
            store.put_many(identities, [self._written(known[i]) for i in identities])
        return out_batch(self.plan.schema, out.rows())

    def _come(self, step: _Step, matches: Iterable[JoinRow], known: dict[Key, list[_Given]]) -> Iterator[_Candidate]:
        seq, _, _, row, time = step
        given = _Given(row, time, [], was=False, seq=seq)
        known[self._left_identity.of(row)].append(given)
        left = JoinRow(row, time, was=False, now=True)
        return (_Candidate(given, left, right, seq) for right in list(matches))

    def _go(self, step: _Step, known: dict[Key, list[_Given]]) -> None:
        seq, _, _, row, time = step
        of = known[self._left_identity.of(row)]
        found = next((g for g in of if g.now and self._same_left(g.row, row)), None)
        if found is None:
            assert not self._outer, f"{self.plan.id}: a row was removed that never came: {row}"
            return  # it had no match
        found.now, found.seq, found.time = False, seq, max(found.time, time)

    def _match(self, candidates: Sequence[_Candidate], run: MicroBatchContext) -> None:
        for c in candidates if self._residual is None else self._residual.passing(candidates, run):
            c.given.shown.append(self._shown(c.right.row))
            c.given.time = max(c.given.time, c.right.time)

    def _show(self, of: Sequence[_Given], out: Deltas) -> None:
        """Adds the changes of the results of rows with one identity."""
        for g in of:
            if g.was != g.now:
                for right in g.shown or ([self._blank] if self._outer else []):
                    out.add(1 if g.now else -1, self._arrange((*g.row, *right)), g.time, g.seq)

    def _read(self, payload: Value | None) -> list[_Given]:
        found: list[_Given] = []
        n, width, at = self._columns, self._width, 0
        while payload is not None and at < len(payload):
            start, count = at + n + 2, payload[at + n + 1]
            shown = [payload[start + i * width : start + (i + 1) * width] for i in range(count)]
            found.append(_Given(payload[at : at + n], payload[at + n], shown, was=True))
            at = start + count * width
        return found

    def _written(self, of: Sequence[_Given]) -> Value | None:
        parts: list[object] = []
        for g in of:
            if g.now and (g.shown or self._outer):
                parts += (*g.row, g.time, len(g.shown), *chain.from_iterable(g.shown))
        return tuple(parts) or None


class _There:
    """The right rows under the join keys of a run, at the place that it has come to. steps, keys: all changes, and their join keys."""

    def __init__(self, side: JoinSide, buckets: Buckets, steps: Sequence[_Step], keys: Sequence[Key]) -> None:
        self._side, self._buckets = side, buckets
        asked = [k for (_, of, sign, _, _), k in zip(steps, keys, strict=True) if of == RIGHT or sign > 0]
        wanted = list(dict.fromkeys(k for k in asked if None not in k))
        buckets.load(wanted)
        changed: dict[Key, list[str]] = {}
        for (_, of, _, row, _), key in zip(steps, keys, strict=True):
            if of == RIGHT and None not in key:
                changed.setdefault(key, []).append(side.entry(row))
        buckets.expect(changed)
        self._keys = {k: _Rows(side, buckets[k]) for k in wanted}

    def change(self, key: Key, sign: int, row: Row, time: int) -> None:
        if None not in key:
            self._keys[key].change(sign, row, time)

    def rows(self, key: Key) -> Iterable[JoinRow]:
        """The rows whose key equals that of a left row; NULL equals nothing."""
        return () if None in key else self._keys[key].rows()

    def flush(self) -> None:
        for of in self._keys.values():
            of.flush()
        self._buckets.flush()


class _Rows(KeyedSide):
    """The right rows under one join key, at the place that a run has come to: those that have gone are not among them."""

    def __init__(self, side: JoinSide, bucket: Bucket) -> None:
        super().__init__(side, bucket)
        self._changed: set[str] = set()

    def change(self, sign: int, row: Row, time: int) -> None:
        entry = self._side.entry(row)
        rows = self._at(entry)
        self._changed.add(entry)
        if sign > 0:
            rows.append(JoinRow(row, time, was=False, now=True))
            return
        del rows[place_of((r.row for r in rows), row, self._side.same, self._bucket.prefix)]

    def flush(self) -> None:
        for entry in self._changed:
            self._bucket.put(entry, self._side.write(self._entries[entry]))


def _steps(batch: Batch | None, side: int) -> Iterator[_Step]:
    """The changes of a batch in order."""
    if batch is None or not len(batch):
        return iter(())
    parts = zip(batch.seq.tolist(), signs(batch.op).tolist(), batch.rows(), batch.rowtime.tolist(), strict=True)
    return ((seq, side, sign, row, time) for seq, sign, row, time in parts)
