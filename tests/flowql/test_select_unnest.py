"""UNNEST as an item of the SELECT list, against DuckDB, where it means the same as in PostgreSQL."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Iterable

import duckdb
import pytest

from flowql.compiler.diagnostics.diagnostic import CompileError
from tests.flowql.test_watermarks import world

TABLES = ("CREATE TABLE t (id INT PRIMARY KEY, g INT, a INT[], b TEXT[])", "CREATE TABLE s (id INT PRIMARY KEY, g INT)")
VIEWS = (
    "SELECT id, unnest(a) AS x FROM t",
    "SELECT *, unnest(a) AS x FROM t WHERE g > 1",
    "SELECT id, unnest(a) AS x, unnest(b) AS y FROM t",
    "SELECT id, CAST(unnest(a) AS TEXT) AS x, unnest(a) AS y FROM t",
    "SELECT DISTINCT unnest(a) AS x FROM t",
    "SELECT g, unnest(array_agg(id ORDER BY id)) AS x, count(*) AS n FROM t GROUP BY g",
    "SELECT id, unnest(a) AS x, row_number() OVER (PARTITION BY g ORDER BY id) AS r FROM t",
    "SELECT id, x, r FROM (SELECT id, unnest(a) AS x, row_number() OVER (PARTITION BY g ORDER BY id) AS r FROM t) q WHERE r <= 2 AND x > 1",
    "SELECT id, unnest(a) AS x FROM t ORDER BY x, id LIMIT 4",
    "SELECT x, count(*) AS n FROM (SELECT unnest(a) AS x FROM t) q GROUP BY x",
    "SELECT unnest(a) AS x FROM t UNION ALL SELECT g FROM s",
    "SELECT s.id, unnest(t.a) AS x FROM s LEFT JOIN t ON s.g = t.g",
    "SELECT id FROM s WHERE id IN (SELECT unnest(a) FROM t)",
    "SELECT id FROM s WHERE NOT EXISTS (SELECT unnest(a) FROM t WHERE t.g = s.g)",
    "SELECT id, g IN (SELECT unnest(a) FROM t WHERE a IS NOT NULL) AS f FROM s",
)  # fmt: skip


def array(rng: random.Random, element: str) -> str:
    """Also one without elements, with a NULL in it, and none at all."""
    values = [rng.choice((element.format(rng.randint(0, 4)), "NULL")) for _ in range(rng.choice((0, 1, 1, 2, 3)))]
    if rng.random() < 0.15:
        return "NULL"
    return f"CAST(ARRAY[{', '.join(values)}] AS {'TEXT' if element != '{}' else 'INT'}[])"


def change(rng: random.Random, new: int) -> str:
    kind, old = rng.random(), rng.randint(0, max(new - 1, 0))
    if kind < 0.2:
        return f"DELETE FROM {rng.choice('ts')} WHERE id = {old}"
    if kind < 0.4:
        return f"UPDATE t SET a = {array(rng, '{}')}, g = {rng.randint(0, 3)} WHERE id = {old}"
    if kind < 0.6:
        return f"INSERT INTO s VALUES ({new}, {rng.randint(0, 4)})"
    made = array(rng, "{}"), array(rng, "'{}'")
    return f"INSERT INTO t VALUES ({new}, {rng.randint(0, 3)}, {made[0]}, {made[1]})"


def texts(rows: Iterable[Iterable[object]]) -> Counter[str]:
    """Rows as texts: an array is no key of a Counter."""
    return Counter(repr(tuple(r)) for r in rows)


@pytest.mark.turns("cases")
@pytest.mark.parametrize(("partitions", "vector"), [(1, True), (3, False)])
def test_views_with_unnest_in_the_select_list_equal_duckdb(partitions: int, vector: bool) -> None:
    rng, compared = random.Random(partitions), 0
    db = duckdb.connect()
    made = [f"CREATE MATERIALIZED VIEW v{n} AS {sql}" for n, sql in enumerate(VIEWS)]
    with world(*TABLES, *made, partitions=partitions, vector=vector) as w:
        for table in TABLES:
            db.execute(table)
        for n in range(24):
            statement = change(rng, n)
            db.execute(statement)
            w.execute(statement, rounds=rng.choice((None, None, 2)))
            if n % 6 != 5:
                continue
            for at, sql in enumerate(VIEWS):
                expected = texts(db.execute(sql).fetchall())
                compared += expected.total()
                rows = w.ask(f"SELECT * FROM v{at}").to_pylist()
                assert texts(r.values() for r in rows) == expected, (sql, n)
    assert compared > 120


@pytest.mark.parametrize(
    "query",
    [
        "SELECT id FROM t WHERE unnest(a) > 1",
        "SELECT sum(unnest(a)) AS s FROM t",
        "SELECT unnest(a) AS x, count(*) AS n FROM t GROUP BY 1",
        "SELECT CASE WHEN g > 1 THEN unnest(a) END AS x FROM t",
        "SELECT id, unnest(a, a) AS x FROM t",
        "SELECT id, (SELECT unnest(array_agg(a.id)) FROM t AS a LIMIT 1) AS x FROM s",
    ],
)
def test_where_several_rows_cannot_stand_is_refused(query: str) -> None:
    with world(*TABLES) as w, pytest.raises(CompileError) as caught:
        w.execute(f"CREATE MATERIALIZED VIEW v AS {query}")
    assert caught.value.diagnostics[0].code == "FQ1901", caught.value.diagnostics[0].title
