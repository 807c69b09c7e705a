"""COPY ... FROM STDIN in binary format.

Format: PostgreSQL's documentation, COPY, "Binary Format".
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterator, Sequence

import numpy as np
import pyarrow as pa

from flowql.compiler.functions.sql_intervals import interval_text
from flowql.compiler.plan.schema import Field
from flowql.compiler.plan.types import BIGINT, BOOLEAN, DOUBLE, INT, SPAN, STRING, SqlType, arrow_type
from flowql.pg import types as p
from flowql.pg.errors import PgError
from flowql.pg.parameters import text_of
from flowql.pg.types import pg_type
from flowql.runtime.batch import Batch
from flowql.runtime.errors import RowFailed
from flowql.runtime.topology.bulk_insert import PIECE_ROWS
from flowql.topics.table_files import Piece, TableFile, converter

SIGNATURE = b"PGCOPY\n\xff\r\n\0"
_HEAD = struct.Struct("!II")  # flags, and the length of the extension of the header
_COUNT, _SIZE = struct.Struct("!h"), struct.Struct("!i")
_END = -1  # the count of fields after the last row
_CRITICAL = 0xFFFF0000  # flags that a reader has to know


def read_binary(file: TableFile, data: bytes) -> tuple[list[Field], Iterator[Piece]]:
    """The columns, and the rows. Raises CommandError; PgError for data that has another form; taking a piece raises StatementFailed, PgError."""
    fields = [f for n in file.change.columns for f in file.source.schema if f.name == n]
    return fields, _pieces(file, fields, data, _begin(data))


def _begin(data: bytes) -> int:
    """Where the rows begin."""
    if not data.startswith(SIGNATURE):
        raise PgError("22P04", "COPY file signature not recognized")
    if len(data) < len(SIGNATURE) + _HEAD.size:
        raise PgError("22P04", "invalid COPY file header (missing length)")
    flags, extension = _HEAD.unpack_from(data, len(SIGNATURE))
    if flags & _CRITICAL:
        raise PgError("22P04", "unrecognized critical flags in COPY file header")
    at = len(SIGNATURE) + _HEAD.size + int(extension)
    if at > len(data):
        raise PgError("22P04", "invalid COPY file header (wrong length)")
    return at


def _pieces(file: TableFile, fields: Sequence[Field], data: bytes, at: int) -> Iterator[Piece]:
    types = [pg_type(f.type) for f in fields]
    reads = [_READS.get(t.name) or _read_texts(t) for t in types]
    given: list[SqlType] = [_TYPES.get(t.name, STRING) for t in types]
    convert = converter(fields, given, file.source, quoted=[t == STRING for t in given])
    row, ended = 0, False
    while not ended:
        columns, at, ended = _values(data, at, len(fields), row)
        n = len(columns[0]) if columns else 0
        if n:
            arrays = [_column(read, values, row, f) for read, values, f in zip(reads, columns, fields, strict=True)]
            try:
                found = convert(pa.RecordBatch.from_arrays(arrays, names=[f.name for f in fields]))
            except RowFailed as error:
                raise file.failure(row + error.row + 1, str(error)) from error
            yield _piece(found, row)
        row += n


def _piece(rows: Batch, first: int) -> Piece:
    return Piece(rows, lambda row: first + row + 1)


def _values(data: bytes, at: int, width: int, row: int) -> tuple[list[list[bytes | None]], int, bool]:
    """The fields of the next rows by column, where the rows after them begin, and whether there are none."""
    columns: list[list[bytes | None]] = [[] for _ in range(width)]
    adds = [c.append for c in columns]
    count_of, size_of = _COUNT.unpack_from, _SIZE.unpack_from
    try:
        for _ in range(PIECE_ROWS):
            (count,) = count_of(data, at)
            at += 2
            if count != width:
                if count == _END:
                    return columns, at, True
                raise PgError("22P04", f"row {row + len(columns[0]) + 1}: row field count is {count}, expected {width}")
            for add in adds:
                (size,) = size_of(data, at)
                at += 4
                if size >= 0:
                    add(data[at : at + size])
                    at += size
                else:
                    add(None)
            if at > len(data):
                break
    except struct.error:
        at = len(data) + 1
    if at > len(data):
        raise PgError("22P04", "unexpected EOF in COPY data")
    return columns, at, False


Read = Callable[[Sequence[bytes | None]], pa.Array]


def _column(read: Read, values: Sequence[bytes | None], first: int, field: Field) -> pa.Array:
    try:
        return read(values)
    except (ValueError, struct.error, pa.ArrowException) as error:
        raise PgError(
            "22P03",
            f"incorrect binary data format in column {field.name}, rows {first + 1} to {first + len(values)}: {error}",
        ) from error


def _read_numbers(form: str, t: pa.DataType) -> Read:
    size = np.dtype(form).itemsize

    def read(values: Sequence[bytes | None]) -> pa.Array:
        if any(v is not None and len(v) != size for v in values):
            raise ValueError(f"a value has not {size} bytes")
        gone = np.fromiter((v is None for v in values), np.bool_, len(values))
        zero = bytes(size)
        numbers = np.frombuffer(b"".join(zero if v is None else v for v in values), form)
        return pa.array(numbers.astype(np.dtype(form).newbyteorder("=")), t, mask=gone)

    return read


def _read_booleans(values: Sequence[bytes | None]) -> pa.Array:
    if any(v not in (None, b"\0", b"\1") for v in values):
        raise ValueError("a boolean has one byte, 0 or 1")
    return pa.array([None if v is None else v == b"\1" for v in values], pa.bool_())


def _read_strings(values: Sequence[bytes | None]) -> pa.Array:
    return pa.array(values, pa.binary()).cast(pa.string())


def _read_intervals(values: Sequence[bytes | None]) -> pa.Array:
    given = (None if v is None else struct.unpack("!qii", v) for v in values)
    return pa.array([None if v is None else interval_text((v[2], v[1], v[0])) for v in given], arrow_type(SPAN))


def _read_texts(t: p.PgType) -> Read:
    """As the texts of parameters."""
    return lambda values: pa.array([text_of(v, 1, t) for v in values], pa.string())


_READS = {
    "int4": _read_numbers(">i4", pa.int32()),
    "int8": _read_numbers(">i8", pa.int64()),
    "float8": _read_numbers(">f8", pa.float64()),
    "bool": _read_booleans,
    "text": _read_strings,
    "interval": _read_intervals,
}
_TYPES = {"interval": SPAN, "int4": INT, "int8": BIGINT, "float8": DOUBLE, "bool": BOOLEAN}
