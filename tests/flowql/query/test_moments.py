"""TIMESTAMP WITH TIME ZONE of standard SQL: stored, kept by views and shown by interactive queries as a moment in UTC."""

from __future__ import annotations

import datetime as dt
from collections.abc import Iterator

import pyarrow as pa
import pytest

from tests.slt.rows import rendered
from tests.slt.session import Shape, SqlSession

TABLE = "CREATE TABLE t (k INT PRIMARY KEY, seen TIMESTAMPTZ, all_of TIMESTAMPTZ[], plain TIMESTAMP)"
ROWS = (
    "INSERT INTO t VALUES (1, '2022-10-01 12:00:00+02', ARRAY['2022-10-01 00:00Z'::timestamptz, NULL], '2022-10-01 12:00:00+02'),"
    " (2, '2022-10-01 10:30:00', NULL, '2022-10-01 10:30:00'), (3, NULL, NULL, NULL)"
)


@pytest.fixture(params=[None, True, False], ids=["as it chooses", "by column", "by row"])
def world(request: pytest.FixtureRequest) -> Iterator[SqlSession]:
    made = SqlSession(Shape(vector=request.param))
    made.execute(TABLE)
    yield made
    made.close()


def test_a_column_and_what_is_computed_of_it_are_shown_with_their_zone(world: SqlSession) -> None:
    world.execute(
        "CREATE MATERIALIZED VIEW v AS SELECT k, seen, all_of, seen + INTERVAL '1 month' AS later, CAST(seen AS VARCHAR) AS text,"
        " seen AT TIME ZONE 'Europe/Oslo' AS there, seen = plain AS same FROM t WHERE seen < '2022-10-01T13:00:00+01'"
    )
    world.execute(
        "CREATE MATERIALIZED VIEW g AS SELECT MAX(seen) AS last, COUNT(DISTINCT seen) AS n FROM t GROUP BY seen IS NULL"
    )
    world.execute(ROWS)
    found = world.ask("SELECT * FROM v ORDER BY k")
    assert rendered(found) == [
        '1 2022-10-01 10:00:00+00:00 {"2022-10-01 00:00:00+00:00",NULL} 2022-11-01 10:00:00+00:00 2022-10-01 10:00:00+00 2022-10-01 12:00:00 f',
        "2 2022-10-01 10:30:00+00:00 NULL 2022-11-01 10:30:00+00:00 2022-10-01 10:30:00+00 2022-10-01 12:30:00 t",
    ]
    assert [f.type.tz is not None for f in found.schema if pa.types.is_timestamp(f.type)] == [True, True, False]
    groups = world.ask("SELECT last, n FROM g ORDER BY n").to_pylist()
    assert [(g["n"], g["last"]) for g in groups] == [(0, None), (2, dt.datetime(2022, 10, 1, 10, 30, tzinfo=dt.UTC))]


def test_an_interactive_query_compares_moments(world: SqlSession) -> None:
    world.execute(ROWS)
    found = world.ask("SELECT k FROM t WHERE seen BETWEEN '2022-10-01T11:59:00+02:00' AND '2022-10-01T10:01:00Z'")
    assert found.to_pylist() == [{"k": 1}]


def test_rows_of_a_query_keep_their_moments(world: SqlSession) -> None:
    world.execute(ROWS)
    world.execute("CREATE TABLE u (k INT PRIMARY KEY, seen TIMESTAMPTZ)")
    world.execute("INSERT INTO u SELECT k, seen FROM t")
    assert rendered(world.ask("SELECT * FROM u ORDER BY k LIMIT 1")) == ["1 2022-10-01 10:00:00+00:00"]


def test_now_is_a_moment_of_the_statement(world: SqlSession) -> None:
    world.execute("INSERT INTO t VALUES (1, NOW(), NULL, LOCALTIMESTAMP)")
    ((at, plain),) = [tuple(r.values()) for r in world.ask("SELECT seen, plain FROM t").to_pylist()]
    assert abs(at - dt.datetime.now(dt.UTC)) < dt.timedelta(minutes=5)
    assert abs(at - plain.replace(tzinfo=dt.UTC)) < dt.timedelta(seconds=5)
