"""The first rows of each partition in an order, and their ranks: top-N, ORDER BY ... LIMIT, deduplication by ROW_NUMBER."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from compiler.plan.changes import TopN
from compiler.plan.topology import Operator
from runtime.batch import Batch, Row
from runtime.operators.base import RunContext
from runtime.operators.changes.buckets import Bucket, Buckets
from runtime.operators.changes.closing import closing_keys, drop_buckets
from runtime.operators.changes.deltas import Change, Deltas, deltas_of, same_by
from runtime.operators.changes.order import SortPart, order_text
from runtime.operators.keys import RowKey, frozen_picker, picker
from runtime.state.store import Key, Value

Shown = tuple[str, Row, int]  # entry, output row, row time


class TopNOperator:
    """State: all rows, in buckets by partition: the text of (sort key, row identity) -> (row..., row time) for each row.

    Touches per run and partition that changed: its head, the entry of each changed row, and the shown rows with those before them
    (offset + limit, ties included), once before and once after; the second time only if something changed among them.
    """

    def __init__(self, plan: Operator, inputs: Sequence[Operator]) -> None:
        spec, schema = plan.spec, inputs[0].schema
        assert isinstance(spec, TopN)
        assert plan.schema.names == (*schema.names, *([spec.rank] if spec.rank else []))
        self.plan, self._spec = plan, spec
        names, types = schema.names, [f.type for f in schema]
        self._key = frozen_picker(schema, spec.keys)
        by = [names.index(k.column) for k in spec.order]
        order = [SortPart(types[i], k.descending, k.nulls_first) for i, k in zip(by, spec.order, strict=True)]
        identity = [(names.index(f.name), SortPart(f.type)) for f in schema.key]
        self._sort = picker(by)
        self._tie = order_text(order)
        self._entry_of = picker([*by, *(i for i, _ in identity)])
        self._text = order_text([*order, *(p for _, p in identity)])
        self._in_key, self._out_key = RowKey(schema), RowKey(plan.schema)
        self._same = same_by(types)
        self._width = len(names) + 1
        self._end = None if spec.limit is None else spec.offset + spec.limit

        self._closing = closing_keys(schema, spec.keys, spec.closing, plan.stores)
        self.follows_watermark = self._closing is not None

    def process(self, inputs: Sequence[Batch | None], run: RunContext) -> Batch | None:
        batch = inputs[0]
        out = None if batch is None or not len(batch) else self._changed(batch, run)
        if self._closing is not None:
            heads, rows = (run.state.store(s.name) for s in self.plan.stores[:2])
            drop_buckets(self._closing.taken(run), heads, rows)
        return out

    def _changed(self, batch: Batch, run: RunContext) -> Batch | None:
        by_key: dict[Key, list[Change]] = {}
        for _, changes in deltas_of(batch, self._in_key, self._same):
            for change in changes:
                by_key.setdefault(self._key(change[1]), []).append(change)
        heads, rows = (run.state.store(s.name) for s in self.plan.stores[:2])
        buckets = Buckets(heads, rows)
        buckets.load(by_key)
        if self._closing is not None:
            self._closing.note([k for k in by_key if not buckets[k].size], run)
        large = {k: cs for k, cs in by_key.items() if buckets[k].items is None}
        buckets.expect({k: [self._text(self._entry_of(c[1])) for c in cs] for k, cs in large.items()})
        out = Deltas(self._out_key.of, self._same)
        for key, changes in by_key.items():
            self._change(buckets[key], changes, out)
        buckets.flush()
        return out.batch(self.plan.schema)

    def _change(self, bucket: Bucket, changes: Sequence[Change], out: Deltas) -> None:
        before = list(self._shown(bucket))
        # Where the window may end: without a full one every change counts.
        end = (
            before[-1][0] if before and self._end is not None and len(before) >= self._end - self._spec.offset else None
        )
        within = False
        for sign, row, time, _ in sorted(changes, key=lambda c: c[0]):
            entry = self._text(self._entry_of(row))
            within = within or end is None or entry <= end or self._spec.function != "row_number"
            self._put(bucket, entry, sign, row, time)
        if not within:
            return
        seq, now = max(c[3] for c in changes), max(c[2] for c in changes)
        for _, row, time in before:
            out.add(-1, row, max(time, now), seq)
        for _, row, time in self._shown(bucket):
            out.add(1, row, max(time, now), seq)

    def _put(self, bucket: Bucket, entry: str, sign: int, row: Row, time: int) -> None:
        """Add or remove one row of an entry; an identity has two rows while a change of it is on its way."""
        rows = self._rows(bucket.get(entry) or ())
        if sign > 0:
            rows.append((*row, time))
        else:
            at = next((i for i, r in enumerate(rows) if self._same(r[:-1], row)), None)
            assert at is not None, f"{self.plan.id}: a row was removed that never came: {row}"
            del rows[at]
        bucket.put(entry, tuple(v for r in rows for v in r) or None)

    def _rows(self, payload: Value) -> list[Row]:
        return [payload[i : i + self._width] for i in range(0, len(payload), self._width)]

    def _shown(self, bucket: Bucket) -> Iterator[Shown]:
        """Rows that the result shows, in order."""
        spec, end = self._spec, self._end
        if not bucket.size or end == 0:
            return
        position = rank = dense = 0
        last = None
        for entry, payload in bucket.entries():
            for stored in self._rows(payload):
                row = stored[:-1]
                position += 1
                if spec.function != "row_number" and (tie := self._tie(self._sort(row))) != last:
                    last, rank, dense = tie, position, dense + 1
                found = {"row_number": position, "rank": rank, "dense_rank": dense}[spec.function]
                if end is not None and found > end:
                    return
                if found > spec.offset:
                    yield entry, (*row, found) if spec.rank else row, stored[-1]
                if found == end and spec.function == "row_number":
                    return
