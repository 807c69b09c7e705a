"""Frames of a body: a line of JSON and bytes, each with its length."""

from __future__ import annotations

import json
import struct
from collections.abc import Iterator
from typing import Any

import pyarrow as pa

MEDIA_TYPE = "application/vnd.flowql.frames"
_LENGTHS = struct.Struct(">IQ")


def framed(about: dict[str, Any], data: bytes = b"") -> bytes:
    line = json.dumps(about).encode()
    return _LENGTHS.pack(len(line), len(data)) + line + data


def read_frames(pieces: Iterator[bytes]) -> Iterator[tuple[dict[str, Any], bytes]]:
    """Reads frames without end: the caller knows the last one. Raises ValueError if the input ends before it."""
    source = _Source(pieces)
    while True:
        line, rows = _LENGTHS.unpack(source.take(_LENGTHS.size))
        yield json.loads(source.take(line)), source.take(rows)


def arrow_stream(data: pa.Table | pa.RecordBatch) -> bytes:
    """The data as an Arrow IPC stream."""
    out = pa.BufferOutputStream()
    with pa.ipc.new_stream(out, data.schema) as writer:
        writer.write(data)
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
