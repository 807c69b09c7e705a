"""DELIMITED: one line of CSV, as ksqlDB reads and writes it (Commons CSV 1.4, minimal quoting).

An empty field is NULL. Records with another number of fields than declared are bad.
"""

from __future__ import annotations

import base64
import binascii
import csv
from collections.abc import Callable, Sequence
from typing import Any

from flowql.compiler.functions.casts import parse_decimal, parse_double
from flowql.compiler.functions.numeric import BIGINT_MAX, BIGINT_MIN, INT_MAX, INT_MIN, double_text, fit_decimal
from flowql.compiler.functions.values import text_of
from flowql.compiler.plan.types import Kind, SqlType
from flowql.runtime.batch import Row
from flowql.runtime.errors import BadRecord
from flowql.runtime.serde.numbers import TIMES, day_time, days, java_integer, moment, moment_in_micros

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
        fields = self._split(text)
        if len(fields) != self._count:
            raise BadRecord(f"the record has {len(fields)} fields, {self._count} are declared")
        return tuple([None if fields[i] == "" else _read(read, fields[i], i, t) for i, t, read in self._wanted])

    def _split(self, text: str) -> list[str]:
        if '"' not in text and "\n" not in text and "\r" not in text:
            if not text:
                raise BadRecord("the record has no fields")
            return text.split(self._delimiter)
        try:  # the first line that is not empty is the record
            lines = (r for r in csv.reader(text.splitlines(keepends=True), delimiter=self._delimiter, strict=True) if r)
            return next(lines)
        except (csv.Error, StopIteration) as e:
            raise BadRecord(f"not a line of CSV: {e or 'no fields'}") from e


def _read(read: Callable[[str], Any], text: str, index: int, t: SqlType) -> Any:
    try:
        return read(text)
    except (ValueError, ArithmeticError, binascii.Error) as e:
        raise BadRecord(f"field {index + 1} is no {t}: {e}") from e


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
        fields = []
        for i, (write, value) in enumerate(zip(self._writers, row, strict=True)):
            if value is None:
                fields.append("")
                continue
            text = write(value)
            fields.append('"' + text.replace('"', '""') + '"' if self._quoted(text, first=i == 0) else text)
        return self._delimiter.join(fields).encode("utf-8", "replace")

    def _quoted(self, text: str, *, first: bool) -> bool:
        """Whether Commons CSV's QuoteMode.MINIMAL quotes a field (CSVPrinter.printAndQuote)."""
        if not text:
            return first
        start = text[0]
        if (first and not (start.isascii() and start.isalnum())) or start <= "#" or text[-1] <= " ":
            return True
        return any(c in text for c in ("\n", "\r", '"', self._delimiter))
