"""Rows of a join that no row of the other side can meet any more: they are dropped when the watermark says so."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from flowql.compiler.plan.schema import Schema
from flowql.compiler.plan.topology import StoreSpec
from flowql.compiler.plan.watermarks import Closing
from flowql.runtime.operators.base import MicroBatchContext
from flowql.runtime.operators.changes.buckets import Buckets
from flowql.runtime.operators.changes.closing import Waiting, closing_time
from flowql.runtime.operators.changes.deltas import Change
from flowql.runtime.operators.changes.join_side import JoinSide
from flowql.runtime.state.rows import Key, Value


class JoinClosing:
    """State: one bucket of (when, side, row identity) -> (side, entry, join key), an entry for each row that is ever dropped.

    Touches: one entry per changed row; per dropped row that, and the row in its bucket.
    """

    def __init__(
        self,
        closing: Sequence[Sequence[Closing]],
        schemas: Sequence[Schema],
        sides: Sequence[JoinSide],
        stores: Sequence[StoreSpec],
    ) -> None:
        """stores: heads and entries of the left side, of the right side, and of what waits."""
        self._due = [closing_time(s, c) for s, c in zip(schemas, closing, strict=True)]
        self._sides, self._stores = sides, stores

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
        for n in range(len(self._sides)):
            heads, rows = (run.state.store(s.name) for s in self._stores[2 * n : 2 * n + 2])
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

    def _waiting(self, run: MicroBatchContext) -> Waiting:
        heads, rows = (run.state.store(s.name) for s in self._stores[-2:])
        return Waiting(heads, rows)
