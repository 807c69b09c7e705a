"""Entries that wait for a watermark, by the time when they are closed."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence

from flowql.compiler.plan.schema import Schema
from flowql.compiler.plan.topology import Operator, StoreSpec
from flowql.compiler.plan.types import BIGINT
from flowql.compiler.plan.watermarks import Closing, EmitClosed
from flowql.runtime.batch import Batch, Row
from flowql.runtime.operators.base import MicroBatchContext
from flowql.runtime.operators.changes.buckets import Bucket, Buckets
from flowql.runtime.operators.changes.deltas import Deltas, change_row, deltas_of, kept_rows, same_by
from flowql.runtime.operators.changes.order import SortPart, order_text
from flowql.runtime.operators.keys import RowKey
from flowql.runtime.state.rows import Key, Value
from flowql.runtime.state.store import Store

_DUE = order_text([SortPart(BIGINT)])
_DUE_LENGTH = len(_DUE((0,)))


def closing_time(schema: Schema, columns: Sequence[Closing]) -> Callable[[Row], int | None]:
    """From a row to the watermark at which it is closed; None if none closes it."""
    parts = [(schema.names.index(c.column), c.after) for c in columns]

    def due(row: Row) -> int | None:
        return min((row[i] + after for i, after in parts if row[i] is not None), default=None)

    return due


class Waiting:
    """One bucket of entries, the first to be closed first."""

    def __init__(self, heads: Store, rows: Store) -> None:
        self._buckets = Buckets(heads, rows)
        self._buckets.load([()])

    @property
    def bucket(self) -> Bucket:
        return self._buckets[()]

    @staticmethod
    def entry(due: int, text: str) -> str:
        return _DUE((due,)) + text

    def closed(self, watermark: int) -> Iterator[tuple[str, Value]]:
        """Entries that are due, in order. Nothing may be put while they are consumed."""
        end = _DUE((watermark + 1,))
        for entry, payload in self.bucket.entries() if self.bucket.size else ():
            if entry[:_DUE_LENGTH] >= end:
                return
            yield entry, payload

    def flush(self) -> None:
        self._buckets.flush()


class WaitingRows(Waiting):
    """Rows with their row times: an entry per (when it is due, row identity) -> (row..., row time) for each of its rows."""

    def __init__(self, form: WaitingForm, heads: Store, rows: Store) -> None:
        super().__init__(heads, rows)
        self._form = form
        self.change_rows = 0  # by how many rows it has grown

    def change(self, due: int, sign: int, row: Row, time: int) -> None:
        """Add or remove one row."""
        form = self._form
        entry = self.entry(due, form.text(form.identity.of(row)))
        change_row(self.bucket, entry, sign, row, time, form.same, form.operator)
        self.change_rows += 1 if sign > 0 else -1

    def entries(self, rows: Sequence[tuple[int, Key, Row]]) -> list[tuple[str, Row]] | None:
        """Entries of rows, each with when it is due and its identity, its own time at its end; None if one of the identities waits then already."""
        text, bucket = self._form.text, self.bucket
        made = [(self.entry(due, text(key)), row) for due, key, row in rows]
        bucket.expect([e for e, _ in made])
        return None if any(bucket.get(e) is not None for e, _ in made) else made

    def add(self, entries: Sequence[tuple[str, Row]]) -> None:
        """Rows of `entries`."""
        self.bucket.put_many(entries)
        self.change_rows += len(entries)

    def taken(self, watermark: int) -> list[tuple[Row, int]]:
        """Rows that are due, with their times, in order; they wait no more."""
        closed = list(self.closed(watermark))
        for entry, _ in closed:
            self.bucket.put(entry, None)
        taken = [(r[:-1], r[-1]) for _, payload in closed for r in kept_rows(payload, self._form.width)]
        self.change_rows -= len(taken)
        return taken

    @property
    def first(self) -> Row | None:
        """The row that is due first; None if none waits."""
        found = self.bucket.first() if self.bucket.size else None
        return None if found is None else found[1][: self._form.width - 1]


class WaitingForm:
    """How rows of a schema wait. operator: its id, for messages."""

    def __init__(self, schema: Schema, operator: str) -> None:
        self.operator, self.width = operator, len(schema.names) + 1
        self.identity = RowKey(schema)
        self.text = order_text([SortPart(t) for t in self.identity.types])
        self.same = same_by(f.type for f in schema)


class ClosingKeys:
    """Keys of state, of groups or partitions, until the watermark closes them: a bucket of (when, key) -> key. Holds no data.

    Touches: one entry per new key, and one per key that is closed.
    """

    def __init__(
        self, schema: Schema, keys: Sequence[str], columns: Sequence[Closing], stores: Sequence[StoreSpec]
    ) -> None:
        """schema: of the input. stores: of the operator; the last two are its own."""
        fields = Schema(tuple(f for k in keys for f in schema if f.name == k))
        self._due = closing_time(fields, columns)
        self._text = order_text([SortPart(f.type) for f in fields])
        self._stores = stores[-2:]

    def note(self, keys: Iterable[Key], run: MicroBatchContext) -> int:
        """Keys that are new; how many of them a watermark will close."""
        waiting = self._waiting(run)
        due = [(ms, key) for key in keys if (ms := self._due(key)) is not None]
        waiting.bucket.put_many([(waiting.entry(ms, self._text(key)), key) for ms, key in due])
        waiting.flush()
        return len(due)

    def taken(self, run: MicroBatchContext) -> list[Key]:
        """Keys that are closed now, and waited for no more."""
        if run.watermark is None:
            return []
        waiting = self._waiting(run)
        closed = list(waiting.closed(run.watermark))
        waiting.bucket.put_many([(entry, None) for entry, _ in closed])
        waiting.flush()
        return [tuple(key) for _, key in closed]

    def _waiting(self, run: MicroBatchContext) -> Waiting:
        heads, rows = (run.state.store(s.name) for s in self._stores)
        return Waiting(heads, rows)


def drop_buckets(prefixes: Sequence[Key], heads: Store, rows: Store) -> None:
    """Remove buckets with all their entries."""
    buckets = Buckets(heads, rows)
    buckets.load(prefixes)
    for prefix in prefixes:
        buckets[prefix].put_many([(e, None) for e, _ in buckets[prefix].entries()] if buckets[prefix].size else ())
    buckets.flush()


class EmitClosedOperator:
    """EMIT ON WINDOW CLOSE: rows when the watermark has closed them.

    State: rows that are not closed, the text of (when they are, row identity) -> (row..., row time) for each row.

    Touches per run: the head; the entry of each changed row that is not closed, and of each that is closed now. A change of a
    row that is closed already is passed on.
    """

    follows_watermark = True

    def __init__(self, plan: Operator, inputs: Sequence[Operator]) -> None:
        assert isinstance(plan.spec, EmitClosed)
        self.plan = plan
        self._due = closing_time(plan.schema, plan.spec.columns)
        self._form = WaitingForm(plan.schema, plan.id)
        self._identity, self._same = self._form.identity, self._form.same

    def process(self, inputs: Sequence[Batch | None], run: MicroBatchContext) -> Batch | None:
        batch, watermark = inputs[0], run.watermark
        heads, rows = (run.state.store(s.name) for s in self.plan.stores)
        waiting, out = WaitingRows(self._form, heads, rows), Deltas(self._identity.of, self._same)
        for _, changes in deltas_of(batch, self._identity, self._same) if batch is not None else ():
            for sign, row, time, seq in sorted(changes, key=lambda c: c[0]):
                due = self._due(row)
                if due is None:
                    continue
                if watermark is not None and due <= watermark:
                    out.add(sign, row, time, seq)
                else:
                    waiting.change(due, sign, row, time)
        if watermark is not None:
            for row, time in waiting.taken(watermark):
                out.add(1, row, time, run.last_seq)
        waiting.flush()
        run.hold(self.plan.id, waiting.change_rows)
        return out.batch(self.plan.schema)
