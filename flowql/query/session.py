"""One statement over one commit: load the relations it reads into a locked DuckDB and let that answer."""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Generator, Hashable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from functools import partial

import duckdb
import pyarrow as pa
import pyarrow.compute as pc

from flowql.compiler.catalog.names import listing
from flowql.compiler.diagnostics.suggest import did_you_mean
from flowql.compiler.plan.generations import plain
from flowql.compiler.plan.topology import stores_of
from flowql.query.answer import CHUNK_ROWS, Answer, Begun, named_schema
from flowql.query.at_least import waiting
from flowql.query.committed import SETTLE_S, SETTLE_STEP_S, Commit, Take
from flowql.query.database import DEFAULT, QueryDatabase
from flowql.query.errors import (
    BEHIND,
    BUSY,
    ENGINE,
    INVALID,
    UNKNOWN,
    QueryError,
    no_process,
    place_of_word,
)
from flowql.query.interactive import Heavy, InteractiveQuery, Isolated, Offered, QueryLocation, Rows
from flowql.query.ksql_names import with_escapes, with_words_in_quotes
from flowql.query.loading import load
from flowql.query.looking_up import looked_up
from flowql.query.options import QUERY_DEFAULTS, QueryOptions
from flowql.query.query_process import ProcessEnded, ProcessFailed
from flowql.query.relations import Relation, StoreRelation, are_readable, zoned_schema
from flowql.query.request import answer_from_copy, answer_from_rows, movable
from flowql.query.shared_answers import SharedKey, is_repeatable
from flowql.query.statement import Statement, parse
from flowql.query.tick_text import as_ends
from flowql.query.united import Coverage, restored, said, unite
from flowql.query.view_state import ViewRelation, from_state
from flowql.runtime.state.copy import StateCopy

MOVING_S = 3.0  # how long to wait for partitions that no instance answers for
_MOVING_STEP_S = 0.1
_INT64 = pa.int64()


def evaluate(sql: str, take: Take, database: QueryDatabase = DEFAULT) -> pa.Table:
    """The whole answer at once; see `answer`."""
    return answer(sql, take, database=database).table()


def answer(
    sql: str,
    take: Take,
    begun: Begun = lambda _: None,
    *,
    database: QueryDatabase = DEFAULT,
    copied: Take | None = None,
    functions: Offered = dict,
    client: str = "",
    statement: Statement | None = None,
    options: QueryOptions = QUERY_DEFAULTS,
    looks_up: bool = True,
    equal: Hashable = None,
    as_of: Callable[[], int | None] = lambda: None,
) -> Answer:
    """The answer, computed as it is taken, in the thread that takes it; nothing is held that the engine waits for.

    Raises QueryError, most often before the first piece. take: gives a commit; its snapshot is closed here. begun: is given
    what breaks the computation off, from any thread, with a QueryError. database: where it is computed, and what it may take there.
    copied: as `take`, with a `StateCopy` as snapshot where one can be made; a child process then answers expensive interactive queries.
    functions: gives the user-defined functions that it may call; asked if it calls one that DuckDB does not have. client: who asks, of those who
    share the database. statement: of standard SQL, if it is bound already. looks_up: False where it is known that it is no point look-up.
    equal: readers with the same value may share the answer to the same query; None: the answer is not shared. as_of: see `SharedAnswers.get`.
    """
    language = options.engine or database.limits.settings.dialect
    wanted = None if options.at_least is None else as_ends(options.at_least)
    if wanted is not None and options.allow_standby:
        raise QueryError(
            "standby copies show no tick", code=BEHIND, help="ask without a tick, or without standby copies"
        )
    if wanted is not None:
        take, copied = waiting(take, wanted), None if copied is None else waiting(copied, wanted)
    if (
        looks_up and statement is None and wanted is None
    ):  # a look-up may show more than its tick, and a later answer less
        found = looked_up(sql, language, take, begun, database)
        if found is not None:
            return found

    def computed(begun: Begun) -> Answer:
        query = InteractiveQuery(sql, database, functions, client, language=language)
        query.allow_standby = options.allow_standby
        query.location = QueryLocation.HERE if copied is None else QueryLocation.UNDECIDED
        pieces = _pieces(query, lambda names: _commit(query, names, take, copied), begun, statement)
        schema = next(pieces)
        assert isinstance(schema, pa.Schema)
        return Answer(schema, pieces)

    if equal is None or wanted is not None or not is_repeatable(sql):  # only readers that name a tick wait for one
        return computed(begun)
    return database.shared.get(SharedKey(sql, language, equal, options.allow_standby), computed, begun, as_of)


def _pieces(
    query: InteractiveQuery, take: Take, begun: Begun, statement: Statement | None
) -> Generator[pa.Schema | pa.RecordBatch]:
    """The schema, then the rows; the first of them are computed before the schema is given, as most mistakes show there."""
    begun(query.break_off)
    try:
        statement = statement if statement is not None else _parsed(query)
        schema, batches = _begun(query, statement, take)
        first = next(batches, None)
        query.end_heavy()
        yield schema
        rows = 0
        while first is not None:
            rows += first.num_rows
            query.counted(rows)
            query.check()
            yield first
            first = next(batches, None)
    except (
        duckdb.Error,
        OSError,
        MemoryError,
        pa.ArrowInvalid,
    ) as error:  # Arrow takes no types nested beyond 64 levels
        raise query.error(error) from error
    finally:
        query.end()


def _parsed(query: InteractiveQuery) -> Statement:
    """Raises QueryError."""
    if query.language == "standard":
        from flowql.query import asked  # the compiler

        return asked.read(query)
    if query.language == "duckdb":
        return query.prepare(parse(query.sql, query.connection, query.check_from))
    try:
        statement = with_escapes(parse(query.sql, query.connection, query.check_from))
    except QueryError as error:
        if not str(error).startswith("Parser Error"):
            raise
        statement = _parsed_with_names(query, error)
    return query.prepare(statement)


def _parsed_with_names(query: InteractiveQuery, error: QueryError) -> Statement:
    """As the dialect names columns; `error`, which is about the statement as it was typed, if that does not help."""
    quoted = with_words_in_quotes(query.sql)
    try:
        statement = parse(quoted, query.connection, query.check_from)
    except QueryError:
        raise error from None
    query.sql = quoted
    return with_escapes(statement)


def _commit(query: InteractiveQuery, relations: Sequence[str], take: Take, copied: Take | None) -> Commit:
    return take(relations) if query.location is not QueryLocation.ELSEWHERE or copied is None else copied(relations)


def _begun(query: InteractiveQuery, statement: Statement, take: Take) -> tuple[pa.Schema, Iterator[pa.RecordBatch]]:
    """Calls `_computed`, again after each Heavy, until the query need not wait for others."""
    while True:
        # It waits after the block: inside it the exception would keep the frames, and with them the rows that were read.
        try:
            with _process(query):
                return _computed(query, *_gathered(query, statement, take))
        except Heavy:
            pass
        except Isolated as error:
            query.location, query.by_operators = QueryLocation.ISOLATED, error.by_operators
            continue
        except ProcessFailed as error:  # no memory for another process, say
            if query.location is QueryLocation.ISOLATED:
                raise no_process(error) from error
            query.location = QueryLocation.HERE
        query.wait_heavy()


@contextmanager
def _process(query: InteractiveQuery) -> Iterator[None]:
    """Takes a child process if one is to answer the query, before there is a commit: that would hold memory while it waits."""
    if query.pool is None or query.location not in (QueryLocation.ELSEWHERE, QueryLocation.ISOLATED):
        yield
        return
    with query.pool.lease(query.check, query.client) as query.process:
        try:
            yield
        except ProcessEnded as error:
            query.check()
            raise query.pool.ended(query.process, str(error)) from error
        finally:
            query.process = None


def _bind(statement: Statement, take: Take) -> tuple[Statement, Commit, dict[str, Relation]]:
    """The statement, a commit and the relations that the statement reads.

    A commit goes to the log first and to the state a moment later; topics and state together are read between commits.
    """
    limit = time.monotonic() + SETTLE_S
    while True:
        commit = take(statement.tables)
        try:
            relations = _relations(statement, commit)
            statement = (
                statement
                if statement.bind is None
                else statement.bind(statement, _by_written_names(statement, relations))
            )
            relations = from_state(commit, relations)
        except BaseException:
            commit.snapshot.close()
            raise
        from_topics = [r for r in relations.values() if not isinstance(r, ViewRelation)]
        if are_readable(from_topics, commit.at_rest):
            return statement, commit, relations
        commit.snapshot.close()
        if time.monotonic() > limit:
            raise QueryError("commits come faster than a snapshot can be taken; repeat the query", code=BUSY)
        time.sleep(SETTLE_STEP_S)


def _gathered(
    query: InteractiveQuery, statement: Statement, take: Take
) -> tuple[Statement, Commit, dict[str, Relation], dict[bytes, bytes]]:
    """As `_bind`, with the rows of all instances where several share the application; and what is to be said of them.

    Partitions that are on their way from one instance to another are at both or at none for a moment: it asks again.
    """
    limit, hurried = time.monotonic() + MOVING_S, query.allow_standby
    while True:
        query.room.back()  # what was gathered in vain is no longer held
        statement, commit, relations = _bind(statement, take)
        query.saw(commit.plan)
        if commit.others is None:
            return statement, commit, relations, said(restored(commit, relations), commit, relations)
        gather = partial(unite, relations=relations, statement=statement, room=query.room)
        united, coverage = _closing(commit, partial(gather, commit, hurried=hurried))
        if query.allow_standby and not coverage.whole:
            query.room.back()
            newest = commit.as_newest("standby copies are not as of a tick")
            united, coverage = _closing(commit, partial(gather, newest, hurried=True, copies=True))
            commit, hurried = replace(newest, snapshot=commit.snapshot), False
        left_s = limit - time.monotonic()
        if (
            not coverage.whole and commit.tick and not commit.told and left_s < MOVING_S / 2
        ):  # a member has not kept the tick
            query.room.back()
            newest = commit.as_newest("an instance does not have the rows of one tick")
            united, coverage = _closing(commit, partial(gather, newest))
            commit = replace(newest, snapshot=commit.snapshot)
        if commit.told and not coverage.whole and left_s < 0:
            commit.snapshot.close()
            title = "an instance does not have the rows of the tick that is asked for"
            raise QueryError(title, code=BEHIND, help="repeat the query")
        if coverage.whole or left_s < 0:
            return statement, commit, united, said(coverage, commit, relations)
        commit.snapshot.close()
        time.sleep(_MOVING_STEP_S)


def _closing(
    commit: Commit, make: Callable[[], tuple[dict[str, Relation], Coverage]]
) -> tuple[dict[str, Relation], Coverage]:
    """The result of `make`; closes the commit if it fails."""
    try:
        return make()
    except BaseException:
        commit.snapshot.close()
        raise


def _relations(statement: Statement, commit: Commit) -> dict[str, Relation]:
    known = commit.relations()
    found = {}
    for table in statement.tables:
        name = table if table in known else next((n for n in known if n.casefold() == table.casefold()), None)
        if name is not None:
            found[name] = known[name]()
        elif table.casefold() not in statement.ctes and not _is_system(table):
            hint = commit.not_kept(table) or did_you_mean(table, known) or _listed(commit, known)
            at = place_of_word(statement.sql, table)
            raise QueryError(f"there is no table, stream or store {table}", code=UNKNOWN, help=hint, span=at)
    return found


def _listed(commit: Commit, known: Collection[str]) -> str:
    """The relations of a project for a message. Internal stores, of which a view has several, are counted only."""
    internal = {plain(store.name, query.generation) for query, store in stores_of(commit.plan)}
    internal -= {source.name for source in commit.plan.sources}
    shown = [name for name in sorted(known) if name not in internal]
    stores = len(known) - len(shown)
    rest = f"; FLOWQL_STORES lists {stores} internal stores" if stores else ""
    return f"there are {listing(shown)}{rest}" if shown else ""


def _by_written_names(statement: Statement, relations: Mapping[str, Relation]) -> dict[str, Relation]:
    folded = {name.casefold(): relation for name, relation in relations.items()}
    return {
        name: relations.get(name) or folded[name.casefold()] for name in statement.tables if name.casefold() in folded
    }


def _is_system(table: str) -> bool:
    """DuckDB's own catalogue, which shows the relations loaded here."""
    return table.casefold().startswith(("duckdb_", "pg_", "sqlite_")) or table.casefold() in (
        "tables",
        "columns",
        "schemata",
    )


def _computed(
    query: InteractiveQuery,
    statement: Statement,
    commit: Commit,
    relations: Mapping[str, Relation],
    said: Mapping[bytes, bytes],
) -> tuple[pa.Schema, Iterator[pa.RecordBatch]]:
    """The answer. Its relations are read before the client takes it: a slow client does not keep the state of a commit."""
    streams: list[Rows] = []
    isolated = query.location is QueryLocation.ISOLATED
    if not isolated and not movable(relations):
        query.location = QueryLocation.HERE
    try:
        query.isolate(statement)
        if isolated or (query.location is QueryLocation.ELSEWHERE and isinstance(commit.snapshot, StateCopy)):
            return _elsewhere(query, statement, commit, relations, said)
        for name, relation in relations.items():
            rows = load(query, name, relation, statement)
            streams += [rows] if rows is not None else []
        if (
            not relations and statement.asked is None
        ):  # SHOW TABLES and the like: names and columns of everything, and no rows
            for name, make in commit.relations().items():
                if len(schema := zoned_schema(make().schema)):  # the table of views that read none has no columns
                    query.connection.register(name, pa.Table.from_batches([], schema))
        query.check()
        schema, batches = _result(query, statement, commit, said)
        return schema, iter(batches)
    except (duckdb.Error, OSError, MemoryError):
        for stream in streams:
            if stream.trouble is not None:
                raise stream.trouble from None
        raise
    finally:
        commit.snapshot.close()


def _elsewhere(
    query: InteractiveQuery,
    statement: Statement,
    commit: Commit,
    relations: Mapping[str, Relation],
    said: Mapping[bytes, bytes],
) -> tuple[pa.Schema, Iterator[pa.RecordBatch]]:
    if isinstance(commit.snapshot, StateCopy):
        stores = {n: r for n, r in relations.items() if isinstance(r, StoreRelation)}
        schema, batches = answer_from_copy(query, statement, commit.snapshot, stores)
    else:
        schema, batches = answer_from_rows(query, statement, commit, relations)
    named = schema.with_metadata({**schema.metadata, **said, **commit.metadata})
    return named, query.room.passing(b.replace_schema_metadata(named.metadata) for b in batches)


def _result(
    query: InteractiveQuery, statement: Statement, commit: Commit, said: Mapping[bytes, bytes]
) -> tuple[pa.Schema, Iterable[pa.RecordBatch]]:
    metadata = {**commit.metadata, **said}
    if query.is_other_engine:
        metadata[ENGINE] = query.language.encode()
    if statement.asked is not None:
        from flowql.query.answering import answered  # the compiler

        return answered(query, statement, metadata)
    relation = query.connection.sql(statement.sql)
    if relation is None:
        raise QueryError("this statement gives no rows", code=INVALID)
    kinds = [str(t) for t in relation.types]
    shown = relation.columns
    reader = relation.to_arrow_reader(CHUNK_ROWS)
    if "HUGEINT" not in kinds:
        schema = named_schema(shown, reader.schema.types, metadata)
        pieces = (pa.RecordBatch.from_arrays(b.columns, schema=schema) for b in reader)
        return schema, query.room.keep(pieces) if statement.is_short else query.room.passing(pieces)
    batches = query.room.keep(reader)  # whether all of a column fits is known when all of it is here
    table = pa.Table.from_batches(batches, reader.schema)
    columns = [_whole(c) if k == "HUGEINT" else c for c, k in zip(table.columns, kinds, strict=True)]
    schema = named_schema(shown, [c.type for c in columns], metadata)
    return schema, pa.table(columns, schema=schema).to_batches(CHUNK_ROWS)


def _whole(column: pa.ChunkedArray) -> pa.ChunkedArray:
    """DuckDB's HUGEINT (every sum of integers) as BIGINT where it fits; else it stays a DECIMAL."""
    try:
        return pc.cast(column, _INT64)
    except pa.ArrowInvalid:
        return column
