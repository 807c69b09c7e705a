"""A task's physical rows as pages: ranges of encoded keys, read when needed, written when changed.

Whole pages travel to and from Spark's state store, so what costs there is pages, not keys: a batch reads the pages its keys fall
in and writes those it changed. Ranges rather than hashes, for operators scan prefixes of keys; the rows of windows and joins
begin with their time segment, so the pages of one time lie together, and go together when it expires.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Iterator, Sequence
from typing import Protocol

import msgspec

from flowql.runtime.state.physical import Writes

PAGE_BYTES = 48 << 10  # chosen, not measured: other sizes were never tried against it
_SMALL = 8  # a page this many times smaller joins the one before it
_encode = msgspec.msgpack.Encoder().encode
_decode_page = msgspec.msgpack.Decoder(tuple[list[bytes], list[bytes]]).decode
_decode_directory = msgspec.msgpack.Decoder(tuple[int, list[bytes], list[int]]).decode


class PageSource(Protocol):
    """Where pages are kept between batches."""

    def read(self, page: int) -> bytes:
        """The page; it must exist."""
        ...


class LoadedPages:
    """Pages in memory: those of a checkpoint, or none of a state that begins empty."""

    def __init__(self, pages: dict[int, bytes]) -> None:
        self.read = pages.__getitem__


class Page:
    """Rows of one range in memory. `order`: its keys, sorted."""

    __slots__ = ("order", "rows", "size")

    def __init__(self, keys: list[bytes], values: list[bytes]) -> None:
        self.order = keys
        self.rows = dict(zip(keys, values, strict=True))
        self.size = sum(map(len, keys)) + sum(map(len, values))

    def encode(self) -> bytes:
        return _encode((self.order, list(map(self.rows.__getitem__, self.order))))

    def put(self, keys: list[bytes], values: list[bytes | None]) -> None:
        """Put rows, None deletes."""
        rows, before = self.rows, len(self.rows)
        rows.update(zip(keys, values, strict=True))  # type: ignore[arg-type]
        gone = [k for k, v in zip(keys, values, strict=True) if v is None] if None in values else []
        for key in gone:
            del rows[key]
        if gone or len(rows) != before:
            self.order = sorted(rows)
        self.size = sum(map(len, rows)) + sum(map(len, rows.values()))

    def pieces(self, target: int) -> list[Page]:
        """The same rows as pages of about `target` bytes; as it is if it has less than twice that."""
        if self.size <= 2 * target:
            return [self]
        out: list[Page] = []
        start = size = 0
        for i, key in enumerate(self.order):
            if size >= target:
                out.append(self._part(start, i))
                start, size = i, 0
            size += len(key) + len(self.rows[key])
        return [*out, self._part(start, len(self.order))]

    def _part(self, start: int, end: int) -> Page:
        keys = self.order[start:end]
        return Page(keys, [self.rows[k] for k in keys])


class Changes:
    """The changes of a batch to the pages: numbers to remove, pages to write, and the directory if it is another one."""

    __slots__ = ("directory", "removed", "written")

    def __init__(self, written: dict[int, bytes], removed: list[int], directory: bytes | None) -> None:
        self.written, self.removed, self.directory = written, removed, directory


class PagedRows:
    """Implements `flowql.runtime.state.physical.PhysicalReader`. Page i holds keys from lows[i] to before lows[i + 1]."""

    def __init__(self, source: PageSource, directory: bytes | None = None, page_bytes: int = PAGE_BYTES) -> None:
        self.source = source
        self._page_bytes = page_bytes
        self._next, self._lows, self._numbers = (0, [], []) if directory is None else _decode_directory(directory)
        self._pages: dict[int, Page] = {}
        self.pages_read = 0

    def __len__(self) -> int:
        return len(self._numbers)

    @property
    def loaded_bytes(self) -> int:
        """The size of the pages in memory."""
        return sum(p.size for p in self._pages.values())

    def get(self, key: bytes) -> bytes | None:
        return self.multi_get([key])[0]

    def multi_get(self, keys: Sequence[bytes]) -> list[bytes | None]:
        lows, page = self._lows, self._page
        if not lows:
            return [None] * len(keys)
        if len(lows) == 1:
            return list(map(page(0).rows.get, keys))
        return [page(bisect_right(lows, k) - 1).rows.get(k) for k in keys]

    def scan(self, low: bytes, high: bytes) -> Iterator[tuple[bytes, bytes]]:
        """Pages are read as the rows are taken; the pages of a batch do not change before its end."""
        for i in range(max(0, bisect_right(self._lows, low) - 1), bisect_left(self._lows, high)):
            page = self._page(i)
            for key in page.order[bisect_left(page.order, low) : bisect_left(page.order, high)]:
                yield key, page.rows[key]

    def apply(self, writes: Writes) -> Changes:
        """Delete the ranges, then put the rows (None deletes), and give what changed."""
        before, dirty = (list(self._lows), list(self._numbers)), set[int]()
        for low, high in writes.ranges:
            dirty |= self._delete(low, high)
        dirty |= self._put(writes.keys, writes.values)
        written = self._reshape(dirty)
        removed = sorted(set(before[1]) - set(self._numbers))
        same = before == (self._lows, self._numbers)
        directory = None if same else _encode((self._next, self._lows, self._numbers))
        return Changes({n: self._pages[n].encode() for n in sorted(written)}, removed, directory)

    def rows(self) -> Iterable[tuple[bytes, bytes]]:
        """All rows in key order."""
        for i in range(len(self._lows)):
            page = self._page(i)
            for key in page.order:
                yield key, page.rows[key]

    def _page(self, i: int) -> Page:
        number = self._numbers[i]
        page = self._pages.get(number)
        if page is None:
            self.pages_read += 1
            page = self._pages[number] = Page(*_decode_page(self.source.read(number)))
        return page

    def _delete(self, low: bytes, high: bytes) -> set[int]:
        """Delete a range; numbers of the pages that stay and changed."""
        dirty: set[int] = set()
        i = max(0, bisect_right(self._lows, low) - 1)
        while i < len(self._lows) and self._lows[i] < high:
            end = self._lows[i + 1] if i + 1 < len(self._lows) else None
            if self._lows[i] >= low and end is not None and end <= high:
                self._remove(i)  # without reading it
                continue
            page = self._page(i)
            kept = [k for k in page.order if not low <= k < high]
            if len(kept) < len(page.order):
                self._pages[self._numbers[i]] = Page(kept, [page.rows[k] for k in kept])
                dirty.add(self._numbers[i])
            i += 1
        return dirty

    def _put(self, keys: Sequence[bytes], values: Sequence[bytes | None]) -> set[int]:
        """Put rows (None deletes); numbers of the pages they are in."""
        if not keys:
            return set()
        if not self._lows:
            self._new(b"", Page([], []))
        puts = dict(zip(keys, values, strict=True))
        order = sorted(puts)
        dirty: set[int] = set()
        start = 0
        while start < len(order):
            i = bisect_right(self._lows, order[start]) - 1
            end = bisect_left(order, self._lows[i + 1], start) if i + 1 < len(self._lows) else len(order)
            part = order[start:end]
            self._page(i).put(part, list(map(puts.__getitem__, part)))
            dirty.add(self._numbers[i])
            start = end
        return dirty

    def _reshape(self, dirty: set[int]) -> set[int]:
        """Split and join changed pages until they have a good size; numbers of those to write."""
        written: set[int] = set()
        before = list(zip(self._lows, self._numbers, strict=True))
        self._lows, self._numbers = [], []
        for low, number in before:
            page = self._pages[number] if number in dirty else None
            if page is None:
                self._append(low, number)
            elif not page.rows:
                del self._pages[number]
            elif self._numbers and page.size * _SMALL < self._page_bytes:
                written.add(self._join(self._pages.pop(number)))
            else:
                first, *rest = page.pieces(self._page_bytes)
                self._pages[number] = first
                self._append(low, number)
                written.add(number)
                for piece in rest:
                    written.add(self._new(piece.order[0], piece))
        if self._lows:
            self._lows[0] = b""  # keys below every page go to the first
        return written

    def _join(self, page: Page) -> int:
        """Add a page's rows, which come after all others, to the last page."""
        last = self._page(len(self._numbers) - 1)
        number = self._numbers[-1]
        values = [*map(last.rows.__getitem__, last.order), *map(page.rows.__getitem__, page.order)]
        self._pages[number] = Page([*last.order, *page.order], values)
        return number

    def _append(self, low: bytes, number: int) -> None:
        self._lows.append(low)
        self._numbers.append(number)

    def _new(self, low: bytes, page: Page) -> int:
        """Append a page under a new number."""
        number, self._next = self._next, self._next + 1
        self._append(low, number)
        self._pages[number] = page
        return number

    def _remove(self, i: int) -> None:
        self._pages.pop(self._numbers[i], None)
        del self._lows[i], self._numbers[i]
