"""Views that read no table: VALUES, generate_series, UNNEST and a SELECT without FROM, against DuckDB."""

from __future__ import annotations

from typing import Literal

import pytest

from tests.slt.session import Shape, SqlSession
from tests.standard_views.case import CHOICE, Step
from tests.standard_views.check import run

VIEWS = {
    "one": "SELECT 1 AS a, 'x' AS b",
    "none": "SELECT 1 AS a WHERE 1 = 2",
    "listed": "SELECT * FROM (VALUES (1, 'x'), (2, NULL), (2, NULL)) AS t (a, b)",
    "numbers": "SELECT n, n * n AS square FROM generate_series(1, 7) AS g (n) WHERE n <> 4",
    "pairs": "SELECT x.n, y.n AS m FROM generate_series(1, 3) AS x (n) JOIN generate_series(2, 4) AS y (n) ON x.n <= y.n",
    "total": "SELECT SUM(n) AS s, COUNT(*) AS c FROM generate_series(1, 10) AS g (n)",
    "united": "SELECT a FROM (VALUES (1), (2)) AS t (a) UNION ALL SELECT 2",
    "common": "WITH c AS (SELECT 1 AS a UNION SELECT 2) SELECT x.a, y.a AS b FROM c AS x, c AS y",
    "nested": "SELECT (SELECT MAX(n) FROM generate_series(1, 4) AS g (n)) + 1 AS m",
    "elements": "SELECT x FROM unnest({ARRAY[1, 2, 3]|[1, 2, 3]}) AS u (x)",
    "above": "SELECT n FROM numbers EXCEPT SELECT a FROM listed",
    "beside": "SELECT t.k, n FROM t JOIN numbers ON t.k = numbers.n",
    "ranked": "SELECT n, ROW_NUMBER() OVER (ORDER BY n DESC) AS r FROM numbers",
}


def _view(name: str, text: str, kind: Literal["view", "edit"] = "view") -> Step:
    ours, reference = (CHOICE.sub(rf"\{n}", text) for n in (1, 2))
    return Step(kind, ours, name, reference, text=text)


@pytest.mark.turns("cases")
@pytest.mark.parametrize(
    ("shape", "kills"), [(Shape(partitions=3), None), (Shape(vector=True), 7), (Shape(False, 8), None)]
)
def test_views_without_tables_hold_what_the_database_answers(shape: Shape, kills: int | None) -> None:
    steps = [
        Step("table", "CREATE TABLE t (k INT PRIMARY KEY)", "t"),
        *(_view(n, q) for n, q in VIEWS.items()),
        Step("change", "INSERT INTO t VALUES (1), (4), (5)", "t"),
        _view("numbers", "SELECT n, n + 1 AS square FROM generate_series(3, 9) AS g (n)", "edit"),
        Step("change", "DELETE FROM t WHERE k = 5", "t"),
    ]
    outcome = run(steps, shape, kills=kills)
    assert len(outcome.accepted) == len(VIEWS)
    assert outcome.edits == 1
    assert not outcome.refused
    assert not outcome.lacking


def test_their_rows_are_made_once_however_often_the_instance_starts() -> None:
    world = SqlSession(Shape())
    try:
        world.execute("CREATE MATERIALIZED VIEW v AS SELECT n FROM generate_series(1, 3) AS g (n)")
        world.execute("CREATE MATERIALIZED VIEW c AS SELECT COUNT(*) AS n FROM v")
        for _ in range(3):
            world.restart()
            world.settle()
        assert world.ask("SELECT n FROM c").to_pylist() == [{"n": 3}]
        assert "__no_rows" not in [s.name for s in world._instance.plan.listed]
    finally:
        world.close()


def test_the_table_that_they_read_is_in_the_plan_only_while_one_does() -> None:
    world = SqlSession(Shape())
    try:
        world.execute("CREATE TABLE t (k INT PRIMARY KEY)")
        world.execute("CREATE MATERIALIZED VIEW v AS SELECT 1 AS a")
        assert [s.name for s in world._instance.plan.sources] == ["__no_rows", "t", "v"]
        world.execute("DROP VIEW v")
        assert [s.name for s in world._instance.plan.sources] == ["t"]
    finally:
        world.close()
