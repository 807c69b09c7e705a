"""What goes to the terminal: results to stdout, everything else to stderr.

With `-o json` a command writes exactly one JSON document to stdout. Values in JSON: DECIMAL as text, TIMESTAMP as
ISO-8601 in UTC, DATE and TIME as ISO-8601, BYTES as base64, maps as objects.
"""

from __future__ import annotations

import base64
import csv
import io
import json
import math
import os
import sys
from collections.abc import Iterable, Sequence
from datetime import UTC, date, datetime, time, timedelta
from decimal import Decimal
from typing import Any

import pyarrow as pa

from compiler.diagnostics.diagnostic import Diagnostic
from compiler.diagnostics.render import render

_EMPTY = "(none)"
_WIDTH = 10_000


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


def print_text(text: str) -> None:
    sys.stdout.write(text if text.endswith("\n") else text + "\n")


def print_rows(columns: Sequence[str], rows: Iterable[Sequence[Any]], *, output: str = "table") -> None:
    """Rows on stdout as `table`, `json` (an array of objects) or `csv`."""
    if output == "json":
        print_json([{c: json_value(v) for c, v in zip(columns, row, strict=True)} for row in rows])
    elif output == "csv":
        buffer = io.StringIO()
        writer = csv.writer(buffer, lineterminator="\n")
        writer.writerow(columns)
        writer.writerows([_plain(v, "") for v in row] for row in rows)
        sys.stdout.write(buffer.getvalue())
    else:
        _print_table(columns, list(rows))


def print_arrow(table: pa.Table, *, output: str = "table") -> None:
    """An Arrow table on stdout; `arrow` is an IPC stream."""
    if output == "arrow":
        with pa.ipc.new_stream(sys.stdout.buffer, table.schema) as writer:
            writer.write_table(table)
        sys.stdout.buffer.flush()
        return
    columns = [column.to_pylist() for column in table.columns]
    print_rows(table.column_names, list(zip(*columns, strict=True)) if columns else [], output=output)


def json_value(value: Any) -> Any:
    """A value as JSON holds it.

    >>> json_value(Decimal("1.50")), json_value(b"hi"), json_value(datetime(2026, 1, 2, tzinfo=UTC))
    ('1.50', 'aGk=', '2026-01-02T00:00:00.000Z')
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
            return at.replace(tzinfo=None).isoformat(timespec="milliseconds") + "Z"
        case date() | time():
            return value.isoformat()
        case timedelta():
            return str(value)
        case dict():
            return {str(k): json_value(v) for k, v in value.items()}
        case list() if value and all(isinstance(v, tuple) and len(v) == 2 for v in value):  # an Arrow map
            return {str(json_value(k)): json_value(v) for k, v in value}
        case list() | tuple():
            return [json_value(v) for v in value]
    return value


def _print_table(columns: Sequence[str], rows: Sequence[Sequence[Any]]) -> None:
    from rich.console import Console  # 0.05 s that documents and Arrow do without
    from rich.table import Table

    table = Table(box=None, pad_edge=False, show_edge=False, header_style="bold")
    for i, name in enumerate(columns):
        numbers = any(isinstance(r[i], (int, float, Decimal)) and not isinstance(r[i], bool) for r in rows)
        table.add_column(name, justify="right" if numbers else "left", no_wrap=True)
    for row in rows:
        table.add_row(*(_plain(v, "null") for v in row))
    text = io.StringIO()
    # As wide as it is: cut off or folded, a value could be neither read nor copied; the terminal breaks long lines.
    wide = Console(file=text, markup=False, highlight=False, width=_WIDTH, color_system=None)
    wide.print(table)
    sys.stdout.write("\n".join(line.rstrip() for line in text.getvalue().splitlines()) + "\n")
    if not rows:
        note(_EMPTY)


def _plain(value: Any, null: str) -> str:
    if value is None:
        return null
    shown = json_value(value)
    if isinstance(shown, bool):
        return str(shown).lower()
    return json.dumps(shown, ensure_ascii=False) if isinstance(shown, (dict, list)) else str(shown)
