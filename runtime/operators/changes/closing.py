"""What waits for a watermark: entries by the time when they are closed."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence

from compiler.plan.schema import Schema
from compiler.plan.topology import StoreSpec
from compiler.plan.types import BIGINT
from compiler.plan.watermarks import Closing
from runtime.batch import Row
from runtime.operators.base import RunContext
from runtime.operators.changes.buckets import Bucket, Buckets
from runtime.operators.changes.order import SortPart, order_text
from runtime.state.store import Key, Store, Value

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

    def note(self, keys: Iterable[Key], run: RunContext) -> None:
        """Keys that are new."""
        waiting = self._waiting(run)
        due = [(ms, key) for key in keys if (ms := self._due(key)) is not None]
        waiting.bucket.put_many([(waiting.entry(ms, self._text(key)), key) for ms, key in due])
        waiting.flush()

    def taken(self, run: RunContext) -> list[Key]:
        """Keys that are closed now, and waited for no more."""
        if run.watermark is None:
            return []
        waiting = self._waiting(run)
        closed = list(waiting.closed(run.watermark))
        waiting.bucket.put_many([(entry, None) for entry, _ in closed])
        waiting.flush()
        return [tuple(key) for _, key in closed]

    def _waiting(self, run: RunContext) -> Waiting:
        heads, rows = (run.state.store(s.name) for s in self._stores)
        return Waiting(heads, rows)


def closing_keys(
    schema: Schema, keys: Sequence[str], columns: Sequence[Closing], stores: Sequence[StoreSpec]
) -> ClosingKeys | None:
    """None where nothing is closed."""
    return ClosingKeys(schema, keys, columns, stores) if columns else None


def drop_buckets(prefixes: Sequence[Key], heads: Store, rows: Store) -> None:
    """Remove buckets with all their entries."""
    buckets = Buckets(heads, rows)
    buckets.load(prefixes)
    for prefix in prefixes:
        buckets[prefix].put_many([(e, None) for e, _ in buckets[prefix].entries()] if buckets[prefix].size else ())
    buckets.flush()
