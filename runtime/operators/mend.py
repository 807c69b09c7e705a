"""ON_ERROR of columns: what becomes of a record in which a column cannot be read as its type.

Only records that the whole decoder refuses come here, so that all others cost nothing. The columns with an ON_ERROR are then read one
by one, and the rest together: what is wrong with the rest, or with the record itself, is a dead letter as ever.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import orjson

from flowql.compiler.plan.logical import OnError, Scan
from flowql.compiler.plan.schema import Field
from flowql.compiler.plan.types import STRING
from flowql.compiler.schemas.ref import reads_by_name
from flowql.runtime.batch import Row
from flowql.runtime.errors import FatalRecord
from flowql.runtime.serde.codec import UNREADABLE, RowDecoder, row_decoder, what_is_wrong
from flowql.runtime.serde.json import JsonDecoder


@dataclass(frozen=True, slots=True)
class _Alone:
    """A column with an ON_ERROR, read for itself. at: its place among the values; other: what it is when it cannot be read."""

    at: int
    given: OnError
    decoder: RowDecoder
    other: Any

    def read(self, data: bytes | None) -> Any:
        """Raises FatalRecord for ON_ERROR = 'fail'."""
        try:
            row = self.decoder.decode(data)
        except UNREADABLE as error:
            if self.given.action == "fail":
                raise FatalRecord(
                    f"{what_is_wrong(error)} (ON_ERROR = 'fail' of column {self.given.column})"
                ) from error
            return self.other
        return None if row is None else row[0]


@dataclass(frozen=True, slots=True)
class Mending:
    """rest: decodes the columns at `places`, among `count` in all."""

    alone: tuple[_Alone, ...]
    rest: RowDecoder
    places: tuple[int, ...]
    count: int

    @classmethod
    def of(cls, scan: Scan, values: Sequence[Field], declared: Sequence[Field]) -> Mending | None:
        """None where no column that is read has an ON_ERROR. values, declared: as of `row_decoder`."""
        given = {o.column: o for o in scan.on_error}
        if not any(f.name in given for f in values):
            return None

        def decoder(fields: Sequence[Field]) -> RowDecoder:
            names = {f.name for f in fields}
            if reads_by_name(scan.value_format, declared):
                return row_decoder(fields, scan.value_format, declared, is_key=False)
            texts = [f if f.name in names else replace(f, type=STRING) for f in declared]  # any cell is a text
            return row_decoder(fields, scan.value_format, texts, is_key=False)

        alone = tuple(
            _Alone(at, given[f.name], decoder([f]), _other(given[f.name], f))
            for at, f in enumerate(values)
            if f.name in given
        )
        rest = [(at, f) for at, f in enumerate(values) if f.name not in given]
        return cls(alone, decoder([f for _, f in rest]), tuple(at for at, _ in rest), len(values))

    def decode(self, data: bytes | None) -> Row | None:
        """Decodes a value. Raises BadRecord for errors that no ON_ERROR covers."""
        others = self.rest.decode(data)
        if others is None:
            return None
        row: list[Any] = [None] * self.count
        for at, value in zip(self.places, others, strict=True):
            row[at] = value
        for column in self.alone:
            row[column.at] = column.read(data)
        return tuple(row)


def _other(given: OnError, field: Field) -> Any:
    if given.action != "default":
        return None
    read: Callable[[bytes], Any] = JsonDecoder([field.name], [field.type], [0], wrapped=True).decode
    return read(orjson.dumps({field.name: given.default}))[0]
