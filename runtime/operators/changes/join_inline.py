"""The quick way through a join over changes: keys with few rows on both sides.

Their heads hold all that is needed (`buckets.py`), so a key costs one look-up on each side, one write, and no objects but the rows
that are given out. Every other key goes the general way. Both give the same changes; a test compares them.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from itertools import chain

from flowql.runtime.batch import DELETE, INSERT, UPDATE_AFTER, UPDATE_BEFORE, Row
from flowql.runtime.operators.changes import buckets
from flowql.runtime.operators.changes.deltas import Change, Deltas, Out
from flowql.runtime.operators.changes.join_side import JoinSide
from flowql.runtime.state.rows import Key, Value
from flowql.runtime.state.store import Store

_Timed = tuple[Row, int, int]  # row, row time, seq
_Moved = tuple[list[_Timed], list[_Timed]]  # rows that go, rows that come


class InlineJoin:
    """For joins without a residual. Holds no data.

    pairs: whether pairs are given out. shows: which sides' rows are shown by themselves. wants: when that is, with a match or without.
    pair, single: (left row, right row) and (side, row) -> row of the result. same: of two rows of it.
    """

    def __init__(
        self,
        sides: Sequence[JoinSide],
        *,
        pairs: bool,
        shows: Sequence[bool],
        wants: bool,
        pair: Callable[[Row, Row], Row],
        single: Callable[[int, Row], Row],
        same: Callable[[Row, Row], bool],
    ) -> None:
        self._sides, self._pairs, self._shows, self._wants = sides, pairs, shows, wants
        self._pair, self._single, self._same = pair, single, same

    def apply(
        self,
        keys: Sequence[Key],
        by_key: Sequence[Mapping[Key, list[Change]]],
        heads: Sequence[Store],
        out: list[Out],
        net: Deltas,
    ) -> dict[Key, list[Value | None]]:
        """Applies what it can. Rows of the result go to `out` where they are net changes as they are: pairs of a key of which one
        side changes. The others go to `net`: rows that are shown by themselves, as they may move from key to key, and pairs of which both
        sides change.

        heads: of both sides. Returns the heads of the keys that are left.
        """
        found = [of.get_many(keys) for of in heads]
        left: dict[Key, list[Value | None]] = {}
        written: list[tuple[list[Key], list[Value | None]]] = [([], []), ([], [])]
        for key, *both in zip(keys, *found, strict=True):
            changes = [c.get(key, ()) for c in by_key]
            after: Sequence[Value | None] = (None, None)
            if _inline(both[0]) and _inline(both[1]):
                if not changes[1]:
                    after = self._changed(0, changes[0], both[0], both[1], out, net), None
                elif not changes[0]:
                    after = None, self._changed(1, changes[1], both[1], both[0], out, net)
                elif all(map(_fits, both, changes)):
                    after = self._both(changes, both, net)
            if after == (None, None):
                left[key] = both
            for (changed_keys, values), head in zip(written, after, strict=True):
                if head is not None:
                    changed_keys.append(key)
                    values.append(head or None)
        for store, (changed_keys, values) in zip(heads, written, strict=True):
            store.put_many(changed_keys, values)
        return left

    def _both(
        self, changes: Sequence[Sequence[Change]], heads: Sequence[Value | None], net: Deltas
    ) -> list[Value | None]:
        """The changes of the left with the right as it was, then those of the right with the left as it is."""
        out: list[Out] = []
        left = self._changed(0, changes[0], heads[0], heads[1], out, net)
        right = self._changed(1, changes[1], heads[1], left or None, out, net)
        assert left is not None
        assert right is not None
        for seq, op, row, time in out:
            net.add(1 if op in (INSERT, UPDATE_AFTER) else -1, row, time, seq)
        return [left, right]

    def _changed(
        self,
        side: int,
        changes: Sequence[Change],
        mine: Value | None,
        other: Value | None,
        out: list[Out],
        net: Deltas,
    ) -> Value | None:
        """The new head of the side that changes, empty if no row is left; None: it is too large, and nothing was done."""
        form = self._sides[side]
        entries: dict[str, Value] = {} if mine is None else dict(zip(mine[1::2], mine[2::2], strict=True))
        had = bool(entries)
        moved: dict[str, _Moved] = {}  # by entry
        for sign, row, time, seq in changes:
            entry = form.entry(row)
            gone, come = moved.setdefault(entry, ([], []))
            if sign > 0:
                entries[entry] = (*entries.get(entry, ()), *row, time)
                come.append((row, time, seq))
            else:
                entries[entry], before = form.without(entries.get(entry, ()), row)
                gone.append((row, max(time, before), seq))
        for entry in moved:
            if not entries[entry]:
                del entries[entry]
        if len(entries) > buckets.INLINE_MAX:
            return None
        self._give(side, changes, moved, (had, bool(entries)), other, out, net)
        return (len(entries), *chain.from_iterable(entries.items())) if entries else ()

    def _give(
        self,
        side: int,
        changes: Sequence[Change],
        moved: Mapping[str, _Moved],
        any_: tuple[bool, bool],
        other: Value | None,
        out: list[Out],
        net: Deltas,
    ) -> None:
        """any_: whether the side that changes has rows of the key, before and after."""
        others = self._sides[1 - side].rows(other)
        if self._pairs and others:
            for of_entry in moved.values():
                for row, time in others:
                    self._replace(of_entry, self._pairing(side, row), time, out)
        mine_alone = self._shows[side] and bool(others) == self._wants
        others_flip = self._shows[1 - side] and any_[0] != any_[1] and bool(others)
        if not mine_alone and not others_flip:
            return
        seq, now = max(c[3] for c in changes), max(c[2] for c in changes)
        if mine_alone:
            for gone, come in moved.values():
                for sign, rows in ((-1, gone), (1, come)):
                    for row, time, _ in rows:
                        net.add(sign, self._single(side, row), max(time, now), seq)
        if others_flip:
            sign = 1 if any_[1] == self._wants else -1
            for row, time in others:
                net.add(sign, self._single(1 - side, row), max(time, now), seq)

    def _pairing(self, side: int, other: Row) -> Callable[[Row], Row]:
        """A function from a row of one side to its pair with a row of the other."""
        pair = self._pair
        return (lambda r: pair(other, r)) if side else (lambda r: pair(r, other))

    def _replace(self, moved: _Moved, shown: Callable[[Row], Row], least: int, out: list[Out]) -> None:
        """The pairs of rows of one entry with one row go and come; what is equal is no change. least: of the row times."""
        gone, come = moved
        if not gone:
            out += [(s, INSERT, shown(r), max(t, least)) for r, t, s in come]
            return
        if not come:
            out += [(s, DELETE, shown(r), max(t, least)) for r, t, s in gone]
            return
        old = [(shown(r), max(t, least), s) for r, t, s in gone]
        new = [(shown(r), max(t, least), s) for r, t, s in come]
        for n, (row, _, _) in reversed(list(enumerate(old))):
            at = next((i for i, c in enumerate(new) if self._same(row, c[0])), None)
            if at is not None:
                del old[n], new[at]
        for k in range(max(len(old), len(new))):
            both = k < len(old) and k < len(new)
            seq = max(of[k][2] for of in (old, new) if k < len(of))
            if k < len(old):
                out.append((seq, UPDATE_BEFORE if both else DELETE, old[k][0], old[k][1]))
            if k < len(new):
                out.append((seq, UPDATE_AFTER if both else INSERT, new[k][0], new[k][1]))


def _inline(head: Value | None) -> bool:
    """All entries are in the head."""
    return head is None or len(head) > 1


def _fits(head: Value | None, changes: Sequence[Change]) -> bool:
    """The head has room for all rows that come."""
    return (0 if head is None else head[0]) + sum(c[0] > 0 for c in changes) <= buckets.INLINE_MAX
