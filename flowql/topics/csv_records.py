"""CSV in pieces: where records end, and which of them are no records. No Python per record, but where quotes are irregular.

A quote opens a field only where a field begins, as in RFC 4180; elsewhere it is a character like others (`5" disk`). A field that is
opened and not closed within RECORD_BYTES, or closed before the field ends, is a mistake of its first line: the records go on with the
next line.
"""

from __future__ import annotations

import csv
import io
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, BinaryIO

import numpy as np
import pyarrow as pa
import pyarrow.csv

from flowql.runtime.batch import Ints

RECORD_BYTES = 16 << 20
DELIMITERS = b",;\t|"
_QUOTE, _NEWLINE, _RETURN = 34, 10, 13
_LONE_RETURN, _QUOTED = re.compile(rb"\r(?!\n)"), re.compile(rb'"[^"]*"')


@dataclass(frozen=True, slots=True)
class Cut:
    """Records of a piece of a file. ends: where each ends, its line break included. unclosed: those with a quote that is not
    closed where its field ends.
    """

    data: bytes
    ends: Ints
    unclosed: frozenset[int] = frozenset()

    @property
    def consumed(self) -> int:
        return int(self.ends[-1]) if len(self.ends) else 0

    def record(self, i: int) -> bytes:
        return self.data[int(self.ends[i - 1]) if i else 0 : int(self.ends[i])].rstrip(b"\r\n")

    def behind_first(self) -> Cut:
        """The records behind the first one."""
        first = int(self.ends[0])
        return Cut(
            self.data[first : self.consumed], self.ends[1:] - first, frozenset(i - 1 for i in self.unclosed if i)
        )

    def lines(self, first: int) -> Ints:
        """The number of the line where each record begins; `first`: that of the piece."""
        breaks = np.flatnonzero(np.frombuffer(self.data, np.uint8) == _NEWLINE)
        starts = np.concatenate(([0], self.ends[:-1])) if len(self.ends) else self.ends
        lines: Ints = first + np.searchsorted(breaks, starts)
        return lines


@dataclass(slots=True)
class Parsed:
    """Fields of records. rows: which records of the cut they are of; bad: the others that are not blank, with the reason."""

    columns: list[pa.Array]
    rows: Ints
    bad: dict[int, str] = field(default_factory=dict)


def delimiter_of(header: bytes) -> bytes:
    """The one of DELIMITERS that a header has most of."""
    bare = re.sub(rb'"[^"]*"', b"", header)
    return max((DELIMITERS[i : i + 1] for i in range(len(DELIMITERS))), key=bare.count)


def cuts(stream: BinaryIO, delimiter: bytes, size: int, skipped: bytes = b"") -> Iterator[Cut]:
    """The records of the rest of a file, which is read in pieces of `size` bytes. skipped: bytes before the first record."""
    rest, more = b"", True
    while more:
        data = stream.read(size)
        more = len(data) == size
        piece = cut(rest + data.removeprefix(skipped), delimiter, last=not more)
        rest, skipped = piece.data[piece.consumed :], b""
        if len(piece.ends):
            yield piece


def fields_of(header: bytes, delimiter: bytes) -> list[str]:
    """Names in a header."""
    text = header.decode("utf-8", "replace")
    return [name.strip() for name in next(csv.reader([text], delimiter=delimiter.decode()), [])]


def cut(data: bytes, delimiter: bytes, *, last: bool) -> Cut:
    """The whole records of a piece that begins with one. last: the file ends with it."""
    values = np.frombuffer(data, np.uint8)
    breaks = np.flatnonzero(values == _NEWLINE)
    quotes = np.flatnonzero(values == _QUOTE)
    if len(quotes):
        if not _regular(values, quotes, delimiter[0]):
            return _cut_slowly(data, delimiter, last=last)
        breaks = breaks[np.searchsorted(quotes, breaks) % 2 == 0]
    ends = breaks + 1
    done = int(ends[-1]) if len(ends) else 0
    if len(quotes) % 2 and (last or len(data) - done > RECORD_BYTES):
        return _cut_slowly(data, delimiter, last=last)
    if last and done < len(data):
        ends = np.append(ends, len(data))
    return Cut(data, ends)


def _regular(values: Any, quotes: Ints, delimiter: int) -> bool:
    """Whether all quotes open and close in turn: then one is inside a field after an odd number of them."""
    before = np.where(quotes > 0, values[quotes - 1], _NEWLINE)[::2]
    opens = (before == delimiter) | (before == _NEWLINE) | (before == _RETURN)
    opens[1:] |= quotes[2::2] == quotes[1:-1:2][: len(opens) - 1] + 1 if len(opens) > 1 else False
    after = np.where(quotes < len(values) - 1, values[np.minimum(quotes + 1, len(values) - 1)], _NEWLINE)[1::2]
    closes = (after == delimiter) | (after == _NEWLINE) | (after == _RETURN) | (after == _QUOTE)
    return bool(opens.all() and closes.all())


def _cut_slowly(data: bytes, delimiter: bytes, *, last: bool) -> Cut:
    ends: list[int] = []
    unclosed: set[int] = set()
    special = re.compile(b'["\n' + re.escape(delimiter) + b"]")
    after = (b"", b"\n", b"\r", delimiter)
    at = 0
    while at < len(data):
        end = _record_end(data, at, special, after)
        if end is None and not last and len(data) - at <= RECORD_BYTES:
            break  # it may be closed in the next piece
        if end == len(data) and not last and data[-1] != _NEWLINE:
            break
        if not end:
            unclosed.add(len(ends))
            end = data.find(b"\n", at) + 1 or len(data)
        ends.append(end)
        at = end
    return Cut(data, np.array(ends, np.int64), frozenset(unclosed))


def _record_end(data: bytes, start: int, special: re.Pattern[bytes], after: Sequence[bytes]) -> int | None:
    """Where the record ends that begins at `start`: None if a quote is open at the end of the data, 0 if one is closed within a field."""
    inside, field_start, skip = False, start, -1
    for found in special.finditer(data, start):
        at, what = found.start(), data[found.start()]
        if at == skip:
            continue
        if inside:
            if what == _QUOTE and data[at + 1 : at + 2] == b'"':
                skip = at + 1
            elif what == _QUOTE:
                if data[at + 1 : at + 2] not in after:
                    return 0
                inside = False
        elif what == _QUOTE:
            inside = at == field_start
        else:
            field_start = at + 1
            if what == _NEWLINE:
                return at + 1
    return None if inside else len(data)


def parse(
    found: Cut, delimiter: bytes, width: int, nulls: Sequence[str], expected: str = "the header has {}"
) -> Parsed:
    """Fields as texts. A field that is one of `nulls` and not quoted is null. expected: the end of the error for a record of another width, with `{}` for the right one."""
    blank = _blank(found)
    bad = {i: "a quote is not closed where its field ends" for i in found.unclosed}
    try:
        found.data[: found.consumed].decode()
    except UnicodeDecodeError:
        bad |= {i: "this is not UTF-8 text" for i in range(len(found.ends)) if not _is_utf8(found.record(i))}
    if _LONE_RETURN.search(found.data[: found.consumed]):  # the reader of columns would end a row there
        bare = (i for i in range(len(found.ends)) if b"\r" in _QUOTED.sub(b"", found.record(i)))
        bad |= {i: "a carriage return stands outside of quotes" for i in bare if i not in bad}
    rows = np.flatnonzero(~blank)
    data = found.data[: found.consumed]
    if bad:
        rows = rows[~np.isin(rows, list(bad))]
        data = b"".join(found.record(int(i)) + b"\n" for i in rows)
    columns = _columns(data, delimiter, width, nulls, rows, bad, expected.format(width))
    return Parsed(columns, rows[~np.isin(rows, list(bad))] if bad else rows, bad)


def _blank(found: Cut) -> Any:
    starts = np.concatenate(([0], found.ends[:-1])) if len(found.ends) else found.ends
    sizes = found.ends - starts
    blank = sizes == 0
    for i in np.flatnonzero(sizes <= 2):
        blank[i] = not found.record(int(i))
    return blank


def _is_utf8(data: bytes) -> bool:
    try:
        data.decode()
    except UnicodeDecodeError:
        return False
    return True


def _columns(
    data: bytes, delimiter: bytes, width: int, nulls: Sequence[str], rows: Ints, bad: dict[int, str], expected: str
) -> list[pa.Array]:
    if not len(rows):
        return [pa.array([], pa.string())] * width
    names = [str(i) for i in range(width)]

    def refuse(row: Any) -> str:
        bad[int(rows[row.number - 1])] = f"this record has {row.actual_columns} fields, {expected}"
        return "skip"

    table = pa.csv.read_csv(
        io.BytesIO(data),
        read_options=pa.csv.ReadOptions(column_names=names, use_threads=False, block_size=len(data) + 1),
        parse_options=pa.csv.ParseOptions(
            delimiter=delimiter.decode(), newlines_in_values=True, invalid_row_handler=refuse
        ),
        convert_options=pa.csv.ConvertOptions(
            column_types=dict.fromkeys(names, pa.string()),
            strings_can_be_null=True,
            null_values=list(nulls),
            quoted_strings_can_be_null=False,
        ),
    )
    return [c.combine_chunks() if c.num_chunks != 1 else c.chunk(0) for c in table.columns]
