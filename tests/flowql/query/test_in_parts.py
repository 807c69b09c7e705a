"""Projections and filters that DuckDB has no form of, computed some rows at a time: the same rows as by the operators of views alone, in bounded memory."""

from __future__ import annotations

from collections.abc import Iterator
from hashlib import md5
from typing import Any

import pytest

from flowql.query import in_parts
from flowql.query.errors import QueryError
from tests.slt.session import Shape, SqlSession

# md5, sqrt, make_timestamp and multiples of intervals have no form in DuckDB.
QUERIES = """
SELECT md5(s), id FROM t
SELECT md5('x') FROM t
SELECT md5(s) AS m FROM t WHERE sqrt(n * n) > 1
SELECT id FROM t WHERE md5(s) < 'c'
SELECT md5(s) AS m, count(*), sum(n) FROM t GROUP BY md5(s)
SELECT count(*), max(md5(s)) FROM t
SELECT DISTINCT md5(s) FROM t
SELECT a.id, b.id FROM t a JOIN t b ON md5(a.s) = md5(b.s) AND a.id < b.id
SELECT id FROM t WHERE EXISTS (SELECT 1 FROM t u WHERE md5(u.s) = md5(t.s) AND u.id > t.id)
SELECT id FROM t WHERE s IN (SELECT s FROM t WHERE sqrt(id) > 1.5)
SELECT count(*) FROM t WHERE md5(s) < 'c'
SELECT 1 FROM t WHERE sqrt(id) > 1.5
WITH a AS (SELECT md5(s) AS m FROM t), b AS (SELECT x.m FROM a x JOIN a y ON x.m = y.m), c AS (SELECT x.m FROM b x JOIN b y ON x.m = y.m) SELECT count(*), md5(max(c.m)) FROM c JOIN c d ON c.m = d.m
SELECT md5(s) FROM t UNION SELECT s FROM t
SELECT md5(s) FROM t UNION ALL SELECT md5(s) FROM t
SELECT md5(s) FROM t EXCEPT ALL SELECT md5(s) FROM t WHERE id < 3
WITH c AS (SELECT id, md5(s) AS m FROM t) SELECT c.m, d.id FROM c JOIN c d ON c.m = d.m
SELECT id, row_number() OVER (PARTITION BY md5(s) ORDER BY id) FROM t
SELECT md5(m) FROM (SELECT md5(s) AS m, count(*) AS n FROM t GROUP BY 1) x WHERE sqrt(n) >= 1
SELECT id, ts + n * INTERVAL '1 day', make_timestamp(2026, 1, id, 0, 0, 0) FROM t
SELECT id, a, j, md5(s) FROM t
SELECT j ->> 'k', i * n FROM t WHERE n IS NOT NULL
SELECT id, u.e, sqrt(u.e) FROM t, UNNEST(a) AS u(e)
SELECT g, md5(g::text) FROM generate_series(3, -4, -2) AS g
SELECT g, o, sqrt(o) FROM generate_series(5, 9) WITH ORDINALITY AS x(g, o)
""".strip().splitlines()
ORDERED = """
SELECT md5(s) AS m, id FROM t ORDER BY m, id DESC LIMIT 3 OFFSET 1
SELECT id FROM t ORDER BY md5(s) DESC NULLS LAST, id
SELECT g FROM generate_series(1, 7) AS g
SELECT md5(g::text) FROM generate_series(1, 7) AS g
""".strip().splitlines()


@pytest.fixture(scope="module")
def world() -> Iterator[SqlSession]:
    made = SqlSession(Shape())
    made.execute("CREATE TABLE t (id INT PRIMARY KEY, s TEXT, n INT, ts TIMESTAMP, a INT[], j JSONB, i INTERVAL)")
    made.execute(
        "INSERT INTO t VALUES (1, 'a', 1, '2026-01-31', ARRAY[1, 4], '{\"k\": 1}', '1 day'), (2, 'b', NULL, NULL, NULL, NULL, NULL), "
        "(3, 'a', -3, '1969-12-31', ARRAY[]::INT[], '[1]', '-2 hours'), (4, NULL, 2, '2026-02-28', ARRAY[9, NULL], '\"x\"', '1 month'), "
        "(5, '', 0, '2026-02-28', ARRAY[0], 'null', '0 days'), (6, 'é', 5, '2026-02-28', ARRAY[2], '{}', '3 days')"
    )
    yield made
    made.close()


def _rows(world: SqlSession, sql: str) -> list[str]:
    found = world.ask(sql)
    return [str(tuple(c[i].as_py() for c in found.columns)) for i in range(found.num_rows)]


@pytest.mark.parametrize("sql", [*QUERIES, *ORDERED])
def test_parts_give_what_the_operators_of_views_give(
    world: SqlSession, monkeypatch: pytest.MonkeyPatch, sql: str
) -> None:
    made: list[Any] = []
    compute = in_parts.computed_in_parts

    def computed(*given: Any) -> Any:
        made.append("failed")
        made[-1] = compute(*given)
        return made[-1]

    with monkeypatch.context() as patched:
        patched.setattr(in_parts, "_ROWS", 2)
        patched.setattr(in_parts, "computed_in_parts", computed)
        found = _rows(world, sql)
    with monkeypatch.context() as patched:
        patched.setattr(in_parts, "computed_in_parts", lambda *_: None)
        whole = _rows(world, sql)
    assert not any(m is None or m == "failed" for m in made)
    assert made or sql == "SELECT g FROM generate_series(1, 7) AS g"
    assert found == whole if sql in ORDERED else sorted(found) == sorted(whole)


def test_nothing_is_computed_in_parts_if_the_rest_cannot_be(world: SqlSession, monkeypatch: pytest.MonkeyPatch) -> None:
    """The condition of the join is of both sides, and no filter."""
    monkeypatch.setattr(in_parts, "_compute", lambda *_: pytest.fail("computed in vain"))
    said = "SELECT count(*) FROM (SELECT id, md5(s) AS m FROM t) a JOIN t b ON sqrt(a.id) < sqrt(b.id) AND a.m <> ''"
    assert _rows(world, said) == ["(13,)"]


def test_an_error_is_one_of_a_row_that_is_read(world: SqlSession, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(in_parts, "_ROWS", 2)
    with pytest.raises(QueryError, match="square root"):
        world.ask("SELECT sqrt(n) FROM t")
    assert world.ask("SELECT sum(sqrt(n)) AS s FROM t WHERE n IN (0, 1)").to_pylist() == [{"s": 1.0}]
    assert len(_rows(world, "SELECT CASE WHEN n > 0 THEN sqrt(n) END FROM t")) == 6


def test_a_row_that_duckdb_declines_is_no_lack_of_memory(world: SqlSession) -> None:
    with pytest.raises(QueryError, match="MemoryError") as refused:
        world.ask("SELECT CAST(CASE WHEN md5(s) > '' THEN 'MemoryError' END AS INT) FROM t")
    assert refused.value.code != "FQ5108"


def test_a_long_series_needs_little_memory(world: SqlSession) -> None:
    """`generate_series(1, 300000)` was a list of Python, which did not fit."""
    assert _rows(world, "SELECT count(*), sum(g) FROM generate_series(1, 2000000) AS g") == [
        str((2000000, 2000001000000))
    ]
    said = "SELECT count(DISTINCT m), min(m) FROM (SELECT md5(g::text) AS m FROM generate_series(1, 25000) AS g) x"
    assert _rows(world, said) == [str((25000, min(md5(str(n).encode()).hexdigest() for n in range(1, 25001))))]
    with pytest.raises(QueryError, match="step"):
        world.ask("SELECT * FROM generate_series(1, 5, 0)")
