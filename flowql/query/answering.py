"""The answer to an interactive query of standard SQL: by DuckDB, or by the operators of views where DuckDB has no words for it or declines a row."""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterable, Iterator, Mapping, Sequence
from contextlib import closing, suppress
from dataclasses import replace
from functools import partial
from itertools import chain, islice
from typing import TypeVar

import duckdb
import orjson
import pyarrow as pa

from flowql.compiler.analyze.relations.asked import ShownColumn
from flowql.compiler.functions.duckdb_sql import quoted
from flowql.compiler.functions.duckdb_text import DECLINED
from flowql.compiler.plan.codec import to_data
from flowql.compiler.plan.logical import Scan, walk_nodes
from flowql.compiler.plan.schema import Field, Schema
from flowql.compiler.plan.types import arrow_type
from flowql.query.answer import CHUNK_ROWS, named_schema
from flowql.query.asked import in_places, over_rows
from flowql.query.errors import TYPES
from flowql.query.interactive import InteractiveQuery, Isolated
from flowql.query.over_snapshot import NotRendered
from flowql.query.relations import answered_schema, as_shown
from flowql.query.statement import Statement
from flowql.runtime.operators.kernels import with_field_names

_HELD_CHUNKS = 16  # of an answer that may be declined: larger ones are on disk until all of it is known
_ROWS = "!rows"
_ANSWER = "!answer"
# Errors that belong to no row of the answer.
_NOT_OF_ROWS = (
    duckdb.OutOfMemoryException,
    duckdb.InterruptException,
    duckdb.ConnectionException,
    duckdb.PermissionException,
)
T = TypeVar("T")
Pieces = tuple[pa.Schema, Iterable[pa.RecordBatch]]


class Declined(Exception):
    """DuckDB may not compute a row of the answer, or cannot."""


def answered(query: InteractiveQuery, statement: Statement, metadata: Mapping[bytes, bytes]) -> Pieces:
    """The schema and the rows. Raises QueryError, and Isolated if a child process is to compute them."""
    assert statement.asked is not None
    if not statement.by_operators:
        try:
            return _by_duckdb(query, statement, metadata)
        except Declined as error:
            if query.pool is not None:
                raise Isolated(str(error)) from error
    return _by_operators(query, statement, metadata)


def _by_duckdb(query: InteractiveQuery, statement: Statement, metadata: Mapping[bytes, bytes]) -> Pieces:
    query.have_functions(statement.sql)
    chunks = _chunks(query.connection, statement.sql)
    if not _may_decline(statement.sql):
        return _pieces(query, statement, metadata, chunks)
    first = list(islice(chunks, _HELD_CHUNKS))
    if len(first) == _HELD_CHUNKS:
        first.clear()
        chunks.close()
        query.connection.execute(f"DROP TABLE IF EXISTS {quoted(_ANSWER)}")
        _declining(
            lambda: query.connection.execute(f"CREATE TEMP TABLE {quoted(_ANSWER)} AS {statement.sql}").fetchall()
        )
        chunks = _chunks(query.connection, f"FROM {quoted(_ANSWER)}")
    return _pieces(query, statement, metadata, chain(first, chunks))


def _may_decline(sql: str) -> bool:
    """Whether an expression is computed that may fail; what is only passed on does not."""
    return DECLINED in sql or "(" in sql.partition(" FROM ")[0] or "@" in sql or "CAST(" in sql


def _chunks(connection: duckdb.DuckDBPyConnection, sql: str) -> Generator[pa.RecordBatch]:
    reader = _declining(lambda: connection.sql(sql).to_arrow_reader(CHUNK_ROWS))
    with closing(reader):  # the connection computes one result at a time
        while (chunk := _declining(lambda: next(reader, None))) is not None:
            yield chunk


def _declining(call: Callable[[], T]) -> T:
    """Raises Declined for what DuckDB says of a value."""
    try:
        return call()
    except _NOT_OF_ROWS:
        raise
    except (duckdb.Error, OSError, pa.ArrowInvalid) as error:
        if isinstance(error, duckdb.Error) or not _is_of_machine(str(error)):
            raise Declined(str(error)) from error
        raise


def _is_of_machine(said: str) -> bool:
    return "Out of Memory" in said or "IO Error" in said or "INTERRUPT" in said


def _by_operators(query: InteractiveQuery, statement: Statement, metadata: Mapping[bytes, bytes]) -> Pieces:
    from flowql.query.in_parts import computed_in_parts
    from flowql.query.reference import computed  # every operator, which few queries need

    assert statement.asked is not None
    asked = statement.asked
    with suppress(Declined):
        if (parts := _declining(partial(computed_in_parts, query, asked))) is not None:
            return _by_duckdb(query, replace(statement, asked=parts[0], sql=parts[1]), metadata)
    try:
        text = over_rows(asked)
    except NotRendered:
        asked = in_places(asked)
        text = over_rows(asked)
    tables = {}
    for name in dict.fromkeys(n.spec.source for n in walk_nodes(asked.node) if isinstance(n.spec, Scan)):
        if not name.startswith("__"):
            tables[name] = query.connection.sql(f"FROM {quoted(name)}").to_arrow_table()
    rows = computed(asked.node, tables)
    query.connection.register(_ROWS, rows)
    return _pieces(query, statement, metadata, _chunks(query.connection, text))


def _pieces(
    query: InteractiveQuery, statement: Statement, metadata: Mapping[bytes, bytes], chunks: Iterator[pa.RecordBatch]
) -> Pieces:
    assert statement.asked is not None
    columns = statement.asked.columns
    given = answered_schema(Schema(tuple(Field(f"c{n}", c.type) for n, c in enumerate(columns))))
    types = orjson.dumps(to_data([c.type for c in columns]))
    schema = named_schema([c.name for c in columns], given.types, {**metadata, TYPES: types})
    pieces = (_renamed(as_shown(_as_asked(c, columns).columns, given), schema) for c in chunks)
    return schema, query.room.keep(pieces) if statement.is_short else query.room.passing(pieces)


def _as_asked(batch: pa.RecordBatch, columns: Sequence[ShownColumn]) -> pa.RecordBatch:
    """With the fields of structs as the dialect names them: DuckDB does not tell names apart by case."""
    arrays = [with_field_names(a, arrow_type(c.type)) for a, c in zip(batch.columns, columns, strict=True)]
    return pa.RecordBatch.from_arrays(arrays, names=batch.schema.names)


def _renamed(batch: pa.RecordBatch, schema: pa.Schema) -> pa.RecordBatch:
    return pa.RecordBatch.from_arrays(batch.columns, schema=schema)
