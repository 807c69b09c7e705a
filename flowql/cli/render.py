"""Output to the terminal: results to stdout, everything else to stderr.

With `-o json` a command writes exactly one JSON document to stdout. Values in JSON: DECIMAL as text, TIMESTAMP as
ISO-8601 in UTC, DATE and TIME as ISO-8601, BYTES as base64, maps as objects.
"""

from __future__ import annotations

import base64
import csv
import json
import math
import os
import sys
from collections.abc import Iterable, Iterator, Sequence
from datetime import UTC, date, datetime, time, timedelta
from decimal import Decimal
from itertools import chain, islice
from typing import Any, TextIO

from rich.cells import cell_len

from flowql.compiler.diagnostics.diagnostic import Diagnostic
from flowql.compiler.diagnostics.render import render

# --- Rows as aligned text, line by line: widths are those of the first rows, and grow when a later value needs it ---

FIRST_ROWS = 1_000
NULL = "NULL"
_GAP = "  "


def table_lines(
    columns: Sequence[str], rows: Iterable[Sequence[str]], right: Sequence[bool] | None = None
) -> Iterator[str]:
    """A header and a line per row; a value of several lines takes as many. right: columns whose values end at one place.

    >>> list(table_lines(["K", "N"], [["a", "10"], ["bob", "7"]], [False, True]))
    ['K     N', 'a    10', 'bob   7']
    """
    waiting = iter(rows)
    first = list(islice(waiting, FIRST_ROWS))
    layout = ColumnWidths(columns, right)
    for row in first:
        layout.fit(row)
    yield layout.line(columns)
    for row in chain(first, waiting):
        yield from layout.lines(row)


class ColumnWidths:
    """Widths of columns, in cells of a terminal. As wide as it must be: a value cut off could be neither read nor copied."""

    def __init__(self, columns: Sequence[str], right: Sequence[bool] | None = None) -> None:
        self._right = list(right or [False] * len(columns))
        self._widths = [cell_len(c) for c in columns]

    def fit(self, row: Sequence[str]) -> None:
        """Widen columns for a row."""
        for i, text in enumerate(row):
            width = max(map(cell_len, text.split("\n"))) if "\n" in text else cell_len(text)
            if width > self._widths[i]:
                self._widths[i] = width

    def lines(self, row: Sequence[str]) -> Iterator[str]:
        self.fit(row)
        if not any("\n" in text for text in row):
            yield self.line(row)
            return
        parts = [text.split("\n") for text in row]
        for n in range(max(map(len, parts))):
            yield self.line([p[n] if n < len(p) else "" for p in parts])

    def line(self, row: Sequence[str]) -> str:
        cells = []
        for text, width, right in zip(row, self._widths, self._right, strict=True):
            blank = " " * (width - cell_len(text))
            cells.append(blank + text if right else text + blank)
        return _GAP.join(cells).rstrip()


def record_lines(columns: Sequence[str], rows: Iterable[Sequence[str]]) -> Iterator[str]:
    """A line per value, for rows too wide for a table.

    >>> list(record_lines(["K", "AMOUNT"], [["a", "10"]]))
    ['-[ 1 ]', 'K      | a', 'AMOUNT | 10']
    """
    wide = max(map(cell_len, columns), default=0)
    for number, row in enumerate(rows, 1):
        yield f"-[ {number} ]"
        for name, text in zip(columns, row, strict=True):
            name = name + " " * (wide - cell_len(name))
            for part in text.split("\n"):
                yield f"{name} | {part}".rstrip()
                name = " " * wide


def numeric(values: Iterable[Any]) -> bool:
    """Whether a column of Python values is one of numbers."""
    return any(isinstance(v, (int, float, Decimal)) and not isinstance(v, bool) for v in values)


_EMPTY = "(none)"
_COLORS = {
    name: f"\x1b[{code}m"
    for name, code in {"bold": 1, "dim": 2, "red": 31, "green": 32, "yellow": 33, "cyan": 36}.items()
}


def counted(n: int, one: str, many: str = "") -> str:
    """`1 row`, `1,200 rows`. many: default: `one` with an s."""
    return f"{n:,} {one if n == 1 else many or one + 's'}"


def note(text: str) -> None:
    """A line for the person, on stderr."""
    sys.stderr.write(text + "\n")


def show_diagnostics(diagnostics: Sequence[Diagnostic]) -> None:
    """All of them on stderr, with a count when there are several errors."""
    if not diagnostics:
        return
    sys.stderr.write(render(diagnostics, color=use_color()) + "\n")
    errors = sum(d.severity == "error" for d in diagnostics)
    if errors > 1:
        sys.stderr.write(f"\n{errors} errors\n")


def show_failure(code: str, title: str, help_: str = "") -> None:
    """A failure that has no place in a file."""
    show_diagnostics([Diagnostic(code, title, help=help_)])


def use_color() -> bool:
    return sys.stderr.isatty() and "NO_COLOR" not in os.environ


def print_json(document: Any) -> None:
    """One JSON document on stdout."""
    sys.stdout.write(json.dumps(document, indent=1, ensure_ascii=False, default=json_value, allow_nan=False) + "\n")


def print_json_line(document: Any) -> None:
    """Writes one of several JSON documents to stdout, flushed at once."""
    sys.stdout.write(json.dumps(document, ensure_ascii=False, default=json_value, allow_nan=False) + "\n")
    sys.stdout.flush()


def print_text(text: str) -> None:
    sys.stdout.write(text if text.endswith("\n") else text + "\n")


def print_rows(
    columns: Sequence[str], rows: Iterable[Sequence[Any]], *, output: str = "table", colors: Sequence[str] = ()
) -> None:
    """Rows on stdout as `table`, `json` (an array of objects) or `csv`. colors: of the lines of a table in a terminal, one for each row,
    none of which may have a line break.
    """
    if output == "table":
        rows = list(rows)
        if not rows:
            note(_EMPTY)
        right = [numeric(column) for column in zip(*rows, strict=True)] if rows else None
        lines = table_lines(columns, ([plain(v) for v in row] for row in rows), right)
        if colors and sys.stdout.isatty() and "NO_COLOR" not in os.environ:
            lines = (f"{_COLORS[color]}{line}\x1b[0m" for line, color in zip(lines, ("bold", *colors), strict=True))
        write_lines(sys.stdout, lines)
    elif output == "csv":
        write_csv(sys.stdout, columns, rows)
    else:
        print_json([{c: json_value(v) for c, v in zip(columns, row, strict=True)} for row in rows])


def write_lines(file: TextIO, lines: Iterable[str]) -> None:
    file.writelines(f"{line}\n" for line in lines)


def write_csv(file: TextIO, columns: Sequence[str], rows: Iterable[Sequence[Any]]) -> None:
    writer = csv.writer(file, lineterminator="\n")
    writer.writerow(columns)
    writer.writerows([plain(v, "") for v in row] for row in rows)


def write_json(file: TextIO, columns: Sequence[str], rows: Iterable[Sequence[Any]]) -> None:
    """An array of objects, one per line, written as the rows come."""
    before = "["
    for row in rows:
        values = {c: json_value(v) for c, v in zip(columns, row, strict=True)}
        file.write(f"{before}\n {json.dumps(values, ensure_ascii=False, default=json_value, allow_nan=False)}")
        before = ","
    file.write("[]\n" if before == "[" else "\n]\n")


def json_value(value: Any) -> Any:
    """A value as JSON holds it.

    >>> json_value(Decimal("1.50")), json_value(b"hi"), json_value(datetime(2026, 1, 2, tzinfo=UTC))
    ('1.50', 'aGk=', '2026-01-02T00:00:00.000Z')
    >>> json_value(datetime(2026, 1, 2, 0, 0, 0, 123456))
    '2026-01-02T00:00:00.123456Z'
    """
    match value:
        case float():
            return value if math.isfinite(value) else str(value)
        case Decimal():
            return format(value, "f")
        case bytes() | bytearray() | memoryview():
            return base64.b64encode(value).decode()
        case datetime():
            at = value.replace(tzinfo=UTC) if value.tzinfo is None else value.astimezone(UTC)
            digits = "microseconds" if at.microsecond % 1000 else "milliseconds"
            return at.replace(tzinfo=None).isoformat(timespec=digits) + "Z"
        case date() | time():
            return value.isoformat()
        case timedelta():
            return str(value)
        case dict():
            return {str(k): json_value(v) for k, v in value.items()}
        case tuple() if type(value).__name__ == "MonthDayNano":  # of pyarrow, which is not imported for it
            from flowql.compiler.functions.sql_intervals import interval_text

            months, days, nanos = value
            return interval_text((months, days, nanos // 1000))
        case list() if value and all(isinstance(v, tuple) and len(v) == 2 for v in value):  # an Arrow map
            return {str(json_value(k)): json_value(v) for k, v in value}
        case list() | tuple():
            return [json_value(v) for v in value]
    return value


def plain(value: Any, null: str = NULL) -> str:
    """A value as tables and CSV show it."""
    if value is None:
        return null
    shown = json_value(value)
    if isinstance(shown, bool):
        return str(shown).lower()
    return json.dumps(shown, ensure_ascii=False) if isinstance(shown, (dict, list)) else str(shown)
