"""Rows as they come, written as aligned lines or as JSON until Ctrl-C."""

from __future__ import annotations

import json
import signal
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Protocol, TextIO

from flowql.cli.render import ColumnWidths, counted, json_value, note, numeric, plain
from flowql.query.change import Rebuilt

if TYPE_CHECKING:
    from flowql.compiler.plan.topology import SourceDef
    from flowql.query.change import Change


class Changes(Protocol):
    """A subscription: lists of changes, also empty ones, and a boundary where what it reads has been rebuilt. rows: how many changes there
    were; why: it ended by itself.
    """

    rows: int
    why: str

    def __iter__(self) -> Iterator[list[Change] | Rebuilt]: ...

    @property
    def columns(self) -> Sequence[str]: ...

    @property
    def result(self) -> SourceDef: ...

    @property
    def live(self) -> bool:
        """Whether an instance ran when it began."""
        ...

    @property
    def is_ready(self) -> bool:
        """Whether later rows are changes that the subscription asks for."""
        ...

    @property
    def stopped(self) -> Callable[[], bool]: ...


def write_changes(following: Changes, *, as_json: bool) -> None:
    """Write what comes until it ends, and say how it went."""
    said, writer = False, JsonWriter() if as_json else TableWriter(following.columns, following.result)
    for changes in following:
        if isinstance(changes, Rebuilt):
            writer.begin(changes)
            continue
        if following.live and not said and following.is_ready:
            note("listening; Ctrl-C ends")
            said = True
        writer.write(changes)
    if following.stopped() and sys.stderr.isatty():
        note("")  # the terminal has written ^C
    rows = counted(following.rows, "row")
    note(f"{following.why}; {rows}" if following.why else rows)


@contextmanager
def until_asked_to_stop() -> Iterator[Callable[[], bool]]:
    """Ctrl-C and SIGTERM end what goes on here, in order, instead of the program. Main thread only."""
    asked = False

    def stop(*_: Any) -> None:
        nonlocal asked
        asked = True

    before = {n: signal.signal(n, stop) for n in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield lambda: asked
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


class TableWriter:
    """Changes as aligned lines. Of a table each says what it does to its row: `put` or `delete`."""

    def __init__(self, columns: Sequence[str], result: SourceDef, out: TextIO | None = None) -> None:
        self._table, self._names = result.kind == "table", columns
        self._out = out or sys.stdout
        self._layout: ColumnWidths | None = None

    def begin(self, boundary: Rebuilt) -> None:
        self._table, self._names, self._layout = boundary.result.kind == "table", boundary.columns, None
        self._out.write(f"-- {boundary}\n")
        self._out.flush()

    def write(self, changes: Sequence[Change]) -> None:
        if not changes:
            return
        rows = [self._row(c) for c in changes]
        if self._layout is None:
            values = [numeric(c.row.get(n) for c in changes) for n in self._names]
            header = [*(["change"] if self._table else []), *self._names]
            self._layout = ColumnWidths(header, [*([False] if self._table else []), *values])
            for row in rows:
                self._layout.fit(row)
            self._out.write(self._layout.line(header) + "\n")
        for row in rows:
            self._out.writelines(f"{line}\n" for line in self._layout.lines(row))
        self._out.flush()

    def _row(self, change: Change) -> list[str]:
        cells = cells_of(change, self._names)
        return [change.op, *cells] if self._table else cells


def cells_of(change: Change, columns: Sequence[str]) -> list[str]:
    """Its values as texts; of a row that is gone only the key is known."""
    return [plain(change.row[n]) if n in change.row else "" for n in columns]


class JsonWriter:
    """Changes as lines of JSON: `{op, rowtime, row}`. A boundary: `{op: "rebuilt", generations}`."""

    def __init__(self, out: TextIO | None = None) -> None:
        self._out = out or sys.stdout

    def begin(self, boundary: Rebuilt) -> None:
        self._out.write(json.dumps({"op": "rebuilt", "generations": dict(boundary.generations)}) + "\n")
        self._out.flush()

    def write(self, changes: Sequence[Change]) -> None:
        for c in changes:
            document = {"op": c.op, "rowtime": c.rowtime_ms, "row": {n: json_value(v) for n, v in c.row.items()}}
            self._out.write(json.dumps(document, ensure_ascii=False, default=json_value, allow_nan=False) + "\n")
        if changes:
            self._out.flush()
