"""DELIMITED: one line of CSV, as ksqlDB reads and writes it (Commons CSV 1.4, minimal quoting).

An empty field is NULL, and `""` is an empty STRING or BYTES (ksqlDB reads NULL there). Records with another number of fields than declared
are bad.
"""

from __future__ import annotations

import base64
import binascii
from collections.abc import Callable, Sequence
from typing import Any

from flowql.compiler.functions.casts import parse_decimal, parse_double
from flowql.compiler.functions.numeric import BIGINT_MAX, BIGINT_MIN, INT_MAX, INT_MIN, double_text, fit_decimal
from flowql.compiler.functions.values import text_of
from flowql.compiler.plan.types import Kind, SqlType
from flowql.runtime.batch import Row
from flowql.runtime.errors import BadRecord
from flowql.runtime.serde.numbers import TIMES, day_time, days, java_integer, moment, moment_in_micros

_MAY_BE_EMPTY = frozenset({Kind.STRING, Kind.BYTES})
_NAMED_DELIMITERS = {"SPACE": " ", "TAB": "\t"}


def delimiter_of(text: str) -> str:
    """The one character that a DELIMITER property names."""
    return _NAMED_DELIMITERS.get(text.upper(), text)


def _reader(t: SqlType) -> Callable[[str], Any]:
    if t.kind is Kind.DECIMAL:
        return lambda v: fit_decimal(parse_decimal(v), t.precision, t.scale)
    return _READERS[t.kind]


def _long(v: str) -> int:
    return java_integer(v, BIGINT_MIN, BIGINT_MAX)


_READERS: dict[Kind, Callable[[str], Any]] = {
    Kind.BOOLEAN: lambda v: v.lower() == "true",
    Kind.INT: lambda v: java_integer(v, INT_MIN, INT_MAX),
    Kind.BIGINT: _long,
    Kind.DOUBLE: parse_double,
    Kind.STRING: lambda v: v,
    Kind.DATE: days(_long),
    Kind.TIME: day_time(_long),
    Kind.TIMESTAMP: moment(_long),
    Kind.MICROS: moment_in_micros(_long),
    Kind.BYTES: lambda v: base64.b64decode(v, validate=True),
}


class DelimitedDecoder:
    """Reads the wanted ones of the declared columns by position."""

    def __init__(self, types: Sequence[SqlType], wanted: Sequence[int], delimiter: str) -> None:
        self._count = len(types)
        self._delimiter = delimiter_of(delimiter)
        self._wanted = [(i, types[i], _reader(types[i])) for i in wanted]

    def decode(self, data: bytes | None) -> Row | None:
        if data is None:
            return None
        try:
            text = data.decode()
        except UnicodeDecodeError as e:
            raise BadRecord(f"not UTF-8 text: {e.reason} at byte {e.start}") from e
        fields = fields_of(text, self._delimiter)
        if len(fields) != self._count:
            raise BadRecord(f"the record has {len(fields)} fields, {self._count} are declared")
        return tuple([_value(read, fields[i], i, t) for i, t, read in self._wanted])


def fields_of(text: str, delimiter: str) -> list[str | None]:
    """The fields of the first line that is not empty; None for one without any character. Raises BadRecord."""
    if '"' not in text and "\n" not in text and "\r" not in text:
        if not text:
            raise BadRecord("the record has no fields")
        return [field or None for field in text.split(delimiter)]
    text = text.lstrip("\r\n")
    if not text:
        raise BadRecord("not a line of CSV: no fields")
    fields: list[str | None] = []
    at = 0
    while True:
        field, at = _quoted_field(text, at) if text.startswith('"', at) else _plain_field(text, at, delimiter)
        fields.append(field)
        if at == len(text) or text[at] in "\r\n":
            return fields
        if not text.startswith(delimiter, at):
            raise BadRecord(f"not a line of CSV: {text[at]!r} behind the quotes of field {len(fields)}")
        at += len(delimiter)


def _quoted_field(text: str, start: int) -> tuple[str, int]:
    """The text between quotes, in which two quotes are one, and the place behind them."""
    parts, at = [], start + 1
    while (end := text.find('"', at)) >= 0:
        parts.append(text[at:end])
        if not text.startswith('"', end + 1):
            return "".join(parts), end + 1
        parts.append('"')
        at = end + 2
    raise BadRecord("not a line of CSV: a quoted field does not end")


def _plain_field(text: str, start: int, delimiter: str) -> tuple[str | None, int]:
    ends = [place for place in (text.find(c, start) for c in (delimiter, "\n", "\r")) if place >= 0]
    end = min(ends, default=len(text))
    return text[start:end] or None, end


def line_of(fields: Sequence[str | None], delimiter: str) -> str:
    """A line with these fields, quoted as Commons CSV's QuoteMode.MINIMAL does, and where they are empty."""
    return delimiter.join(_written(field, delimiter, first=i == 0) for i, field in enumerate(fields))


def _written(field: str | None, delimiter: str, *, first: bool) -> str:
    if field is None:
        return ""
    return '"' + field.replace('"', '""') + '"' if _needs_quotes(field, delimiter, first=first) else field


def _needs_quotes(text: str, delimiter: str, *, first: bool) -> bool:
    """CSVPrinter.printAndQuote; an empty field has quotes at any place, or it would be NULL."""
    if not text:
        return True
    start = text[0]
    if (first and not (start.isascii() and start.isalnum())) or start <= "#" or text[-1] <= " ":
        return True
    return any(c in text for c in ("\n", "\r", '"', delimiter))


def _value(read: Callable[[str], Any], text: str | None, index: int, t: SqlType) -> Any:
    if text is None or (not text and t.kind not in _MAY_BE_EMPTY):
        return None
    try:
        return read(text)
    except (ValueError, ArithmeticError, binascii.Error) as e:
        raise BadRecord(f"field {index + 1} is not a valid {t}: {e}") from e


def _writer(t: SqlType) -> Callable[[Any], str]:
    if t.kind in TIMES:
        return str
    if t.kind is Kind.DOUBLE:
        return double_text
    return text_of(t)


class DelimitedEncoder:
    """Writes all columns; NULL is an empty field."""

    def __init__(self, types: Sequence[SqlType], delimiter: str) -> None:
        self._delimiter = delimiter_of(delimiter)
        self._writers = [_writer(t) for t in types]

    def encode(self, row: Row) -> bytes | None:
        if not self._writers:
            return None
        fields = [None if v is None else write(v) for write, v in zip(self._writers, row, strict=True)]
        return line_of(fields, self._delimiter).encode("utf-8", "replace")
