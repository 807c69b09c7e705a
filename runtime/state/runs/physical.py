"""A physical store that shows runs as rows, over one that has both."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from pathlib import Path

from flowql.runtime.state.physical import ByteRange, Physical
from flowql.runtime.state.runs.reader import TOMBSTONE, RunCache, Runs, RunsReader, look_through, prefix_of
from flowql.runtime.state.runs.run import AREA, RunGone

_NO_RUNS = Runs()
_TRIES = 1_000


class RowChanges:
    """Which rows of a prefix that are in no run were written since one moment, under the lock of whoever writes.

    are_lost: the prefix was dropped, took in files, or the store was opened again. Ranges of expired rows do not count: a floor hides those of runs.
    """

    def __init__(self, prefix: bytes) -> None:
        self._prefix, self._end = prefix, prefix + AREA
        self.keys: set[bytes] = set()
        self.are_lost = False

    def note(self, keys: Sequence[bytes], ranges: Sequence[ByteRange]) -> None:
        self.keys.update(k for k in keys if self._prefix <= k < self._end)
        self.are_lost |= any(low <= self._end < high for low, high in ranges)

    def have_none_of(self, keys: Sequence[bytes]) -> bool:
        return not self.are_lost and self.keys.isdisjoint(keys)


class RunsPhysical:
    """Implements `Physical`. Writes are those of the store below; `runs` tells what to write.

    What is listed of a prefix holds until the next write of any kind: a commit writes blocks first, then what makes them a run, and only then
    deletes the rows that the run has taken in. So who reads a row and then the list misses nothing.
    """

    def __init__(self, inner: Physical, cache: RunCache | None = None) -> None:
        self.inner, self.incoming = inner, inner.incoming
        self.cache = cache or RunCache()
        self._lists: dict[bytes, Runs] = {}
        self._without: set[bytes] = set()  # prefixes that have no runs
        self._coming: set[bytes] = set()  # prefixes of which that cannot be said, as a commit brings some
        self._watched: tuple[RowChanges, ...] = ()

    def runs(self, prefix: bytes) -> Runs:
        """The runs of a prefix."""
        if prefix in self._without:
            return _NO_RUNS
        lists = self._lists
        found = lists.get(prefix)
        if found is None:  # if something is written meanwhile, others take the place of these lists
            found = lists[prefix] = self.cache.list(self.inner, prefix)
            if not found.runs and prefix not in self._coming:
                self._without.add(prefix)
                if prefix in self._coming:  # since
                    self._without.discard(prefix)
        return found

    def expect_runs(self, prefix: bytes) -> None:
        """A commit is about to write one."""
        self._coming.add(prefix)
        self._without.discard(prefix)

    def has_rows(self, prefix: bytes) -> bool:
        """Whether it has rows that are in no run."""
        return next(self.inner.scan(prefix, prefix + AREA), None) is not None

    def is_empty(self, prefix: bytes) -> bool:
        """Whether it has no rows. A run counts as some: its blocks may be elsewhere, and nothing is read of them."""
        return not self.runs(prefix).runs and next(self.scan(prefix, prefix + AREA), None) is None

    def get(self, key: bytes) -> bytes | None:
        return self.inner.get(key) if prefix_of(key) is None else self.multi_get([key])[0]

    def multi_get(self, keys: Sequence[bytes]) -> list[bytes | None]:
        for _ in range(_TRIES):  # while a merge has replaced a run and is about to say so
            with suppress(RunGone):
                return look_through(self.inner, keys, self.inner.multi_get(keys), self.runs)
        return look_through(self.inner, keys, self.inner.multi_get(keys), self.runs)

    def scan(self, low: bytes, high: bytes) -> Iterator[tuple[bytes, bytes]]:
        prefix = prefix_of(low)
        if prefix is None:
            return self.inner.scan(low, high)
        if not self.runs(prefix).runs:
            rows = self.inner.scan(low, min(high, prefix + AREA))
            if not self.runs(prefix).runs:  # still: none has taken rows in meanwhile
                return ((k, v) for k, v in rows if v != TOMBSTONE)
        rows = self._scan_runs(self.snapshot(), low, high)
        next(rows)  # a generator that has begun closes the snapshot, whatever becomes of it
        return rows

    def _scan_runs(self, snapshot: RunsReader, low: bytes, high: bytes) -> Iterator[tuple[bytes, bytes]]:
        try:
            yield b"", b""
            yield from snapshot.scan(low, high)
        finally:
            snapshot.close()

    def write_batch(
        self, keys: Sequence[bytes], values: Sequence[bytes | None], ranges: Sequence[ByteRange] = ()
    ) -> None:
        for changes in self._watched:
            changes.note(keys, ranges)
        try:
            self.inner.write_batch(keys, values, ranges)
        finally:
            self._lists = {}

    def ingest(self, path: Path) -> None:
        self._lose_changes()
        try:
            self.inner.ingest(path)
        finally:
            self._lists = {}

    def snapshot(self) -> RunsReader:
        return RunsReader(self.inner.snapshot(), self.cache)

    def flush(self) -> None:
        self.inner.flush()

    def checkpoint(self, path: Path) -> None:
        self.inner.checkpoint(path)

    def compact(self, low: bytes, high: bytes) -> None:
        self.inner.compact(low, high)

    def property(self, name: str) -> int | None:
        return self.inner.property(name)

    def statistics(self) -> str:
        return self.inner.statistics()

    def accepts_files(self) -> bool:
        return self.inner.accepts_files()

    def reopen(self, roll_forward: Callable[[], None]) -> None:
        def brought_forward() -> None:
            self.forget()
            roll_forward()

        self.inner.reopen(brought_forward)
        self.forget()

    def close(self) -> None:
        self.inner.close()

    def forget(self) -> None:
        """Runs may be gone, and others be there, also with the same names."""
        self._lists, self._without, self.cache = {}, set(), RunCache()
        self._lose_changes()

    def watch(self, prefix: bytes) -> RowChanges:
        """Until `unwatch`. Nothing is written meanwhile."""
        changes = RowChanges(prefix)
        self._watched = (*self._watched, changes)
        return changes

    def unwatch(self, changes: RowChanges) -> None:
        self._watched = tuple(c for c in self._watched if c is not changes)

    def _lose_changes(self) -> None:
        for changes in self._watched:
            changes.are_lost = True
