"""SUM of doubles beyond their range, which PostgreSQL refuses: "value out of range: overflow"."""

from __future__ import annotations

import pytest

from tests.slt.rows import rendered
from tests.slt.session import Shape, SqlSession


@pytest.mark.parametrize("vector", [True, False])
def test_a_sum_of_finite_doubles_is_never_infinite(vector: bool) -> None:
    world = SqlSession(Shape(vector=vector))
    try:
        world.execute("CREATE TABLE t (k INT PRIMARY KEY, g INT, x DOUBLE)")
        world.execute("CREATE MATERIALIZED VIEW v AS SELECT g, SUM(x) AS s, AVG(x) AS m FROM t GROUP BY g")
        world.execute("INSERT INTO t VALUES (1, 1, 1e308), (2, 1, 1e308), (3, 2, 1), (4, 3, 'Infinity'), (5, 3, 1)")
        assert rendered(world.ask("SELECT g, s FROM v ORDER BY g")) == ["2 1", "3 Infinity"]
        with pytest.raises(Exception, match="value out of range: overflow"):
            world.ask("SELECT g, SUM(x) FROM t GROUP BY g")
        with pytest.raises(Exception, match="value out of range: overflow"):
            world.ask("SELECT SUM(x) OVER (PARTITION BY g) FROM t")
        assert rendered(world.ask("SELECT g, SUM(x) FROM t WHERE g > 1 GROUP BY g ORDER BY g")) == ["2 1", "3 Infinity"]
        world.execute("DELETE FROM t WHERE k = 1")
        assert rendered(world.ask("SELECT g, s FROM v ORDER BY g")) == ["1 1e+308", "2 1", "3 Infinity"]
    finally:
        world.close()
