"""Reads a physical store in which some rows are in runs, as if each were a row of its own.

A store that its task processes in columns commits many rows at once. They become one run: blocks of rows in order of their keys, a filter that tells
which keys may be there, and the first key of each block. Fewer rows are written one by one, as those of any other store, and are newer than all runs: a
commit that writes a run takes rows which it finds into it (`flowql.runtime.state.runs.writing`). If a key has no row,
the newest run that has the key counts. `TOMBSTONE` as a row hides what runs have.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from bisect import bisect_right
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import islice

import numpy as np

from flowql.runtime.state.columns.packed import hash_of, pack
from flowql.runtime.state.physical import PhysicalReader, PhysicalSnapshot, chunk_sizes
from flowql.runtime.state.runs.merged import MergedRuns
from flowql.runtime.state.runs.run import (
    AREA,
    PREFIX_BYTES,
    FlatRows,
    Run,
    decode_blocks,
    find_in_block,
    joined_rows,
    keys_between,
    newest,
    read_floor,
    read_runs,
)

TOMBSTONE = b"\xc0"
_SYSTEM = b"\0\0\0\0"
_BLOCKS_MAX = 32  # of a run that are read at a time
# Bytes of runs that are read before the first row. Some commits write as much of a store of 10,000 rows.
AT_ONCE_BYTES = 1 << 20
_FEW_KEYS = 8  # for which calls of NumPy take longer than Python

Chunk = tuple[list[bytes], list[bytes]]


@dataclass(frozen=True, slots=True)
class Runs:
    """The runs of a prefix, newest first. Rows of runs with keys below `floor` are gone."""

    runs: Sequence[Run] = ()
    floor: bytes = b""


RunsOf = Callable[[bytes], Runs]


class RunCache:
    """The parts of runs that were read, by prefix and name: a run never changes. Any thread."""

    def __init__(self, merged: MergedRuns | None = None) -> None:
        self._runs: dict[tuple[bytes, bytes], Run] = {}
        self.merged = merged or MergedRuns()

    def list(self, reader: PhysicalReader, prefix: bytes) -> Runs:
        """The runs that `reader` has of a prefix."""
        found = [self._runs.setdefault((prefix, r.name), r) for r in read_runs(reader, prefix)]
        return Runs(found, read_floor(reader, prefix)) if found else Runs()

    def tables_bytes(self) -> int:
        """Memory of fences and filters of all runs, as far as they were read."""
        return sum(run.tables_bytes for run in list(self._runs.values()))

    def keep(self, prefix: bytes, runs: Sequence[Run]) -> None:
        """Forgets other runs of a prefix."""
        names = {r.name for r in runs}
        for known in [k for k in list(self._runs) if k[0] == prefix and k[1] not in names]:
            self._runs.pop(known, None)
        self.merged.forget_others(prefix, runs)


class RunsReader:
    """Implements `PhysicalSnapshot` over another one."""

    def __init__(self, inner: PhysicalSnapshot, cache: RunCache | None = None) -> None:
        self.inner, self._cache = inner, cache or RunCache()
        self._lists: dict[bytes, Runs] = {}

    def runs(self, prefix: bytes) -> Runs:
        found = self._lists.get(prefix)
        if found is None:
            found = self._lists[prefix] = self._cache.list(self.inner, prefix)
        return found

    def get(self, key: bytes) -> bytes | None:
        return self.multi_get([key])[0]

    def multi_get(self, keys: Sequence[bytes]) -> list[bytes | None]:
        values = self.inner.multi_get(keys)
        return look_through(self.inner, keys, values, self.runs)

    def scan(self, low: bytes, high: bytes) -> Iterator[tuple[bytes, bytes]]:
        for keys, values in self.chunks(low, high):
            yield from zip(keys, values, strict=True)

    def chunks(self, low: bytes, high: bytes) -> Iterator[Chunk]:
        prefix = prefix_of(low)
        if prefix is None:
            yield from self.inner.chunks(low, high)
        elif (found := self.runs(prefix)).runs:
            for rows in self._merged(prefix, found, low, high):
                left = rows.without_deleted()
                if len(left):
                    yield [prefix + k for k in left.keys.to_bytes()], left.values.to_pylist()
        else:
            for keys, values in self.inner.chunks(low, min(high, prefix + AREA)):
                yield from without_tombstones(keys, values)

    def _merged(self, prefix: bytes, found: Runs, low: bytes, high: bytes) -> Iterator[FlatRows]:
        """Rows of a prefix with low <= key < high in order, some at a time, without prefix, deleted ones included. RunGone."""
        inner, merged, stop = self.inner, self._cache.merged, min(high, prefix + AREA)
        begin, end = max(low[PREFIX_BYTES:], found.floor), high[PREFIX_BYTES:] if high < prefix + AREA else None
        is_whole = low == prefix and end is None
        # A reader may want the first rows only.
        if is_whole and merged.unread_bytes(prefix, found.runs) > AT_ONCE_BYTES:
            first = next(merge_sources([*run_sources(inner, found, begin), _Area(inner.scan(low, stop))]), None)
            if first is None:
                return
            yield first
            begin = first.keys.at(len(first) - 1) + b"\0"
            low = prefix + begin
        rows = merged.rows(inner, prefix, found.runs) if is_whole else None
        of_runs = run_sources(inner, found, begin, end) if rows is None else [_MergedRows(rows, begin)]
        yield from merge_sources([*of_runs, _Area(inner.scan(low, stop))])

    def rows_in_no_run(self, prefix: bytes) -> Iterator[Chunk]:
        """Keys without prefix and values of some rows at a time, tombstones among them."""
        for keys, values in self.inner.chunks(prefix, prefix + AREA):
            yield [k[PREFIX_BYTES:] for k in keys], values

    def close(self) -> None:
        self.inner.close()


def prefix_of(key: bytes) -> bytes | None:
    """The prefix of a store's partition; None for keys of the system, and what is the beginning of a prefix."""
    return None if len(key) < PREFIX_BYTES or key.startswith(_SYSTEM) else key[:PREFIX_BYTES]


def without_tombstones(keys: list[bytes], values: list[bytes]) -> Iterator[Chunk]:
    """A chunk of rows; none if nothing is left of it."""
    if TOMBSTONE in values:
        rows = [(k, v) for k, v in zip(keys, values, strict=True) if v != TOMBSTONE]
        keys, values = [k for k, _ in rows], [v for _, v in rows]
    if keys:
        yield keys, values


def look_through(
    reader: PhysicalReader, keys: Sequence[bytes], values: list[bytes | None], runs_of: RunsOf
) -> list[bytes | None]:
    """values: what the keys have as rows. What runs have fills them up. RunGone."""
    missing: dict[bytes, list[int]] = {}
    if None in values:
        for i, value in enumerate(values):
            if value is None and (prefix := prefix_of(keys[i])) is not None:
                missing.setdefault(prefix, []).append(i)
    for prefix, places in missing.items():
        found = runs_of(prefix)
        if found.runs:
            suffixes = [keys[i][PREFIX_BYTES:] for i in places]
            for i, value in zip(places, _find(reader, found, suffixes), strict=True):
                values[i] = value
    if TOMBSTONE in values:
        values = [None if v == TOMBSTONE else v for v in values]
    return values


def _find(reader: PhysicalReader, found: Runs, keys: Sequence[bytes]) -> list[bytes | None]:
    """The values in runs of keys without prefix."""
    if len(keys) <= _FEW_KEYS:
        return [_find_one(reader, found, key) for key in keys]
    hashes = pack(keys).hashes()
    values: list[bytes | None] = [None] * len(keys)
    left = np.arange(len(keys))
    if found.floor:
        left = np.array([i for i, k in enumerate(keys) if k >= found.floor], np.int64)
    for run in found.runs:
        may = left[run.may_have(reader, hashes[left])]
        if not len(may):
            continue
        fences, wanted = run.fences(reader), dict[int, list[int]]()
        for i in may.tolist():
            at = bisect_right(fences, keys[i]) - 1
            if at >= 0:
                wanted.setdefault(at, []).append(i)
        numbers = sorted(wanted)
        hit = np.zeros(len(keys), np.bool_)
        for number, block in zip(numbers, run.blocks(reader, numbers), strict=True):
            for i in wanted[number]:
                value = find_in_block(block, keys[i])
                if value is not None:
                    values[i], hit[i] = value or None, True
        left = left[~hit[left]]
        if not len(left):
            break
    return values


def _find_one(reader: PhysicalReader, found: Runs, key: bytes) -> bytes | None:
    """As `_find`, of one key."""
    if key < found.floor:
        return None
    hashed = hash_of(key)
    for run in found.runs:
        if not run.may_have_one(reader, hashed):
            continue
        at = bisect_right(run.fences(reader), key) - 1
        if at >= 0:
            value = find_in_block(run.blocks(reader, [at])[0], key)
            if value is not None:
                return value or None
    return None


def run_sources(reader: PhysicalReader, found: Runs, low: bytes = b"", high: bytes | None = None) -> list[Source]:
    """Runs with the rows of low <= key < high, older ones first."""
    begin = max(low, found.floor)
    return [_Blocks(reader, run, begin, high) for run in reversed(found.runs)]


def merge_sources(sources: Sequence[Source]) -> Iterator[FlatRows]:
    """Rows of several sources, older ones first, in order of their keys. Where several have a key, the last of them counts."""
    for size in chunk_sizes():
        known = [s for s in sources if s.fill(-(-size // len(sources)))]
        if not known:
            return
        bound = min((s.last for s in known if s.more), default=None)
        parts = [part for s in known if len(part := s.take(bound))]
        yield newest(parts)


class Source(ABC):
    """Rows in order of which the next ones are in memory. more: there may be others."""

    def __init__(self) -> None:
        self.more, self._rows = True, FlatRows.of([], [])

    @property
    def last(self) -> bytes:
        """The key of the last row that is in memory."""
        return self._rows.keys.at(len(self._rows) - 1)

    def fill(self, rows: int) -> bool:
        """Reads until so many rows are in memory; whether there are some. With few rows of one source, few of all others could be merged."""
        while len(self._rows) < rows and self.more:
            self._rows = joined_rows([self._rows, self._read(rows)])
        return bool(len(self._rows))

    def take(self, bound: bytes | None) -> FlatRows:
        """The rows in memory up to this key, or all."""
        rows, n = self._rows, len(self._rows)
        at = n if bound is None else keys_between(rows.keys, b"", bound + b"\0")[1]
        self._rows = rows.part(at, n)
        return rows.part(0, at)

    @abstractmethod
    def _read(self, rows: int) -> FlatRows:
        """The next rows, about as many, and whether there are `more`."""


class _Area(Source):
    """Rows that are not in a run."""

    def __init__(self, rows: Iterator[tuple[bytes, bytes]]) -> None:
        super().__init__()
        self._left = rows

    def _read(self, rows: int) -> FlatRows:
        found = list(islice(self._left, rows))
        self.more = len(found) == rows
        values = [None if v == TOMBSTONE else v for _, v in found]
        return FlatRows.of([k[PREFIX_BYTES:] for k, _ in found], values)


class _MergedRows(Source):
    """Rows of all runs, from `begin` on."""

    def __init__(self, rows: FlatRows, begin: bytes) -> None:
        super().__init__()
        self._left = rows.part(keys_between(rows.keys, begin, None)[0], len(rows))

    def _read(self, rows: int) -> FlatRows:
        found, n = self._left, len(self._left)
        self._left, self.more = found.part(min(rows, n), n), rows < n
        return found.part(0, min(rows, n))


class _Blocks(Source):
    """Rows of one run."""

    def __init__(self, reader: PhysicalReader, run: Run, begin: bytes = b"", end: bytes | None = None) -> None:
        super().__init__()
        self._reader, self._run, self._begin, self._end = reader, run, begin, end
        self._next = -1  # block

    def _read(self, rows: int) -> FlatRows:
        fences = self._run.fences(self._reader)
        first = self._next
        if first < 0:
            first = max(0, bisect_right(fences, self._begin) - 1)
        wanted = rows * len(fences) // max(1, self._run.head.rows)
        self._next = min(len(fences), first + min(max(1, wanted), _BLOCKS_MAX))
        found = decode_blocks(self._run.blocks(self._reader, range(first, self._next)))
        self.more = self._next < len(fences) and (self._end is None or fences[self._next] < self._end)
        a, b = keys_between(found.keys, self._begin, self._end)
        return found.part(a, max(a, b))  # none if the end is below the floor
