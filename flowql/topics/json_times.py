"""ISO dates and times in flat JSON lines, replaced by the numbers that the JSON format reads; the rest of a line stays as it is.

Lines of one shape are done together (`flowql.runtime.operators.json_scan`). Lines that have none are left to `typed_texts.retyped_document`.
"""

from __future__ import annotations

from collections.abc import Sequence

import duckdb
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from flowql.compiler.plan.schema import Field
from flowql.compiler.plan.types import STRING, Kind
from flowql.runtime.operators.json_scan import JsonScan, Located
from flowql.topics.typed_texts import json_sql

_TIMES = (Kind.DATE, Kind.TIME, Kind.TIMESTAMP, Kind.MICROS)
ROWS_MIN = 256  # fewer are done one by one


class JsonTimes:
    """Replaces texts of the columns that are dates or times. `database`: of this object alone, in UTC."""

    def __init__(self, fields: Sequence[Field]) -> None:
        self._fields = [f for f in fields if f.type.kind in _TIMES]
        self._scan = JsonScan([f.name for f in self._fields], [STRING] * len(self._fields))
        self._database: duckdb.DuckDBPyConnection | None = None

    def replace(self, values: pa.Array) -> pa.Array:
        """The lines with numbers in place of the texts that are times."""
        if not self._fields or len(values) < ROWS_MIN:
            return values
        for rows, columns, located in self._scan.by_shape(values):
            texts = [
                (place, column, field)
                for place, column, field in zip(located.places, columns, self._fields, strict=True)
                if place is not None and located.shape.texts[place]
            ]
            if texts and len(rows):
                replaced = self._replaced(located, sorted(texts, key=lambda t: t[0]))
                mask = np.zeros(len(values), bool)
                mask[rows] = True
                values = pc.replace_with_mask(values, pa.array(mask), replaced)
        return values

    def _replaced(self, located: Located, texts: Sequence[tuple[int, pa.Array, Field]]) -> pa.Array:
        """Lines of one shape: what is between the texts as it stands, and numbers (or the texts again) between."""
        last = len(located.shape.literals) - 1
        numbers = [0, *(b for place, _, _ in texts for b in (2 * place + 1, 2 * place + 2)), 2 * last + 1]
        borders = located.borders(numbers)
        borders[:, 1:-1:2] -= 1  # with the quote before the text
        borders[:, 2:-1:2] += 1  # and the one behind it
        width = borders.shape[1]
        offsets = np.append(borders, borders[-1, -1]).astype(np.int32)
        pieces = pa.Array.from_buffers(pa.binary(), borders.size, [None, pa.py_buffer(offsets), located.buffer])
        parts: list[pa.Array] = []
        for i, (_, column, field) in enumerate(texts):
            parts += [_every(pieces, 2 * i, width, len(borders)), self._numbers(column, field)]
        parts.append(_every(pieces, width - 2, width, len(borders)))
        return pc.binary_join_element_wise(*parts, pa.scalar(b"", pa.binary()))

    def _numbers(self, column: pa.Array, field: Field) -> pa.Array:
        if self._database is None:
            self._database = duckdb.connect(config={"threads": "1"})
            self._database.execute("SET TimeZone = 'UTC'")
        self._database.register("texts", pa.table({"c": column}))
        sql = f"SELECT encode(coalesce({json_sql('c', field.type)}, 'null')) AS n FROM texts"
        return self._database.sql(sql).to_arrow_table().column("n").combine_chunks().cast(pa.binary())


def _every(pieces: pa.Array, first: int, step: int, rows: int) -> pa.Array:
    return pieces.take(pa.array(np.arange(first, first + step * rows, step)))
