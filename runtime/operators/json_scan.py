"""Flat JSON records of one shape to Arrow columns, without a parser: what the vector kernels decode with.

Records of a topic mostly look alike: the same keys in the same order with the same spacing. The first record of a batch
gives the shape (`Shape`): literal pieces of text with a value between each two. The places of quotes say where in each record
the pieces and the values have to be (`json_places`): what stands there is compared with the pieces, and numbers are made of it
with arithmetic on whole columns. A record that is equal to the shape in every literal byte, and whose values are plain texts
(no escape, no control character, valid UTF-8) and JSON numbers, true, false or null, is proven to be JSON with exactly these
keys; any other record is *declined* (`ok` False) and read by `flowql.runtime.serde.json`, the reference. Up to `SHAPES_MAX` shapes
per batch are tried, for records with optional fields.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
import pyarrow as pa

from flowql.compiler.plan.types import Kind, SqlType, arrow_type
from flowql.runtime.batch import Ints
from flowql.runtime.operators import json_scalars
from flowql.runtime.operators.json_places import Look, QuotedBytes, layout_of
from flowql.runtime.operators.json_scalars import Bools, Scalars, Words, plain, take
from flowql.runtime.operators.json_shape import Shape, anchors, learn_shape

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
