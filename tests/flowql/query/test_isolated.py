"""Queries that make values without a bound are answered by a child process: the same answers, and what it costs ends with the process."""

from __future__ import annotations

import os
import resource
import signal
import threading
import time
from collections.abc import Iterator
from contextlib import closing

import psutil
import pytest

from flowql.config.sections import InteractiveQuerySettings
from flowql.query import query_process
from flowql.query.database import QueryDatabase
from flowql.query.errors import TOO_LARGE, TOO_LONG, QueryError
from flowql.query.limits import QueryLimits
from flowql.query.session import answer, evaluate
from flowql.runtime.budget import MIB
from tests.flowql.query.harness import QueryHarness
from tests.processes import children_that_run

pytestmark = pytest.mark.turns("long")

SQL = """
CREATE STREAM S (K STRING KEY, V STRING, D DECIMAL(9, 2), A ARRAY<BIGINT>) WITH (KAFKA_TOPIC = 's', PARTITIONS = 1, VALUE_FORMAT = 'JSON');
CREATE TABLE T AS SELECT K, COUNT(*) AS N FROM S GROUP BY K;
"""
FROM_EVERYTHING = [
    "SELECT list(V ORDER BY V) AS L, string_agg(V, ',' ORDER BY V) AS M, median(D) AS H FROM S",
    "SELECT K, list_transform(A, lambda x: x * 2) AS L, repeat(V, 3) AS R FROM S ORDER BY V",
    "SELECT T.K, N, list(S.V ORDER BY S.V) AS L FROM T JOIN S ON S.K = T.K GROUP BY ALL ORDER BY T.K",
    "SELECT K, list(N) AS L FROM T WHERE K = 'k1' GROUP BY K",
    "SELECT list(column_name ORDER BY column_name) AS L FROM duckdb_columns() WHERE table_name = 'T'",
    "WITH RECURSIVE R AS (SELECT 1 AS N UNION ALL SELECT N + 1 FROM R WHERE N < 100) SELECT SUM(N) AS S FROM R",
    "SELECT 1 AS A WHERE len(range(3)) = 4",
    "EXPLAIN SELECT len(range(3)) AS L",
    "SELECT CAST(9 AS HUGEINT) AS H, range(2) AS R, 1.50 AS D, DATE '2024-01-01' AS E, {'a': [1]} AS F, MAP {'x': 1} AS G, UUID() IS NULL AS U",
]
# Each takes more memory than it may, or as it is computed while it is planned.
TOO_MUCH = [
    "SELECT len(list_transform(range(10000), lambda x: range(10000)))",
    "SELECT len(range(1000000000))",
    "SELECT length(list_reduce([V for x in range(40)], lambda a, b: a || a)) FROM S",
    "SELECT length(repeat('0123456789', 100000000))",
    "WITH RECURSIVE R AS (SELECT 'a' AS V UNION ALL SELECT V || V FROM R) SELECT max(length(V)) FROM R",
    "SELECT length(printf('%1000000000d', N)) FROM T",
]


@pytest.fixture(scope="module")
def world() -> QueryHarness:
    made = QueryHarness(SQL)
    made.feed("s", [(f"k{i % 3}", {"V": f"v{i}", "D": i / 4, "A": [i, i + 1]}, i) for i in range(30)])
    return made


@pytest.fixture(scope="module")
def database() -> Iterator[QueryDatabase]:
    before = children_that_run(query_process.PROGRAM)  # of other tests in this process
    with closing(QueryDatabase(QueryLimits(96 * MIB))) as made:
        yield made
    assert not set(children_that_run(query_process.PROGRAM)) - set(before)


def children() -> list[psutil.Process]:
    return children_that_run(query_process.PROGRAM)


@pytest.mark.parametrize("sql", FROM_EVERYTHING)
def test_answers_are_those_of_this_process(world: QueryHarness, database: QueryDatabase, sql: str) -> None:
    with closing(QueryDatabase(isolating=False)) as here:
        expected = evaluate(sql, world.commit, here)
    found = evaluate(sql, world.commit, database)
    assert found == expected
    assert found.schema.metadata == expected.schema.metadata
    assert children()


@pytest.mark.parametrize("sql", TOO_MUCH)
def test_what_makes_too_much_is_an_error_and_the_next_query_is_answered(
    world: QueryHarness, database: QueryDatabase, sql: str
) -> None:
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss  # in kB
    with pytest.raises(QueryError, match="memory") as error:
        evaluate(sql, world.commit, database)
    assert error.value.code == TOO_LARGE
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 64 << 10
    assert evaluate("SELECT range(3) AS R", world.commit, database).to_pylist() == [{"R": [0, 1, 2]}]


def test_what_is_bounded_starts_no_process(world: QueryHarness) -> None:
    with closing(QueryDatabase()) as database:
        for sql in (
            "SELECT 1 AS A",
            "SELECT K, COUNT(*) AS N, MAX(V) AS M FROM S WHERE V LIKE 'v1%' GROUP BY K ORDER BY 1",
            "SELECT upper(K) || ' ' || N AS X, row_number() OVER (ORDER BY N) AS R FROM T",
            "SELECT COUNT(*) AS N FROM range(1000)",
        ):
            evaluate(sql, world.commit, database)
        assert database.pool is not None
        assert database.pool.memory() == (0, 0)


def test_a_statement_of_standard_sql_has_its_functions_over_columns_there_too(world: QueryHarness) -> None:
    """They are made for the types of a statement, by the process that binds it."""
    sql = 'SELECT STRING_AGG("V", \',\' ORDER BY "V") AS m, AVG("D") AS a, SUM("D") - AVG("D") AS r FROM "S"'
    settings = InteractiveQuerySettings(dialect="standard")
    with closing(QueryDatabase(QueryLimits(settings=settings), isolating=False)) as here:
        expected = evaluate(sql, world.commit, here)
    with closing(QueryDatabase(QueryLimits(96 * MIB, settings))) as database:
        assert evaluate(sql, world.commit, database) == expected
        assert database.pool is not None
        assert database.pool.memory() != (0, 0)


def begun(world: QueryHarness, database: QueryDatabase, sql: str, failed: list[QueryError]) -> threading.Thread:
    """Asks in another thread, and returns once a process is at work."""

    def ask() -> None:
        try:
            evaluate(sql, world.commit, database)
        except QueryError as error:
            failed.append(error)

    assert database.pool is not None
    thread = threading.Thread(target=ask)
    thread.start()
    limit = time.monotonic() + 60
    while not database.pool._busy:
        assert time.monotonic() < limit
        time.sleep(0.01)
    return thread


ENDLESS = "WITH RECURSIVE R AS (SELECT 1 AS N UNION ALL SELECT N + 1 FROM R) SELECT COUNT(*) FROM R"


def test_a_process_that_is_killed_ends_its_query_alone(world: QueryHarness, database: QueryDatabase) -> None:
    failed = list[QueryError]()
    thread = begun(world, database, ENDLESS, failed)
    assert database.pool is not None
    (process,) = database.pool._busy
    os.kill(process.pid, signal.SIGKILL)
    thread.join(60)
    assert failed[0].code == TOO_LARGE
    assert "signal 9" in str(failed[0])
    assert evaluate("SELECT range(3) AS R", world.commit, database).num_rows == 1


def test_a_process_out_of_time_is_killed(world: QueryHarness) -> None:
    """Here the query cannot be interrupted, as DuckDB looks only between two chunks of rows."""
    limits, before = QueryLimits(64 * MIB, InteractiveQuerySettings(time_ms=3_000)), children()
    slow = "SELECT length(list_reduce(range(30000), lambda a, b: list_sum(list_transform(range(30000), lambda x: (x + a + b) % 1000)))::VARCHAR)"
    with closing(QueryDatabase(limits)) as database:
        with pytest.raises(QueryError, match="not answered within 3 s") as error:
            evaluate(slow, world.commit, database)
        assert error.value.code == TOO_LONG
    assert children() == before


def test_a_query_that_waits_for_a_process_can_be_cancelled(world: QueryHarness, database: QueryDatabase) -> None:
    failed, breaks = list[QueryError](), list[threading.Event]()
    at_work = [begun(world, database, ENDLESS, failed) for _ in range(2)]
    stop = threading.Timer(0.3, lambda: breaks[0]())  # type: ignore[operator]
    stop.start()
    with pytest.raises(QueryError, match="cancelled"):
        answer("SELECT range(3) AS R", world.commit, breaks.append, database=database)  # type: ignore[arg-type]
    database.break_off()
    for thread in at_work:
        thread.join(60)
    assert [e.code for e in failed] == [TOO_LONG] * 2
