"""Rows of statements from local files: COPY, and INSERT whose query reads files."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import replace
from itertools import accumulate
from pathlib import Path

import duckdb

from flowql.compiler.plan.schema import Field
from flowql.compiler.plan.tables import TableChange
from flowql.compiler.plan.topology import SourceDef
from flowql.errors import CommandError
from flowql.runtime.errors import RowFailed, StatementFailed
from flowql.runtime.topology.bulk_insert import PIECE_ROWS, GivenRows
from flowql.topics.import_job import NOT_IMPORTED
from flowql.topics.table_files import Advance, Columns, Piece, TableFile, opened, read_rows

# Given a title, and the total in bytes or None if it is unknown.
Progress = Callable[[str, int | None], AbstractContextManager[Advance]]


@contextmanager
def unseen(title: str, total: int | None) -> Iterator[Advance]:
    """Shows no progress."""
    del title, total
    yield lambda n: None


class LocalFiles:
    """Files of this machine. Paths are relative to the working directory of the process."""

    def __init__(self, progress: Progress = unseen) -> None:
        self._progress = progress

    def rows(self, source: SourceDef, change: TableChange) -> GivenRows:
        """All rows, in memory. Raises CommandError, StatementFailed."""
        if change.copied is None:
            return _selected(source, change)
        path = Path(change.copied.path)
        if not change.copied.path:
            title = "COPY ... FROM STDIN is for PostgreSQL's clients, which send the rows"
            raise CommandError(title, code=NOT_IMPORTED, help="name a file:  COPY t FROM 'file.csv'")
        file = opened(path, source, change)
        with file.stream:
            by_bytes = file.origin.format != "parquet"
            size = path.stat().st_size if by_bytes else None
            with self._progress(f"read {path.name}", size) as advance:
                return all_rows(file, *read_rows(file, advance))


def all_rows(file: TableFile, fields: Sequence[Field], pieces: Iterable[Piece]) -> GivenRows:
    """All rows of a file. fields: its columns. Raises StatementFailed."""
    found = list(pieces)
    change = replace(file.change, columns=tuple(f.name for f in fields))
    return GivenRows(change, [p.rows for p in found], lambda error: file.failure(_line(found, error.row), str(error)))


def _line(pieces: Sequence[Piece], row: int) -> int:
    """Where a row stands in its file. row: among all rows, from 0."""
    firsts = list(accumulate((len(p.rows) for p in pieces), initial=0))
    at = bisect_right(firsts, row) - 1
    return pieces[at].line(row - firsts[at])


def _selected(source: SourceDef, change: TableChange) -> GivenRows:
    """The rows of a query over files, which DuckDB runs."""
    with duckdb.connect() as database:
        database.execute("SET TimeZone = 'UTC'")
        try:
            table = database.sql(change.select).to_arrow_table()
        except duckdb.Error as error:
            title = f"INSERT INTO {source.name}: {str(error).splitlines()[0]}"
            help = "write the query in DuckDB's SQL; it can read only files"
            raise CommandError(title, code=NOT_IMPORTED, help=help) from error
    fields = [f for n in change.columns for f in source.schema if f.name == n]
    if table.num_columns != len(fields):
        title = f"INSERT INTO {source.name}: the query gives {table.num_columns} columns, and there are {len(fields)}"
        help = f"name the columns that are given; those of {source.name} are {', '.join(change.columns)}"
        raise CommandError(title, code=NOT_IMPORTED, help=help)
    read = Columns(fields, table.schema.types, source)

    def failure(error: RowFailed) -> StatementFailed:
        return StatementFailed(f"row {error.row + 1} of the query: {error}; nothing was written")

    parts, before = [], 0
    for batch in table.to_batches(max_chunksize=PIECE_ROWS):
        try:
            parts.append(read(batch))
        except RowFailed as error:
            raise failure(error.behind(before)) from error
        before += batch.num_rows
    return GivenRows(change, parts, failure)
