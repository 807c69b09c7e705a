"""The first rows of each partition in an order, and their ranks: top-N, ORDER BY ... LIMIT, deduplication by ROW_NUMBER."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass, field
from operator import itemgetter

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from flowql.compiler.plan.changes import TopN
from flowql.compiler.plan.schema import Schema
from flowql.compiler.plan.topology import Operator
from flowql.compiler.plan.types import Kind
from flowql.runtime.batch import INSERT, Batch, Ints, Row
from flowql.runtime.operators.base import MicroBatchContext
from flowql.runtime.operators.changes.buckets import Bucket, Buckets
from flowql.runtime.operators.changes.closing import ClosingKeys, drop_buckets
from flowql.runtime.operators.changes.deltas import (
    Change,
    Deltas,
    by_columns,
    change_row,
    deltas_of,
    kept_rows,
    same_by,
)
from flowql.runtime.operators.changes.group_deltas import whole_numbers
from flowql.runtime.operators.changes.order import SortPart, order_text
from flowql.runtime.operators.keys import RowKey, frozen_picker, picker
from flowql.runtime.operators.winners import group_codes
from flowql.runtime.state.rows import Key

_WHOLE = frozenset({Kind.INT, Kind.BIGINT, Kind.DATE, Kind.TIME, Kind.TIMESTAMP, Kind.MICROS})
_TEXTS = frozenset({Kind.STRING, Kind.BYTES})  # in the order of their bytes, which is that of code points


@dataclass(slots=True)
class Come:
    """Rows of a partition with their times. time, seq: the highest of all rows of the run in it."""

    rows: list[tuple[Row, int]] = field(default_factory=list)
    time: int = 0
    seq: int = 0


class FirstRows:
    """Finds the rows of a micro-batch that can be among the first of their partition. Holds no data."""

    def __init__(self, schema: Schema, spec: TopN) -> None:
        names = schema.names
        self._keys = [names.index(k) for k in spec.keys]
        self._order = [(names.index(k.column), k.descending) for k in spec.order]
        self._order += [(names.index(f.name), False) for f in schema.key]
        self._sortable = all(schema.fields[i].type.kind in _WHOLE | _TEXTS for i, _ in self._order)
        self._count = spec.offset + (spec.limit or 0)

    def of(self, batch: Batch, key_of: Callable[[Row], Key], *, vector: bool) -> dict[Key, Come]:
        """By partition. With `vector` rows behind as many of the run as are wanted are left out, where columns can tell."""
        columns = self._columns(batch) if vector else None
        found: dict[Key, Come] = {}
        if columns is None:
            for row, time, seq in zip(batch.rows(), batch.rowtime.tolist(), batch.seq.tolist(), strict=True):
                come = found.setdefault(key_of(row), Come([], time, seq))
                come.rows.append((row, time))
                come.time, come.seq = max(come.time, time), max(come.seq, seq)
            return found
        codes, count, chosen = columns
        times, seqs = np.full(count, np.iinfo(np.int64).min), np.zeros(count, np.int64)
        np.maximum.at(times, codes, batch.rowtime)
        np.maximum.at(seqs, codes, batch.seq)
        kept, groups = batch.take(chosen), codes[chosen]
        facts = (kept.rows(), kept.rowtime.tolist(), times[groups].tolist(), seqs[groups].tolist())
        for row, time, latest, seq in zip(*facts, strict=True):
            come = found.setdefault(key_of(row), Come([], latest, seq))
            come.rows.append((row, time))
            come.time, come.seq = max(come.time, latest), max(come.seq, seq)
        return found

    def _columns(self, batch: Batch) -> tuple[Ints, int, Ints] | None:
        """(partition of each row, how many partitions, the rows that are chosen); None where columns cannot be ordered as entries are."""
        source = batch.arrow()
        if not self._sortable or any(source.column(i).null_count for i, _ in self._order):
            return None
        try:
            codes, count = (
                group_codes([source.column(i) for i in self._keys], sort=False)
                if self._keys
                else (np.zeros(len(batch), np.int64), 1)
            )
        except pa.ArrowNotImplementedError:  # Arrow groups no structs or maps: `_rows` chooses
            return None
        ranks = [_ranks(source.column(i), descending=descending) for i, descending in self._order]
        order = np.lexsort((*reversed(ranks), codes))
        sorted_codes = codes[order]
        starts = np.flatnonzero(np.concatenate([[True], sorted_codes[1:] != sorted_codes[:-1]]))
        place = np.arange(len(order)) - np.repeat(starts, np.diff(np.append(starts, len(order))))
        return codes, count, np.sort(order[place < self._count])


def _ranks(column: pa.Array, *, descending: bool) -> Ints:
    """Numbers in the order of a column without NULLs."""
    if pa.types.is_string(column.type) or pa.types.is_binary(column.type):
        values = np.asarray(pc.rank(column, "ascending", tiebreaker="dense").to_numpy(zero_copy_only=False), np.int64)
    else:
        values = whole_numbers(column)
    return np.invert(values) if descending else values  # ~v falls where v rises, and has no overflow


Shown = tuple[str, Row, int]  # entry, output row, row time


class TopNOperator:
    """State: all rows, in buckets by partition: the text of (sort key, row identity) -> (row..., row time) for each row.

    Touches per run and partition that changed: its head, the entry of each changed row, and the shown rows with those before them
    (offset + limit, ties included), once before and once after; the second time only if something changed among them.

    Where rows only come, rows behind offset + limit are not kept, and of a run no more rows than these are looked at.
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

        self._appends = spec.appends
        assert not spec.appends or (spec.function == "row_number" and self._end is not None)
        self._best = FirstRows(schema, spec)
        self._closing = ClosingKeys(schema, spec.keys, spec.closing, plan.stores) if spec.closing else None
        self.follows_watermark = self._closing is not None

    def process(self, inputs: Sequence[Batch | None], run: MicroBatchContext) -> Batch | None:
        batch = inputs[0]
        out = None if batch is None or not len(batch) else self._changed(batch, run)
        if self._closing is not None:
            heads, rows = (run.state.store(s.name) for s in self.plan.stores[:2])
            drop_buckets(self._closing.taken(run), heads, rows)
        return out

    def _changed(self, batch: Batch, run: MicroBatchContext) -> Batch | None:
        if self._appends:
            return self._appended(batch, run)
        by_key: dict[Key, list[Change]] = {}
        for _, changes in deltas_of(batch, self._in_key, self._same):
            for change in changes:
                by_key.setdefault(self._key(change[1]), []).append(change)
        buckets = self._opened(by_key, run)
        large = {k: cs for k, cs in by_key.items() if buckets[k].items is None}
        buckets.expect({k: [self._text(self._entry_of(c[1])) for c in cs] for k, cs in large.items()})
        out = Deltas(self._out_key.of, self._same)
        for key, changes in by_key.items():
            self._change(buckets[key], changes, out)
        buckets.flush()
        return out.batch(self.plan.schema)

    def _opened(self, keys: Collection[Key], run: MicroBatchContext) -> Buckets:
        """The buckets of these partitions; new ones wait for the watermark that closes them."""
        buckets = Buckets(*(run.state.store(s.name) for s in self.plan.stores[:2]))
        buckets.load(keys)
        if self._closing is not None:
            self._closing.note([k for k in keys if not buckets[k].size], run)
        return buckets

    def _appended(self, batch: Batch, run: MicroBatchContext) -> Batch | None:
        """Rows that come where none ever leaves: of a partition only those are kept that are shown, or stand before these."""
        assert (batch.op == INSERT).all(), f"{self.plan.id}: a row leaves where rows only come"
        by_key = self._best.of(batch, self._key, vector=by_columns(batch, run))
        buckets = self._opened(by_key, run)
        out = Deltas(self._out_key.of, self._same)
        for key, come in by_key.items():
            self._append(buckets[key], come, out)
        buckets.flush()
        return out.batch(self.plan.schema)

    def _append(self, bucket: Bucket, come: Come, out: Deltas) -> None:
        assert self._end is not None
        before = list(bucket.entries()) if bucket.size else []
        last = before[-1][0] if len(before) >= self._end else None
        new = [(self._text(self._entry_of(row)), (*row, time)) for row, time in come.rows]
        after = sorted((*before, *(n for n in new if last is None or n[0] < last)), key=itemgetter(0))
        if len(after) == len(before):
            return
        kept = after[: self._end]
        was, now = dict(before), dict(kept)
        for entry in was.keys() - now.keys():
            bucket.put(entry, None)
        for entry, payload in kept:
            if entry not in was:
                bucket.put(entry, payload)
        for sign, shown in ((-1, before), (1, kept)):
            for place, (_, payload) in enumerate(shown[self._spec.offset :], self._spec.offset + 1):
                row = (*payload[:-1], place) if self._spec.rank else payload[:-1]
                out.add(sign, row, max(payload[-1], come.time), come.seq)

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
            change_row(bucket, entry, sign, row, time, self._same, self.plan.id)
        if not within:
            return
        seq, now = max(c[3] for c in changes), max(c[2] for c in changes)
        for _, row, time in before:
            out.add(-1, row, max(time, now), seq)
        for _, row, time in self._shown(bucket):
            out.add(1, row, max(time, now), seq)

    def _shown(self, bucket: Bucket) -> Iterator[Shown]:
        """Rows that the result shows, in order."""
        spec, end = self._spec, self._end
        if not bucket.size or end == 0:
            return
        position = rank = dense = 0
        last = None
        for entry, payload in bucket.entries():
            for stored in kept_rows(payload, self._width):
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
