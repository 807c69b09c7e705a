"""Rows of a join that no row of the other side can meet any more: they are dropped when the watermark says so."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from flowql.compiler.plan.changes import EquiJoin
from flowql.compiler.plan.schema import Schema
from flowql.compiler.plan.topology import StoreSpec
from flowql.runtime.batch import Row
from flowql.runtime.operators.base import MicroBatchContext
from flowql.runtime.operators.changes.buckets import Buckets
from flowql.runtime.operators.changes.closing import Waiting, closing_time, drop_buckets
from flowql.runtime.operators.changes.deltas import Change
from flowql.runtime.operators.changes.join_side import JoinSide
from flowql.runtime.state.rows import Key, Value

_KEYS_MAX = 128  # of one entry: a record of the changelog stays small
_KEYS = 2  # the side of an entry that holds keys


class JoinClosing:
    """State: one bucket of (when, side, row identity) -> (side, entry, join key), an entry for each row that is ever dropped.

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
