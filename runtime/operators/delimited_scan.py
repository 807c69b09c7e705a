"""Lines of CSV to Arrow columns, all records of a batch at once: what the vector kernels decode with.

The delimiters of all records are found in one pass; a record with as many as its columns ask for, and with neither quotes nor
line ends, has its fields between them. Fields are read with the arithmetic on whole columns that reads JSON numbers
(`json_scalars`). What that does not read exactly as `flowql.runtime.serde.delimited`, the reference, does is *declined* and goes there:
signs and zeros in front of numbers, booleans that are not written `true` or `false`, other counts of fields.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from flowql.compiler.plan.types import Kind, SqlType, arrow_type
from flowql.runtime.batch import Ints
from flowql.runtime.operators.json_scalars import Bools, Scalars, Spans, column, integers, is_null
from flowql.runtime.operators.record_bytes import PAD, RecordBytes, nullable
from flowql.runtime.serde.delimited import delimiter_of

_SUPPORTED = frozenset(
    {Kind.BOOLEAN, Kind.INT, Kind.BIGINT, Kind.DOUBLE, Kind.DECIMAL, Kind.STRING, Kind.DATE, Kind.TIME, Kind.TIMESTAMP}
    | {Kind.MICROS}
)
_SPECIAL = (34, 10, 13)  # a quote, and the ends of a line
_MINUS = 45


class DelimitedScan:
    """Decodes the columns at `places` of the declared ones. Holds no data; safe to share between threads."""

    def __init__(
        self, names: Sequence[str], types: Sequence[SqlType], places: Sequence[int], count: int, delimiter: str
    ) -> None:
        self._names, self._types, self._places = tuple(names), tuple(types), tuple(places)
        self._count = count
        self._delimiter = ord(delimiter_of(delimiter))

    @staticmethod
    def supports(types: Sequence[SqlType], delimiter: str) -> bool:
        character = delimiter_of(delimiter)
        return len(character) == 1 and character.isascii() and all(t.kind in _SUPPORTED for t in types)

    def locate(
        self, values: pa.Array, *, views: bool = False, unread: frozenset[str] = frozenset()
    ) -> tuple[list[pa.Array], Bools, None]:
        """Columns of n rows, and which rows they are true for. `values`: n non-null binary values (32-bit offsets).

        views: STRING columns are string_view. unread: STRING columns that are not read (they come as nulls).
        """
        data = RecordBytes(values)
        spans, good = self._fields(data)
        good &= data.are_texts(Spans(data.starts, data.ends))
        columns = []
        for name, t, place in zip(self._names, self._types, self._places, strict=True):
            if name in unread and t.kind is Kind.STRING:
                columns.append(pa.nulls(data.rows, pa.string()))
                continue
            found, read = _column(data, spans[place], t)
            good &= read
            columns.append(found)
        return [a.cast(pa.string_view()) if views and a.type == pa.string() else a for a in columns], good, None

    def _fields(self, data: RecordBytes) -> tuple[list[Spans], Bools]:
        """Where the fields lie, and in which records they do."""
        found = np.flatnonzero(data.data == self._delimiter) + PAD
        first = np.searchsorted(found, data.starts)
        good: Bools = (np.searchsorted(found, data.ends) - first == self._count - 1) & (data.ends > data.starts)
        for special in _SPECIAL:
            places = np.flatnonzero(data.data == special) + PAD
            if len(places):
                good[np.searchsorted(data.ends, places, side="right")] = False
        known = np.append(found, data.ends[-1:])  # so that a record without any has a place to look at
        borders: list[Ints] = [data.starts - 1]
        borders += [
            np.where(good, known[np.minimum(first + k, len(found))], data.starts) for k in range(self._count - 1)
        ]
        borders.append(np.where(good, data.ends, data.starts))
        return [Spans(a + 1, np.maximum(b, a + 1)) for a, b in pairwise(borders)], good


def _column(data: RecordBytes, span: Spans, t: SqlType) -> tuple[pa.Array, Bools]:
    """The column of one field, and the rows it is true for; an empty field is NULL."""
    present = span.end > span.start
    if t.kind is Kind.STRING:
        return nullable(data.texts(span), present), np.ones(data.rows, bool)
    values = Scalars.read(data.words, span)
    found, good = column(values, integers(values), t)
    good = good & ~is_null(values)  # a word like any other here
    if t.kind is Kind.DOUBLE:  # -0 has a sign
        zero = pc.fill_null(pc.equal(found, 0.0), fill_value=False).to_numpy(zero_copy_only=False)
        good &= ~zero | (data.bytes[span.start] != _MINUS)
    return nullable(found if found.type == arrow_type(t) else found.cast(arrow_type(t)), present), good | ~present
