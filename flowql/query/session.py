"""One statement over one commit: load the relations it reads into a private, locked DuckDB and let that answer."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence

import duckdb
import pyarrow as pa
import pyarrow.compute as pc

from compiler.diagnostics.suggest import did_you_mean
from flowql.query.answer import Answer
from flowql.query.committed import Commit, Take
from flowql.query.errors import (
    APART,
    BUSY,
    COVERAGE,
    INVALID,
    MISSING,
    REFUSED,
    SEQUENCE,
    UNKNOWN,
    QueryError,
    place_of_word,
)
from flowql.query.relations import AsNeeded, Relation, StoreRelation, StoresRelation, arrow_schema
from flowql.query.statement import Statement, first_line, invalid, parse
from flowql.query.united import Coverage, unite

CHUNK_ROWS = 8_192  # of an answer
SETTLE_S = 5.0  # how long to look for a moment at which log and state are at the same commit
_SETTLE_STEP_S = 0.002
MOVING_S = 3.0  # how long to wait for partitions that no instance answers for
_MOVING_STEP_S = 0.1
_INT64 = pa.int64()
Begun = Callable[[Callable[[], None]], None]
# Order matters: the last one forbids to change the others.
_LOCKS = (
    "SET temp_directory = ''",
    "SET enable_external_access = false",
    "SET lock_configuration = true",
)


class _Database:
    """One empty database for all questions of a process: making one takes as long as answering a small question, 19 ms. Each
    question has a connection of its own, and with it tables of its own.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()  # guards the making of connections
        self._root: duckdb.DuckDBPyConnection | None = None

    def connection(self) -> duckdb.DuckDBPyConnection:
        with self._lock:
            if self._root is None:
                settings = {"threads": "1", "python_enable_replacements": "false"}
                self._root = duckdb.connect(":memory:", config=settings)
                for lock in _LOCKS:
                    self._root.execute(lock)
            return self._root.cursor()


_DATABASE = _Database()


def evaluate(sql: str, take: Take) -> pa.Table:
    """The whole answer at once; see `answer`."""
    return answer(sql, take).table()


def answer(sql: str, take: Take, begun: Begun = lambda _: None) -> Answer:
    """The answer, computed as it is taken, in the thread that takes it; nothing is held that the engine waits for.

    Raises QueryError, most often before the first piece. take: gives a commit; its snapshot is closed here. begun: is given
    what breaks the computation off, from any thread, with a QueryError.
    """
    pieces = _pieces(sql, take, begun)
    schema = next(pieces)
    assert isinstance(schema, pa.Schema)
    return Answer(schema, pieces)


def _pieces(sql: str, take: Take, begun: Begun) -> Generator[pa.Schema | pa.RecordBatch]:
    """The schema, then the rows; the first of them are computed before the schema is given, as most mistakes show there."""
    connection = _DATABASE.connection()
    begun(connection.interrupt)
    try:
        statement = parse(sql, connection)
        commit, relations, said = _gathered(statement, take)
        schema, batches = _computed(connection, statement, relations, commit, said)
        first = next(batches, None)
        yield schema
        if first is not None:
            yield first
            yield from batches
    except duckdb.PermissionException as error:
        title = f"files, the network and extensions are out of reach of a question ({first_line(error)})"
        raise QueryError(title, code=REFUSED, help="import data with:  flowql topic import") from error
    except (duckdb.Error, OSError) as error:  # Arrow's reader gives what DuckDB says as an OSError
        raise invalid(sql, error) from error
    finally:
        connection.close()


def _bind(statement: Statement, take: Take) -> tuple[Commit, dict[str, Relation]]:
    """A commit and the relations the statement reads.

    A commit goes to the log first and to the state a moment later; topics and state together are read between commits.
    """
    limit = time.monotonic() + SETTLE_S
    while True:
        commit = take(statement.tables)
        try:
            relations = _relations(statement, commit)
        except BaseException:
            commit.snapshot.close()
            raise
        reads_topics = not all(isinstance(r, StoreRelation | StoresRelation) for r in relations.values())
        if not reads_topics or commit.at_rest():
            return commit, relations
        commit.snapshot.close()
        if time.monotonic() > limit:
            raise QueryError("commits do not come to rest; ask again", code=BUSY)
        time.sleep(_SETTLE_STEP_S)


def _gathered(statement: Statement, take: Take) -> tuple[Commit, dict[str, Relation], dict[bytes, bytes]]:
    """As `_bind`, with the rows of all instances where several share the application; and what is to be said of them.

    Partitions that are on their way from one instance to another are at both or at none for a moment: it asks again.
    """
    limit = time.monotonic() + MOVING_S
    while True:
        commit, relations = _bind(statement, take)
        if commit.others is None:
            return commit, relations, {}
        try:
            united, coverage = unite(commit, relations, statement)
        except BaseException:
            commit.snapshot.close()
            raise
        if coverage.whole or time.monotonic() > limit:
            return commit, united, _said(coverage)
        commit.snapshot.close()
        time.sleep(_MOVING_STEP_S)


def _said(coverage: Coverage) -> dict[bytes, bytes]:
    if not coverage.of:
        return {}
    said = {COVERAGE: str(coverage).encode()}
    return said if coverage.whole else {**said, MISSING: "; ".join(coverage.why).encode()}


def _relations(statement: Statement, commit: Commit) -> dict[str, Relation]:
    known = commit.relations()
    folded: dict[str, list[str]] = {}
    for name in known:
        folded.setdefault(name.casefold(), []).append(name)
    found = {}
    for table in statement.tables:
        names = folded.get(table.casefold(), [])
        if names:
            name = table if table in names else names[0]
            found[name] = known[name]()
        elif table.casefold() not in statement.ctes and not _is_system(table):
            hint = did_you_mean(table, known) or f"there are {', '.join(sorted(known))}"
            at = place_of_word(statement.sql, table)
            raise QueryError(f"there is no table, stream or store {table}", code=UNKNOWN, help=hint, span=at)
    return found


def _is_system(table: str) -> bool:
    """DuckDB's own catalogue, which shows the relations loaded here."""
    return table.casefold().startswith(("duckdb_", "pg_", "sqlite_")) or table.casefold() in (
        "tables",
        "columns",
        "schemata",
    )


def _computed(
    connection: duckdb.DuckDBPyConnection,
    statement: Statement,
    relations: Mapping[str, Relation],
    commit: Commit,
    said: Mapping[bytes, bytes],
) -> tuple[pa.Schema, Iterator[pa.RecordBatch]]:
    """The answer, whose relations are read before it is taken: the state of a commit is not kept for who reads slowly."""
    streams: list[AsNeeded] = []
    try:
        for name, relation in relations.items():
            conditions = statement.conditions.get(name.casefold(), ())
            if statement.is_short and isinstance(relation, StoreRelation):
                streams.append(AsNeeded(relation, conditions, statement.columns))
                connection.register(name, streams[-1])
            else:
                connection.register(name, relation.read(conditions, statement.columns))
        if not relations:  # SHOW TABLES and the like: names and columns of everything, and no rows
            for name, make in commit.relations().items():
                connection.register(name, arrow_schema(make().schema).empty_table())
        schema, batches = _result(connection, statement.sql, commit, said)
        return schema, iter(list(batches)) if statement.is_short else batches
    except (duckdb.Error, OSError):
        for stream in streams:
            if stream.trouble is not None:
                raise stream.trouble from None
        raise
    finally:
        commit.snapshot.close()


def _result(
    connection: duckdb.DuckDBPyConnection, sql: str, commit: Commit, said: Mapping[bytes, bytes]
) -> tuple[pa.Schema, Iterator[pa.RecordBatch]]:
    relation = connection.sql(sql)
    if relation is None:
        raise QueryError("this statement gives no rows", code=INVALID)
    metadata = {SEQUENCE: str(commit.snapshot.sequence).encode(), **said}
    if commit.apart:
        metadata[APART] = commit.apart.encode()
    kinds = [str(t) for t in relation.types]
    if "HUGEINT" not in kinds:
        reader = relation.to_arrow_reader(CHUNK_ROWS)
        schema = _named(reader.schema.types, reader.schema.names, metadata)
        return schema, (pa.RecordBatch.from_arrays(b.columns, schema=schema) for b in reader)
    table = relation.to_arrow_table()  # whether all of a column fits is known when all of it is here
    columns = [_whole(c) if k == "HUGEINT" else c for c, k in zip(table.columns, kinds, strict=True)]
    schema = _named([c.type for c in columns], table.column_names, metadata)
    return schema, iter(pa.table(columns, schema=schema).to_batches(CHUNK_ROWS))


def _named(types: Sequence[pa.DataType], names: Sequence[str], metadata: Mapping[bytes, bytes]) -> pa.Schema:
    return pa.schema([pa.field(n, t) for n, t in zip(_unique(names), types, strict=True)], metadata)


def _whole(column: pa.ChunkedArray) -> pa.ChunkedArray:
    """DuckDB's HUGEINT (every sum of integers) as BIGINT where it fits; else it stays a DECIMAL."""
    try:
        return pc.cast(column, _INT64)
    except pa.ArrowInvalid:
        return column


def _unique(names: Sequence[str]) -> list[str]:
    """Column names that differ, so that a row can be an object."""
    found: list[str] = []
    for name in names:
        candidate, n = name, 1
        while candidate in found:
            candidate, n = f"{name}_{n}", n + 1
        found.append(candidate)
    return found
