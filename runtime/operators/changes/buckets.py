"""Ordered maps in state, one per prefix (a group, a join key, a partition): small ones in one row, large ones an entry per row.

Two stores: *heads*, prefix -> (number of entries, entry, payload, entry, payload, ...) while there are at most `INLINE_MAX`, then
(number of entries,) alone; and *rows*, (prefix, entry) -> payload. So a small bucket costs one look-up in memory, and a change of a
large one costs its own row and the head, however large it is. A bucket that has become half as small moves back.

An entry is a text (`order_text`), and entries are ordered by it; a payload is any tuple of values.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import chain, islice

from flowql.runtime.state.rows import Key, Value
from flowql.runtime.state.store import Store

INLINE_MAX = 16  # entries of a bucket in its head; half as many bring a large one back


class Bucket:
    """One ordered map during a run. Made by `Buckets`."""

    __slots__ = ("_known", "_rows", "changed", "items", "prefix", "size", "touched")

    def __init__(self, prefix: Key, head: Value | None, rows: Store) -> None:
        self.prefix = prefix
        self._rows = rows
        self.size: int = 0 if head is None else head[0]
        # None: its entries are rows of their own.
        self.items: dict[str, Value] | None = {}
        if head is not None:
            self.items = dict(zip(head[1::2], head[2::2], strict=True)) if len(head) > 1 else None
        self._known: dict[str, Value | None] = {}
        self.changed = False
        self.touched = 0  # entries read or written, for the bounds that operators state

    def get(self, entry: str) -> Value | None:
        self.touched += 1
        if self.items is not None:
            return self.items.get(entry)
        if entry not in self._known:
            self._known[entry] = self._rows.get((*self.prefix, entry))
        return self._known[entry]

    def know(self, entry: str, payload: Value | None) -> None:
        """Stores the result of a joint look-up for an entry."""
        self._known[entry] = payload

    def expect(self, entries: Sequence[str]) -> None:
        """Read entries that are about to be looked up, all at once."""
        wanted = [e for e in entries if e not in self._known] if self.items is None else []
        if wanted:
            payloads = self._rows.get_many([(*self.prefix, e) for e in wanted])
            self._known.update(zip(wanted, payloads, strict=True))

    def put(self, entry: str, payload: Value | None) -> None:
        """Sets the payload of an entry; None removes it."""
        self.touched += 1
        self.changed = True
        if self.items is None:
            before = self.get(entry)
            self._known[entry] = payload
            self._rows.put((*self.prefix, entry), payload)
            self.size += (payload is not None) - (before is not None)
            return
        if payload is None:
            self.items.pop(entry, None)
        else:
            self.items[entry] = payload
        self.size = len(self.items)
        if self.size > INLINE_MAX:
            self._rows.put_many([(*self.prefix, e) for e in self.items], list(self.items.values()))
            self._known = dict(self.items)
            self.items = None

    def put_many(self, edits: Sequence[tuple[str, Value | None]], *, new: bool = False) -> None:
        """As `put` for each, with one look-up and one write of a large bucket. new: of none of the entries anything is known."""
        edits = list(edits)
        at = 0
        while self.items is not None and at < len(edits):
            self.put(*edits[at])
            at += 1
        if at == len(edits):
            return
        last = dict(edits[at:])
        if new:
            self._known.update(dict.fromkeys(last))
        else:
            self.expect(list(last))
        self.touched += 2 * (len(edits) - at)  # read and written
        self.changed = True
        known = self._known
        self.size += sum((payload is not None) - (known[entry] is not None) for entry, payload in last.items())
        known.update(last)
        self._rows.put_many([(*self.prefix, entry) for entry in last], list(last.values()))

    def entries(self, *, after: str | None = None) -> Iterator[tuple[str, Value]]:
        """Entries in order, those above `after` if it is given. Nothing may be put while they are consumed."""
        if self.items is not None:
            for entry in sorted(self.items):
                if after is None or entry > after:
                    self.touched += 1
                    yield entry, self.items[entry]
            return
        for key, payload in self._rows.scan_prefix(self.prefix, after=() if after is None else (*self.prefix, after)):
            self.touched += 1
            found = key[-1]
            assert isinstance(found, str)
            yield found, payload

    def first(self) -> tuple[str, Value] | None:
        """The least entry."""
        return next(self.entries(), None) if self.size else None

    def head(self) -> Value | None:
        """The entry of the bucket in the store; a large bucket that has become small moves back."""
        if self.items is None and self.size <= INLINE_MAX // 2:
            self.items = dict(islice(self.entries(), self.size + 1))
            assert len(self.items) == self.size, f"bucket {self.prefix} has {len(self.items)} entries, not {self.size}"
            self._rows.put_many([(*self.prefix, e) for e in self.items], [None] * self.size)
        if self.items is None:
            return (self.size,)
        return (self.size, *chain.from_iterable(self.items.items())) if self.items else None


class Buckets:
    """The buckets that one run touches: each head is read once and written once."""

    def __init__(self, heads: Store, rows: Store) -> None:
        self._heads, self._rows = heads, rows
        self._loaded: dict[Key, Bucket] = {}

    def load(self, prefixes: Iterable[Key]) -> None:
        """Read these buckets; the same one twice costs nothing."""
        new = [p for p in dict.fromkeys(prefixes) if p not in self._loaded]
        self.know(dict(zip(new, self._heads.get_many(new), strict=True)))

    def know(self, heads: Mapping[Key, Value | None]) -> None:
        """Buckets whose heads have been read already."""
        for prefix, head in heads.items():
            self._loaded[prefix] = Bucket(prefix, head, self._rows)

    def __getitem__(self, prefix: Key) -> Bucket:
        return self._loaded[prefix]

    def expect(self, entries: Mapping[Key, Iterable[str]]) -> None:
        """Read the entries of large buckets that are about to be looked up, all at once. prefix -> entries."""
        wanted = [(b, e) for p, es in entries.items() if (b := self._loaded[p]).items is None for e in es]
        found = self._rows.get_many([(*b.prefix, e) for b, e in wanted]) if wanted else []
        for (bucket, entry), payload in zip(wanted, found, strict=True):
            bucket.know(entry, payload)

    @property
    def touched(self) -> int:
        """Heads and entries read or written so far."""
        return len(self._loaded) + sum(b.touched for b in self._loaded.values())

    def flush(self) -> None:
        """Write the heads of changed buckets."""
        changed = [b for b in self._loaded.values() if b.changed]
        self._heads.put_many([b.prefix for b in changed], [b.head() for b in changed])
