"""GROUPING SETS of which some have a whole PRIMARY KEY: columns of its table that other sets group by are NULL there, as DuckDB has it."""

from __future__ import annotations

import duckdb
import pytest

from tests.slt.session import Shape, SqlSession

TABLE = "CREATE TABLE t (a INT, h INT, id INT PRIMARY KEY)"
ROWS = "INSERT INTO t VALUES (1, 5, 1), (2, 5, 2), (NULL, 6, 3)"


@pytest.mark.parametrize(
    "view",
    [
        "SELECT id, h, COUNT(*) AS n, GROUPING(h, id) AS g FROM t GROUP BY GROUPING SETS ((id, h), (id), (h, id))",
        "SELECT id, h, a, COUNT(*) AS n, GROUPING(h, a) AS g FROM t GROUP BY GROUPING SETS ((id, h), (id), (id, a))",
        "SELECT id, h, SUM(a) AS s FROM t GROUP BY id, ROLLUP (h)",
        "SELECT id, h + 1 AS h, SUM(a) AS s FROM t GROUP BY id, CUBE (h)",
    ],
)
def test_a_column_that_another_set_groups_by_is_null(view: str) -> None:
    world, oracle = SqlSession(Shape()), duckdb.connect()
    try:
        for sql in (TABLE, f"CREATE VIEW v AS {view}", ROWS, "DELETE FROM t WHERE id = 2"):
            world.execute(sql)
            oracle.execute(sql)
        found = zip(*(c.to_pylist() for c in world.contents(["v"])["v"].columns), strict=True)
        assert sorted(map(repr, found)) == sorted(map(repr, oracle.execute("FROM v").fetchall()))
    finally:
        world.close()
