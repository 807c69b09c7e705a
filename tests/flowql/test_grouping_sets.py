"""Columns and constants that only some GROUPING SETS group by are NULL in the others, as DuckDB has it, also where a set has a whole PRIMARY KEY."""

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
        "SELECT h, 'ab' AS x, COUNT(*) AS n, GROUPING('ab') AS g FROM t GROUP BY ROLLUP (h, x)",
        "SELECT h, DATE '2026-01-02' AS x, 'ab' || h AS y FROM t GROUP BY CUBE (x, h)",
        "SELECT h, CAST('q' AS TEXT) AS x, CAST('7' AS INT) AS y FROM t GROUP BY ROLLUP (h, x, y)",
    ],
)
def test_what_another_set_groups_by_is_null(view: str) -> None:
    world, oracle = SqlSession(Shape()), duckdb.connect()
    try:
        for sql in (TABLE, f"CREATE VIEW v AS {view}", ROWS, "DELETE FROM t WHERE id = 2"):
            world.execute(sql)
            oracle.execute(sql)
        found = zip(*(c.to_pylist() for c in world.contents(["v"])["v"].columns), strict=True)
        assert sorted(map(repr, found)) == sorted(map(repr, oracle.execute("FROM v").fetchall()))
    finally:
        world.close()
