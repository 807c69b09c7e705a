"""Sub-queries that stand for a value and have one row by their form or by their data: against DuckDB, and by their history."""

from __future__ import annotations

from random import Random

import pytest

from tests.slt.session import Shape, SqlSession
from tests.standard_views.case import CHOICE, Step
from tests.standard_views.check import run

# {ours|DuckDB's}: DuckDB takes a value of the rows, and leaves out the rows around for which there are several.
VIEWS = {
    "form": "WITH a AS (SELECT AVG(v) AS a FROM u) SELECT k, v > (SELECT a FROM a) AS c FROM t",
    "fixed": "WITH m AS (SELECT g, MAX(v) AS v FROM u GROUP BY g) SELECT k, (SELECT v FROM m WHERE g = 1) AS c FROM t",
    "by_key": "SELECT k, (SELECT v + 1 FROM u WHERE k = 3) AS c FROM t",
    "single": "SELECT k, {(SELECT v FROM u)|(SELECT MAX(v) FROM u)} AS c FROM t{| WHERE (SELECT COUNT(*) FROM u) < 2}",
    "own": "SELECT k, {(SELECT v FROM u WHERE u.g = t.g)|(SELECT MAX(v) FROM u WHERE u.g = t.g)} AS c FROM t"
    "{| WHERE (SELECT COUNT(*) FROM u WHERE u.g = t.g) < 2}",
    "different": "SELECT k, {(SELECT DISTINCT v FROM u)|(SELECT MAX(v) FROM u)} AS c FROM t"
    "{| WHERE (SELECT COUNT(*) FROM (SELECT DISTINCT v FROM u) AS d) < 2}",
    "lesser": "SELECT k FROM t WHERE {v > (SELECT u.v FROM u WHERE u.g < t.g)|v > (SELECT MAX(u.v) FROM u WHERE u.g < t.g) "
    "AND (SELECT COUNT(*) FROM u WHERE u.g < t.g) < 2}",
    "joint": "SELECT k, {(SELECT v FROM u WHERE g = 1 UNION ALL SELECT v FROM u WHERE g = 2)"
    "|(SELECT MAX(v) FROM u WHERE g IN (1, 2))} AS c FROM t{| WHERE (SELECT COUNT(*) FROM u WHERE g IN (1, 2)) < 2}",
    "summed": "SELECT g, COUNT(*) AS n, SUM({(SELECT v FROM u WHERE u.g = t.g)|(SELECT MAX(v) FROM u WHERE u.g = t.g)}) AS s FROM t"
    "{| WHERE (SELECT COUNT(*) FROM u WHERE u.g = t.g) < 2} GROUP BY g",
    "guarded": "SELECT k, CASE WHEN {(SELECT COUNT(*) FROM u)|(SELECT COUNT(*) FROM u)} > 1 THEN -1 "
    "ELSE {(SELECT v FROM u)|(SELECT MAX(v) FROM u)} END AS c FROM t",
}


def _view(name: str) -> Step:
    ours, reference = (CHOICE.sub(rf"\{n}", VIEWS[name]) for n in (1, 2))
    return Step("view", ours, name, reference)


def _change(rng: Random) -> Step:
    table, k = rng.choice("tuu"), rng.randrange(5)
    match rng.randrange(4):
        case 0 | 1:
            text = f"DELETE FROM {table} WHERE k IN ({k}, {rng.randrange(5)})"
        case 2:
            text = f"UPDATE {table} SET g = {rng.randrange(3)}, v = {rng.choice(('NULL', '4', '7'))} WHERE k = {k}"
        case _:
            text = f"INSERT INTO {table} VALUES ({k}, {rng.randrange(3)}, {rng.randrange(9)}) ON CONFLICT (k) DO UPDATE SET v = EXCLUDED.v"
    return Step("change", text, table)


@pytest.mark.turns("cases")
@pytest.mark.parametrize(("seed", "shape"), [(1, Shape(False, 3)), (2, Shape(True, 1))])
def test_values_of_sub_queries_are_those_of_the_database(seed: int, shape: Shape) -> None:
    rng, names = Random(seed), list(VIEWS)
    tables = [Step("table", f"CREATE TABLE {n} (k INT PRIMARY KEY, g INT, v INT)", n) for n in "tu"]
    early = rng.randrange(len(names))
    changes = [_change(rng) for _ in range(24)]
    steps = [*tables, *map(_view, names[:early]), *changes[:6], *map(_view, names[early:]), *changes[6:]]
    outcome = run(steps, shape, kills=seed if seed == 2 else None, every=2)
    assert not outcome.refused
    assert not outcome.lacking


HISTORY = (
    # statement, the rows of the view after it, dead letters so far (each is a record, whatever number of rows it makes fail)
    ("INSERT INTO t VALUES (1), (2)", [(1, None), (2, None)], 0),
    ("INSERT INTO u VALUES (1, 'a')", [(1, "a"), (2, "a")], 0),
    (
        "INSERT INTO u VALUES (2, 'a')",
        [],
        1,
    ),  # two rows, though they are equal: the record that makes them is the dead letter
    ("INSERT INTO t VALUES (3)", [], 2),
    ("DELETE FROM u WHERE k = 1", [(1, "a"), (2, "a"), (3, "a")], 2),
    ("UPDATE u SET v = NULL", [(1, None), (2, None), (3, None)], 2),
    ("DELETE FROM u", [(1, None), (2, None), (3, None)], 2),
)


@pytest.mark.parametrize("vector", [True, False])
def test_rows_are_dead_letters_while_a_sub_query_has_two_rows(vector: bool) -> None:
    world = SqlSession(Shape(vector))
    try:
        world.execute("CREATE TABLE t (k INT PRIMARY KEY)")
        world.execute("CREATE TABLE u (k INT PRIMARY KEY, v TEXT)")
        world.execute("CREATE MATERIALIZED VIEW w AS SELECT k, (SELECT v FROM u) AS v FROM t")
        for statement, rows, letters in HISTORY:
            world.execute(statement)
            assert sorted((r["k"], r["v"]) for r in world.ask("SELECT k, v FROM w").to_pylist()) == rows, statement
            assert world.dead_letters() == letters, statement
    finally:
        world.close()
