"""Values of different types beside each other in views, and collations: the answers are those of PostgreSQL 15."""

from __future__ import annotations

import re
from collections.abc import Iterator

import pytest

from flowql.compiler.functions.coercion import unify
from flowql.compiler.functions.signatures import FunctionTypeError
from flowql.compiler.plan.expr import Column
from flowql.compiler.plan.types import DATE, TIMESTAMP
from flowql.errors import CompileError
from flowql.query.errors import QueryError
from tests.slt.session import Shape, SqlSession

DAY, TEN, MIDNIGHT = "2024-05-01", "2024-05-01 10:00:00", "2024-05-01 00:00:00"
# What is selected, and its rows as texts. `e` has one row: a day, ten o'clock, and eight o'clock in UTC; `f` has two timestamps.
DATES = {
    "SELECT d AS x FROM e UNION ALL SELECT ts FROM e": [MIDNIGHT, TEN],
    "SELECT ts AS x FROM e UNION SELECT d FROM e UNION SELECT d FROM f": [MIDNIGHT, "2024-05-01 01:00:00", TEN],
    "SELECT d AS x FROM e UNION SELECT z FROM e": [MIDNIGHT + "+00", "2024-05-01 08:00:00+00"],
    "SELECT ts AS x FROM e UNION SELECT z FROM e": ["2024-05-01 08:00:00+00", TEN + "+00"],
    "SELECT d AS x FROM f INTERSECT SELECT d FROM e": [MIDNIGHT],
    "SELECT d AS x FROM f EXCEPT ALL SELECT d FROM e": ["2024-05-01 01:00:00"],
    "SELECT x FROM (VALUES (DATE '2024-05-01'), (TIMESTAMP '2024-05-01 10:00:00')) AS v (x)": [MIDNIGHT, TEN],
    "SELECT CASE WHEN id > 1 THEN ts ELSE d END AS x FROM e": [MIDNIGHT],
    "SELECT COALESCE(d, ts) || ' ' || COALESCE(ts, z) AS x FROM e": [f"{MIDNIGHT} {TEN}+00"],
    "SELECT GREATEST(d, ts) || ' ' || LEAST(d, z) AS x FROM e": [f"{TEN} {MIDNIGHT}+00"],
    "SELECT ARRAY[d, ts] AS x FROM e": [f'{{"{MIDNIGHT}","{TEN}"}}'],
    "SELECT (ts IN (d, z)) || ' ' || (d IN (SELECT d FROM f)) AS x FROM e": ["false true"],
    "SELECT NULLIF(d, ts) AS x FROM e": [DAY],
    "SELECT NULLIF(ts, d) AS x FROM e": [TEN],
    "SELECT d AS x FROM e JOIN f USING (d)": [MIDNIGHT],
    "SELECT d AS x FROM e FULL JOIN f USING (d)": [MIDNIGHT, "2024-05-01 01:00:00"],
    "SELECT ROUND(n / 2, 2) AS x FROM e JOIN f USING (n)": ["3.50"],
    "SELECT LAG(d, 1, ts) OVER (ORDER BY id) AS x FROM e": [TEN],
}


@pytest.fixture
def world() -> Iterator[SqlSession]:
    made = SqlSession(Shape())
    yield made
    made.close()


def test_dates_and_timestamps_have_a_common_type(world: SqlSession) -> None:
    world.execute("CREATE TABLE e (id INT PRIMARY KEY, d DATE, ts TIMESTAMP, z TIMESTAMPTZ, n INT)")
    world.execute("CREATE TABLE f (d TIMESTAMP, n NUMERIC(8, 2))")
    world.execute(f"INSERT INTO e VALUES (1, '{DAY}', '{TEN}', '{TEN}+02', 7)")
    world.execute(f"INSERT INTO f VALUES ('{DAY}', 7), ('2024-05-01 01:00:00', 8)")
    views = [f"CREATE VIEW v{i} AS {sql}" for i, sql in enumerate(DATES)]
    assert world.define(views) == [None] * len(views)
    for i, (sql, expected) in enumerate(DATES.items()):
        found = world.ask(f"SELECT CAST(x AS TEXT) AS x FROM v{i} ORDER BY x").column(0).to_pylist()
        assert found == expected, sql


# Of `a (i INT, x TEXT)` with 1 and 3, `b (i NUMERIC(8, 2), y TEXT)` with 3 and 5, and `c (i BIGINT, z TEXT)` with 3.
USING = {
    "SELECT CAST(i / 2 AS DOUBLE PRECISION) AS h FROM a JOIN b USING (i)": [1.5],
    "SELECT CAST(i / 2 AS DOUBLE PRECISION) AS h FROM a NATURAL JOIN b": [1.5],
    "SELECT CAST(i / 2 AS DOUBLE PRECISION) AS h FROM a LEFT JOIN b USING (i)": [0.5, 1.5],
    "SELECT CAST(i / 2 AS DOUBLE PRECISION) AS h FROM b RIGHT JOIN a USING (i)": [0.5, 1.5],
    "SELECT CAST(i / 2 AS DOUBLE PRECISION) AS h FROM a FULL JOIN b USING (i)": [0.5, 1.5, 2.5],
    "SELECT CAST(i / 2 AS DOUBLE PRECISION) AS h FROM (SELECT * FROM a JOIN b USING (i)) AS q": [1.5],
    "SELECT CAST(i / 2 AS DOUBLE PRECISION) AS h FROM a JOIN b USING (i) JOIN c USING (i) WHERE i / 2 > 1": [1.5],
    "SELECT CAST(MAX(i) / 2 AS DOUBLE PRECISION) AS h FROM a LEFT JOIN b USING (i) GROUP BY i HAVING i / 2 > 1": [1.5],
    "SELECT CAST(a.i / 2 AS DOUBLE PRECISION) AS h FROM a JOIN b USING (i)": [1.0],
    "SELECT CAST(i / 2 AS DOUBLE PRECISION) AS h FROM a JOIN c USING (i)": [1.0],
}


def test_a_column_of_using_has_the_common_type_in_interactive_queries(world: SqlSession) -> None:
    """It had that of the left side: `i / 2` of INT and NUMERIC was cut."""
    world.execute("CREATE TABLE a (i INT, x TEXT)")
    world.execute("CREATE TABLE b (i NUMERIC(8, 2), y TEXT)")
    world.execute("CREATE TABLE c (i BIGINT, z TEXT)")
    for rows in ("a VALUES (1, 'p'), (3, 'q')", "b VALUES (3, 'r'), (5, 's')", "c VALUES (3, 't')"):
        world.execute(f"INSERT INTO {rows}")
    assert world.define([f"CREATE VIEW u{n} AS {sql}" for n, sql in enumerate(USING)]) == [None] * len(USING)
    for n, (sql, expected) in enumerate(USING.items()):
        assert sorted(world.ask(sql).column(0).to_pylist()) == expected, sql
        assert sorted(world.ask(f"SELECT h FROM u{n}").column(0).to_pylist()) == expected, sql
    assert world.ask("SELECT * FROM a JOIN b USING (i)").column_names == ["i", "x", "y"]
    assert world.ask("SELECT i FROM a JOIN b USING (i) ORDER BY i").column_names == ["i"]


def test_ksqldb_has_no_common_type_of_dates_and_timestamps() -> None:
    with pytest.raises(FunctionTypeError):
        unify([Column(DATE, "d"), Column(TIMESTAMP, "t")])


def test_collations_by_code_point_are_taken_and_others_refused_by_name(world: SqlSession) -> None:
    world.execute('CREATE TABLE t (s TEXT COLLATE "C" NOT NULL)')
    world.execute("INSERT INTO t VALUES ('a'), ('B'), ('ä')")
    world.execute('CREATE VIEW v AS SELECT s COLLATE "POSIX", s COLLATE pg_catalog."C" < \'a\' AS small FROM t')
    asked = 'SELECT s COLLATE "C", small FROM v WHERE s COLLATE "ucs_basic" < \'b\' ORDER BY s COLLATE "C"'
    assert world.ask(asked).to_pydict() == {"s": ["B", "a"], "small": [True, False]}
    for sql, named in (
        ('CREATE VIEW w AS SELECT s COLLATE "en_US" AS s FROM t', "COLLATE en_US"),
        ("CREATE TABLE u (s TEXT COLLATE C)", "COLLATE of a column"),
        ("DELETE FROM t WHERE s COLLATE de_x_icu = 'A'", "COLLATE de_x_icu"),
        ('SELECT s FROM t ORDER BY s COLLATE "de_DE"', "COLLATE de_DE"),
    ):
        with pytest.raises((CompileError, QueryError), match=re.escape(named)):
            world.execute(sql)
