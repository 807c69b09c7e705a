"""Columns of type INTERVAL in tables, views and interactive queries of standard SQL; the answers are PostgreSQL's."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from flowql.cli.render import json_value, plain
from flowql.compiler.diagnostics.diagnostic import CompileError
from flowql.query.errors import QueryError
from tests.slt.rows import difference, rendered
from tests.slt.session import Shape, SqlSession

SETUP = """
CREATE TABLE t (id INT PRIMARY KEY, a TIMESTAMP, b TIMESTAMP, d INTERVAL, g INT)
INSERT INTO t VALUES (1, '2024-01-01 10:00:00', '2024-01-02 11:30:00.5', '1 day 02:00:00', 1), (2, '2024-03-01', '2024-01-01', INTERVAL '24 hours', 1)
INSERT INTO t VALUES (3, NULL, NULL, NULL, 2), (4, '2024-01-01', '2024-01-01', '-1 year -2 mons +3 days -00:00:03.5', 2), (5, NULL, NULL, '30 days', 3)
""".strip().splitlines()
QUERIES = {
    "SELECT id, b - a AS x FROM t": ["1 1 day 01:30:00.5", "2 -60 days", "3 NULL", "4 00:00:00", "5 NULL"],
    "SELECT id, d FROM t": ["1 1 day 02:00:00", "2 24:00:00", "3 NULL", "4 -1 years -2 mons +3 days -00:00:03.5", "5 30 days"],
    "SELECT id, d * 2 AS x, -d AS y FROM t WHERE id < 3": ["1 2 days 04:00:00 -1 days -02:00:00", "2 48:00:00 -24:00:00"],
    "SELECT id, a + d AS x, d::text AS y FROM t WHERE id = 1": ["1 2024-01-02 12:00:00 1 day 02:00:00"],
    "SELECT id FROM t WHERE d = '1 day' OR d > INTERVAL '1 month' OR d IN ('1 mon')": ["2", "5"],
    "SELECT id, EXTRACT(EPOCH FROM d) AS x FROM t WHERE d IS NOT NULL": ["1 93600", "2 86400", "4 -36482403.5", "5 2592000"],
    "SELECT id FROM t ORDER BY d, id LIMIT 2": ["2", "4"],
    "SELECT q.id, q.x + INTERVAL '1 day' AS y FROM (SELECT id, b - a AS x FROM t) AS q WHERE q.x < '0'": ["2 -59 days"],
    "SELECT p.id, q.id AS other FROM t AS p JOIN t AS q ON p.d = q.b - q.a + INTERVAL '1 day'": ["2 4"],
    "SELECT id, COALESCE(d, INTERVAL '0') AS x, CASE WHEN id = 3 THEN INTERVAL '1 hour' ELSE d END AS y FROM t WHERE id IN (2, 3)": ["2 24:00:00 24:00:00", "3 00:00:00 01:00:00"],
    "SELECT id, a - LAG(a) OVER (ORDER BY id) AS x FROM t WHERE id < 3": ["1 NULL", "2 59 days 14:00:00"],
    "SELECT id, d FROM t WHERE id = 5 UNION ALL SELECT id + 10, b - a FROM t WHERE id = 2": ["5 30 days", "12 -60 days"],
    "SELECT g, MAX(b - a) AS x, MIN(d) AS y FROM t GROUP BY g": ["1 1 day 01:30:00.5 24:00:00", "2 00:00:00 -1 years -2 mons +3 days -00:00:03.5", "3 NULL 30 days"],
    "SELECT g, AVG(b - a) AS x FROM t GROUP BY g": ["1 -29 days -11:14:59.75", "2 00:00:00", "3 NULL"],
    "SELECT MAX(b) - MIN(a) AS x FROM t": ["1 day 11:30:00.5"],
    "SELECT id, 'in ' || d AS x FROM t WHERE id = 4": ["4 in -1 years -2 mons +3 days -00:00:03.5"],
    "SELECT to_jsonb(d) AS x FROM t WHERE id = 1": ['"1 day 02:00:00"'],
}  # fmt: skip
ONLY_VIEWS = {
    "SELECT g, SUM(d) AS x, AVG(d) FILTER (WHERE id < 3) AS y FROM t GROUP BY g": ["1 1 day 26:00:00 25:00:00", "2 -1 years -2 mons +3 days -00:00:03.5 NULL", "3 30 days NULL"],
    "SELECT g, SUM(b - a) AS x FROM t GROUP BY ROLLUP (g)": ["1 -59 days +01:30:00.5", "2 00:00:00", "3 NULL", "NULL -59 days +01:30:00.5"],
}  # fmt: skip


@pytest.fixture(scope="module")
def world() -> Iterator[SqlSession]:
    made = SqlSession(Shape())
    for statement in SETUP:
        made.execute(statement)
    views = [f"CREATE VIEW v{i} AS {sql}" for i, sql in enumerate((*QUERIES, *ONLY_VIEWS))]
    assert made.define(views) == [None] * len(views)
    yield made
    made.close()


def test_columns_of_intervals_are_postgresqls(world: SqlSession) -> None:
    wrong = []
    for i, (sql, wanted) in enumerate({**QUERIES, **ONLY_VIEWS}.items()):
        for asked in (f"SELECT * FROM v{i}", *([sql] if sql in QUERIES else [])):
            if apart := difference(wanted, rendered(world.ask(asked)), ordered=False):
                wrong.append(f"{asked} ({sql}): {apart}")
    assert not wrong, "\n".join(wrong)


def test_commands_show_them_as_postgresql_does(world: SqlSession) -> None:
    (row,) = world.ask("SELECT d, b - a AS x FROM t WHERE id = 4").to_pylist()
    assert plain(row["d"]) == "-1 years -2 mons +3 days -00:00:03.5"
    assert json_value([row["x"], None]) == ["00:00:00", None]


def test_statements_change_them_and_aggregates_follow(world: SqlSession) -> None:
    world.execute("CREATE TABLE c (id INT PRIMARY KEY, d INTERVAL DEFAULT '1 hour', e INTERVAL)")
    world.execute("CREATE VIEW total AS SELECT SUM(d) AS s, MAX(d) AS m, AVG(d) AS a FROM c")
    world.execute("INSERT INTO c (id) VALUES (1), (2)")
    world.execute("UPDATE c SET d = d * 3, e = INTERVAL '1 day' WHERE id = 2")
    world.execute("INSERT INTO c SELECT id + 10, b - a, d FROM t WHERE id = 1")
    assert rendered(world.ask("SELECT * FROM total")) == ["1 day 05:30:00.5 1 day 01:30:00.5 09:50:00.166667"]
    world.execute("DELETE FROM c WHERE d > '5 hours' OR e IS NULL")
    assert rendered(world.ask("SELECT * FROM total")) == ["03:00:00 03:00:00 03:00:00"]


EQUAL = {
    "SELECT d, COUNT(*) AS n, MAX(id) AS m FROM e GROUP BY d": ["1 mon 1 2", "1 day 3 5", "NULL 1 6", "-1 days 1 4"],
    "SELECT d + INTERVAL '1 hour' AS x, g, COUNT(*) AS n FROM e WHERE id < 4 GROUP BY GROUPING SETS ((d), (g), (d, g))": [
        "1 mon 01:00:00 NULL 1", "1 day 01:00:00 NULL 2", "NULL 1 2", "NULL 2 1", "1 day 01:00:00 1 1", "1 mon 01:00:00 1 1", "25:00:00 2 1"
    ],
    "SELECT d * 2 AS x, COUNT(*) AS n FROM e WHERE id IN (1, 3, 5) GROUP BY d * 2": ["2 days 3"],
    "SELECT DISTINCT d, g FROM e WHERE id < 4": ["1 day 1", "1 mon 1", "24:00:00 2"],
    "SELECT d FROM e WHERE id = 1 UNION SELECT d FROM e WHERE id = 3": ["1 day"],
    "SELECT COUNT(DISTINCT d) AS n, COUNT(d) AS m FROM e": ["3 5"],
    "SELECT id, ROW_NUMBER() OVER (PARTITION BY d ORDER BY id) AS n FROM e WHERE id IN (1, 2, 3)": ["1 1", "2 1", "3 2"],
    "SELECT p.id, q.id AS other FROM e AS p JOIN e AS q USING (d) WHERE p.id < q.id": ["1 3", "1 5", "3 5"],
    "SELECT id FROM e WHERE d IN (SELECT d FROM e WHERE id = 3)": ["1", "3", "5"],
    "SELECT id, d * 3 > ALL (SELECT d FROM e WHERE id <> 2 AND d IS NOT NULL) AS x FROM e WHERE id IN (1, 4)": ["1 t", "4 f"],
    "SELECT id, (SELECT COUNT(*) FROM e AS q WHERE q.d < p.d) AS n FROM e AS p WHERE id IN (2, 3)": ["2 4", "3 1"],
    "SELECT id, d / 7 AS x FROM e WHERE id < 3": ["1 03:25:42.857143", "2 4 days 06:51:25.6896"],
}  # fmt: skip


@pytest.mark.parametrize("vector", [True, False])
def test_equal_intervals_that_are_written_differently_are_one_group(vector: bool) -> None:
    made = SqlSession(Shape(vector, 3))
    made.execute("CREATE TABLE e (id INT PRIMARY KEY, d INTERVAL, g INT)")
    assert made.define([f"CREATE VIEW v{i} AS {sql}" for i, sql in enumerate(EQUAL)]) == [None] * len(EQUAL)
    made.execute(
        "INSERT INTO e VALUES (1, '1 day', 1), (2, '1 mon', 1), (3, '24 hours', 2), (4, '1 day', 2), (5, '23:00:00', 2), (6, NULL, 2)"
    )
    made.execute(
        "UPDATE e SET d = CASE id WHEN 4 THEN INTERVAL '-1 day' ELSE d + INTERVAL '1 hour' END WHERE id IN (4, 5)"
    )
    wrong = [
        f"{sql}: {apart}"
        for i, (sql, wanted) in enumerate(EQUAL.items())
        if (apart := difference(wanted, rendered(made.ask(f"SELECT * FROM v{i}")), ordered=False))
    ]
    made.close()
    assert not wrong, "\n".join(wrong)


@pytest.mark.parametrize(
    ("statement", "said"),
    [
        ("CREATE VIEW v AS SELECT SUM(DISTINCT d) AS n FROM t", "SUM(DISTINCT) of an INTERVAL"),
        ("CREATE VIEW v AS SELECT d FROM t EXCEPT SELECT b - a FROM t", "EXCEPT of rows with a column of type INTERVAL"),
        ("CREATE VIEW v AS SELECT PERCENTILE_CONT(0.5) WITHIN GROUP (ORDER BY d) AS x FROM t", "PERCENTILE_CONT of an INTERVAL"),
        ("CREATE VIEW v AS SELECT ARRAY[d] AS x FROM t", "an INTERVAL as an argument of ARRAY"),
        ("CREATE TABLE k (d INTERVAL PRIMARY KEY)", "column d of the PRIMARY KEY"),
        ("CREATE TABLE s (d INTERVAL) WITH (kafka_topic = 's', value_format = 'JSON')", "INTERVAL as the type of column d of a topic"),
        ("INSERT INTO t (id, d) VALUES (9, 'soon')", "is not an interval"),
        ("INSERT INTO t (id, d) VALUES (9, 5)", "column d is INTERVAL"),
        ("UPDATE t SET d = 5 WHERE id = 1", "column d"),
    ],
)  # fmt: skip
def test_what_they_cannot_do_is_refused(world: SqlSession, statement: str, said: str) -> None:
    with pytest.raises((CompileError, QueryError)) as caught:
        world.execute(statement)
    assert said in str(caught.value)
