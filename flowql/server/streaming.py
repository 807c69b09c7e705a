"""Answers on their way: an Arrow stream whose end may say that it broke off, and why."""

from __future__ import annotations

import io
import json
from collections.abc import Generator, Iterator
from contextlib import closing
from typing import Any

import pyarrow as pa

from flowql.errors import CommandError
from flowql.query.answer import Answer
from flowql.query.pace import Pace, Share
from flowql.server.failures import query_error_of_wire, to_wire

ARROW = "application/vnd.apache.arrow.stream"
PIECE_BYTES = 256 << 10
SENDING = 2.0  # of the time in which a piece is made, with the server's loop that sends it
_BROKE = b"flowql.error"  # on an empty last batch: the error, as in `flowql.server.failures`


class _Written(io.RawIOBase):
    """Collects the bytes that a writer has written since they were last taken."""

    def __init__(self) -> None:
        self._parts: list[bytes] = []

    def writable(self) -> bool:
        return True

    def write(self, data: Any) -> int:
        self._parts.append(bytes(data))
        return len(self._parts[-1])

    def take(self) -> bytes:
        data = b"".join(self._parts)
        self._parts.clear()
        return data


class BrokenOff(Exception):
    """The rest of an answer will not come; its cause is the error."""


def encode(answer: Answer) -> Generator[bytes]:
    """The answer as an Arrow stream, piece by piece."""
    out = _Written()
    try:
        with pa.ipc.new_stream(out, answer.schema) as writer:
            try:
                for batch in answer.batches:
                    writer.write_batch(batch)
                    yield out.take()
            except CommandError as error:
                said = json.dumps(to_wire(error))
                nothing = answer.schema.empty_table().to_batches() or [_no_rows(answer.schema)]
                writer.write_batch(nothing[0], custom_metadata={_BROKE: said.encode()})
        yield out.take()
    finally:
        answer.close()


def gathered(pieces: Generator[bytes]) -> Generator[bytes]:
    """Small pieces together: each costs a turn of threads and of the server's loop, which is more than making it."""
    parts = list[bytes]()
    with closing(pieces):
        try:
            for piece in pieces:
                parts.append(piece)
                if sum(map(len, parts)) >= PIECE_BYTES:
                    yield b"".join(parts)
                    parts.clear()
        except BrokenOff:
            yield b"".join(parts)
            raise
        if parts:
            yield b"".join(parts)


def paced(pieces: Generator[bytes], share: Share) -> Generator[bytes]:
    """Made at the pace of interactive queries, each piece by whichever thread asks for it."""
    pace = Pace(share, SENDING)
    with closing(pieces):
        while True:
            pace.begin()
            try:
                piece = next(pieces, None)
                if piece is None:
                    return
                pace.rest()
            finally:
                pace.end()
            yield piece


def decode(parts: Iterator[bytes]) -> Answer:
    """The answer that `encode` wrote. Raises QueryError where the answer broke off."""
    reader = pa.ipc.open_stream(io.BufferedReader(_Readable(parts)))
    return Answer(reader.schema, _batches(reader))


def _batches(reader: pa.RecordBatchStreamReader) -> Generator[pa.RecordBatch]:
    while True:
        try:
            batch, metadata = reader.read_next_batch_with_custom_metadata()
        except StopIteration:
            return
        if metadata is not None and _BROKE in metadata:
            raise query_error_of_wire(json.loads(metadata[_BROKE]))
        yield batch


def _no_rows(schema: pa.Schema) -> pa.RecordBatch:
    return pa.RecordBatch.from_arrays([pa.array([], f.type) for f in schema], schema=schema)


class _Readable(io.RawIOBase):
    """Pieces of bytes as a file."""

    def __init__(self, parts: Iterator[bytes]) -> None:
        self._parts, self._left = parts, b""

    def readable(self) -> bool:
        return True

    def readinto(self, target: Any) -> int:
        while not self._left:
            part = next(self._parts, None)
            if part is None:
                return 0
            self._left = part
        view = memoryview(target)
        n = min(len(view), len(self._left))
        view[:n] = self._left[:n]
        self._left = self._left[n:]
        return n
