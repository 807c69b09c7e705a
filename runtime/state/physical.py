"""The physical store under all logical ones: ordered bytes to bytes.

Implementations: `rocks.open_rocks` and `memory.MemoryPhysical`; one test suite runs on both. `WriteGuard` puts the assertion
around either that nothing is written but by apply, replay and restore (rule R10).
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from itertools import islice
from pathlib import Path
from typing import NamedTuple, Protocol, TypeVar

BATCH_ROWS_MAX = 1_000  # a write holds the interpreter lock for about 0.75 us per row
BATCH_BYTES_MAX = 1 << 18  # and for about 3 ms per MB of values; one larger value is a batch of its own

ByteRange = tuple[bytes, bytes]  # low <= key < high


class Writes(NamedTuple):
    """The writes of a commit to the physical store: first the range deletes, then the rows (None deletes)."""

    ranges: list[ByteRange]
    keys: list[bytes]
    values: list[bytes | None]


class PhysicalReader(Protocol):
    """Reads; safe from any thread."""

    def get(self, key: bytes) -> bytes | None: ...

    def multi_get(self, keys: Sequence[bytes]) -> list[bytes | None]: ...

    def scan(self, low: bytes, high: bytes) -> Iterator[tuple[bytes, bytes]]:
        """Rows with low <= key < high, in order, as of this call (not of the first row taken)."""
        ...


class PhysicalSnapshot(PhysicalReader, Protocol):
    """The rows at the time when the snapshot was taken. It is valid until `close`."""

    def chunks(self, low: bytes, high: bytes) -> Iterator[tuple[list[bytes], list[bytes]]]:
        """As `scan`: keys and values of some rows at a time, the first time of few; no chunk is empty."""
        ...

    def close(self) -> None: ...


class Physical(PhysicalReader, Protocol):
    """An ordered store. Writes are in memory until `flush`; a crash loses a suffix of the writes, never one in between.

    incoming: the folder for files that `ingest` takes, which their writer creates; None if the store takes none.
    """

    incoming: Path | None

    def write_batch(
        self, keys: Sequence[bytes], values: Sequence[bytes | None], ranges: Sequence[ByteRange] = ()
    ) -> None:
        """Atomically: delete the ranges, then put the rows (None deletes). At most BATCH_ROWS_MAX rows."""
        ...

    def ingest(self, path: Path) -> None:
        """Takes over a file of rows at once, as newer than all existing rows; None as a value deletes the row.

        Unlike other writes they are on disk when this returns, also if a crash loses what was written before: `flush` first.
        """
        ...

    def snapshot(self) -> PhysicalSnapshot: ...

    def flush(self) -> None:
        """Everything written so far is on disk when this returns."""
        ...

    def checkpoint(self, path: Path) -> None:
        """A copy that can be opened, in a directory that does not exist yet; hard links where possible."""
        ...

    def compact(self, low: bytes, high: bytes) -> None:
        """Give back the space of deleted rows in a range. May take long; releases the interpreter lock."""
        ...

    def property(self, name: str) -> int | None:
        """A number the implementation knows about itself, or None."""
        ...

    def statistics(self) -> str:
        """RocksDB's statistics since it was opened, in its text form; empty for other implementations."""
        ...

    def accepts_files(self) -> bool:
        """Whether the disk would take new files now."""
        ...

    def reopen(self, roll_forward: Callable[[], None]) -> None:
        """Close it and open it again, as after a crash: the way out of an I/O error, after which it may take no more writes.

        What was not flushed may be gone. `roll_forward` writes it anew; until that returns, the calling thread alone reads and writes,
        others wait, and get a StateError if it takes too long. Snapshots from before answer with a StateError. If this raises, the store
        stays as it is then, closed to others, until another call succeeds. One thread at a time.
        """
        ...

    def close(self) -> None: ...


UNLOGGED = b"\0\0\0\0u"  # how many writes there were that no redo leads to


class WriteGuard:
    """A physical store that refuses writes outside `permit`; reads go to `inner` directly.

    It counts what is written to restore rows, in the store itself: a copy of the state from before such a write cannot be brought forward by redo.
    """

    def __init__(self, inner: Physical) -> None:
        self.inner = inner
        self._unlogged = int.from_bytes(inner.get(UNLOGGED) or b"", "big")
        self._writers: dict[int, str] = {}  # thread -> what it writes for

    @contextmanager
    def permit(self, purpose: str) -> Iterator[None]:
        """Within, the calling thread may write. purpose: apply, replay or restore."""
        me = threading.get_ident()
        assert me not in self._writers, f"{purpose} within {self._writers.get(me)}"
        self._writers[me] = purpose
        try:
            yield
        finally:
            del self._writers[me]

    def write(
        self,
        keys: Sequence[bytes],
        values: Sequence[bytes | None],
        ranges: Sequence[ByteRange] = (),
        last: tuple[Sequence[bytes], Sequence[bytes | None]] = ((), ()),
    ) -> None:
        """Ranges, then rows, in batches; the few rows of `last` (position, marker) are in the last batch only."""
        self._assert_permitted()
        if self._writers[threading.get_ident()] == "restore":
            self._unlogged += 1
            last = [*last[0], UNLOGGED], [*last[1], self._unlogged.to_bytes(8, "big")]
        start, step = 0, BATCH_ROWS_MAX - len(last[0])
        assert step > 0
        for end in list(_ends(values, step))[:-1]:
            self.inner.write_batch(keys[start:end], values[start:end], ranges)
            start, ranges = end, ()
        self.inner.write_batch([*keys[start:], *last[0]], [*values[start:], *last[1]], ranges)

    def ingest(self, path: Path) -> None:
        self._assert_permitted()
        self.inner.ingest(path)

    def unlogged(self) -> int:
        """How many writes there were so far that no redo leads to. Any thread."""
        return self._unlogged

    def _assert_permitted(self) -> None:
        assert threading.get_ident() in self._writers, "nothing uncommitted is ever written to the physical store"


def _ends(values: Sequence[bytes | None], rows_max: int) -> Iterator[int]:
    """The index after the last row of each batch, which has at most `rows_max` rows and, unless it is one row, `BATCH_BYTES_MAX` of values."""
    for start in range(0, len(values), rows_max):
        rows, size = values[start : start + rows_max], 0
        if sum(map(len, filter(None, rows))) > BATCH_BYTES_MAX:  # mostly not: rows are not looked at one by one
            for n, value in enumerate(rows):
                added = len(value or b"")
                if n and size + added > BATCH_BYTES_MAX:
                    yield start + n
                    size = 0
                size += added
        yield start + len(rows)


K = TypeVar("K")
V = TypeVar("V")

_FIRST, _GROWTH, _MAX = 32, 8, 4096  # while queries wait, each further chunk waits for the interpreter


def chunk_sizes() -> Iterator[int]:
    """How many rows to read at a time: few at first, as a reader may want no more."""
    size = _FIRST
    while True:
        yield size
        size = min(_MAX, _GROWTH * size)


def chunked(rows: Iterator[tuple[K, V]]) -> Iterator[tuple[list[K], list[V]]]:
    """Keys and values of some rows at a time; none is empty."""
    for size in chunk_sizes():
        chunk = list(islice(rows, size))
        if not chunk:
            return
        yield [k for k, _ in chunk], [v for _, v in chunk]
