"""Output JSON put together from pieces of the input's text, where values are passed on unchanged.

When all records of a batch have one shape (`json_scan`), neighbouring values that the output takes over in the same order, with
the same text between them, are one piece of the record: they are copied as they stand instead of being read and written
again. A record that is passed on whole is not copied at all. Only values whose text is what `runtime.serde.json` would write
are pieces: plain texts, null, booleans and whole numbers (without the `-0` that JSON allows); others are encoded.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import orjson
import pyarrow as pa
import pyarrow.compute as pc

from compiler.plan.types import Kind, SqlType
from runtime.operators.json_scan import Located
from runtime.operators.json_shape import Shape
from runtime.operators.json_text import text_of

_WHOLE = frozenset({Kind.INT, Kind.BIGINT, Kind.DATE, Kind.TIME, Kind.TIMESTAMP})
VERBATIM = frozenset({*_WHOLE, Kind.BOOLEAN, Kind.STRING})
_MINUS_ZERO = np.uint64(0x302D)


@dataclass(frozen=True, slots=True)
class Piece:
    """Values first..last of the shape with the text between; with the literal before the first and after the last if told."""

    first: int
    last: int
    head: bool = False
    tail: bool = False


@dataclass(frozen=True, slots=True)
class Recipe:
    """Literals and values in turn: literals[0] values[0] literals[1] ... A value is a Piece or the number of an output column."""

    literals: tuple[str, ...]
    values: tuple[Piece | int, ...]
    whole_numbers: tuple[int, ...]  # values of the shape that must not be `-0`

    def is_whole_record(self, shape: Shape) -> bool:
        return self.values == (Piece(0, len(shape.texts) - 1, head=True, tail=True),)


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
        for v in recipe.whole_numbers:
            if ((located.words[located.start(v)] & np.uint64(0xFFFF)) == _MINUS_ZERO).any():
                return None
        if recipe.is_whole_record(located.shape):
            return values
        parts: list[pa.Scalar | pa.Array] = []
        for i, value in enumerate(recipe.values):
            literal = recipe.literals[i]
            if isinstance(value, Piece):
                parts += [pa.scalar(literal), located.text(value.first, value.last, head=value.head, tail=value.tail)]
                continue
            text, plain = text_of(columns[value], self._types[value])
            quote = plain and self._types[value].kind is Kind.STRING
            if quote:
                text = pc.binary_join_element_wise('"', text, '"', "")
            parts += [pa.scalar(literal), text]
        parts.append(pa.scalar(recipe.literals[-1]))
        return pc.binary_join_element_wise(*parts, "").view(pa.binary())

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
        values: list[Piece | int] = []
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
            if head and isinstance(last, Piece) and last.last == v - 1 and not last.tail:
                values[-1] = Piece(last.first, v, last.head)
            else:
                kept.append("" if head else pending)
                values.append(Piece(v, v, head))
            pending = literals[i + 1]
            if shape.literals[v + 1] == pending.encode() and (i + 1 == len(taken) or taken[i + 1] is None):
                piece = values[-1]
                assert isinstance(piece, Piece)
                values[-1] = Piece(piece.first, piece.last, piece.head, tail=True)
                pending = ""
        whole = tuple(v for v, t in zip(taken, self._types, strict=True) if v is not None and t.kind in _WHOLE)
        return Recipe((*kept, pending), tuple(values), whole)

    def _verbatim(self, output: int, shape: Shape, places: Sequence[int | None]) -> int | None:
        """The value of the shape whose text is output `output`, or None when it has to be written."""
        source = self._sources[output]
        if source is None or self._types[output].kind not in VERBATIM:
            return None
        return places[source]
