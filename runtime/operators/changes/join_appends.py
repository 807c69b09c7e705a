"""The join over changes where rows of both sides only ever come: every row that comes is new, and so is every pair.

What is kept is what the general way keeps (`buckets.py`, `join_side.py`), so either can go on from the state of the other; a test compares them.
Nothing is looked for among the rows of the side that changes.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from itertools import chain

from flowql.runtime.batch import INSERT, Row
from flowql.runtime.operators.base import MicroBatchContext
from flowql.runtime.operators.changes import buckets
from flowql.runtime.operators.changes.deltas import Change, Out
from flowql.runtime.operators.changes.join_side import JoinSide
from flowql.runtime.operators.changes.residual import Residual
from flowql.runtime.state.rows import Key, Value
from flowql.runtime.state.store import Store

_Timed = tuple[Row, int]  # row, row time


class AppendingJoin:
    """For inner joins. Holds no data. pair: (left row, right row) -> row of the result."""

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
