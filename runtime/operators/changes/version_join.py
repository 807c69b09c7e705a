"""The event-time temporal join: each left row meets the version of the right side at its own time, once the watermark has passed it."""

from __future__ import annotations

from collections.abc import Sequence

from flowql.compiler.plan.changes import VersionJoin
from flowql.compiler.plan.topology import Operator
from flowql.compiler.plan.types import TIMESTAMP
from flowql.compiler.plan.watermarks import Closing
from flowql.runtime.batch import Batch, Row
from flowql.runtime.operators.base import MicroBatchContext
from flowql.runtime.operators.changes.buckets import Bucket, Buckets
from flowql.runtime.operators.changes.closing import ClosingKeys, WaitingForm, WaitingRows, closing_time
from flowql.runtime.operators.changes.deltas import Deltas, deltas_of, same_by, signs
from flowql.runtime.operators.changes.order import SortPart, order_text
from flowql.runtime.operators.keys import RowKey, frozen_picker, picker
from flowql.runtime.state.rows import Key, Value

_TIME = order_text([SortPart(TIMESTAMP, descending=True)])
_Given = tuple[Row, int, int]  # a left row, its row time, and the place of the change in the run


class VersionJoinOperator:
    """State: left rows that wait, the text of (when they are due, row identity) -> (row..., row time) for each row; right rows in
    buckets by join key, the text of (time, row identity), the newest first -> (row..., row time); and the join keys that may have
    versions to forget, by the time when they do.

    Touches per run: per left row that comes 1, and 1 when it is due; then the head of its join key and the first version that is not
    after it. Per right row the head of its key and 1, 1 when versions before it may be forgotten, and 1 per version that is.
    """

    follows_watermark = True

    def __init__(self, plan: Operator, inputs: Sequence[Operator]) -> None:
        spec = plan.spec
        assert isinstance(spec, VersionJoin)
        assert len(plan.stores) == 6, "a version join keeps left rows, versions, and when these are forgotten"
        self.plan = plan
        self._outer, self._after = spec.kind == "left", spec.after
        left, right = (i.schema for i in inputs)
        self._due = closing_time(left, (Closing(spec.left_time, spec.after),))
        self._left_time, self._right_time = left.names.index(spec.left_time), right.names.index(spec.right_time)
        self._left_key, self._right_key = frozen_picker(left, spec.left_keys), frozen_picker(right, spec.right_keys)
        self._form = WaitingForm(left, plan.id)
        self._version = picker([self._right_time, *(right.names.index(f.name) for f in right.key)])
        newest_first = [SortPart(TIMESTAMP, descending=True), *(SortPart(f.type, descending=True) for f in right.key)]
        self._version_text = order_text(newest_first)
        closing = (Closing(spec.right_time, spec.after),)
        self._open = ClosingKeys(right, (*spec.right_keys, spec.right_time), closing, plan.stores)
        names = [*left.names, *right.names]
        self._arrange = picker([names.index(n) for n in plan.schema.names])
        self._blank: Row = (None,) * len(right.names)
        self._identity = RowKey(plan.schema)
        self._same = same_by(f.type for f in plan.schema)

    def process(self, inputs: Sequence[Batch | None], run: MicroBatchContext) -> Batch | None:
        left, right = inputs
        left_heads, left_rows, heads, rows = (run.state.store(s.name) for s in self.plan.stores[:4])
        versions = Buckets(heads, rows)
        self._add(right, versions, run)
        due = self._due_rows(left, WaitingRows(self._form, left_heads, left_rows), run)
        out = Deltas(self._identity.of, self._same)
        versions.load(k for row, _, _ in due if None not in (k := self._left_key(row)))
        for row, time, seq in due:
            self._join(row, time, seq, versions, out)
        self._forget(versions, run)
        versions.flush()
        return out.batch(self.plan.schema)

    def _add(self, batch: Batch | None, versions: Buckets, run: MicroBatchContext) -> None:
        """New versions. A row without a key or a time is none."""
        if batch is None or not len(batch):
            return
        assert (signs(batch.op) > 0).all(), f"{self.plan.id}: a version is never removed"
        found = [
            (key, row, time)
            for row, time in zip(batch.rows(), batch.rowtime.tolist(), strict=True)
            if row[self._right_time] is not None and None not in (key := self._right_key(row))
        ]
        versions.load(key for key, _, _ in found)
        for key, row, time in found:
            versions[key].put(self._version_text(self._version(row)), (*row, time))
        self._open.note({(*key, row[self._right_time]): None for key, row, _ in found}, run)

    def _due_rows(self, batch: Batch | None, waiting: WaitingRows, run: MicroBatchContext) -> list[_Given]:
        """Left rows whose time the watermark has passed, and those that it passes now; others wait."""
        found: list[_Given] = []
        watermark = run.watermark
        changes = () if batch is None else deltas_of(batch, self._form.identity, self._form.same)
        for sign, row, time, seq in (c for _, of in changes for c in sorted(of, key=lambda c: c[0])):
            due = self._due(row)
            if due is None:
                continue
            if sign > 0 and watermark is not None and due <= watermark:
                found.append((row, time, seq))
            else:  # a row that goes has waited, also where the watermark passes it in this run
                waiting.change(due, sign, row, time)
        if watermark is not None:
            found += ((row, time, run.last_seq) for row, time in waiting.taken(watermark))
        waiting.flush()
        run.hold(self.plan.id, waiting.change_rows)
        return found

    def _join(self, row: Row, time: int, seq: int, versions: Buckets, out: Deltas) -> None:
        key = self._left_key(row)
        found = None if None in key else _at(versions[key], row[self._left_time])
        if found is not None:
            version = found[1]
            out.add(1, self._arrange((*row, *version[:-1])), max(time, version[-1]), seq)
        elif self._outer:
            out.add(1, self._arrange((*row, *self._blank)), time, seq)

    def _forget(self, versions: Buckets, run: MicroBatchContext) -> None:
        """Forgets, for each key that is due, the versions before the one that the earliest possible row would meet."""
        keys: dict[Key, None] = {key[:-1]: None for key in self._open.taken(run)}
        versions.load(keys)
        for key in keys:
            assert run.watermark is not None
            bucket = versions[key]
            oldest = _at(bucket, run.watermark - self._after + 1)
            if oldest is not None:
                for entry in [e for e, _ in bucket.entries(after=oldest[0])]:
                    bucket.put(entry, None)


def _at(bucket: Bucket, time: int) -> tuple[str, Value] | None:
    """The newest version that is not after a time."""
    return next(bucket.entries(after=_TIME((time,))), None) if bucket.size else None
