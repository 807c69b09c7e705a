"""Output JSON put together from pieces of the input's text, where values are passed on unchanged.

When all records of a batch have one shape (`json_scan`), neighbouring values that the output takes over in the same order, with
the same text between them, are one piece of the record: they are copied as they stand instead of being read and written
again. A record that is passed on whole is not copied at all. Only values whose text is what `flowql.runtime.serde.json` would write
are pieces: plain texts, null, booleans and whole numbers (without the `-0` that JSON allows); others are encoded.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import zip_longest

import numpy as np
import orjson
import pyarrow as pa
import pyarrow.compute as pc

from flowql.compiler.plan.types import Kind, SqlType
from flowql.runtime.operators.json_scan import Located
from flowql.runtime.operators.json_shape import Shape
from flowql.runtime.operators.json_text import text_of

_WHOLE = frozenset({Kind.INT, Kind.BIGINT, Kind.DATE, Kind.TIME, Kind.TIMESTAMP, Kind.MICROS})
VERBATIM = frozenset({*_WHOLE, Kind.BOOLEAN, Kind.STRING})
_MINUS_ZERO = np.uint64(0x302D)
_Part = tuple[int, int]  # where it is in the pool for the first row, and how far from there for the next
FULL = 2  # copying twice as much as is needed costs less than copying piece by piece


@dataclass(frozen=True, slots=True)
class ValueRange:
    """Values first..last of the shape with the text between; with the literal before the first and after the last if told."""

    first: int
    last: int
    head: bool = False
    tail: bool = False

    @property
    def extent(self) -> tuple[int, int]:
        """Its borders (`Located.borders`)."""
        return 2 * self.first + (not self.head), 2 * self.last + 2 + self.tail


@dataclass(frozen=True, slots=True)
class Recipe:
    """Literals and values in turn: literals[0] values[0] literals[1] ... A value is a ValueRange or the number of an output column."""

    literals: tuple[str, ...]
    values: tuple[ValueRange | int, ...]
    whole_numbers: tuple[int, ...]  # values of the shape that must not be `-0`

    @property
    def pieces(self) -> list[ValueRange]:
        """Each once, as they stand in the record."""
        return sorted({v for v in self.values if isinstance(v, ValueRange)}, key=lambda p: p.extent)

    @property
    def columns(self) -> list[int]:
        return [v for v in self.values if not isinstance(v, ValueRange)]

    def is_whole_record(self, shape: Shape) -> bool:
        return self.values == (ValueRange(0, len(shape.texts) - 1, head=True, tail=True),)


def _has_minus_zero(located: Located, values: Sequence[int]) -> bool:
    borders = located.borders([b for v in values for b in (2 * v + 1, 2 * v + 2)])
    starts = borders[:, ::2]
    starts = starts[borders[:, 1::2] - starts == len("-0")]
    return bool(((located.words[starts] & np.uint64(0xFFFF)) == _MINUS_ZERO).any())


class _Rows:
    """Texts put together to n rows, by one `take` of all their parts from a pool."""

    def __init__(self, rows: int) -> None:
        self._rows = rows
        self._pool: list[pa.Array] = []
        self._size = 0

    def put(self, recipe: Recipe, located: Located, texts: Sequence[pa.Array]) -> pa.Array:
        """texts: of the columns of the recipe, in its order."""
        n = self._rows
        if not n:
            return pa.array([], pa.binary())
        pieces = self._pieces(located, recipe.pieces)
        computed = iter(texts)
        parts: list[_Part] = []
        for literal, value in zip_longest(recipe.literals, recipe.values):
            if literal:
                parts.append((self._add(pa.array([literal.encode()], pa.binary())), 0))
            if isinstance(value, ValueRange):
                parts.append(pieces[value])
            elif value is not None:
                parts.append((self._add(next(computed).view(pa.binary())), 1))
        first, step = np.array(parts, np.int32).T
        places = np.multiply.outer(np.arange(n, dtype=np.int32), step)
        places += first
        taken = pa.concat_arrays(self._pool).take(pa.array(places.ravel()))
        ends = np.frombuffer(taken.buffers()[1], np.int32)[: len(taken) + 1 : len(parts)]
        return pa.Array.from_buffers(
            pa.binary(), n, [None, pa.py_buffer(np.ascontiguousarray(ends)), taken.buffers()[2]]
        )

    def _pieces(self, located: Located, pieces: Sequence[ValueRange]) -> dict[ValueRange, _Part]:
        """The bytes of the records become an array without being copied: pieces and what stands between them in turn.

        Where pieces overlap there are several such arrays.
        """
        found: dict[ValueRange, _Part] = {}
        left = list(pieces)
        while left:
            layer: list[ValueRange] = []
            for p in left:
                if not layer or layer[-1].extent[1] <= p.extent[0]:
                    layer.append(p)
            left = [p for p in left if p not in layer]
            array, step = _cut(located, layer)
            first = self._add(array)
            found |= {p: (first + step * i, step * len(layer)) for i, p in enumerate(layer)}
        return found

    def _add(self, texts: pa.Array) -> int:
        """The place of the first in the pool."""
        first = self._size
        self._pool.append(texts)
        self._size += len(texts)
        return first


def _cut(located: Located, layer: Sequence[ValueRange]) -> tuple[pa.Array, int]:
    """The pieces of one record after the other, and how far it is from one to the next."""
    borders = located.borders([b for p in layer for b in p.extent])
    offsets = np.append(borders, borders[-1, -1]).astype(np.int32)
    array = pa.Array.from_buffers(pa.binary(), borders.size, [None, pa.py_buffer(offsets), located.buffer])
    needed = int(borders[:, 1::2].sum() - borders[:, ::2].sum())
    if FULL * needed < offsets[-1] - offsets[0]:  # few rows are left, or little of each: what is between is not copied
        return array.take(pa.array(np.arange(0, borders.size, 2))), 1
    return array, 2


class Splice:
    """How the columns of one sink come from those of one source. sources[i]: the source column output i is, or None."""

    def __init__(self, names: Sequence[str], types: Sequence[SqlType], sources: Sequence[int | None]) -> None:
        self._leads = [("," if i else "{") + orjson.dumps(n).decode() + ":" for i, n in enumerate(names)]
        self._types, self._sources = tuple(types), tuple(sources)
        self._recipes: dict[tuple[Shape, tuple[int | None, ...]], Recipe] = {}

    def encode(self, located: Located, values: pa.Array, columns: Sequence[pa.Array]) -> pa.Array | None:
        """JSON values (binary) of the located rows; None if the batch must be encoded by column.

        values: the rows' records. columns: the sink's value columns; those that pieces cover are not looked at.
        """
        recipe = self._recipe(located)
        if recipe.whole_numbers and _has_minus_zero(located, recipe.whole_numbers):
            return None
        if recipe.is_whole_record(located.shape):
            return values
        return _Rows(len(values)).put(recipe, located, [self._text(columns[i], self._types[i]) for i in recipe.columns])

    @staticmethod
    def _text(column: pa.Array, t: SqlType) -> pa.Array:
        text, plain = text_of(column, t)
        quote = plain and t.kind is Kind.STRING
        return pc.binary_join_element_wise('"', text, '"', "") if quote else text

    def _recipe(self, located: Located) -> Recipe:
        key = (located.shape, located.places)
        found = self._recipes.get(key)
        if found is None:
            if len(self._recipes) >= 64:  # shapes of odd data may be many
                self._recipes.clear()
            found = self._recipes[key] = self._plan(located.shape, located.places)
        return found

    def _plan(self, shape: Shape, places: Sequence[int | None]) -> Recipe:
        taken = [self._verbatim(i, shape, places) for i in range(len(self._types))]
        quoted = ['"' if v is not None and shape.texts[v] else "" for v in taken]
        literals = [lead + q for lead, q in zip(self._leads, quoted, strict=True)]
        literals = [before + lit for before, lit in zip(["", *quoted], literals, strict=False)] + [quoted[-1] + "}"]
        values: list[ValueRange | int] = []
        kept: list[str] = []
        pending = literals[0]
        for i, v in enumerate(taken):
            if v is None:
                kept.append(pending)
                values.append(i)
                pending = literals[i + 1]
                continue
            head = shape.literals[v] == pending.encode()
            last = values[-1] if values else None
            if head and isinstance(last, ValueRange) and last.last == v - 1 and not last.tail:
                values[-1] = ValueRange(last.first, v, last.head)
            else:
                kept.append("" if head else pending)
                values.append(ValueRange(v, v, head))
            pending = literals[i + 1]
            if shape.literals[v + 1] == pending.encode() and (i + 1 == len(taken) or taken[i + 1] is None):
                piece = values[-1]
                assert isinstance(piece, ValueRange)
                values[-1] = ValueRange(piece.first, piece.last, piece.head, tail=True)
                pending = ""
        whole = tuple(v for v, t in zip(taken, self._types, strict=True) if v is not None and t.kind in _WHOLE)
        return Recipe((*kept, pending), tuple(values), whole)

    def _verbatim(self, output: int, shape: Shape, places: Sequence[int | None]) -> int | None:
        """The value of the shape whose text is output `output`, or None when it has to be written."""
        source = self._sources[output]
        if source is None or self._types[output].kind not in VERBATIM:
            return None
        return places[source]
