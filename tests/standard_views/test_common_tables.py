"""Common table expressions that are named twice: computed once where that can be, with the rows that a query over each would give."""

from __future__ import annotations

import pytest

from flowql.compiler.diagnostics.diagnostic import CompileError
from flowql.compiler.diagnostics.source import SourceText
from flowql.compiler.driver import Session
from flowql.compiler.plan.changes import GroupAggregate
from tests.slt.session import Shape, SqlSession

TABLE = "CREATE TABLE t (id INT PRIMARY KEY, a INT, b INT)"
COUNTED = "WITH c AS (SELECT a, b, count(*) AS n FROM t GROUP BY a, b) "
MOST = (
    COUNTED
    + "SELECT c.a, c.b, c.n FROM c JOIN (SELECT a, max(n) AS most FROM c GROUP BY a) m ON c.a = m.a AND c.n = m.most"
)
BY_KEY = "WITH c AS (SELECT a, count(*) AS n FROM t GROUP BY a) SELECT x.a, x.n + y.n AS twice FROM c x JOIN c y ON x.a = y.a"


def aggregations(query: str) -> int:
    session = Session(dialect="standard")
    session.execute(SourceText("table.sql", TABLE))
    (made,) = session.execute(SourceText("view.sql", f"CREATE VIEW v AS {query}"))
    assert made.query is not None
    return sum(isinstance(o.spec, GroupAggregate) for s in made.query.subtopologies for o in s.operators)


@pytest.mark.parametrize(("query", "count"), [(MOST, 2), (BY_KEY, 1)])
def test_what_two_names_need_is_computed_once(query: str, count: int) -> None:
    assert aggregations(query) == count


@pytest.mark.parametrize("vector", [True, False])
@pytest.mark.parametrize("query", [MOST, BY_KEY])
def test_a_query_over_two_names_of_one_common_table_equals_the_database(query: str, vector: bool) -> None:
    world = SqlSession(Shape(vector, 3))
    try:
        world.execute(TABLE)
        world.execute(f"CREATE VIEW v AS {query}")
        for change in (
            "INSERT INTO t VALUES " + ", ".join(f"({n}, {n % 5}, {n % 3})" for n in range(40)),
            "UPDATE t SET a = 1 WHERE id % 4 = 0",
            "DELETE FROM t WHERE a = 2",
        ):
            world.execute(change)
            found, wanted = (sorted(map(str, world.ask(q).to_pylist())) for q in ("SELECT * FROM v", query))
            assert found == wanted
            assert found
    finally:
        world.close()


def test_names_that_double_at_each_level_are_counted_as_often_as_they_stand_for_queries() -> None:
    levels = ", ".join(f"c{n + 1} AS (SELECT x.a FROM c{n} x JOIN c{n} y ON x.a = y.a)" for n in range(20))
    with pytest.raises(CompileError, match="more than 64 times"):
        aggregations(f"WITH c0 AS (SELECT a FROM t), {levels} SELECT a FROM c20")
