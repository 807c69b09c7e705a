"""Rows of an Arrow stream from outside: what they unpack to is known, and limited, before anything is unpacked.

A body may be small and what it says large: compressed buffers, columns of NULL without a buffer, dictionaries and runs. Layout:
Arrow's `format/Message.fbs`; a FlatBuffers table begins with the distance to its vtable, which has the places of its fields.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from flowql.server.bodies import Malformed

ROWS_MAX = 1 << 20  # of one request
VALUES_MAX = 1 << 23  # of one column in one batch, with those in lists
_DICTIONARY, _RECORDS = 2, 3  # MessageHeader


def read_rows(data: bytes, bytes_max: int) -> pa.Table:
    """The rows. Raises Malformed for a damaged stream, and for one that unpacks to more than `bytes_max`, ROWS_MAX or VALUES_MAX."""
    try:
        _check_sizes(data, bytes_max)
        table = pa.ipc.open_stream(data).read_all()
        table.validate(full=True)
        for name, column in zip(table.column_names, table.columns, strict=True):
            _check_column(name, column, bytes_max)
    except (pa.ArrowException, OSError, ValueError, KeyError, TypeError, struct.error) as error:
        raise Malformed(f"the body is not an Arrow stream: {error}") from error
    return table


def _check_sizes(data: bytes, bytes_max: int) -> None:
    rows = size = 0
    for message in pa.ipc.MessageReader.open_stream(data):
        for batch in _batches(memoryview(message.metadata)):
            rows += batch.rows
            size += batch.unpacked_bytes(memoryview(message.body))
            if rows > ROWS_MAX:
                raise Malformed(f"a request has {ROWS_MAX:,} rows at most; send fewer at once")
            if size > bytes_max:
                raise Malformed(f"the body unpacks to more than {bytes_max:,} bytes; send fewer rows at once")
            if batch.values_most > VALUES_MAX:
                raise Malformed(f"a column has {VALUES_MAX:,} values at most in one batch; send fewer rows at once")


def _check_column(name: str, column: pa.ChunkedArray, bytes_max: int) -> None:
    if not _is_plain(column.type):
        raise Malformed(
            f"column {name} is {column.type}: runs, views of lists, and dictionaries in other types are not supported"
        )
    for chunk in column.chunks:
        if pa.types.is_dictionary(chunk.type) and _has_length(chunk.type.value_type):
            size = pc.sum(pc.take(pc.binary_length(chunk.dictionary), chunk.indices)).as_py() or 0
        elif pa.types.is_string_view(chunk.type) or pa.types.is_binary_view(chunk.type):
            size = _bytes_viewed(chunk)
        else:
            continue
        if size > bytes_max:
            raise Malformed(f"column {name} unpacks to more than {bytes_max:,} bytes; send fewer rows at once")


def _bytes_viewed(chunk: pa.Array) -> int:
    """A view is 16 bytes, of which the first four are the length."""
    lengths = np.frombuffer(chunk.buffers()[1], np.int32)[::4][chunk.offset : chunk.offset + len(chunk)]
    valid = chunk.is_valid().to_numpy(zero_copy_only=False)
    return int(lengths[valid].sum(dtype=np.int64))


def _is_plain(t: pa.DataType, *, inner: bool = False) -> bool:
    """Whether values take as much room as their buffers, or, of a column, as `_check_column` counts."""
    if pa.types.is_run_end_encoded(t) or pa.types.is_list_view(t) or pa.types.is_large_list_view(t):
        return False
    if pa.types.is_dictionary(t):
        return not inner and not pa.types.is_nested(t.value_type)
    if inner and (pa.types.is_string_view(t) or pa.types.is_binary_view(t)):
        return False
    return all(_is_plain(t.field(i).type, inner=True) for i in range(t.num_fields))


def _has_length(t: pa.DataType) -> bool:
    return any(
        is_(t) for is_ in (pa.types.is_string, pa.types.is_large_string, pa.types.is_binary, pa.types.is_large_binary)
    )


@dataclass(frozen=True, slots=True)
class _Batch:
    """rows: 0 for a dictionary. buffers: offset and length of each in the body. values_most: of its columns."""

    rows: int
    values_most: int
    buffers: tuple[tuple[int, int], ...]
    is_compressed: bool

    def unpacked_bytes(self, body: memoryview) -> int:
        if not self.is_compressed:
            return sum(length for _, length in self.buffers)
        return sum(_unpacked(body, offset, length) for offset, length in self.buffers if length)


def _unpacked(body: memoryview, offset: int, length: int) -> int:
    """A compressed buffer begins with its length; -1: it is not compressed."""
    (size,) = struct.unpack_from("<q", body, offset)
    if size < -1:
        raise ValueError("a buffer has a negative length")
    return int(length if size == -1 else size)


@dataclass(frozen=True, slots=True)
class _Table:
    data: memoryview
    at: int

    def field(self, number: int) -> int:
        """Where it is; 0 if it is not there."""
        vtable = self.at - _i32(self.data, self.at)
        size = struct.unpack_from("<H", self.data, vtable)[0]
        offset = struct.unpack_from("<H", self.data, vtable + 4 + 2 * number)[0] if 4 + 2 * number < size else 0
        return self.at + offset if offset else 0

    def table(self, number: int) -> _Table:
        place = self.field(number)
        if not place:
            raise ValueError("a part of a message is missing")
        return _Table(self.data, place + _i32(self.data, place))

    def pairs(self, number: int) -> Iterator[tuple[int, int]]:
        """A vector of structs of two 64-bit numbers."""
        place = self.field(number)
        if not place:
            return
        start = place + _i32(self.data, place)
        for i in range(_i32(self.data, start)):
            yield struct.unpack_from("<qq", self.data, start + 4 + 16 * i)


def _batches(metadata: memoryview) -> Iterator[_Batch]:
    """The batch of rows or of a dictionary that a message has."""
    message = _Table(metadata, _i32(metadata, 0))
    kind = metadata[message.field(1)] if message.field(1) else 0
    if kind not in (_RECORDS, _DICTIONARY):
        return
    found = message.table(2) if kind == _RECORDS else message.table(2).table(1)
    length = struct.unpack_from("<q", metadata, found.field(0))[0] if found.field(0) else 0
    most = max((length, *(values for values, _ in found.pairs(1))))
    yield _Batch(length if kind == _RECORDS else 0, most, tuple(found.pairs(2)), found.field(3) != 0)


def _i32(data: memoryview, at: int) -> int:
    if at < 0:
        raise ValueError("a message contains an offset before its beginning")
    return int(struct.unpack_from("<i", data, at)[0])
