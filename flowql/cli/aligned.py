"""Rows as aligned text, line by line: widths are those of the first rows, and grow when a later value needs it."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from decimal import Decimal
from itertools import chain, islice
from typing import Any

from rich.cells import cell_len

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
