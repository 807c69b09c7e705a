"""SELECTs of DuckDB's and PostgreSQL's dialects: the translation gives over rows in FlowQL what the statement gives in DuckDB."""

from decimal import Decimal
from typing import Any

import duckdb
import pytest

from flowql.compiler.diagnostics.source import SourceText
from flowql.foreign.scripts import translated
from tests.slt.session import Shape, SqlSession
from tests.standard_views.check import difference

TABLE = "CREATE TABLE t (id BIGINT PRIMARY KEY, s VARCHAR, l INTEGER[], n INTEGER, x DOUBLE, d DATE, ts TIMESTAMP, price DECIMAL(10,2))"
ROWS = """INSERT INTO t VALUES (1, 'ann', [3, 1], 7, 2.5, '2024-01-31', '2024-01-01 23:59:59', 1.25),
(2, 'Bob', [5], -7, -2.5, '2024-02-29', '2023-12-31 00:00:00', -1.25), (3, NULL, NULL, NULL, NULL, NULL, NULL, NULL),
(4, 'a%c', [1], 0, 3.5, '1969-12-28', '1969-12-31 12:30:00', 0.05), (5, 'ann', [2, NULL], 2, 0.0, '2024-12-30', '2024-12-29 10:00:00', 100.00)"""
QUERIES = {
    "duckdb": (
        "SELECT id, n // 2, n / 2, n % 4, x / 2, price / 3 FROM t",
        "SELECT id, list_contains(l, 1), l[1], len(l) FROM t",
        "SELECT id, strftime(ts, '%Y-%m-%d %H:%M:%S'), strftime(d, '%j %b %y') FROM t",
        "SELECT id, date_diff('day', ts, d::TIMESTAMP), date_diff('hour', ts, TIMESTAMP '2024-01-02 00:00:00'), datediff('month', d, DATE '2024-05-01') FROM t",
        "SELECT id, datediff('year', d, DATE '2024-05-01'), datediff('week', d, DATE '2024-05-01'), datediff('quarter', d, DATE '2024-05-01') FROM t",
        "SELECT id, date_trunc('month', d), date_trunc('week', d), date_trunc('hour', ts), date_trunc('week', ts) FROM t",
        "SELECT id, d + INTERVAL 1 MONTH, d - DATE '2024-01-01', d + 3, ts - INTERVAL 2 HOUR FROM t",
        "SELECT id, year(d), month(ts), dayofweek(d), extract('quarter' FROM d), hour(ts), extract('second' FROM ts) FROM t",
        "SELECT id, x::INT, price::INT, n::VARCHAR, CAST('12' AS INT), TRY_CAST(s AS INT) FROM t",
        "SELECT id, round(price, 1), round(n, 0), floor(x), ceil(x), abs(n), greatest(n, 1), least(n, 1) FROM t",
        "SELECT id, concat(s, n), s || '-' || n, upper(s), substr(s, 2), substring(s, 1, 2), left(s, 1), right(s, 2), instr(s, 'n'), replace(s, 'n', 'm') FROM t",
        "SELECT id, s LIKE 'a%', s ILIKE 'B__', s LIKE 'a\\%c', trim('  ' || s || ' '), split_part(s, 'n', 1), concat_ws('-', s, 'z') FROM t",
        "SELECT id, CASE WHEN n > 1 THEN 'a' END, if(n > 1, 'a', 'b'), coalesce(s, 'none'), nullif(n, 7), s IS NOT DISTINCT FROM 'ann' FROM t",
        "SELECT s, sum(n), count(*), avg(n), min(d), max(s), count(DISTINCT n), count_if(n > 1) FROM t GROUP BY ALL",
        "SELECT string_agg(s, ',' ORDER BY id), median(n), bool_or(n > 1), array_agg(id ORDER BY id), approx_count_distinct(s) FROM t",
        "SELECT * EXCLUDE (l, ts) REPLACE (n + 1 AS n) FROM t",
        "SELECT id, s FROM t QUALIFY row_number() OVER (PARTITION BY s ORDER BY x DESC, id) = 1",
        "SELECT id, rank() OVER (ORDER BY n) AS r FROM t QUALIFY r <= 2",
        "SELECT id, n FROM t ORDER BY n, id", "SELECT id, n FROM t ORDER BY n DESC, id LIMIT 3", "FROM t SELECT id WHERE n BETWEEN 0 AND 7",
        "SELECT id, lag(n) OVER (ORDER BY id), first_value(n) OVER (ORDER BY id), avg(n) OVER (ORDER BY id ROWS BETWEEN 1 PRECEDING AND CURRENT ROW) FROM t",
        "SELECT DISTINCT ON (s) s, id FROM t ORDER BY s, id DESC", "SELECT a.id, b.id FROM t a JOIN t b USING (s)", "SELECT id, sqrt(abs(n)), power(n, 2), exp(0), ln(1) FROM t",
        "WITH q AS (SELECT s, n / 2 AS half FROM t) SELECT s, sum(half) FROM q GROUP BY s", "SELECT id, u.e FROM t CROSS JOIN UNNEST(l) AS u(e)",
    ),
    "postgres": (
        "SELECT id, n % 4, x / 2, s || 'x', n::text, d + 7, d - DATE '2024-01-01' FROM t", "SELECT s, count(*) FILTER (WHERE n > 1), string_agg(s, ',' ORDER BY id DESC) FROM t GROUP BY s",
        "SELECT id, date_trunc('month', ts), substring(s from 2 for 2), position('n' in s), trim(both 'a' from s), s ~ 'an+' FROM t", "SELECT id, s IS DISTINCT FROM 'ann', coalesce(n, 0), greatest(n, 1) FROM t",
        "SELECT id, row_number() OVER w, lag(n, 1, 0) OVER w FROM t WINDOW w AS (PARTITION BY s ORDER BY id)", "SELECT id, n FROM t ORDER BY n NULLS FIRST, id DESC",
    ),
}  # fmt: skip


@pytest.fixture(scope="module")
def systems():
    world = SqlSession(Shape())
    with duckdb.connect(config={"threads": 1}) as reference:
        reference.execute("SET TimeZone = 'UTC'")
        for statement in (TABLE, ROWS):
            reference.execute(statement)
        for outcome in translated([SourceText("", f"{TABLE};{ROWS}")], "duckdb").outcomes:
            assert outcome.text, outcome.listed
            world.execute(outcome.text)
        yield world, reference
    world.close()


@pytest.mark.parametrize(("dialect", "sql"), [(d, q) for d, queries in QUERIES.items() for q in queries])
def test_the_same_rows(systems, dialect, sql):
    world, reference = systems
    made = translated([SourceText("", TABLE), SourceText("asked", sql)], "duckdb" if dialect == "duckdb" else dialect)
    assert made.listed == []
    expected = [tuple(map(_plain, row)) for row in reference.execute(sql).fetchall()]
    answer = world.ask(made.outcomes[-1].text)
    rows = list(zip(*([_plain(v) for v in c.to_pylist()] for c in answer.columns), strict=True))
    assert not difference(expected, rows)
    if "ORDER BY" in sql.split("(")[-1]:
        assert not difference([(i, *r) for i, r in enumerate(expected)], [(i, *r) for i, r in enumerate(rows)])


def _plain(value: Any) -> Any:
    return float(value) if isinstance(value, Decimal) else value
