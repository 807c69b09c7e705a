"""A row for which an expression fails contributes nothing, and takes nothing back when it changes or goes: against DuckDB with TRY."""

from __future__ import annotations

from random import Random
from string import Template

import pytest

from flowql.compiler.diagnostics.diagnostic import CompileError
from flowql.query.errors import QueryError
from tests.slt.session import Shape, SqlSession
from tests.standard_views.case import Step
from tests.standard_views.check import run

OURS = {"cast": "CAST", "good": "t", "list": "ARRAY"}
TRIED = {
    "cast": "TRY_CAST",
    "good": "(SELECT * FROM t WHERE s IS NULL OR TRY_CAST(s AS INT) IS NOT NULL)",
    "list": "",
}
VIEWS = {
    "projected": "SELECT k, $cast(s AS INT) AS n FROM $good",
    "unread": "SELECT COUNT(*) AS c FROM projected",
    "passing": "SELECT k FROM t WHERE $cast(s AS INT) > 1",
    "opposite": "SELECT k FROM t WHERE NOT ($cast(s AS INT) > 1)",
    "either": "SELECT k FROM t WHERE b = 1 OR $cast(s AS INT) > 1",
    "guarded": "SELECT k, CASE WHEN s IN ('', 'x') THEN -1 ELSE $cast(s AS INT) END AS n FROM t",
    "tried": "SELECT k, TRY_CAST(s AS INT) AS n FROM t",
    "nested": "SELECT n + 1 AS m, k FROM (SELECT $cast(s AS INT) AS n, k FROM $good) AS d WHERE n IS DISTINCT FROM 2",
    "grouped": "SELECT $cast(s AS INT) AS n, COUNT(*) AS c FROM $good GROUP BY $cast(s AS INT)",
    "summed": "SELECT b, COUNT(*) AS c, SUM($cast(s AS INT)) AS n FROM $good GROUP BY b",
    "had": "SELECT b, COUNT(*) AS c FROM t GROUP BY b HAVING $cast(MIN(s) AS INT) < 3",
    "whole": "SELECT COUNT(*) AS c, MAX($cast(s AS INT)) AS n FROM $good",
    "filtered": "SELECT b, COUNT(*) FILTER (WHERE $cast(s AS INT) > 1) AS n FROM $good GROUP BY b",
    "inner_keys": "SELECT t.k, r.k AS rk FROM t JOIN r ON $cast(t.s AS INT) = r.k",
    "left_keys": "SELECT t.k, r.k AS rk FROM t LEFT JOIN r ON $cast(t.s AS INT) = r.k",
    "right_keys": "SELECT t.k, r.k AS rk FROM r LEFT JOIN t ON $cast(t.s AS INT) = r.k",
    "inner_pairs": "SELECT t.k, r.k AS rk FROM t JOIN r ON t.b = r.b AND $cast(t.s AS INT) < $cast(r.s AS INT)",
    "left_pairs": "SELECT t.k, r.k AS rk FROM t LEFT JOIN r ON t.b = r.b AND $cast(t.s AS INT) < $cast(r.s AS INT)",
    "full_pairs": "SELECT t.k, r.k AS rk FROM t FULL JOIN r ON t.b = r.b AND $cast(t.s AS INT) + $cast(r.s AS INT) < 9",
    "full_keys": "SELECT t.k, r.k AS rk FROM t FULL JOIN r ON $cast(t.s AS INT) = r.b + 1",
    "same_keys": "SELECT t.k, r.k AS rk FROM $good AS t LEFT JOIN r ON $cast(t.s AS INT) IS NOT DISTINCT FROM r.b",
    "keyless": "SELECT k FROM t WHERE NOT EXISTS (SELECT 1 FROM r WHERE r.k = $cast(t.s AS INT))",
    "looked_up": "SELECT k, (SELECT MAX(r.b) FROM r WHERE r.k = $cast(t.s AS INT)) AS n FROM t",
    "within_or": "SELECT k FROM $good AS o WHERE $cast(s AS INT) IN (SELECT b FROM r) OR b = 1",
    "outside_or": "SELECT k FROM $good AS o WHERE $cast(s AS INT) NOT IN (SELECT b FROM r WHERE b IS NOT NULL) OR b = 1",
    "guarded_in": "SELECT k FROM t WHERE s IN ('', 'x') OR $cast(s AS INT) IN (SELECT b FROM r)",
    "within": "SELECT k FROM t WHERE $cast(s AS INT) IN (SELECT k FROM r)",
    "outside": "SELECT k FROM $good AS o WHERE $cast(o.s AS INT) NOT IN (SELECT k FROM r)",
    "existing": "SELECT k FROM t WHERE EXISTS (SELECT 1 FROM r WHERE r.b = t.b AND $cast(t.s AS INT) < $cast(r.s AS INT))",
    "lacking": "SELECT k FROM t WHERE NOT EXISTS (SELECT 1 FROM r WHERE r.b = t.b AND $cast(t.s AS INT) < $cast(r.s AS INT))",
    "chosen": "SELECT DISTINCT $cast(s AS INT) AS n FROM $good",
    "united": "SELECT $cast(s AS INT) AS n FROM $good UNION ALL SELECT b FROM t",
    "ranked": "SELECT k, $cast(s AS INT) AS n, ROW_NUMBER() OVER (PARTITION BY b ORDER BY $cast(s AS INT), k) AS r FROM $good",
    "running": "SELECT k, SUM($cast(s AS INT)) OVER (PARTITION BY b ORDER BY k) AS n FROM $good",
    "first": "SELECT k, $cast(s AS INT) AS n FROM $good ORDER BY $cast(s AS INT) NULLS LAST, k LIMIT 3",
    "lists": "SELECT k, u FROM $good AS t, UNNEST($list[$cast(t.s AS INT), b]) AS z(u)",
    "again": "SELECT r.k, d.c FROM r LEFT JOIN (SELECT n, COUNT(*) AS c FROM projected GROUP BY n) AS d ON r.k = d.n",
}


def _view(name: str, text: str) -> Step:
    written = Template(text)
    return Step("view", written.substitute(OURS), name, written.substitute(TRIED))


def _steps(seed: int, changes: int) -> list[Step]:
    rng = Random(seed)
    views = [_view(n, t) for n, t in VIEWS.items()]
    early = rng.randrange(2, len(views))
    return [
        Step("table", "CREATE TABLE t (k INT PRIMARY KEY, b INT, s TEXT)", "t"),
        Step("table", "CREATE TABLE r (k INT PRIMARY KEY, b INT, s TEXT)", "r"),
        *views[:early],
        *(_change(rng) for _ in range(changes // 2)),
        *views[early:],
        *(_change(rng) for _ in range(changes - changes // 2)),
    ]


def _change(rng: Random) -> Step:
    table, k = rng.choice("ttr"), rng.randrange(9)
    match rng.randrange(5):
        case 0:
            text = f"DELETE FROM {table} WHERE k = {k}"
        case 1:
            text = f"UPDATE {table} SET s = {_number(rng)} WHERE k IN ({k}, {rng.randrange(9)})"
        case 2:
            text = f"UPDATE {table} SET b = {rng.randrange(3)} WHERE k = {k}"
        case _:
            rows = ", ".join(f"({n}, {rng.choice('012')}, {_number(rng)})" for n in {k, rng.randrange(9)})
            text = f"INSERT INTO {table} VALUES {rows} ON CONFLICT (k) DO UPDATE SET b = EXCLUDED.b, s = EXCLUDED.s"
    return Step("change", text, table)


def _number(rng: Random) -> str:
    return rng.choice(("'1'", "'2'", "'3'", "'x'", "'7'", "''", "NULL", "'x'"))


@pytest.mark.turns("cases")
@pytest.mark.parametrize(("seed", "shape"), [(1, Shape(False, 1)), (2, Shape(True, 1)), (3, Shape(None, 3))])
def test_failed_rows_are_as_if_they_had_never_come(seed: int, shape: Shape) -> None:
    outcome = run(_steps(seed, 16), shape, kills=seed if seed == 3 else None, every=4)
    assert not outcome.refused
    assert not outcome.lacking


HISTORY = (
    # statement, the rows of the view after it, dead letters so far
    ("INSERT INTO t VALUES (1, 1, '7'), (2, 2, 'x')", [(1, 7)], 1),
    ("UPDATE t SET b = 3 WHERE k = 2", [(1, 7)], 2),  # it fails again, as another row
    ("UPDATE t SET s = '8' WHERE k = 2", [(1, 7), (2, 8)], 2),
    ("UPDATE t SET s = 'y' WHERE k = 1", [(2, 8)], 3),
    ("DELETE FROM t WHERE k = 1", [(2, 8)], 3),
    ("DELETE FROM t WHERE k = 2", [], 3),
)


@pytest.mark.parametrize("vector", [True, False])
@pytest.mark.parametrize(
    "view",
    [
        "SELECT k, CAST(s AS INT) AS n FROM t WHERE b > 0",
        "SELECT k, MAX(CAST(s AS INT)) AS n FROM t GROUP BY k",
        "SELECT k, n FROM t, UNNEST(ARRAY[CAST(s AS INT)]) AS z(n)",
        "SELECT k, SUM(CAST(s AS INT)) OVER (PARTITION BY k) AS n FROM t",
    ],
)
def test_a_row_that_fails_is_a_dead_letter_once(view: str, vector: bool) -> None:
    world = SqlSession(Shape(vector, 1))
    try:
        world.execute("CREATE TABLE t (k INT PRIMARY KEY, b INT, s TEXT)")
        world.execute(f"CREATE MATERIALIZED VIEW v AS {view}")
        for statement, rows, letters in HISTORY:
            world.execute(statement)
            assert sorted(map(tuple, (r.values() for r in world.ask("SELECT k, n FROM v").to_pylist()))) == rows, (
                statement
            )
            assert world.dead_letters() == letters, statement
    finally:
        world.close()


@pytest.mark.parametrize(
    "view",
    [
        "SELECT b, SUM(w) AS n FROM t GROUP BY b",
        "SELECT b, SUM(w) OVER (PARTITION BY b) AS n FROM t",
    ],
)
def test_a_result_that_its_type_cannot_hold_is_not_shown(view: str) -> None:
    world = SqlSession(Shape(None, 1))
    try:
        world.execute("CREATE TABLE t (k INT PRIMARY KEY, b INT, w DECIMAL(38, 0))")
        world.execute(f"CREATE MATERIALIZED VIEW v AS {view}")
        world.execute("CREATE MATERIALIZED VIEW w AS SELECT COUNT(*) AS c FROM v")
        huge = f"CAST('{'9' * 38}' AS DECIMAL(38, 0))"
        world.execute(f"INSERT INTO t VALUES (1, 1, {huge}), (2, 1, {huge}), (3, 2, 5)")
        assert world.ask("SELECT b, n FROM v").to_pylist() == [{"b": 2, "n": 5}]
        assert world.ask("SELECT c FROM w").to_pylist() == [{"c": 1}]
        assert world.dead_letters() > 0
        world.execute("DELETE FROM t WHERE k = 1")
        assert len(world.ask("SELECT b FROM v").to_pylist()) == 2
        world.execute("DELETE FROM t")
        assert world.ask("SELECT c FROM w").to_pylist() == [{"c": 0}]
    finally:
        world.close()


def test_a_row_that_failed_before_others_came_is_right_when_they_are_there() -> None:
    """A view is right after each commit; its dead letter tells of the moment before. PostgreSQL sees the last moment alone."""
    session = SqlSession(Shape())
    session.execute("CREATE TABLE r (n INT)")
    sql = "SELECT v.x + v.x AS y FROM (VALUES (1), (2147483647)) AS v(x) WHERE v.x NOT IN (SELECT n FROM r)"
    session.execute(f"CREATE VIEW doubled AS {sql}")
    assert session.dead_letters() == 1
    session.execute("INSERT INTO r VALUES (2147483647)")
    assert session.ask("SELECT y FROM doubled").to_pydict() == session.ask(sql).to_pydict() == {"y": [2]}


def test_a_constant_that_fails_is_refused_in_a_view_and_fails_for_rows_of_a_query() -> None:
    session = SqlSession(Shape())
    session.execute("CREATE TABLE r (n INT)")
    sql = "SELECT ARRAY['a'] || 'b%' AS y FROM r"
    with pytest.raises(CompileError, match="fails for every row"):
        session.execute(f"CREATE VIEW made AS {sql}")
    assert session.ask(sql).num_rows == 0
    session.execute("INSERT INTO r VALUES (1)")
    with pytest.raises(QueryError, match="malformed array literal"):
        session.ask(sql)
