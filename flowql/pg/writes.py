"""Rows that a transaction writes: computed at once as its client is told, and carried out together at COMMIT.

Each statement is computed over the rows of its table as they are now, with those that the transaction has written before. COMMIT computes them
again where the table has changed since, and writes all of it as one commit of the log. If a statement would then change another number of rows, or
return other ones, nothing is written.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field

import pyarrow as pa

from flowql.compiler.functions.registry import QueryFailure
from flowql.compiler.plan.tables import TableChange
from flowql.compiler.plan.topology import InsertValues, SourceDef
from flowql.pg.commit_point import about_to_write
from flowql.pg.errors import PgError, unsupported
from flowql.query.changing import FUNCTION, returned_table, rows_given, send_rows, wall_ms, write_rows
from flowql.query.errors import QueryError
from flowql.runtime.batch import Row
from flowql.runtime.log.base import TopicPartition
from flowql.runtime.topology.bulk_insert import ROWS_MIN as BULK_ROWS_MIN
from flowql.runtime.topology.bulk_insert import GivenRows, takes_columns
from flowql.runtime.topology.table_groups import Rehearsed, TableStatement
from flowql.runtime.topology.table_rows import Key
from flowql.runtime.topology.table_writer import TableWriters

STATEMENTS_MAX = 60_000  # that write, or rows of streams: as many as the statements of one request may insert
ROWS_MAX = 100_000  # that statements change one by one; COPY and queries write more
AUTOCOMMIT = "run it outside of a transaction (autocommit)"
Pinned = Mapping[TopicPartition, int]


@dataclass(frozen=True, slots=True, eq=False)
class Write:
    """A statement. source: of a table; None for rows of streams. told: what its client was told; None for many rows that are computed by columns.
    size: of the rows that a client has copied, in bytes. held: the memory that they take.
    """

    change: TableChange | InsertValues
    source: SourceDef | None = None
    given: GivenRows | None = None
    told: Rehearsed | None = None
    size: int = 0
    held: object = None

    @property
    def is_blind(self) -> bool:
        """Whether it only adds rows."""
        c = self.change
        return not isinstance(c, TableChange) or (c.kind == "insert" and c.on_duplicate == "error")


@dataclass(slots=True)
class Writes:
    """The writes of one transaction, in order."""

    all: list[Write] = field(default_factory=list)
    size: int = 0
    _over: dict[str, dict[Key, Row | None]] = field(
        default_factory=dict
    )  # by table, the rows of keys that were written
    _rows: int = 0

    def add(self, writes: Sequence[Write]) -> None:
        """Raises PgError if there are too many."""
        if len(self.all) + len(writes) > STATEMENTS_MAX:
            raise PgError("54000", f"a transaction writes {STATEMENTS_MAX:,} statements or rows of streams at most")
        rows = sum(_rows(w) for w in writes)
        if self._rows + rows > ROWS_MAX:
            raise PgError("54000", f"a transaction changes {ROWS_MAX:,} rows at most", help="load many rows with COPY")
        self._rows += rows
        self.size += sum(w.size for w in writes)
        self.all += writes

    def first(self, count: int) -> Writes:
        """The first ones alone. This object stays as it is, because a statement that was abandoned may still add to it."""
        kept = self.all[:count]
        found = Writes(kept, sum(w.size for w in kept), _rows=sum(map(_rows, kept)))
        for write in kept:
            if write.told is not None:
                over = found.over(write.change.target)
                over.update(dict.fromkeys(write.told.changed.gone))
                over.update(write.told.changed.rows)
        return found

    def over(self, table: str) -> dict[Key, Row | None]:
        """The rows of keys that were written, which rehearsals add to."""
        return self._over.setdefault(table, {})

    def of(self, table: str) -> list[Write]:
        return [w for w in self.all if w.change.target == table]

    @property
    def tables(self) -> set[str]:
        return {w.change.target for w in self.all if w.source is not None}


def _rows(write: Write) -> int:
    told = write.told
    return 0 if told is None else len(told.changed.rows) + len(told.changed.gone)


def rehearsed(
    change: TableChange, source: SourceDef, writes: Writes, tables: TableWriters, ask: Callable[[str], pa.Table]
) -> tuple[Write, int, pa.Table | None]:
    """The statement as it will be written, how many rows it is about, and those of RETURNING. ask: answers its query. Raises PgError, CommandError,
    RuntimeFailure.
    """
    check(change, writes, tables)
    given = rows_given(source, change, ask, None)
    of_table = writes.of(change.target)
    if given is not None and len(given) >= BULK_ROWS_MIN and takes_columns(source, given.change):
        return Write(change, source, given), len(given), None
    if any(w.told is None for w in of_table) and not _is_plain(change):
        title = f"{change.target} has rows of COPY or of a query in this transaction, which are not in the table yet"
        raise unsupported(title, "COMMIT first")
    first = sum(_rows(w) for w in of_table)
    with _functions():
        told = tables.rehearse(TableStatement(source, change, given), wall_ms(), writes.over(change.target), first)
    returned = returned_table(change, told.changed.returned) if change.returning else None
    return Write(change, source, given, told), told.changed.count, returned


def check(change: TableChange, writes: Writes, tables: TableWriters) -> None:
    """Raises PgError for a change whose result cannot be told before COMMIT."""
    if change.select and change.kind != "insert":
        title = f"{change.kind.upper()} with a sub-query or another table is not supported in a transaction block: which rows it is about can change until COMMIT"
        raise unsupported(title, AUTOCOMMIT)
    if not tables.log.drops_with_commits and writes.tables - {change.target}:
        title = "a transaction on Kafka writes one table: the brokers keep the writers of each table apart"
        raise unsupported(title, f"COMMIT before the change of {change.target}")


def _is_plain(change: TableChange) -> bool:
    return change.kind == "insert" and change.on_duplicate == "error" and not change.returning


def carried_out(
    writes: Sequence[Write],
    sources: Sequence[SourceDef],
    tables: TableWriters,
    writer: str,
    pinned: Mapping[str, Pinned] | None = None,
) -> None:
    """Writes them, as one commit. pinned: the ends of topics that the transaction has read, where it may change no row that others have changed
    since. Raises PgError 40001, CommandError, RuntimeFailure; then nothing was written.
    """
    now = wall_ms()
    rows = [w.change for w in writes if isinstance(w.change, InsertValues)]
    changes = [w for w in writes if w.source is not None]
    if not changes:
        with tables.inserting:
            about_to_write()
            write_rows(tables.log, sources, rows, writer, now)
        return

    def expected(found: Sequence[Rehearsed]) -> None:
        for write, now_found in zip(changes, found, strict=True):
            told, made = write.told, now_found.changed
            if told is not None and (told.changed.count, told.changed.returned) != (made.count, made.returned):
                raise _concurrent(write.change.target)
            assert write.source is not None
            seen = None if pinned is None else pinned.get(write.source.topic)
            if seen is not None and not write.is_blind and seen != dict(now_found.ends):
                raise _concurrent(write.change.target)
        about_to_write()

    statements = [
        TableStatement(w.source, w.change, w.given, w.told)
        for w in changes
        if w.source is not None and isinstance(w.change, TableChange)
    ]
    with _functions():
        tables.transact(
            statements,
            now,
            expected,
            lambda producer: send_rows(producer, tables.log, sources, rows, now) if rows else None,
        )


@contextmanager
def _functions() -> Iterator[None]:
    """A function of the project may fail, in CHECK or in a generated column."""
    try:
        yield
    except QueryFailure as error:
        raise QueryError(str(error), code=FUNCTION) from error


def _concurrent(table: str) -> PgError:
    title = f"could not serialize access due to concurrent update: {table} has changed since a statement of this transaction"
    return PgError("40001", title, help="run the transaction again")
