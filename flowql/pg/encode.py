"""Rows of an answer as messages of the protocol, column by column: Arrow joins the fields of all rows of a batch, no Python runs per row.

Values that PostgreSQL writes in another form than Arrow and that are rare (huge and tiny numbers, intervals, structures) are written one by one.
Text forms: PostgreSQL's documentation, chapter "Data Types"; binary forms: the `*send` functions of its `src/backend/utils/adt`.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from functools import partial

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from flowql.pg import binary, messages, texts
from flowql.pg.types import PgColumn, PgType

_BINARY = pa.binary()
_HEAD_BYTES = 7  # D, a length, the number of columns
_COPY_BYTES = 5  # d, a length
_FEW_ROWS = 4  # for which calls of Arrow take longer than Python
_I16, _I32 = struct.Struct("!H"), struct.Struct("!i")


def data_rows(batch: pa.RecordBatch, columns: Sequence[PgColumn], formats: Sequence[int]) -> bytes:
    """A DataRow for each row. formats: 1 for the columns in binary form."""
    n = batch.num_rows
    if not n:
        return b""
    fields = [_field(c, column.type, form) for c, column, form in zip(batch.columns, columns, formats, strict=True)]
    if n <= _FEW_ROWS:
        return b"".join(map(_data_row, zip(*(f.to_pylist() for f in fields), strict=True)))
    lengths = [pc.fill_null(pc.binary_length(f), -1).to_numpy().astype(np.int32) for f in fields]
    total = np.full(n, 6, np.int64)
    for length in lengths:
        total += 4 + np.maximum(length, 0)
    head = np.zeros((n, _HEAD_BYTES), np.uint8)
    head[:, 0] = ord("D")
    head[:, 1:5] = total.astype(">i4").view(np.uint8).reshape(n, 4)
    head[:, 5:7] = np.full(n, len(columns), ">i2").view(np.uint8).reshape(n, 2)
    parts = [binary.fixed(head)]
    for field, length in zip(fields, lengths, strict=True):
        parts += [binary.fixed(length.astype(">i4").view(np.uint8).reshape(n, 4)), field]
    return _joined(parts)


def _data_row(values: Sequence[bytes | None]) -> bytes:
    parts = [_I16.pack(len(values))]
    for value in values:
        parts += [_I32.pack(-1)] if value is None else [_I32.pack(len(value)), value]
    return messages.message(b"D", *parts)


def _field(column: pa.Array, t: PgType, form: int) -> pa.Array:
    return binary.values(column, t) if form else texts.values(column, t).cast(_BINARY)


def _joined(parts: Sequence[pa.Array]) -> bytes:
    rows = pc.binary_join_element_wise(*parts, b"", null_handling="replace", null_replacement=b"")
    return _bytes(rows)


def _bytes(rows: pa.Array) -> bytes:
    """The values of a column of bytes, one after the other."""
    if isinstance(rows, pa.ChunkedArray):
        return b"".join(map(_bytes, rows.chunks))
    offsets = np.frombuffer(rows.buffers()[1], np.int32)[rows.offset : rows.offset + len(rows) + 1]
    return memoryview(rows.buffers()[2])[int(offsets[0]) : int(offsets[-1])].tobytes()


_ESCAPED = (("\\", "\\\\"), ("\b", "\\b"), ("\f", "\\f"), ("\n", "\\n"), ("\r", "\\r"), ("\t", "\\t"), ("\v", "\\v"))


def copy_text(batch: pa.RecordBatch, columns: Sequence[PgColumn], delimiter: str, null: str) -> bytes:
    """A CopyData for each line of COPY in text format: drivers such as psycopg take one for one row, as PostgreSQL sends them."""
    return _lines(batch, columns, delimiter, null, partial(_escaped, delimiter=delimiter))


def copy_csv(batch: pa.RecordBatch, columns: Sequence[PgColumn], delimiter: str, null: str) -> bytes:
    """The same in CSV format."""
    return _lines(batch, columns, delimiter, null, partial(_in_quotes, delimiter=delimiter, null=null))


def csv_header(names: Sequence[str], delimiter: str) -> bytes:
    quoted = _in_quotes(pa.array(names, pa.string()), delimiter=delimiter, null="")
    return delimiter.join(quoted.to_pylist()).encode() + b"\n"


def _lines(
    batch: pa.RecordBatch, columns: Sequence[PgColumn], delimiter: str, null: str, escape: partial[pa.Array]
) -> bytes:
    if not batch.num_rows:
        return b""
    parts: list[pa.Array] = []
    for n, (column, c) in enumerate(zip(batch.columns, columns, strict=True)):
        parts += [pa.array([delimiter] * batch.num_rows)] if n else []
        parts.append(pc.fill_null(escape(texts.values(column, c.type)), null))
    parts.append(pa.array(["\n"] * batch.num_rows))
    lines = pc.binary_join_element_wise(*(p.cast(_BINARY) for p in parts), b"")
    head = np.zeros((len(lines), _COPY_BYTES), np.uint8)
    head[:, 0] = ord("d")
    length = pc.binary_length(lines).to_numpy() + 4
    head[:, 1:] = length.astype(">i4").view(np.uint8).reshape(len(lines), 4)
    return _joined([binary.fixed(head), lines])


def _escaped(column: pa.Array, *, delimiter: str) -> pa.Array:
    for given, written in (*_ESCAPED, *(() if delimiter == "\t" else ((delimiter, f"\\{delimiter}"),))):
        column = pc.replace_substring(column, given, written)
    return column


def _in_quotes(column: pa.Array, *, delimiter: str, null: str) -> pa.Array:
    """Those that need quotes: with a quote, a delimiter or an end of a line in them, and those that would be read as NULL."""
    special = pc.equal(column, null)
    for char in ('"', delimiter, "\n", "\r"):
        special = pc.or_(special, pc.match_substring(column, char))
    special = pc.or_(special, pc.equal(column, "\\."))
    quoted = pc.binary_join_element_wise('"', pc.replace_substring(column, '"', '""'), '"', "")
    return pc.if_else(special, quoted, column)
