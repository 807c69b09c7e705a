"""Relations of a question, put where DuckDB finds them: small ones as they were read, larger ones as tables that it can spill."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import chain

import duckdb
import pyarrow as pa

from flowql.query.pace import Pace
from flowql.query.question import Heavy, QueryLocation, Question, Rows
from flowql.query.relations import Relation, Replaced, StoreRelation, arrow_schema, zoned_schema
from flowql.query.statement import Statement
from flowql.runtime.errors import OffsetOutOfRange

REPLACED_TRIES = 5  # results that are replaced more often than a question takes to read them once
CONTENDED_S_MAX = 0.05  # of processor time while queries wait: then a child process answers, which needs 0.5 s to start
_LOADING = "flowql_loading"


def load(question: Question, name: str, relation: Relation, statement: Statement) -> Rows | None:
    """The relation by its name on the question's connection. What it gives is read while the answer is computed: its snapshot must
    stay open meanwhile.
    """
    if statement.is_short and isinstance(relation, StoreRelation):
        rows = Rows(zoned_schema(relation.schema), lambda: _paced(question, _read(question, relation, statement)))
        question.connection.register(name, rows)
        return rows
    before = question.room.taken
    for attempt in range(REPLACED_TRIES):
        try:
            _load_all(question, name, relation, statement)
            break
        except OffsetOutOfRange:  # a rebuild has replaced its records: what took their place is read
            if attempt == REPLACED_TRIES - 1 or not isinstance(relation, Replaced):
                raise
            question.room.back(before)  # what was read in vain is no longer held
            relation = relation.again()
    return None


def _load_all(question: Question, name: str, relation: Relation, statement: Statement) -> None:
    before = question.room.taken
    rest = _read(question, relation, statement)
    first: list[pa.RecordBatch] = []
    size = 0
    for batch in _paced(question, rest):
        first.append(batch)
        size += batch.nbytes
        question.room.hold(batch.nbytes)
        if size > question.limits.registered_bytes:
            break
    else:
        question.connection.register(name, pa.Table.from_batches(first, zoned_schema(relation.schema)))
        return
    question.begin_heavy()
    begun: list[Iterator[pa.RecordBatch]] = [chain(first, _paced(question, rest))]
    del first  # it is in memory until DuckDB has it, and no longer
    again = lambda: begun.pop() if begun else _paced(question, _read(question, relation, statement))  # noqa: E731
    rows = Rows(zoned_schema(relation.schema), again)
    question.connection.unregister(name)  # it was smaller when this question began for the first time
    question.connection.register(_LOADING, rows)
    try:
        quoted = '"' + name.replace('"', '""') + '"'
        question.connection.execute(f"CREATE TEMP TABLE {quoted} AS SELECT * FROM {_LOADING}").fetchall()
    except (duckdb.Error, OSError):
        if rows.trouble is not None:
            raise rows.trouble from None
        raise
    finally:
        question.connection.unregister(_LOADING)
    question.room.back(before)  # DuckDB counts them now


def _paced(question: Question, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Raises Heavy when a child process is to answer the question. Until that is decided it takes the time that it needs."""
    pace = Pace(question.share)
    pace.begin()
    try:
        for batch in batches:
            yield batch
            if question.place is QueryLocation.UNDECIDED:
                question.contended_s += pace.contended()
                if question.contended_s > CONTENDED_S_MAX:
                    question.place = QueryLocation.ELSEWHERE
                    raise Heavy
            else:
                pace.rest()
            pace.begin()
    finally:
        pace.end()


def _read(question: Question, relation: Relation, statement: Statement) -> Iterator[pa.RecordBatch]:
    conditions = statement.conditions.get(relation.name.casefold(), ())
    plain, shown = arrow_schema(relation.schema), zoned_schema(relation.schema)
    for batch in relation.batches(conditions, statement.columns, question.room):
        question.check()
        yield batch if shown == plain else batch.cast(shown)
