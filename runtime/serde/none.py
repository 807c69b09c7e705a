"""NONE: a side without columns; whatever bytes are there are not looked at."""

from __future__ import annotations

from flowql.runtime.batch import Row


class NoneDecoder:
    """Gives an empty row for any bytes."""

    def decode(self, data: bytes | None) -> Row | None:
        return None if data is None else ()


class NoneEncoder:
    """Writes null."""

    def encode(self, row: Row) -> bytes | None:
        return None
