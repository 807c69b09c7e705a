"""The request of an interactive query to its child process, and the answer: over a copy of the state, or over rows that are sent."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import closing
from dataclasses import replace
from typing import IO

import pyarrow as pa

from flowql.query.committed import Commit
from flowql.query.errors import query_error
from flowql.query.interactive import InteractiveQuery
from flowql.query.loading import last_known, paced
from flowql.query.query_process import CopyPlace, ProcessFailed, WorkerRequest
from flowql.query.relations import Relation, StoreRelation, arrow_schema
from flowql.query.statement import Statement
from flowql.runtime.functions.interactive import InteractiveFunction
from flowql.runtime.state.copy import StateCopy

Answered = tuple[pa.Schema, Iterator[pa.RecordBatch]]


def movable(relations: Mapping[str, object]) -> bool:
    """Whether a child process can read all of them: only stores, as topics have newer records by the time the copy of the state is made."""
    return all(isinstance(r, StoreRelation) and r.make is not None for r in relations.values())


def answer_from_copy(
    query: InteractiveQuery, statement: Statement, copy: StateCopy, relations: Mapping[str, StoreRelation]
) -> Answered:
    """The schema and the batches of the answer of a child process. Raises QueryError, ProcessFailed, ProcessEnded."""
    stores = tuple((name, r.make, r.present) for name, r in relations.items() if r.make is not None)
    place = CopyPlace(copy.path, copy.owned, stores)
    request = WorkerRequest(
        query.given,
        copy.sequence,
        _sent(query, statement),
        is_duckdbs=_is_duckdbs(query, statement),
        copied=place,
        functions=_functions(query),
    )
    return _answered(query, request, [])


def answer_from_rows(
    query: InteractiveQuery, statement: Statement, commit: Commit, relations: Mapping[str, Relation]
) -> Answered:
    """As `answer_from_copy`. Rows of relations are read here, no more than the statement needs."""
    shown = {} if relations else {name: make().schema for name, make in commit.relations().items()}
    request = WorkerRequest(
        query.given,
        commit.snapshot.sequence,
        _sent(query, statement),
        is_duckdbs=_is_duckdbs(query, statement),
        sent=tuple((name, r.schema) for name, r in relations.items()),
        shown=tuple(shown.items()),
        functions=_functions(query),
    )
    rows = [(arrow_schema(r.schema), _rows(query, r, statement)) for r in relations.values()]
    return _answered(query, request, rows)


def _sent(query: InteractiveQuery, statement: Statement) -> Statement | None:
    """The statement, where it is bound."""
    if not statement.is_plain:
        return None
    return replace(statement, by_operators=query.by_operators) if query.by_operators else statement


def _is_duckdbs(query: InteractiveQuery, statement: Statement) -> bool:
    return query.language == "duckdb" or (query.language == "standard" and not statement.is_plain)


def _functions(query: InteractiveQuery) -> dict[str, InteractiveFunction]:
    return {f.name: f for f in query.functions}


def _rows(query: InteractiveQuery, relation: Relation, statement: Statement) -> Iterator[pa.RecordBatch]:
    """Rows as the relation has them."""
    conditions = statement.conditions.get(relation.name.casefold(), ())
    relation = last_known(query, relation, statement.columns)
    for batch in query.room.passing(paced(query, relation.batches(conditions, statement.columns, query.room))):
        query.check()
        yield batch


def _answered(
    query: InteractiveQuery, request: WorkerRequest, rows: list[tuple[pa.Schema, Iterator[pa.RecordBatch]]]
) -> Answered:
    assert query.process is not None
    try:
        reply, file = query.process.ask(request, rows)
    except BaseException:
        query.process.kill("a query that was not answered")
        raise
    if reply.refused is not None or reply.failure:
        file.close()
    if reply.refused is not None:
        raise query_error(reply.refused)
    if reply.failure:
        raise ProcessFailed(reply.failure)
    reader = pa.ipc.open_stream(pa.PythonFile(file, mode="r"))
    return reader.schema, _pieces(file, reader)


def _pieces(file: IO[bytes], reader: pa.RecordBatchReader) -> Iterator[pa.RecordBatch]:
    with closing(file):
        yield from reader
