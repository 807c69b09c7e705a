"""INSERT, UPDATE and DELETE of local tables: `flowql exec`, the shell, programs and tests carry them out through here."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future
from contextlib import suppress
from typing import TYPE_CHECKING, Protocol

import orjson
import pyarrow as pa

from flowql.compiler.functions.assignment import advice, assigned
from flowql.compiler.functions.registry import QueryFailure
from flowql.compiler.functions.sql_intervals import interval_text
from flowql.compiler.plan.codec import from_data
from flowql.compiler.plan.expr import Column, Expr
from flowql.compiler.plan.logical import NamedExpr
from flowql.compiler.plan.schema import Field, Schema
from flowql.compiler.plan.tables import TableChange
from flowql.compiler.plan.topology import InsertValues, SourceDef
from flowql.compiler.plan.types import SPAN, SqlType, arrow_type
from flowql.query.answer import Done, unique
from flowql.query.bound_changes import BoundChanges
from flowql.query.errors import INVALID, REFUSED, TYPES, QueryError
from flowql.query.relations import answered_schema, arrow_schema, as_shown
from flowql.query.tick_text import as_text
from flowql.runtime.batch import Batch, Row, to_arrow
from flowql.runtime.errors import RowFailed, StatementFailed, TableBusy, TopicMissing
from flowql.runtime.log.base import Log, Producer, TopicPartition
from flowql.runtime.output.partitioner import split
from flowql.runtime.topology.bulk_insert import ROWS_MIN as BULK_ROWS_MIN
from flowql.runtime.topology.bulk_insert import GivenRows, Projected, columns_batch, takes_columns
from flowql.runtime.topology.row_store import encode_insert
from flowql.runtime.topology.table_changes import Changed
from flowql.runtime.topology.table_image import table_ends
from flowql.runtime.topology.table_writer import TableWriters

if TYPE_CHECKING:
    from flowql.compiler.driver import DialectName


from flowql.compiler.diagnostics.diagnostic import CompileError
from flowql.compiler.diagnostics.source import SourceText
from flowql.compiler.dialect.ast import Lit, Star
from flowql.compiler.dialect.standard import tree as t
from flowql.compiler.dialect.standard.parser import parse_trees
from flowql.compiler.dialect.standard.statement_tree import QueryStatement

FUNCTION = "FQ3012"
FILES_HELP = "run  flowql exec  where the file is, or send the rows:  psql -c \"\\copy t FROM 'file.csv' CSV HEADER\""
Ask = Callable[[str], pa.Table]  # the answer to an interactive query


class Files(Protocol):
    """Reads the rows that statements take from files or from a client."""

    def rows(self, source: SourceDef, change: TableChange) -> GivenRows:
        """The rows of COPY, or of an INSERT whose query reads files. Raises CommandError, StatementFailed."""
        ...


def carry_out(
    text: str,
    sources: Sequence[SourceDef],
    tables: TableWriters,
    ask: Ask,
    writer: str,
    *,
    dialect: DialectName,
    variables: Mapping[str, str],
    one_returns: bool = False,
    retry: int = 0,
    files: Files | None = None,
    bound: BoundChanges | None = None,
) -> list[Done]:
    """Statements in order, each as one transaction. What precedes one that fails stays done.

    sources: streams and tables that are deployed. writer: the transactional id of rows that are inserted into topics. one_returns: exactly
    one of them must have RETURNING. retry: how often a statement is repeated whose table others change after its query has read it. files: reads
    the files of statements; None: statements that read files are refused. bound: those of the process, for one that carries out many. Raises CompileError before anything is done, QueryError if one_returns does not hold; CommandError, RuntimeFailure.
    """
    known = {s.name: s for s in sources}
    changes = (bound or BoundChanges()).compiled(text, known, dialect, variables)
    if one_returns:
        _check_one_returns(changes)
    return carry_out_bound(changes, sources, tables, ask, writer, retry=retry, files=files)


def carry_out_bound(
    changes: Sequence[TableChange | InsertValues],
    sources: Sequence[SourceDef],
    tables: TableWriters,
    ask: Ask,
    writer: str,
    *,
    retry: int = 0,
    files: Files | None = None,
) -> list[Done]:
    """As `carry_out`, for statements that are compiled."""
    known = {s.name: s for s in sources}
    done: list[Done] = []
    for change in _grouped(changes):
        if not isinstance(change, TableChange):
            with tables.inserting:
                ends = write_rows(tables.log, sources, change, writer, wall_ms())
            done.append(Done("INSERT", change[0].target, len(change), tick=as_text(ends)))
            continue
        try:
            done.append(_repeated(tables, known[change.target], change, ask, retry, files))
        except QueryFailure as error:  # a function of the project, in CHECK or in a generated column
            raise QueryError(str(error), code=FUNCTION) from error
    return done


def _repeated(
    tables: TableWriters, source: SourceDef, change: TableChange, ask: Ask, retry: int, files: Files | None
) -> Done:
    for _ in range(retry):
        with suppress(TableBusy):
            return execute_change(tables, source, change, wall_ms(), ask, files)
    return execute_change(tables, source, change, wall_ms(), ask, files)


def _check_one_returns(changes: Sequence[TableChange | InsertValues]) -> None:
    count = sum(isinstance(c, TableChange) and bool(c.returning) for c in changes)
    if count != 1:
        title = f"{count or 'none'} of the statements {'has' if count < 2 else 'have'} RETURNING, and the rows of one are asked for"
        raise QueryError(title, code=INVALID, help="give one statement with  RETURNING *")


def _grouped(changes: Sequence[TableChange | InsertValues]) -> list[TableChange | list[InsertValues]]:
    """Consecutive rows of one stream or table together."""
    found: list[TableChange | list[InsertValues]] = []
    for change in changes:
        last = found[-1] if found else None
        if isinstance(change, TableChange):
            found.append(change)
        elif isinstance(last, list) and last[0].target == change.target:
            last.append(change)
        else:
            found.append([change])
    return found


def wall_ms() -> int:
    return time.time_ns() // 1_000_000


def execute_change(
    tables: TableWriters, source: SourceDef, change: TableChange, now_ms: int, ask: Ask, files: Files | None = None
) -> Done:
    """Carries out a statement.

    ask: answers the query of a statement that has one, as `flowql query` does. files: see `carry_out`. Raises StatementFailed,
    TableBusy, QueryError or LogError; then nothing was changed.
    """
    returned: list[pa.Table] = []

    def before(changed: Changed) -> None:
        if change.returning:
            returned[:] = [returned_table(change, changed.returned)]

    # Before the query reads the table.
    seen = table_ends(tables.log, source) if change.select and change.kind != "insert" else None
    given = rows_given(source, change, ask, files)
    if given is None:
        changed = tables.change(source, change, now_ms, before=before)
        return _done(change.kind.upper(), change, changed, returned)
    verb = "COPY" if change.copied is not None else change.kind.upper()
    of_files = change.copied is not None or change.reads_files
    if (of_files or len(given) >= BULK_ROWS_MIN) and takes_columns(source, given.change):
        return _done(verb, change, _inserted(tables, source, given, now_ms), returned)
    changed = tables.change(source, given.change, now_ms, given.rows(), seen, before=before)
    return _done(verb, change, changed, returned)


def _done(verb: str, change: TableChange, changed: Changed, returned: Sequence[pa.Table]) -> Done:
    return Done(verb, change.target, changed.count, next(iter(returned), None), as_text(changed.ends))


def begin_change(
    tables: TableWriters,
    source: SourceDef,
    change: TableChange,
    now_ms: int,
    own: Callable[[Callable[[], None]], object],
    after: Callable[[], None] | None = None,
) -> Future[Done]:
    """As `execute_change`, without waiting, for a statement with neither a query nor files. own, after: see `TableWriters.begin`."""
    returned, outcome = list[pa.Table](), Future[Done]()
    outcome.set_running_or_notify_cancel()  # whoever waits for it may give up, and the statement is carried out all the same

    def before(changed: Changed) -> None:
        returned[:] = [returned_table(change, changed.returned)]

    def told(found: Changed | BaseException) -> None:
        if isinstance(found, QueryFailure):
            outcome.set_exception(QueryError(str(found), code=FUNCTION))
        elif isinstance(found, BaseException):
            outcome.set_exception(found)
        else:
            outcome.set_result(_done(change.kind.upper(), change, found, returned))

    tables.begin(source, change, now_ms, told, own, before=before if change.returning else None, after=after)
    return outcome


def rows_given(source: SourceDef, change: TableChange, ask: Ask, files: Files | None) -> GivenRows | None:
    """The rows from the statement's query, file or client; None if it has none of these."""
    if change.copied is not None or change.reads_files:
        if files is None:
            what = "COPY" if change.copied is not None else "a query over files"
            title = f"{what} cannot run in an instance: files are read where a command runs"
            raise QueryError(title, code=REFUSED, help=FILES_HELP)
        return files.rows(source, change)
    if not change.select:
        return None
    return GivenRows(change, [_selected(source, change, ask)], _of_query)


def _of_query(error: RowFailed) -> StatementFailed:
    return StatementFailed(f"row {error.row + 1} of the query: {error}")


def _inserted(tables: TableWriters, source: SourceDef, given: GivenRows, now_ms: int) -> Changed:
    """Inserts rows by columns."""
    try:
        return tables.insert(source, given.change, now_ms, given.columns())
    except RowFailed as error:
        raise given.failure(error) from error


def returned_table(change: TableChange, rows: Sequence[Row]) -> pa.Table:
    """The rows of RETURNING with the types that the answer to a query has."""
    names = unique([c.name for c in change.returning])
    schema = Schema(tuple(Field(n, c.expr.type) for n, c in zip(names, change.returning, strict=True)))
    values = zip(*rows, strict=True) if rows else ((),) * len(names)
    try:
        arrays = [to_arrow(v, f.type) for v, f in zip(values, schema, strict=True)]
        batch = pa.RecordBatch.from_arrays(arrays, schema=arrow_schema(schema))
        return pa.Table.from_batches([as_shown(batch.columns, answered_schema(schema))])
    except (pa.ArrowException, OverflowError, ValueError) as error:
        raise StatementFailed(f"RETURNING: {error}") from error


def write_rows(
    log: Log, sources: Sequence[SourceDef], inserts: Sequence[InsertValues], transactional_id: str, now_ms: int
) -> Mapping[TopicPartition, int]:
    """Rows of INSERT ... VALUES into streams and tables over topics, all in one transaction; the ends of what it wrote."""
    producer = log.producer(transactional_id)
    try:
        producer.begin()
        send_rows(producer, log, sources, inserts, now_ms)
        producer.commit()
        return producer.ends
    finally:
        producer.close()


def send_rows(
    producer: Producer, log: Log, sources: Sequence[SourceDef], inserts: Sequence[InsertValues], now_ms: int
) -> None:
    """Rows of INSERT ... VALUES in the transaction of a producer. Raises TopicMissing."""
    known, topics = {s.name: s for s in sources}, log.admin().topics()
    for insert in inserts:
        source = known[insert.target]
        if source.topic not in topics:
            raise TopicMissing(f"there is no topic {source.topic} of {source.name}")
        for partition, part in split(encode_insert(source, insert, now_ms), topics[source.topic].partitions, 0):
            producer.send(TopicPartition(source.topic, partition), part)


def _selected(source: SourceDef, change: TableChange, ask: Ask) -> Batch:
    """The rows of the query as values of the target's columns."""
    table = ask(change.select)
    fields = [*(source.schema.field(n) for n in change.columns), *change.beside]
    if table.num_columns != len(fields):  # of an INSERT; the other queries are ours
        wanted = f"{len(change.columns)} ({', '.join(change.columns)})"
        title = f"INSERT INTO {source.name}: the query gives {table.num_columns} columns, and there are {wanted}"
        raise QueryError(title, code=INVALID, help="name the columns that are given:  INSERT INTO t (a, b) SELECT ...")
    found: tuple[SqlType, ...] = from_data(orjson.loads(table.schema.metadata[TYPES]))
    names = [f"c{i}" for i in range(len(fields))]
    bare = literal_columns(change.select) if change.kind == "insert" else frozenset()
    exprs = [
        _as(Column(t, n), f, source, bare=i in bare)
        for i, (t, n, f) in enumerate(zip(found, names, fields, strict=True))
    ]
    given = Schema(tuple(Field(n, t) for n, t in zip(names, found, strict=True)))
    columns = [_values(c, t) for c, t in zip(table.columns, found, strict=True)]
    project = Projected([NamedExpr(f.name, e) for f, e in zip(fields, exprs, strict=True)], given)
    try:
        return project(columns_batch(given, pa.RecordBatch.from_arrays(columns, schema=arrow_schema(given))))
    except RowFailed as error:
        raise StatementFailed(f"row {error.row + 1} of the query, {error}") from error


def _as(e: Column, field: Field, source: SourceDef, *, bare: bool) -> Expr:
    """As of values that are written. bare: a string in quotes, or NULL."""
    found = assigned(e, field.type, quoted=bare)
    if found is None:
        title = f"column {field.name} of {source.name} is {field.type}, the query gives {e.type}"
        raise QueryError(title, code=INVALID, help=advice(e.type, field.type))
    return found


def _values(column: pa.ChunkedArray, t: SqlType) -> pa.Array:
    """As `arrow_type` of its type."""
    if t == SPAN:
        spans = column.to_pylist()
        texts = [None if v is None else interval_text((v.months, v.days, v.nanoseconds // 1000)) for v in spans]
        return pa.array(texts, arrow_type(t))
    found = column.cast(arrow_type(t)).combine_chunks()
    return found.combine_chunks() if isinstance(found, pa.ChunkedArray) else found


def literal_columns(sql: str) -> frozenset[int]:
    """The places of these columns, from 0; none of a query that cannot be read, or whose columns are not counted.

    >>> sorted(literal_columns("SELECT id, '2024-05-01', NULL FROM t"))
    [1, 2]
    """
    try:
        found, mistakes = parse_trees(SourceText("", sql))
    except CompileError:
        return frozenset()
    if mistakes or len(found) != 1 or not isinstance(found[0], QueryStatement):
        return frozenset()
    body = found[0].query.body
    while isinstance(body, t.Query):
        body = body.body
    if not isinstance(body, t.Select) or any(isinstance(i.expr, Star) for i in body.items):
        return frozenset()
    return frozenset(
        n for n, i in enumerate(body.items) if isinstance(i.expr, Lit) and i.expr.kind in ("string", "null")
    )
