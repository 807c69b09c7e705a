"""Loads the relations of an interactive query into DuckDB: small ones as they were read, larger ones as tables that DuckDB can spill."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import chain

import duckdb
import pyarrow as pa

from flowql.compiler.functions.duckdb_sql import quoted
from flowql.query.interactive import Heavy, InteractiveQuery, QueryLocation, Rows
from flowql.query.last_records import KEYS, is_large, keys_schema, numbered_keys, with_last_records
from flowql.query.pace import Pace
from flowql.query.relations import (
    Relation,
    Replaced,
    StoreRelation,
    TopicRelation,
    arrow_schema,
    as_shown,
    zoned_schema,
)
from flowql.query.statement import Statement
from flowql.query.view_state import ViewRelation
from flowql.runtime.errors import OffsetOutOfRange

REPLACED_TRIES = 5  # results that are replaced more often than a query takes to read them once
# Seconds of a query's processor time for which continuous queries have waited. After the first limit the query yields to them. After the second a child
# process answers, which needs 0.5 s to start and seconds on a busy machine. An aggregate over 10,000 rows takes 0.02 to 0.05 s.
YIELDS_AFTER_S, CONTENDED_S_MAX = 0.05, 0.2
_LOADING = "flowql_loading"


def load(query: InteractiveQuery, name: str, relation: Relation, statement: Statement) -> Rows | None:
    """Makes the relation readable by its name on the query's connection. DuckDB reads the returned rows while it computes the answer: their
    snapshot must stay open until then.
    """
    if statement.is_short and isinstance(relation, StoreRelation | ViewRelation):
        rows = Rows(_schema(relation, statement), lambda: paced(query, _read(query, relation, statement)))
        query.connection.register(name, rows)
        return rows
    before = query.room.taken
    for attempt in range(REPLACED_TRIES):
        try:
            _load_all(query, name, relation, statement)
            break
        except OffsetOutOfRange:  # a rebuild has replaced its records: what took their place is read
            if attempt == REPLACED_TRIES - 1 or not isinstance(relation, Replaced):
                raise
            query.room.back(before)  # what was read in vain is no longer held
            relation = relation.again()
    return None


def _load_all(query: InteractiveQuery, name: str, relation: Relation, statement: Statement) -> None:
    before = query.room.taken
    if is_large(relation):
        query.begin_heavy()
        relation = last_known(query, relation, statement.columns)
    rest = _read(query, relation, statement)
    first: list[pa.RecordBatch] = []
    size = 0
    for batch in paced(query, rest):
        first.append(batch)
        size += batch.nbytes
        query.room.hold(batch.nbytes)
        if size > query.limits.registered_bytes:
            break
    else:
        query.connection.register(name, pa.Table.from_batches(first, _schema(relation, statement)))
        return
    query.begin_heavy()
    begun: list[Iterator[pa.RecordBatch]] = [chain(first, paced(query, rest))]
    del first  # it is in memory until DuckDB has it, and no longer
    again = lambda: begun.pop() if begun else paced(query, _read(query, relation, statement))  # noqa: E731
    query.connection.unregister(name)  # it was smaller when this query began for the first time
    _fill(query, name, Rows(_schema(relation, statement), again))
    query.room.back(before)  # DuckDB counts them now


def last_known(query: InteractiveQuery, relation: Relation, columns: frozenset[str] | None) -> Relation:
    """A large table with the last records of its keys known; another relation as it is. columns: those that are read. Raises OffsetOutOfRange."""
    if not is_large(relation):
        return relation
    assert isinstance(relation, TopicRelation)
    rows = Rows(keys_schema(relation), lambda: paced(query, numbered_keys(relation, columns)))
    _fill(query, KEYS, rows)
    return with_last_records(query, relation)


def _fill(query: InteractiveQuery, table: str, rows: Rows) -> None:
    query.connection.register(_LOADING, rows)
    try:
        query.connection.execute(f"CREATE OR REPLACE TEMP TABLE {quoted(table)} AS FROM {_LOADING}").fetchall()
    except (duckdb.Error, OSError):
        if rows.trouble is not None:
            raise rows.trouble from None
        raise
    finally:
        query.connection.unregister(_LOADING)


def paced(query: InteractiveQuery, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Raises Heavy when a child process is to answer the query."""
    pace = Pace(query.share)
    pace.begin()
    try:
        for batch in batches:
            yield batch
            if query.location is not QueryLocation.UNDECIDED:
                pace.rest()
            elif query.contended_s > YIELDS_AFTER_S:
                query.contended_s += pace.rest()
            else:
                contended_s = pace.contended()
                query.share.owe(contended_s)
                query.contended_s += contended_s
            if query.location is QueryLocation.UNDECIDED and query.contended_s > CONTENDED_S_MAX:
                query.location = QueryLocation.ELSEWHERE
                raise Heavy
            pace.begin()
    finally:
        pace.end()


def _schema(relation: Relation, statement: Statement) -> pa.Schema:
    return arrow_schema(relation.schema) if statement.is_plain else zoned_schema(relation.schema)


def _read(query: InteractiveQuery, relation: Relation, statement: Statement) -> Iterator[pa.RecordBatch]:
    conditions = statement.conditions.get(relation.name.casefold(), ())
    plain, shown = arrow_schema(relation.schema), _schema(relation, statement)
    for batch in relation.batches(conditions, statement.columns, query.room):
        query.check()
        yield batch if shown == plain else as_shown(batch.columns, shown)
