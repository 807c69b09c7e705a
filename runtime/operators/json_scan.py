"""Flat JSON records of one shape to Arrow columns, without a parser: what the vector kernels decode with.

Records of a topic mostly look alike: the same keys in the same order with the same spacing. The first record of a batch
gives the shape (`Shape`): literal pieces of text with a value between each two. The places of quotes say where in each record
the pieces and the values have to be (`Look`): what stands there is compared with the pieces, and numbers are made of it
with arithmetic on whole columns. A record that is equal to the shape in every literal byte, and whose values are plain texts
(no escape, no control character, valid UTF-8) and JSON numbers, true, false or null, is proven to be JSON with exactly these
keys; any other record is *declined* (`ok` False) and read by `flowql.runtime.serde.json`, the reference. Up to `SHAPES_MAX` shapes
per batch are tried, for records with optional fields.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from flowql.compiler.plan.types import Kind, SqlType, arrow_type
from flowql.runtime.batch import Ints
from flowql.runtime.operators import json_scalars
from flowql.runtime.operators.json_scalars import (
    PAD,
    Bools,
    RecordBytes,
    Scalars,
    Spans,
    Words,
    plain,
    take,
    text_views,
)

_PAIR = re.compile(
    rb'[ \t\r\n]*"([^"\\\x00-\x1f]*)"[ \t\r\n]*:[ \t\r\n]*(?:"([^"\\\x00-\x1f]*)"|([^"\\,{}\[\]\x00-\x20]+))'
)


@dataclass(frozen=True, slots=True)
class Shape:
    """literals[0] value literals[1] value ... literals[n]; `texts[i]`: value i stands between quotes; `keys[i]`: its key."""

    literals: tuple[bytes, ...]
    texts: tuple[bool, ...]
    keys: tuple[str, ...]

    @property
    def quotes(self) -> int:
        return sum(piece.count(b'"') for piece in self.literals)


def learn_shape(record: bytes) -> Shape | None:
    """The shape of a record; None if it is not an object of plain texts and scalars."""
    if not record.startswith(b"{") or not record.endswith(b"}"):
        return None
    literals, texts, keys = [], [], []
    start, at = 0, 1
    while (m := _PAIR.match(record, at)) is not None:
        is_text = m.group(2) is not None
        value = m.span(2 if is_text else 3)
        literals.append(record[start : value[0]])
        texts.append(is_text)
        keys.append(m.group(1))
        start, at = value[1], m.end()
        rest = record[at : at + 1]
        if rest == b"}" and at + 1 == len(record):
            try:
                names = tuple(k.decode() for k in keys)
            except UnicodeDecodeError:
                return None
            return Shape((*literals, record[start:]), tuple(texts), names)
        if rest != b",":
            return None
        at += 1
    return None


@lru_cache(maxsize=64)
def anchors(shape: Shape) -> tuple[tuple[int | None, int], ...]:
    """Where each literal starts: so many bytes from that quote of the record, None for the end of the record."""
    found: list[tuple[int | None, int]] = []
    quote = 0
    for piece in shape.literals:
        before = piece.find(b'"')
        found.append((None, -len(piece)) if before < 0 else (quote, -before))
        quote += piece.count(b'"')
    return tuple(found)


WIDE = 16  # bytes read at once
_QUOTE, _BACKSLASH = 34, 92
_WIDE_TYPE = np.dtype("complex128")  # numpy's only number of sixteen bytes that it copies as it stands


class QuotedBytes(RecordBytes):
    """The bytes of one batch, and the places of quotes in them. excluded: rows that no shape can hold for; None for none.

    Sixteen bytes are read at each place, all of one record before the next: a batch is more than a processor's cache holds.
    """

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


SHAPES_MAX = 8
ROWS_PER_SHAPE_MIN = 16
_SUPPORTED = frozenset(
    {Kind.BOOLEAN, Kind.INT, Kind.BIGINT, Kind.DOUBLE, Kind.DECIMAL, Kind.STRING, Kind.DATE, Kind.TIME, Kind.TIMESTAMP}
    | {Kind.MICROS}
)


@dataclass(frozen=True, slots=True)
class Located:
    """Where the values of rows of one shape lie in the scanned bytes.

    places[c]: the value that column c of the scan reads, or None. quotes: the places of all quotes of each row; record_end: where
    rows end.
    """

    shape: Shape
    places: tuple[int | None, ...]
    words: Words
    buffer: pa.Buffer
    quotes: Ints
    record_end: Ints

    def take(self, rows: Ints) -> Located:
        return replace(self, quotes=self.quotes[rows], record_end=self.record_end[rows])

    def borders(self, numbers: Sequence[int]) -> Ints:
        """Where in each row these borders are: a row each. Border 2 i is before literal i of the shape, 2 i + 1 behind it."""
        literals = anchors(self.shape)
        found = [(literals[b // 2], b % 2 * len(self.shape.literals[b // 2])) for b in numbers]
        places: Ints = np.take(self.quotes, [quote or 0 for (quote, _), _ in found], axis=1)
        places += np.array([offset + behind for (_, offset), behind in found])
        for i, ((quote, offset), behind) in enumerate(found):
            if quote is None:
                np.add(self.record_end, offset + behind, out=places[:, i])
        return places


class JsonScan:
    """Decodes the wanted columns of flat JSON objects. Holds no data; safe to share between threads."""

    def __init__(self, names: Sequence[str], types: Sequence[SqlType], *, standard: bool = False) -> None:
        """standard: see `Format`; of numbers it makes no difference here, as those that do not fit are left to the reference."""
        self._names, self._types = tuple(names), tuple(types)
        self._others = tuple(n.upper() for n in names) if standard else self._names

    @staticmethod
    def supports(types: Sequence[SqlType]) -> bool:
        return all(t.kind in _SUPPORTED for t in types)

    def decode(self, values: pa.Array, *, views: bool = False) -> tuple[list[pa.Array], Bools]:
        """Columns of n rows, and which rows they are true for. `values`: n non-null binary values (32-bit offsets).

        views: STRING columns may be given as string_view over the records instead of being copied together.
        """
        return self.locate(values, views=views)[:2]

    def locate(
        self, values: pa.Array, *, views: bool = False, unread: frozenset[str] = frozenset()
    ) -> tuple[list[pa.Array], Bools, Located | None]:
        """As `decode`; and, when one shape holds for all rows that are ok, where their values lie.

        unread: STRING columns that are proven but not read (they come as nulls).
        """
        scan = QuotedBytes(values)
        parts = self._parts(scan, views=views, unread=unread)
        ok = np.zeros(scan.rows, bool)
        for rows, _, _ in parts:
            ok[rows] = True
        columns = self._assemble([(rows, found) for rows, found, _ in parts], scan.rows, views=views)
        return columns, ok, parts[0][2] if len(parts) == 1 else None

    def by_shape(self, values: pa.Array) -> list[tuple[Ints, list[pa.Array], Located]]:
        """For each shape that is found: which rows have it, their columns, and where their values lie."""
        return self._parts(QuotedBytes(values), views=False, unread=frozenset())

    def _parts(
        self, scan: QuotedBytes, *, views: bool, unread: frozenset[str]
    ) -> list[tuple[Ints, list[pa.Array], Located]]:
        ok = np.zeros(scan.rows, bool)
        parts: list[tuple[Ints, list[pa.Array], Located]] = []
        left = np.flatnonzero(~scan.excluded) if scan.excluded is not None else np.arange(scan.rows)
        for _ in range(SHAPES_MAX):
            if len(left) < (1 if not parts else ROWS_PER_SHAPE_MIN):
                break
            shape = learn_shape(scan.record(int(left[0])))
            if shape is None:
                left = left[1:]
                continue
            rows, columns, where = self._match(scan, shape, left, views=views, unread=unread)
            if len(rows):
                ok[rows] = True
                parts.append((rows, columns, where))
                left = left[~ok[left]]
            left = left[1:] if len(left) and (not len(rows) or rows[0] > left[0]) else left
        return parts

    def _match(
        self, scan: QuotedBytes, shape: Shape, candidates: Ints, *, views: bool, unread: frozenset[str]
    ) -> tuple[Ints, list[pa.Array], Located]:
        """The candidates that have the shape, their columns, and where their values lie."""
        rows, quotes = scan.quotes_of(candidates, shape.quotes)
        starts, ends = (scan.starts, scan.ends) if len(rows) == scan.rows else (scan.starts[rows], scan.ends[rows])
        wanted = self._values_of(shape)
        look = Look(scan, layout_of(shape, self._texts(shape, wanted, unread)), quotes, ends)
        matches = look.matches(shape, starts, ends)
        columns: list[pa.Array | None] = [None] * len(self._types)
        for v in look.layout.texts:
            for c in (c for c, w in enumerate(wanted) if w == v and self._types[c].kind is Kind.STRING):
                columns[c] = look.text(v, views=views)
        if any(
            v is not None and shape.texts[v] and t.kind is not Kind.STRING
            for v, t in zip(wanted, self._types, strict=True)
        ):
            matches[:] = False  # what the text of a number means is the reference's business
        if look.scalars is not None:
            matches &= self._read_scalars(look.scalars, look.layout.scalars, wanted, columns, views=views)
        done = [
            pa.nulls(len(rows), _type(t, views=views)) if a is None else a
            for a, t in zip(columns, self._types, strict=True)
        ]
        located = Located(shape, tuple(wanted), scan.words, scan.buffer, quotes, ends)
        if matches.all():
            return rows, done, located
        kept = np.flatnonzero(matches)
        return rows[kept], [take(a, pa.array(kept)) for a in done] if len(kept) else [], located.take(kept)

    def _texts(self, shape: Shape, wanted: Sequence[int | None], unread: frozenset[str]) -> tuple[int, ...]:
        """The texts of the shape that are read."""
        found = {
            v: None
            for v, name, t in zip(wanted, self._names, self._types, strict=True)
            if v is not None and shape.texts[v] and t.kind is Kind.STRING and name not in unread
        }
        return tuple(found)

    def _read_scalars(
        self,
        scalars: Scalars,
        values: Sequence[int],
        wanted: Sequence[int | None],
        columns: list[pa.Array | None],
        *,
        views: bool,
    ) -> Bools:
        """Fill in the columns that come from scalars (row i of them is value `values[i]`); which records they are true for."""
        whole = json_scalars.integers(scalars)
        matches = np.ones(scalars.start.shape[1], bool)
        for i, v in enumerate(values):
            users = [c for c, w in enumerate(wanted) if w == v]
            for c in users:
                t = self._types[c]
                array, good = json_scalars.column(scalars[i], whole[i], t)
                columns[c] = array.cast(pa.string_view()) if views and t.kind is Kind.STRING else array
                matches &= good
            if not users:
                matches &= json_scalars.is_scalar(scalars[i], whole[i])
        return matches

    def _values_of(self, shape: Shape) -> list[int | None]:
        """Which value of the shape each column reads: exact name, else upper case, the last of equals (as the reference)."""
        exact = {k: i for i, k in enumerate(shape.keys)}
        order = {k: None for k in shape.keys}  # a repeated key keeps its first place among the keys, as in a dict
        upper = {k.upper(): exact[k] for k in order}
        pairs = zip(self._names, self._others, strict=True)
        return [exact[n] if n in exact else upper.get(other) for n, other in pairs]

    def _assemble(self, parts: list[tuple[Ints, list[pa.Array]]], n: int, *, views: bool) -> list[pa.Array]:
        if len(parts) == 1 and len(parts[0][0]) == n:
            return parts[0][1]
        if not parts:
            return [pa.nulls(n, _type(t, views=views)) for t in self._types]
        found = np.concatenate([rows for rows, _ in parts])
        place = np.full(n, -1, np.int64)
        place[found] = np.arange(len(found))
        indices = pa.array(place, mask=place < 0)
        columns = zip(*(columns for _, columns in parts), strict=True)
        return [pa.concat_arrays([plain(a) for a in c]).take(indices) for c in columns]


def _type(t: SqlType, *, views: bool) -> pa.DataType:
    return pa.string_view() if views and t.kind is Kind.STRING else arrow_type(t)
