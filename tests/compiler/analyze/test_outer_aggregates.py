"""Aggregates in sub-queries that belong to the query around, with the answers of PostgreSQL 15: of views, and when asked."""

from __future__ import annotations

import pytest

from flowql.compiler.diagnostics.diagnostic import CompileError
from tests.slt.rows import rendered
from tests.slt.session import Shape, SqlSession

CASES = """
SELECT (SELECT COUNT(t.a)) AS x FROM t => 2
SELECT (SELECT COUNT(t.a) FROM u WHERE u.a > 0 LIMIT 1) AS x FROM t => 2
SELECT (SELECT COUNT(t.a) FROM u WHERE u.a > 9 LIMIT 1) AS x FROM t => NULL
SELECT (SELECT MAX(u.a) + COUNT(t.a) FROM u) AS x FROM t => 4
SELECT t.k, (SELECT SUM(t.a) FROM u LIMIT 1) AS x FROM t GROUP BY t.k => 1 10|2 20
SELECT t.k, (SELECT SUM(t.a) + MAX(u.a) FROM u WHERE u.k = t.k) AS x FROM t GROUP BY t.k => 1 11|2 22
SELECT k FROM t GROUP BY k HAVING (SELECT SUM(t.a)) > 10 => 2
SELECT k FROM t GROUP BY k ORDER BY (SELECT SUM(t.a)) DESC LIMIT 1 => 2
SELECT (SELECT SUM(t.a + u.a) FROM u) AS x FROM t => 32|62
SELECT (SELECT SUM(1) FROM u) AS x FROM t => 3|3
SELECT (SELECT COUNT(t.a) FILTER (WHERE u.a > 0) FROM u) AS x FROM t => 2|2
SELECT (SELECT COUNT(t.a) FILTER (WHERE t.a > 10)) AS x FROM t => 1
SELECT (SELECT COUNT(DISTINCT t.a) FROM u LIMIT 1) AS x FROM t => 2
SELECT (SELECT (SELECT SUM(t.a) FROM u u2 WHERE u2.k = u.k LIMIT 1) FROM u LIMIT 1) AS x FROM t => 30
SELECT (SELECT (SELECT SUM(t.a))) AS x FROM t => 30
SELECT (SELECT MAX(v.x) FROM (SELECT (SELECT SUM(u.a)) AS x FROM u) v) AS x FROM t => 2|2
SELECT EXISTS (SELECT COUNT(t.a) FROM u) AS x FROM t => t
SELECT EXISTS (SELECT 1 FROM u HAVING COUNT(t.a) > 1) AS x FROM t => t
SELECT EXISTS (SELECT 1 FROM u WHERE u.a < COUNT(t.a)) AS x FROM t => t
SELECT 1 AS x FROM t HAVING EXISTS (SELECT 1 FROM u WHERE u.a > COUNT(t.a)) => 
SELECT 2 IN (SELECT COUNT(t.a) FROM u) AS x FROM t => t
SELECT (SELECT MAX(u.a) FROM u WHERE u.k = COUNT(t.a)) AS x FROM t => 2
SELECT (SELECT SUM(t.a) FROM u LIMIT 1) AS x FROM t WHERE t.a > 99 => NULL
SELECT (SELECT COUNT(t.a)) AS x FROM t WHERE t.a > 99 => 0
SELECT (SELECT COUNT(a) FROM u) AS x FROM t => 3|3
SELECT (SELECT COUNT(t.a) FROM t) AS x FROM t => 2|2
"""
REFUSED = {
    "SELECT 1 AS x FROM t WHERE (SELECT COUNT(t.a)) > 1": "aggregate functions are not allowed in WHERE",
    "SELECT x.* FROM t, LATERAL (SELECT COUNT(t.a) AS c) x": "aggregate functions are not allowed in FROM",
    "SELECT SUM((SELECT COUNT(t.a))) AS x FROM t": "aggregate function calls cannot be nested",
    "SELECT t.a, (SELECT COUNT(t.a)) AS x FROM t": 'column "t.a" must appear in the GROUP BY clause',
}


def _world() -> SqlSession:
    world = SqlSession(Shape())
    world.execute("CREATE TABLE t (k INT PRIMARY KEY, a INT)")
    world.execute("CREATE TABLE u (k INT PRIMARY KEY, a INT)")
    return world


def test_an_aggregate_of_outer_columns_alone_belongs_to_the_outer_query() -> None:
    world = _world()
    cases = [line.split(" =>") for line in CASES.strip().splitlines()]
    try:
        for i, (query, _) in enumerate(cases):
            world.execute(f"CREATE MATERIALIZED VIEW v{i} AS {query}")
        world.execute("INSERT INTO t VALUES (1, 10), (2, 7), (3, 5)")
        world.execute("INSERT INTO u VALUES (1, 1), (2, 2), (3, -1)")
        world.execute("UPDATE t SET a = 20 WHERE k = 2")
        world.execute("DELETE FROM t WHERE k = 3")
        found = ["|".join(sorted(rendered(world.ask(f"SELECT * FROM v{i}")))) for i in range(len(cases))]
        assert found == [wanted.strip() for _, wanted in cases]
        assert ["|".join(sorted(rendered(world.ask(query)))) for query, _ in cases] == found
    finally:
        world.close()


@pytest.mark.parametrize("query", REFUSED)
def test_an_outer_aggregate_where_none_may_stand_is_an_error(query: str) -> None:
    world = _world()
    try:
        with pytest.raises(CompileError) as raised:
            world.execute(f"CREATE MATERIALIZED VIEW v AS {query}")
        assert REFUSED[query] in str(raised.value)
    finally:
        world.close()
