"""Rows on their way from one instance to another: per part a length, a line about it and an Arrow stream."""

from __future__ import annotations

import json
import struct
from collections.abc import Iterable, Iterator
from typing import Any

import pyarrow as pa

from flowql.errors import CommandError
from flowql.query.committed import Part, Wanted
from flowql.query.errors import query_error, to_data
from flowql.query.statement import Condition, Literal

MEDIA_TYPE = "application/vnd.flowql.parts"
_LENGTHS = struct.Struct(">IQ")
END = {"end": True}  # the last line: without it the answer broke off


def encode(parts: Iterable[Part]) -> Iterator[bytes]:
    try:
        for part in parts:
            about = {"relation": part.relation, "task": part.task, "version": part.version}
            yield from _framed(about, _stream(part.rows))
    except CommandError as error:
        yield from _framed({"error": to_data(error)}, b"")
        return
    yield from _framed(END, b"")


def decode(pieces: Iterator[bytes]) -> Iterator[Part]:
    """ValueError if it breaks off, QueryError where the other one says so."""
    source = _Source(pieces)
    while True:
        line, rows = _LENGTHS.unpack(source.take(_LENGTHS.size))
        about = json.loads(source.take(line))
        if about == END:
            return
        if "error" in about:
            raise query_error(about["error"])
        table = pa.ipc.open_stream(source.take(rows)).read_all()
        yield Part(about["relation"], about["task"], about["version"], table)


def wanted_to_data(wanted: Iterable[Wanted]) -> dict[str, Any]:
    found = []
    for w in wanted:
        conditions = [[c.column, c.operator, [[v.kind, v.text] for v in c.values]] for c in w.conditions]
        columns = None if w.columns is None else sorted(w.columns)
        about = {"relation": w.relation, "definition": w.definition, "conditions": conditions}
        found.append({**about, "columns": columns, "enough": w.enough})
    return {"wanted": found}


def wanted_of(data: Any) -> list[Wanted]:
    """ValueError, KeyError or TypeError if it is none."""
    found = []
    for w in data["wanted"]:
        conditions = tuple(
            Condition(str(column), str(operator), tuple(Literal(str(k), str(t)) for k, t in values))
            for column, operator, values in w["conditions"]
        )
        columns = None if w["columns"] is None else frozenset(map(str, w["columns"]))
        enough = w.get("enough")
        if enough is not None and not isinstance(enough, int):
            raise TypeError("`enough` is a number")
        found.append(Wanted(str(w["relation"]), str(w["definition"]), conditions, columns, enough))
    return found


def _framed(about: dict[str, Any], data: bytes) -> Iterator[bytes]:
    line = json.dumps(about).encode()
    yield _LENGTHS.pack(len(line), len(data)) + line
    if data:
        yield data


def _stream(table: pa.Table) -> bytes:
    out = pa.BufferOutputStream()
    with pa.ipc.new_stream(out, table.schema) as writer:
        writer.write_table(table)
    return bytes(out.getvalue())


class _Source:
    """Pieces of bytes, taken in other lengths."""

    def __init__(self, pieces: Iterator[bytes]) -> None:
        self._pieces, self._left = pieces, bytearray()

    def take(self, n: int) -> bytes:
        while len(self._left) < n:
            piece = next(self._pieces, None)
            if piece is None:
                raise ValueError("the answer broke off")
            self._left += piece
        taken = bytes(self._left[:n])
        del self._left[:n]
        return taken
