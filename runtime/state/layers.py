"""The parts of a store in memory: overlays of uncommitted writes, and merging them with rows below in key order."""

from __future__ import annotations

from bisect import bisect_left, insort
from collections.abc import Callable, Iterator, Sequence
from heapq import merge
from itertools import islice
from typing import Any

from flowql.runtime.state.columns.layer import ColumnWrite, last_values
from flowql.runtime.state.keys import KeyCodec, decode_time, encode_time
from flowql.runtime.state.layout import BEGINNING_MS, StoreEntry, successor
from flowql.runtime.state.physical import PhysicalReader
from flowql.runtime.state.rows import Key, Value
from flowql.runtime.state.values import decode_value

_INSORT_MAX = 16  # with more new keys than this one sort is cheaper


class Overlay:
    """Writes not yet below: key -> value, None for a delete, and over them the deltas of a store in columns, in their order. `bound_ms` hides
    older rows.

    A sorted index is kept from the first scan on. Only the thread that owns the task scans; the committing thread reads
    `rows` of a frozen overlay, which does not change any more.
    """

    __slots__ = ("_index", "bound_ms", "deltas", "rows")

    def __init__(self) -> None:
        self.rows: dict[Key, Value | None] = {}
        self.deltas: list[ColumnWrite] = []
        self.bound_ms = BEGINNING_MS
        self._index: list[tuple[bytes, Key]] = []

    def __bool__(self) -> bool:
        return bool(self.rows or self.deltas) or self.bound_ms > BEGINNING_MS

    def in_rows(self, codec: KeyCodec) -> Overlay:
        """The same without deltas."""
        if not self.deltas:
            return self
        made = Overlay()
        made.rows, made.bound_ms = dict(self.rows), self.bound_ms
        for keys, values in last_values(self.deltas):
            made.rows.update(zip(codec.decode_many(keys.to_bytes()), values.to_list(), strict=True))
        return made

    def absorb(self, newer: Overlay) -> None:
        assert not newer.deltas, "they are published one by one"
        self.rows.update(newer.rows)
        self.bound_ms = max(self.bound_ms, newer.bound_ms)

    def take_out(self, gone: Callable[[Key], bool]) -> None:
        """Discards matching uncommitted writes."""
        self.rows = {k: v for k, v in self.rows.items() if not gone(k)}
        self._index = []

    def between(self, codec: KeyCodec, low: bytes, high: bytes | None) -> list[tuple[bytes, Key]]:
        """Keys in a range, in order."""
        index = self._sorted(codec)
        start = bisect_left(index, (low,))
        return index[start : len(index) if high is None else bisect_left(index, (high,))]

    def following(self, codec: KeyCodec, low: bytes, rank: int) -> Iterator[tuple[bytes, int, Key, Value | None]]:
        """Rows from a key on, in order, one at a time: (encoded key, rank, key, value). Nothing may be written meanwhile."""
        index, rows = self._sorted(codec), self.rows
        for at in range(bisect_left(index, (low,)), len(index)):
            encoded, key = index[at]
            yield encoded, rank, key, rows[key]

    def _sorted(self, codec: KeyCodec) -> list[tuple[bytes, Key]]:
        index = self._index
        new = len(self.rows) - len(index)
        if new:  # dicts keep insertion order: new keys are at the end
            keys = list(islice(reversed(self.rows), new))
            entries = list(zip(codec.encode_many(keys), keys, strict=True))
            if new <= _INSORT_MAX:
                for entry in entries:
                    insort(index, entry)
            else:
                index.extend(entries)
                index.sort()
        return index


def overlaid(
    codec: KeyCodec, overlays: Sequence[Overlay], low: bytes, high: bytes | None
) -> list[tuple[bytes, Key, Value | None]]:
    """The entries of the overlays (oldest first) in a range, in key order; a copy."""
    merged: dict[bytes, tuple[bytes, Key, Value | None]] = {}
    for overlay in overlays:
        rows = overlay.rows
        if rows:
            merged.update({e: (e, k, rows[k]) for e, k in overlay.between(codec, low, high)})
    return sorted(merged.values(), key=lambda row: row[0])


def merge_lazily(
    codec: KeyCodec, layers: Sequence[Overlay], below: Iterator[tuple[bytes, bytes]], low: bytes, high: bytes | None
) -> Iterator[tuple[Key, Value]]:
    """Live rows of overlays (newest first) and of the rows below them, in key order, none of them read ahead."""
    streams: list[Iterator[tuple[bytes, int, Any, Any]]] = [
        o.following(codec, low, rank) for rank, o in enumerate(layers) if o.rows
    ]
    bottom = len(layers)
    streams.append((encoded, bottom, None, data) for encoded, data in below)
    last = None
    for encoded, rank, key, value in merge(*streams) if len(streams) > 1 else streams[0]:
        if high is not None and encoded >= high:
            return
        if encoded == last:
            continue  # a newer layer has it
        last = encoded
        if rank == bottom:
            yield codec.decode(encoded), decode_value(value)
        elif value is not None:
            yield key, value


class PhysicalRows:
    """Rows of one partition of a store in key order."""

    __slots__ = ("_entry", "_partition", "_reader")

    def __init__(self, reader: PhysicalReader, entry: StoreEntry, partition: int) -> None:
        self._reader, self._entry, self._partition = reader, entry, partition

    def scan(self, low: bytes, high: bytes | None) -> Iterator[tuple[bytes, bytes]]:
        """(encoded key, value) with low <= key < high, as of this call."""
        scans = [_strip(n, self._reader.scan(start, stop)) for n, start, stop in self.ranges(low, high)]
        return scans[0] if len(scans) == 1 else merge(*scans)

    def ranges(self, low: bytes, high: bytes | None) -> list[tuple[int, bytes, bytes]]:
        """Where rows of low <= key < high are, as (bytes in front of the key, start, stop): a range, or one per segment."""
        prefix, end = self._entry.partition_range(self._partition)
        prefixes = [prefix]
        if self._entry.segment_ms is not None:
            prefixes = [prefix + s for s in self._segments(prefix, end, low, high)]
        return [(len(p), p + low, successor(p) if high is None else p + high) for p in prefixes]

    def _segments(self, prefix: bytes, end: bytes, low: bytes, high: bytes | None) -> list[bytes]:
        """Segments that exist, without those that the times of two bounds on the same key exclude."""
        start, stop = prefix, end
        same_group = high is not None and len(low) == len(high) > 8 and low[:-8] == high[:-8]
        if high is not None and same_group and self._whole(low) and self._whole(high):
            start = prefix + self._entry.segment(decode_time(low))
            stop = successor(prefix + self._entry.segment(decode_time(high)))
        found: list[bytes] = []
        while True:
            row = next(self._reader.scan(start, stop), None)
            if row is None:
                return found
            segment = row[0][len(prefix) : len(prefix) + 4]
            found.append(segment)
            start = prefix + segment
            if segment == b"\xff\xff\xff\xff":
                return found
            start = successor(start)

    def _whole(self, encoded: bytes) -> bool:
        """Whether a bound is a whole key, its last part a time."""
        try:
            key = self._entry.codec.decode(encoded)
        except (IndexError, ValueError, AssertionError):
            return False
        return encoded.endswith(encode_time(key[-1])) if isinstance(key[-1], int) else False


def _strip(n: int, rows: Iterator[tuple[bytes, bytes]]) -> Iterator[tuple[bytes, bytes]]:
    for key, value in rows:
        yield key[n:], value


def merge_rows(
    codec: KeyCodec, above: list[tuple[bytes, Key, Value | None]], below: Iterator[tuple[bytes, bytes]]
) -> Iterator[tuple[Key, Value]]:
    """Live rows of both in key order; `above` wins, None hides."""
    at, n = 0, len(above)
    for encoded, data in below:
        while at < n and above[at][0] < encoded:
            _, key, value = above[at]
            at += 1
            if value is not None:
                yield key, value
        if at < n and above[at][0] == encoded:
            continue  # it comes from above, with the next row or at the end
        yield codec.decode(encoded), decode_value(data)
    for _, key, value in above[at:]:
        if value is not None:
            yield key, value


def above_bound(rows: Iterator[tuple[Key, Value]], bound_ms: int) -> Iterator[tuple[Key, Value]]:
    """Rows whose last key part is not below the bound."""
    if bound_ms == BEGINNING_MS:
        return rows
    return (row for row in rows if row[0][-1] >= bound_ms)  # type: ignore[operator]
