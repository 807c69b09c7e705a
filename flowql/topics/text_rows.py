"""PostgreSQL's text format: delimiters between fields, and a backslash before a character that would end a field or a row."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyarrow import csv

END = b"\\."  # of the rows, alone in its line
_ESCAPE = re.compile(rb"\\(x[0-9A-Fa-f]{1,2}|[0-7]{1,3}|.)", re.DOTALL)
_ESCAPED = {b"b": b"\b", b"f": b"\f", b"n": b"\n", b"r": b"\r", b"t": b"\t", b"v": b"\v"}


class BadLine(Exception):
    """line: from 0."""

    def __init__(self, line: int, why: str) -> None:
        super().__init__(why)
        self.line = line


@dataclass(frozen=True, slots=True)
class TextRows:
    """columns: texts. ended: the end of the rows was among the lines."""

    columns: Sequence[pa.Array]
    lines: int
    ended: bool = False


def parse(block: bytes, width: int, delimiter: bytes, null: bytes) -> TextRows:
    """The rows of whole lines. Raises BadLine for the first that has another number of fields than `width`, or is no UTF-8."""
    return by_columns(block, width, delimiter, null) or by_lines(block, width, delimiter, null)


def by_columns(block: bytes, width: int, delimiter: bytes, null: bytes) -> TextRows | None:
    """As `parse`, with the lines split by Arrow. None for lines that it does not split as PostgreSQL does, and for those that are wrong."""
    data = block.replace(b"\r\n", b"\n")
    if not data or b"\r" in data or len(delimiter) > 1 or data.startswith((b"\xef\xbb\xbf", END)) or b"\n\\." in data:
        return None
    if b"\\" + delimiter in data or b"\\\n" in data:
        return None
    names = [str(i) for i in range(width)]
    try:
        table = csv.read_csv(
            pa.py_buffer(data),
            csv.ReadOptions(use_threads=False, block_size=len(data) + 1, column_names=names),
            csv.ParseOptions(
                delimiter=delimiter.decode(), quote_char=False, double_quote=False, ignore_empty_lines=False
            ),
            csv.ConvertOptions(
                check_utf8=False, column_types=dict.fromkeys(names, pa.binary()), strings_can_be_null=False
            ),
        )
        columns = [_texts(c.combine_chunks(), null) for c in table.columns]
    except (pa.ArrowInvalid, UnicodeDecodeError):
        return None
    return TextRows(columns, table.num_rows)


def _texts(column: pa.Array | pa.ChunkedArray, null: bytes) -> pa.Array:
    found = column.combine_chunks() if isinstance(column, pa.ChunkedArray) else column
    found = pc.if_else(pc.equal(found, null), pa.scalar(None, pa.binary()), found)
    escaped = np.flatnonzero(pc.fill_null(pc.match_substring(found, b"\\"), False).to_numpy(zero_copy_only=False))
    if len(escaped):
        values = found.to_pylist()
        for i in escaped.tolist():
            values[i] = _unescaped(values[i])
        found = pa.array(values, pa.binary())
    return found.cast(pa.string())


def by_lines(block: bytes, width: int, delimiter: bytes, null: bytes) -> TextRows:
    """As `parse`."""
    lines, ended = block.split(b"\n"), False
    if not lines[-1]:
        lines.pop()
    table: list[list[bytes | None]] = []
    for i, text in enumerate(lines):
        bare = text.removesuffix(b"\r")
        if bare == END:
            ended = True
            break
        parts = _fields(bare, delimiter) if b"\\" in bare else bare.split(delimiter)
        if len(parts) != width:
            raise BadLine(i, f"this row has {len(parts)} fields, and there are {width} columns")
        table.append([None if p == null else _unescaped(p) if b"\\" in p else p for p in parts])
    columns = [_strings(list(c)) for c in zip(*table, strict=True)]
    return TextRows(columns, len(lines), ended)


def _fields(row: bytes, delimiter: bytes) -> list[bytes]:
    """The fields of a row, with their backslashes."""
    found, start, at = list[bytes](), 0, 0
    while at < len(row):
        if row[at : at + 1] == b"\\":
            at += 2
        elif row[at : at + 1] == delimiter:
            found.append(row[start:at])
            at = start = at + 1
        else:
            at += 1
    return [*found, row[start:]]


def _unescaped(field: bytes) -> bytes:
    def value(found: re.Match[bytes]) -> bytes:
        code = found.group(1)
        if code[:1] == b"x" and len(code) > 1:
            return bytes([int(code[1:], 16)])
        if code[:1] in b"01234567":
            return bytes([int(code, 8) & 255])
        return _ESCAPED.get(code, code)

    return _ESCAPE.sub(value, field)


def _strings(values: list[bytes | None]) -> pa.Array:
    try:
        return pa.array(values, pa.binary()).cast(pa.string())
    except pa.ArrowInvalid:
        for i, value in enumerate(values):
            try:
                (value or b"").decode()
            except UnicodeDecodeError as error:
                raise BadLine(i, "this is not UTF-8 text") from error
        raise
