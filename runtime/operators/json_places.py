"""Reads a batch at the places where records of one shape have their literals and values (`json_scan`).

Sixteen bytes are read at each place, all of one record before the next: a batch is more than a processor's cache holds.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from flowql.runtime.batch import Ints
from flowql.runtime.operators.json_scalars import Bools, Scalars, Spans, Words, text_views
from flowql.runtime.operators.json_shape import Shape, anchors
from flowql.runtime.operators.record_bytes import PAD, RecordBytes

WIDE = 16  # bytes read at once
_QUOTE, _BACKSLASH = 34, 92
_WIDE_TYPE = np.dtype("complex128")  # numpy's only number of sixteen bytes that it copies as it stands


class QuotedBytes(RecordBytes):
    """The bytes of one batch, and the places of quotes in them. excluded: rows that no shape can hold for; None for none."""

    def __init__(self, values: pa.Array) -> None:
        super().__init__(values)
        self.wide = np.ndarray(len(self.bytes) - WIDE + 1, _WIDE_TYPE, self.text, 0, (1,))
        quotes = np.flatnonzero(self.data == _QUOTE)
        quotes += PAD
        self._quotes: Ints = quotes
        self._uniform = self._uniform_quotes()
        self.excluded = self._odd_rows()

    def record(self, row: int) -> bytes:
        return self.text[self.starts[row] : self.ends[row]]

    def _uniform_quotes(self) -> Ints | None:
        """The quotes of each row as a row of a matrix, when all have equally many."""
        if not self.rows or len(self._quotes) % self.rows or not len(self._quotes):
            return None
        matrix = self._quotes.reshape(self.rows, -1)
        inside = (matrix[:, 0] >= self.starts).all() and (matrix[:, -1] < self.ends).all()
        return matrix if inside else None

    def quotes_of(self, candidates: Ints, count: int) -> tuple[Ints, Ints]:
        """The candidates that have `count` quotes, and the places of these: a row for each."""
        if self._uniform is not None:
            if self._uniform.shape[1] != count:
                return candidates[:0], self._uniform[:0, :1].repeat(count, axis=1)
            return candidates, self._uniform if len(candidates) == self.rows else self._uniform[candidates]
        first = np.searchsorted(self._quotes, self.starts[candidates])
        after = np.searchsorted(self._quotes, self.ends[candidates])
        fits = np.flatnonzero(after - first == count)
        return candidates[fits], self._quotes[first[fits][:, None] + np.arange(count)]

    def _odd_rows(self) -> Bools | None:
        """Rows with escapes, control characters or broken UTF-8; None if there are none."""
        data = self.data
        if not len(data):
            return None
        odd: list[Ints] = []
        if self.text.find(b"\\") >= 0:
            odd.append(np.flatnonzero(data == _BACKSLASH))
        if int(data.min()) < 0x20:
            odd.append(np.flatnonzero(data < 0x20))
        if int(data.max()) >= 0x80 and not self._is_utf8(data):
            odd.append(np.flatnonzero(data >= 0x80))
        if not odd:
            return None
        rows = np.searchsorted(self.ends, np.concatenate(odd) + PAD, side="right")
        excluded = np.zeros(self.rows, bool)
        excluded[rows] = True
        return excluded

    def _is_utf8(self, data: npt.NDArray[np.uint8]) -> bool:
        """All bytes are valid together, and no row begins inside a character: then each row is valid."""
        whole = pa.array([data.tobytes()], pa.large_binary())
        try:
            whole.cast(pa.large_string())
        except pa.ArrowInvalid:
            return False
        nonempty = self.starts[self.starts < self.ends]
        return not bool(((self.bytes[nonempty] & 0xC0) == 0x80).any())


@dataclass(frozen=True, slots=True)
class ShapeProbes:
    """Where one looks at records of a shape: sixteen bytes each time, in this order.

    At the literals (those longer than sixteen bytes more than once), at the ends and then at the starts of the scalars, at the
    starts of the texts that are read. quotes and offsets: each place is so many bytes from that quote; at_end: the places that are
    so far from the end of the record instead. mask, expected: two words a place, what must stand there; of other places nothing.
    """

    literals: int  # places of literals
    firsts: tuple[int, ...]  # the first place of each literal
    scalars: tuple[int, ...]
    texts: tuple[int, ...]
    quotes: Ints
    offsets: Ints
    at_end: tuple[int, ...]
    mask: Words
    expected: Words


@lru_cache(maxsize=64)
def layout_of(shape: Shape, texts: tuple[int, ...]) -> ShapeProbes:
    starts = anchors(shape)
    scalars = tuple(v for v, is_text in enumerate(shape.texts) if not is_text)
    places: list[tuple[int | None, int]] = []
    mask, expected = b"", b""
    firsts: list[int] = []
    for (quote, offset), piece in zip(starts, shape.literals, strict=True):
        firsts.append(len(places))
        for at in range(0, len(piece), WIDE):
            part = piece[at : at + WIDE]
            places.append((quote, offset + at))
            mask += (b"\xff" * len(part)).ljust(WIDE, b"\0")
            expected += part.ljust(WIDE, b"\0")
    literals = len(places)
    for v in scalars:
        quote, offset = starts[v + 1]
        places.append((quote, offset - WIDE))
    for v in (*scalars, *texts):
        quote, offset = starts[v]
        places.append((quote, offset + len(shape.literals[v])))
    return ShapeProbes(
        literals,
        tuple(firsts),
        scalars,
        texts,
        np.array([0 if quote is None else quote for quote, _ in places], np.int64),
        np.array([offset for _, offset in places], np.int64),
        tuple(i for i, (quote, _) in enumerate(places) if quote is None),
        np.frombuffer(mask, np.dtype("<u8")),
        np.frombuffer(expected, np.dtype("<u8")),
    )


class Look:
    """Reads the places of a layout in records with given quotes and ends."""

    __slots__ = ("_buffer", "_found", "_places", "layout", "scalars")

    def __init__(self, scan: QuotedBytes, layout: ShapeProbes, quotes: Ints, ends: Ints) -> None:
        self.layout, self._buffer = layout, scan.buffer
        places = np.take(quotes, layout.quotes, axis=1)
        places += layout.offsets
        for i in layout.at_end:
            np.add(ends, layout.offsets[i], out=places[:, i])
        self._places: Ints = places
        self._found: Words = scan.wide[places].view(np.dtype("<u8"))
        self.scalars = self._scalars(scan) if layout.scalars else None

    def matches(self, shape: Shape, starts: Ints, ends: Ints) -> Bools:
        """Which records agree with every literal, from their start to their end, and have scalars of at least one byte."""
        layout = self.layout
        found = self._found[:, : 2 * layout.literals] & layout.mask
        good: Bools = (found == layout.expected).all(axis=1)
        good &= self._places[:, 0] == starts
        good &= self._places[:, layout.firsts[-1]] + len(shape.literals[-1]) == ends
        if self.scalars is not None:
            good &= (self.scalars.end > self.scalars.start).all(axis=0)
        return good

    def _scalars(self, scan: QuotedBytes) -> Scalars:
        """The scalars of the shape, a row for each."""
        count, first = len(self.layout.scalars), self.layout.literals
        ends = _columns(self._places[:, first : first + count])
        ends += WIDE
        starts = _columns(self._places[:, first + count : first + 2 * count])
        tails = self._found[:, 2 * first : 2 * (first + count)]
        heads = self._found[:, 2 * (first + count) : 2 * (first + 2 * count) : 2]
        return Scalars(scan.words, starts, ends, _columns(heads), _columns(tails[:, 1::2]), _columns(tails[:, ::2]))

    def text(self, value: int, *, views: bool) -> pa.Array:
        """A text value, one of those that are read."""
        layout = self.layout
        at = layout.literals + 2 * len(layout.scalars) + layout.texts.index(value)
        span = Spans(self._places[:, at], self._places[:, layout.firsts[value + 1]])
        return text_views(self._found[:, 2 * at], self._found[:, 2 * at + 1], self._buffer, span, views=views)


def _columns(matrix: npt.NDArray[Any]) -> npt.NDArray[Any]:
    """A row for each column: what follows goes through one after the other."""
    return np.ascontiguousarray(matrix.T)
