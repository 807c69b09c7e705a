"""One logical store of one task: uncommitted layers and a cache over the physical rows.

Writes move down only: batch -> active (publish) -> frozen (cut) -> physical (apply), and are in the lower place before they
leave the upper one. A reader that looks from the top down therefore misses nothing, without a lock, whatever the committing
thread does meanwhile; only the thread that holds the task publishes, so what it just did not find above cannot appear there.

`_latest` and `_older` are two generations of a cache of everything below the batch layer, None for an absent key. They are
replaced, never cleared, under the epoch lock; a reader that still fills a replaced one does no harm.

A store that had no physical rows when it was opened has all its rows in the cache until some leave it (`_whole`): a key that is not there
is absent then, and is neither looked up below nor noted. New keys are most of what a query asks for while it reads a history.
`_whole` is false before rows leave, and asked after the cache was.

Once an operator has asked for `columns`, a `ColumnLayer` takes the place of the cache, and what is written by key becomes a delta when it is published.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace

from flowql.compiler.plan.topology import StoreSpec
from flowql.runtime.state.columns.layer import Appended, ColumnLayer, Delta, Found
from flowql.runtime.state.columns.packed import PackedKeys, pack
from flowql.runtime.state.columns.values import RowValues, ValueLayout
from flowql.runtime.state.layers import Overlay, PhysicalRows, above_bound, merge_lazily, merge_rows, overlaid
from flowql.runtime.state.layout import BEGINNING_MS, StoreEntry, decode_number, is_segmented
from flowql.runtime.state.physical import PhysicalReader
from flowql.runtime.state.rows import Key, Value
from flowql.runtime.state.values import decode_value, decode_values

ROWS_OF_COLUMNS = (
    8  # so many rows in columns that wait for a commit take the memory of one in Python (about 50 bytes each)
)


@dataclass(slots=True)
class StoreMetrics:
    """The number of requests of one task to one store. physical: keys looked up or rows scanned below; the other reads were answered from memory."""

    reads: int = 0  # tests tell by it what a change touches
    writes: int = 0
    physical: int = 0


class TaskStore:
    """Implements `flowql.runtime.state.store.Store`; `publish`, `discard` and below belong to the task and the manager."""

    def __init__(
        self,
        entry: StoreEntry,
        partition: int,
        physical: PhysicalReader,
        *,
        detached: bool,
        is_empty: Callable[[], bool],
    ) -> None:
        """is_empty: whether it has no physical rows. It is asked under the epoch lock, so it waits for nothing."""
        self.spec: StoreSpec = entry.spec
        self.entry, self.partition = entry, partition
        self.metrics = StoreMetrics()
        self.detached = detached  # a drop of this partition waits for its commit: physical rows are not ours
        self._physical = physical
        self._canonical = entry.codec.canonical if entry.codec.has_double else None
        self._segmented = is_segmented(entry.spec)
        self._columns: ColumnLayer | None = None
        self._forgets = 0
        self._batch, self._active = Overlay(), Overlay()
        self._frozen: Overlay | None = None
        self._latest: dict[Key, Value | None] = {}
        self._older: dict[Key, Value | None] = {}
        self._is_empty = is_empty
        self._whole = not detached and is_empty()
        self._committed_bound = self._read_bound()

    def get(self, key: Key) -> Value | None:
        return self.get_many((key,))[0]

    def get_many(self, keys: Sequence[Key]) -> list[Value | None]:
        if self._canonical is not None:
            keys = list(map(self._canonical, keys))
        self.metrics.reads += len(keys)
        if self._columns is not None:
            return self._get_from_columns(keys, self._columns)
        if self._batch.deltas:
            self._append_rows()
        batch, latest = self._batch.in_rows(self.entry.codec).rows, self._latest
        values = [batch[k] if k in batch else latest.get(k) for k in keys] if batch else list(map(latest.get, keys))
        if None in values and not (self._whole and not self._older and self._latest is latest):
            unknown = [i for i, v in enumerate(values) if v is None and keys[i] not in latest and keys[i] not in batch]
            if unknown:
                self._load(keys, values, unknown, latest)
        if self._segmented and (bound := self._bound()) > BEGINNING_MS:
            return [None if k[-1] < bound else v for k, v in zip(keys, values, strict=True)]  # type: ignore[operator]
        return values

    def put(self, key: Key, value: Value | None) -> None:
        self.metrics.writes += 1
        self._batch.rows[key if self._canonical is None else self._canonical(key)] = value

    def put_many(self, keys: Sequence[Key], values: Sequence[Value | None]) -> None:
        self.metrics.writes += len(keys)
        if self._canonical is not None:
            keys = list(map(self._canonical, keys))
        self._batch.rows.update(zip(keys, values, strict=True))

    def append(self, keys: PackedKeys, values: RowValues) -> None:
        assert self._columns is None, f"{self.spec.name} is in columns"
        if self._batch.rows:
            self._append_rows(values.layout)
        self.metrics.writes += len(values)
        self._batch.deltas.append(Appended(keys, values))

    def columns(self, layout: ValueLayout) -> TaskStore:
        if self._columns is None:
            appended = any(o is not None and o.deltas for o in (self._batch, self._active, self._frozen))
            assert not appended, f"{self.spec.name} is appended to"
            self._move_into(ColumnLayer(layout))
        assert self._columns is not None
        assert self._columns.layout == layout, f"{self.spec.name} is in columns of another layout"
        return self

    def find(self, keys: PackedKeys) -> Found:
        assert self._columns is not None
        self.metrics.reads += len(keys)
        self._stage_rows()
        return self._find(keys, self._columns)

    def stage(self, found: Found, values: RowValues) -> None:
        self._stage_rows()
        self._stage(found, values)

    def scan(self, *, low: Key | None = None, high: Key | None = None) -> Iterator[tuple[Key, Value]]:
        """As of this call: what is put while it is consumed does not show."""
        codec = self.entry.codec
        start = b"" if low is None else codec.encode(low)
        end = None if high is None else codec.encode(high)
        active = self._active  # before frozen: the cut fills frozen before it replaces active
        layers = [o for o in (self._frozen, active, self.batch) if o is not None]
        above = overlaid(codec, [o.in_rows(codec) for o in layers], start, end)
        below: Iterator[tuple[bytes, bytes]] = iter(())
        if not self.detached:
            below = self._count(PhysicalRows(self._physical, self.entry, self.partition).scan(start, end))
        rows = merge_rows(codec, above, below)
        return above_bound(rows, self._bound()) if self._segmented else rows

    def scan_prefix(self, prefix: Key, *, after: Key = ()) -> Iterator[tuple[Key, Value]]:
        """See `Store.scan_prefix`."""
        assert not self._segmented, f"{self.spec.name} is of kind {self.spec.kind}, whose rows are not in key order"
        codec = self.entry.codec
        if self._canonical is not None:
            prefix, after = self._canonical(prefix), self._canonical(after)
        start = codec.encode(prefix)
        # A tag, 0 or 1, follows a prefix; a longer text in its last part goes on with FF, as does one above `after`.
        high = start + b"\x02" if prefix else None
        low = codec.encode(after) + b"\0" if after else start
        active = self._active  # before frozen: the cut fills frozen before it replaces active
        layers = [o.in_rows(codec) for o in (self.batch, active, self._frozen) if o is not None]
        below: Iterator[tuple[bytes, bytes]] = iter(())
        if not self.detached:
            below = self._count(PhysicalRows(self._physical, self.entry, self.partition).scan(low, high))
        return merge_lazily(codec, layers, below, low, high)

    def expire(self, before_ms: int) -> None:
        """Also hides rows below the bound that are put later: the bound never goes back."""
        assert self._segmented, f"{self.spec.name} is of kind {self.spec.kind}, which does not expire by time"
        self._batch.bound_ms = max(self._batch.bound_ms, before_ms)

    @property
    def batch(self) -> Overlay:
        """The writes of the current micro-batch so far."""
        if self._batch.deltas and self._columns is None:
            self._append_rows()
        self._stage_rows()
        return self._batch

    def discard(self) -> None:
        """Drop the batch layer."""
        if self._batch:
            self._batch = Overlay()

    def publish(self) -> int:
        """The batch layer enters the active epoch; how many rows that adds to it. The epoch lock is held."""
        if not self._batch:
            return 0
        if self._columns is not None:
            return self._publish_deltas(self._columns)
        if self._batch.deltas or self._active.deltas:
            return self._publish_appended()
        before = len(self._active.rows)
        self._active.absorb(self._batch)
        self._latest.update(self._batch.rows)
        self._batch = Overlay()
        return len(self._active.rows) - before

    def freeze(self) -> Overlay | None:
        """Active becomes frozen; returned if there is anything in it. The epoch lock is held."""
        assert self._frozen is None, "one frozen epoch at a time"
        if not self._active:
            return None
        frozen = self._frozen = self._active
        self._active = Overlay()
        if self._columns is not None:
            self._columns.epoch += 1
        return frozen

    def mark_applied(self) -> None:
        """Drops the frozen layer, whose writes are in the physical store now."""
        if self._frozen is not None:
            self._committed_bound = max(self._committed_bound, self._frozen.bound_ms)
            self._frozen = None

    def revert(self) -> None:
        """Forget everything uncommitted but the batch layer, which its thread may be using: it will be refused."""
        self._active, self._frozen = Overlay(), None
        self.forget()

    def revert_rows(self, gone: Callable[[Key], bool]) -> None:
        """Discards uncommitted writes of rows with these keys. The epoch lock is held, and no scan is in progress."""
        assert self._columns is None, "rows of a store in columns are not discarded one by one"
        for overlay in (self._batch, self._active, self._frozen):
            if overlay is not None:
                overlay.take_out(gone)
        self.forget()

    def forget(self) -> None:
        """Empty the cache."""
        self._whole = False
        self._forgets += 1
        self._latest, self._older = {}, {}
        if self._columns is not None:
            self._columns.forget()

    def reload(self) -> None:
        """Physical rows were restored beneath this store, and nothing is uncommitted."""
        self.forget()
        self._whole = not self.detached and self._is_empty()
        self._committed_bound = self._read_bound()

    @property
    def committed_bound_ms(self) -> int:
        return self._committed_bound

    @property
    def cached(self) -> int:
        """Entries of the cache."""
        return len(self._latest) + len(self._older) if self._columns is None else self._columns.size

    def age(self) -> None:
        """Begin a new generation of the cache; what is not read before the next one is gone then."""
        if self._columns is not None:
            if not self._columns.is_one:
                self._whole = False
            uncommitted = [o for o in (self._frozen, self._active) if o is not None]
            rows = {k: v for o in uncommitted for k, v in o.rows.items()}
            known = RowValues.of(self._columns.layout, list(rows.values()))
            deltas = [d for o in uncommitted for d in o.deltas if isinstance(d, Delta)]
            self._columns.age(Appended(pack(self.entry.codec.encode_many(rows)), known), deltas)
            return
        if self._older:
            self._whole = False
        self._older = self._latest  # before the latest is replaced: a reader between takes neither for all
        self._latest = {}

    def _move_into(self, columns: ColumnLayer) -> None:
        """Rows in memory become columns. The committing thread may cut, apply or revert meanwhile."""
        forgets = self._forgets
        active = self._active
        frozen = self._frozen
        rows = {**self._latest}
        rows = {**self._older, **rows, **({} if frozen is None else frozen.rows), **active.rows}
        if rows:
            columns.put(pack(self.entry.codec.encode_many(rows)), list(rows.values()))
        self._columns = columns
        self._latest, self._older = {}, {}
        if self._forgets != forgets:
            columns.forget()

    def _get_from_columns(self, keys: Sequence[Key], columns: ColumnLayer) -> list[Value | None]:
        batch = self._batch.rows
        asked = list(dict.fromkeys(k for k in keys if k not in batch))
        found = self._find(pack(self.entry.codec.encode_many(asked)), columns).values.to_list() if asked else []
        known = {**batch, **dict(zip(asked, found, strict=True))}
        values = [known[k] for k in keys]
        if self._segmented and batch and (bound := self._bound()) > BEGINNING_MS:
            return [None if k[-1] < bound else v for k, v in zip(keys, values, strict=True)]  # type: ignore[operator]
        return values

    def _find(self, keys: PackedKeys, columns: ColumnLayer) -> Found:
        """Slots and values; rows that the batch layer has by key are not considered."""
        seek = columns.seek(keys)
        if len(seek.missing):
            seek.add(seek.missing, self._below(seek.missing_keys, columns.layout))
        found = seek.found()
        if self._batch.deltas:
            found = found.seen_through([d for d in self._batch.deltas if isinstance(d, Delta)], keys)
        if self._segmented and (bound := self._bound()) > BEGINNING_MS:
            found = replace(found, values=found.values.without(keys.last_times() < bound))
        return found

    def _below(self, keys: PackedKeys, layout: ValueLayout) -> RowValues:
        """Committed values of keys that are not in memory."""
        if self.detached or self._whole:
            return RowValues.nothing(layout, len(keys))
        self.metrics.physical += len(keys)
        data = self._physical.multi_get(self.entry.place(keys.to_bytes(), self.partition))
        there = iter(decode_values([d for d in data if d is not None]))
        return RowValues.of(layout, [None if d is None else next(there) for d in data])

    def _stage(self, found: Found, values: RowValues) -> None:
        self.metrics.writes += len(values)
        self._batch.deltas.append(Delta(found.generation, found.slots, values))

    def _stage_rows(self) -> None:
        """Turns rows that were written by key into a delta, if the store is in columns."""
        columns, rows = self._columns, self._batch.rows
        if columns is None or not rows:
            return
        found = self._find(pack(self.entry.codec.encode_many(rows)), columns)
        self.metrics.writes -= len(rows)  # they were counted
        self._stage(found, RowValues.of(columns.layout, list(rows.values())))
        self._batch.rows = {}

    def _publish_deltas(self, columns: ColumnLayer) -> int:
        self._stage_rows()
        added = 0
        for delta in self._batch.deltas:
            assert isinstance(delta, Delta)
            kept, fresh = columns.publish(delta)
            self._active.deltas.append(kept)
            added += fresh
        self._active.bound_ms = max(self._active.bound_ms, self._batch.bound_ms)
        self._batch = Overlay()
        return added

    def _append_rows(self, layout: ValueLayout | None = None) -> None:
        """Appends rows that were written by key. layout: that of the rows that are appended next, where there are none yet."""
        rows, deltas = self._batch.rows, self._batch.deltas or self._active.deltas
        if not rows:
            return
        layout = layout or deltas[-1].values.layout
        values = RowValues.of(layout, list(rows.values()))
        self._batch.deltas.append(Appended(pack(self.entry.codec.encode_many(rows)), values))
        self._batch.rows = {}

    def _publish_appended(self) -> int:
        self._append_rows()
        self._whole = False  # before rows leave
        if self._latest or self._older:
            self._latest, self._older = {}, {}
        added = sum(map(len, self._batch.deltas))
        self._active.deltas += self._batch.deltas
        self._active.bound_ms = max(self._active.bound_ms, self._batch.bound_ms)
        self._batch = Overlay()
        return -(-added // ROWS_OF_COLUMNS)

    def _read_bound(self) -> int:
        if not self._segmented or self.detached:
            return BEGINNING_MS
        return decode_number(self._physical.get(self.entry.bound_key(self.partition)), BEGINNING_MS)

    def _bound(self) -> int:
        active = self._active
        frozen = self._frozen
        frozen_bound = BEGINNING_MS if frozen is None else frozen.bound_ms
        return max(self._batch.bound_ms, active.bound_ms, frozen_bound, self._committed_bound)

    def _count(self, rows: Iterator[tuple[bytes, bytes]]) -> Iterator[tuple[bytes, bytes]]:
        for row in rows:
            self.metrics.physical += 1
            self.metrics.reads += 1
            yield row

    def _load(
        self, keys: Sequence[Key], values: list[Value | None], unknown: list[int], latest: dict[Key, Value | None]
    ) -> None:
        """Find keys that `latest` does not know, and let it know them."""
        layers = [self._older]
        active = self._active
        frozen = self._frozen
        layers += [o.in_rows(self.entry.codec).rows for o in (active, frozen) if o]
        deep: list[int] = []
        for i in unknown:
            key = keys[i]
            for rows in layers:
                if key in rows:
                    latest[key] = values[i] = rows[key]
                    break
            else:
                deep.append(i)
        if deep and not self.detached and not self._whole:
            self.metrics.physical += len(deep)
            physical = self._physical.multi_get(self.entry.encode_rows([keys[i] for i in deep], self.partition))
            for i, data in zip(deep, physical, strict=True):
                latest[keys[i]] = values[i] = None if data is None else decode_value(data)


def shrink_caches(stores: Sequence[TaskStore], entries: int) -> None:
    """Age the largest caches until all together have no more than so many entries. The epoch lock is held."""
    stores = sorted(stores, key=lambda s: -s.cached)
    total = sum(s.cached for s in stores)
    for store in [*stores, *stores]:
        if total <= entries:
            return
        total -= store.cached
        store.age()
        total += store.cached
