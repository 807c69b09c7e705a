"""ASOF JOIN of tables that change: after each statement the view holds what DuckDB's ASOF JOIN answers over the same rows."""

from __future__ import annotations

from random import Random

import duckdb
import pytest

from flowql.compiler.diagnostics.diagnostic import CompileError
from tests.slt.session import Shape, SqlSession

TABLES = ("CREATE TABLE a (id INT PRIMARY KEY, k INT, ts INT)", "CREATE TABLE b (id INT PRIMARY KEY, k INT, ts INT)")
VIEWS = [
    f"SELECT a.id, b.id AS other, b.ts FROM a ASOF {kind}JOIN b ON a.k = b.k AND a.ts {op} b.ts"
    for kind in ("", "LEFT ")
    for op in ("<", "<=", ">", ">=")
] + ["SELECT b.id, count(*) AS n FROM a ASOF JOIN b ON b.ts <= a.ts AND b.k = a.k WHERE a.id > 3 GROUP BY b.id"]


@pytest.mark.parametrize(("seed", "partitions"), [(1, 1), (2, 3), (3, 8)])
def test_it_is_what_duckdb_answers_after_each_change(seed: int, partitions: int) -> None:
    random = Random(seed)
    world, oracle = SqlSession(Shape(vector=[None, True, False][seed % 3], partitions=partitions)), duckdb.connect()
    try:
        for table in TABLES:
            world.execute(table)
            oracle.execute(table)
        for n, view in enumerate(VIEWS):
            world.execute(f"CREATE VIEW v{n} AS {view}")
        for _ in range(12):
            change = _change(random)
            try:
                oracle.execute(change)
            except duckdb.ConstraintException:  # a key twice
                continue
            world.execute(change)
            held = world.contents([f"v{n}" for n in range(len(VIEWS))])
            for n, view in enumerate(VIEWS):
                found = sorted(map(repr, zip(*(c.to_pylist() for c in held[f"v{n}"].columns), strict=True)))
                assert found == sorted(map(repr, oracle.execute(view).fetchall())), (change, view)
    finally:
        world.close()


def _change(random: Random) -> str:
    """Times of one key are distinct in b: which of two rows is nearest is not said where they are equally near."""
    table, at = random.choice("ab"), random.randrange(12)
    k = random.choice(["1", "2", "NULL"])
    match random.choice(["insert", "insert", "update", "delete"]):
        case "insert":
            rows = [f"({i}, {k}, {i * 5 % 12 if random.random() < 0.9 else 'NULL'})" for i in {at, (at + 5) % 12}]
            return f"INSERT INTO {table} VALUES {', '.join(rows)}"
        case "update":
            return (
                f"UPDATE {table} SET k = {k} WHERE id IN ({at}, {at // 2})"
                if table == "a"
                else f"UPDATE b SET k = {k} WHERE id = {at}"
            )
        case _:
            return f"DELETE FROM {table} WHERE id % 4 = {at % 4}"


@pytest.mark.parametrize(
    ("join", "named"),
    [
        ("a ASOF JOIN b ON a.k = b.k", "ON of ASOF JOIN is equalities"),
        ("a ASOF JOIN b ON a.ts > b.ts", "no equality"),
        ("a ASOF JOIN b ON a.k = b.k AND a.ts > b.ts AND a.id < b.id", "ON of ASOF JOIN is equalities"),
        ("a ASOF JOIN b ON a.k = b.k AND a.ts > b.ts AND b.id > 1", "ON of ASOF JOIN is equalities"),
        ("a ASOF RIGHT JOIN b ON a.k = b.k AND a.ts > b.ts", "ASOF RIGHT JOIN"),
        ("a ASOF JOIN b ON a.k = b.k AND a.ts > b.ts AND EXISTS (SELECT 1 FROM a)", "ASOF JOIN"),
    ],
)
def test_what_it_is_not_is_refused_by_name(join: str, named: str) -> None:
    world = SqlSession(Shape())
    try:
        for table in TABLES:
            world.execute(table)
        with pytest.raises(CompileError, match=named):
            world.execute(f"CREATE VIEW v AS SELECT a.id FROM {join}")
    finally:
        world.close()
