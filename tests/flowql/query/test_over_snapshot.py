"""Interactive queries of standard SQL by DuckDB and by the operators of views: the same rows, and a row that DuckDB declines is an error or a value of theirs."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator
from contextlib import closing
from decimal import Context, Decimal, localcontext
from functools import partial
from random import Random
from typing import Any

import duckdb
import pyarrow as pa
import pytest

from flowql.compiler.analyze.relations.asked import Readable, names_read
from flowql.compiler.diagnostics.source import SourceText
from flowql.compiler.driver import asked_query, compile_asked
from flowql.compiler.functions.duckdb_text import DECLINED
from flowql.compiler.plan.schema import Field, Schema
from flowql.compiler.plan.types import BIGINT, BOOLEAN, DOUBLE, INT, STRING, TIMESTAMP, array, decimal
from flowql.query import reference
from flowql.query.database import QueryDatabase
from flowql.query.errors import QueryError
from flowql.query.limits import InteractiveQuerySettings, QueryLimits
from flowql.query.over_snapshot import rendered
from flowql.query.reference import computed
from flowql.query.relations import arrow_schema
from flowql.runtime.operators.base import MicroBatchContext
from tests.slt.session import Shape, SqlSession

FIELDS = (
    Field("id", INT),
    Field("g", STRING),
    Field("x", DOUBLE),
    Field("n", BIGINT),
    Field("d", decimal(10, 2)),
    Field("b", BOOLEAN),
    Field("ts", TIMESTAMP),
    Field("a", array(INT)),
)
ROWS = (
    (1, "a", 1.5, 1, Decimal("1.10"), True, 0, [1, 2]),
    (2, "b", -0.0, 2, None, False, -1, []),
    (3, "a", math.nan, 3, Decimal("2.25"), None, 86_400_000, None),
    (4, None, 2.5, None, Decimal("0.01"), True, 1_711_846_800_000, [3, None]),
    (5, "é", 0.0, -9_223_372_036_854_775_808, Decimal("-99999999.99"), False, None, [7]),
    (6, "", 1e308, 9_223_372_036_854_775_807, Decimal("1.10"), True, 5, [1]),
    (7, "a", None, 2, None, None, 5, [2, 1]),
)
QUERIES = """
SELECT 1 AS a, 'x' || 'y'
SELECT * FROM t
SELECT id + 1, n / 2, n % 2, -d, d * d, x FROM t WHERE id < 5
SELECT g, count(*), count(x), count(DISTINCT n), sum(n), avg(n), sum(d), avg(d), bool_and(b), bool_or(b) FROM t GROUP BY g
SELECT sum(x), avg(x) FROM t WHERE id IN (1, 2, 4, 5)
SELECT min(n), max(d), min(g), max(ts), stddev_samp(id), var_pop(id), stddev_pop(d), sum(id) FILTER (WHERE b) FROM t
SELECT count(*), sum(n), array_agg(n), string_agg(g, ',') FROM t WHERE false
SELECT g, array_agg(id ORDER BY id DESC), string_agg(g, '-' ORDER BY id) FROM t GROUP BY g
SELECT g, b, count(*), grouping(g) FROM t GROUP BY ROLLUP (g, b)
SELECT x, count(*) FROM t GROUP BY x
SELECT DISTINCT b, x IS NULL FROM t
SELECT id, row_number() OVER (PARTITION BY g ORDER BY id), rank() OVER (ORDER BY b), sum(id) OVER (ORDER BY id ROWS 1 PRECEDING) FROM t
SELECT id, lag(n) OVER (ORDER BY id), lead(g, 2, 'z') OVER (ORDER BY id), ntile(3) OVER (ORDER BY id) FROM t
SELECT id, avg(id) OVER (ORDER BY id RANGE BETWEEN 2 PRECEDING AND 1 FOLLOWING), percent_rank() OVER (ORDER BY id) FROM t
SELECT id, sum(id) OVER (ORDER BY g, id GROUPS BETWEEN 2 PRECEDING AND 1 FOLLOWING EXCLUDE CURRENT ROW), count(*) OVER (ORDER BY g RANGE UNBOUNDED PRECEDING EXCLUDE TIES) FROM t
SELECT id, max(id) OVER (ORDER BY g RANGE BETWEEN CURRENT ROW AND UNBOUNDED FOLLOWING EXCLUDE GROUP) FROM t
SELECT l.id, r.id FROM t l JOIN t r ON l.n = r.n AND l.id < r.id
SELECT l.id, r.g FROM t l LEFT JOIN t r ON l.id = r.id + 3
SELECT l.id, r.id FROM t l FULL JOIN (SELECT id FROM t WHERE id > 3) r ON l.id = r.id + 1
SELECT id FROM t WHERE EXISTS (SELECT 1 FROM t u WHERE u.id = t.id + 1 AND u.b)
SELECT id FROM t WHERE id NOT IN (SELECT n FROM t WHERE n IS NOT NULL)
SELECT id, (SELECT max(u.id) FROM t u WHERE u.g = t.g) FROM t
SELECT id, (SELECT count(*) FROM t u WHERE u.id > t.id) FROM t
SELECT g FROM t UNION SELECT 'new'
SELECT b FROM t EXCEPT SELECT true
SELECT g FROM t INTERSECT ALL SELECT g FROM t WHERE id > 1
WITH c AS (SELECT g, sum(id) AS s FROM t GROUP BY g) SELECT c.g, d.s FROM c JOIN c d ON c.g = d.g
SELECT id, u.e FROM t, UNNEST(a) AS u(e)
SELECT id, z.k FROM t LEFT JOIN LATERAL (SELECT u.id AS k FROM t u WHERE u.id > t.id ORDER BY u.id LIMIT 2) z ON true
SELECT * FROM generate_series(1, 5) AS s(v)
VALUES (1, 'a'), (2, NULL)
SELECT CASE WHEN id > 3 THEN 'big' ELSE g END, coalesce(g, '?'), length(g), substring(g FROM 1 FOR 1) FROM t WHERE id < 4
SELECT ts + INTERVAL '1 day', date_trunc('day', ts), extract(hour FROM ts), ts::date FROM t
SELECT id FROM t WHERE id > 3 AND id <> 5 OR b
SELECT CAST(n AS text), CAST(d AS int), CAST(id AS double precision), CAST(g AS text) FROM t WHERE id <> 5
SELECT DISTINCT ON (g) g, id FROM t ORDER BY g, id DESC
SELECT g, count(*) FROM t GROUP BY g HAVING count(*) > 1
SELECT g, min(x), max(x) FROM t GROUP BY g
SELECT min(x), max(x), max(x) FILTER (WHERE x < 9) FROM t WHERE id <> 2
SELECT id, max(x) OVER (ORDER BY id ROWS BETWEEN CURRENT ROW AND 1 FOLLOWING) FROM t
SELECT round(d), round(d, 1), round(d, -1), round(d, 9), trunc(d), trunc(d, 1), ceil(d), floor(d), round(x), trunc(x), round(id) FROM t
""".strip().splitlines()


def _tables() -> dict[str, pa.Table]:
    schema = arrow_schema(Schema(FIELDS))
    columns = [pa.array([r[i] for r in ROWS], f.type) for i, f in enumerate(schema)]
    return {"t": pa.Table.from_arrays(columns, schema=schema)}


@pytest.fixture(scope="module")
def database() -> Iterator[QueryDatabase]:
    limits = QueryLimits(settings=InteractiveQuerySettings(dialect="standard"))
    with closing(QueryDatabase(limits, isolating=False)) as made:
        yield made


def _plain(v: Any) -> Any:
    if isinstance(v, float):
        return "nan" if math.isnan(v) else (v, math.copysign(1.0, v))
    return tuple(map(_plain, v)) if isinstance(v, list | tuple) else v


@pytest.mark.parametrize("sql", QUERIES)
def test_duckdb_gives_what_the_operators_of_views_give(database: QueryDatabase, sql: str) -> None:
    _compare(database, sql, FIELDS, _tables()["t"])


def _compare(database: QueryDatabase, sql: str, fields: tuple[Field, ...], table: pa.Table) -> None:
    tree = asked_query(SourceText("", sql))
    assert tree is not None
    readable = {n: Readable(Schema(fields), ("id",)) for n in names_read(tree)}
    asked = compile_asked(tree, readable, now_ms=lambda: 0, functions={})
    columns = [c.column for c in asked.columns]
    made = rendered(asked.node, columns, asked.order, {})
    assert made.sql, made.why
    with closing(database.connection()) as connection:
        connection.register("t", table)
        database.offer_calls(made.sql, [])
        by_duckdb = connection.sql(made.sql).to_arrow_table().select(columns)
    by_operators = computed(asked.node, {"t": table}).select(columns)
    found, wanted = (
        Counter(map(_plain, map(tuple, (r.values() for r in t.to_pylist())))) for t in (by_duckdb, by_operators)
    )
    assert found == wanted


LETTERS = (*"abA %_", "é", "e\u0301", "ß", "İ", "ı", "Σ", "σ", "😀", "👨\u200d👩\u200d👧", "Ǆ", "ﬁ", "한", "ᄒ", "🇩", "👍🏽", "\ufeff", "\u00a0", "ŉ", "\u1e9e", "\r\n")  # fmt: skip
NUMBERS = (
    0.5,
    -0.5,
    1.5,
    2.5,
    -2.5,
    0.0,
    math.inf,
    -math.inf,
    math.nan,
    1e300,
    4503599627370497.5,
    0.49999999999999994,
)
RANDOM_FIELDS = (
    Field("id", INT),
    Field("s", STRING),
    Field("c", STRING),
    Field("n", INT),
    Field("d", decimal(38, 10)),
    Field("e", decimal(5, 5)),
    Field("x", DOUBLE),
)
RANDOM_QUERIES = """
SELECT upper(s), lower(s), reverse(s), left(s, n), right(s, n), length(s), ascii(s), lpad(s, 4, 'é'), rpad(s, 4) FROM t
SELECT trim(s), ltrim(s, 'aé'), rtrim(s, '😀'), substring(s FROM 2 FOR 2), strpos(s, c), s LIKE '%é_', s NOT LIKE 'a%' FROM t
SELECT upper(lower(s) || upper(c)), s < c, s LIKE c || '%' FROM t WHERE strpos(c, '%') = 0 AND strpos(c, '_') = 0
SELECT round(d), round(d, 2), round(d, -3), round(d, 12), trunc(d), trunc(d, 1), ceil(d), floor(d), round(d, -40) FROM t
SELECT round(e), round(e, 4), trunc(e), ceil(e), floor(e), trunc(e, 2), round(n), floor(n) FROM t
SELECT round(x), floor(x), ceil(x), trunc(x) FROM t
SELECT n, min(x), max(x) FROM t WHERE x <> 0 GROUP BY n
""".strip().splitlines()


@pytest.mark.parametrize("sql", RANDOM_QUERIES)
def test_texts_beyond_ascii_and_rounded_numbers_are_those_of_row_kernels(
    database: QueryDatabase, sql: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(reference, "MicroBatchContext", partial(MicroBatchContext, vector=False))
    random, rows = Random(54), list[tuple[Any, ...]]()
    for n in range(600):
        s, c = ("".join(random.choices(LETTERS, k=random.randrange(k))) for k in (7, 2))
        d = Decimal(random.choice((random.randint(-(10**37), 10**37), random.randint(-(10**12), 10**12))))
        e, x = (
            Decimal(random.randint(-99999, 99999)),
            random.choice((*NUMBERS, random.uniform(-9, 9), random.randint(-99, 99) / 2)),
        )
        rows.append((n, s, c, random.choice((-2, -1, 0, 1, 3, None)), _scaled(d, 10), _scaled(e, 5), x))
    schema = arrow_schema(Schema(RANDOM_FIELDS))
    columns = [pa.array([r[i] for r in rows], f.type) for i, f in enumerate(schema)]
    _compare(database, sql, RANDOM_FIELDS, pa.Table.from_arrays(columns, schema=schema))


def _scaled(number: Decimal, digits: int) -> Decimal:
    with localcontext(Context(prec=80)):
        return number.scaleb(-digits)


@pytest.fixture(scope="module")
def world() -> Iterator[SqlSession]:
    made = SqlSession(Shape())
    made.execute("CREATE TABLE t (k INT PRIMARY KEY, v INT, x DOUBLE PRECISION, s TEXT)")
    made.execute("INSERT INTO t VALUES (1, 7, 1e308, 'a'), (2, 0, 1e308, 'b'), (3, NULL, -1e308, NULL)")
    yield made
    made.close()


def test_an_error_is_one_of_a_row_that_the_query_reads(world: SqlSession) -> None:
    """Neither of one that WHERE or CASE leaves out, nor a NULL."""
    with pytest.raises(QueryError, match="division"):
        world.ask("SELECT 1 / v FROM t")
    assert sorted(map(str, world.ask("SELECT 1 / v FROM t WHERE v <> 0").to_pydict().values())) == ["[0]"]
    found = world.ask("SELECT CASE WHEN v <> 0 THEN 7 / v END AS c FROM t ORDER BY k").to_pydict()
    assert found == {"c": [1, None, None]}


def test_partial_sums_beyond_the_range_are_no_error(world: SqlSession) -> None:
    assert world.ask("SELECT sum(x) AS s FROM t").to_pylist() == [{"s": 1e308}]
    with pytest.raises(QueryError, match="out of range"):
        world.ask("SELECT sum(x) FROM t WHERE k < 3")


@pytest.mark.parametrize("sql", ["SELECT min(x) FROM t WHERE id IN (2, 5)", "SELECT max(x) FROM t WHERE x = 0"])
def test_an_extreme_that_is_both_zeros_is_left_to_the_operators(database: QueryDatabase, sql: str) -> None:
    with pytest.raises(duckdb.Error, match=DECLINED):
        _compare(database, sql, FIELDS, _tables()["t"])
    _compare(database, f"{sql} AND id <> 2", FIELDS, _tables()["t"])


def test_explain_says_who_computes_the_answer(world: SqlSession) -> None:
    assert "operators of views" in str(world.ask("EXPLAIN SELECT regr_slope(v, k) FROM t").to_pylist())
    assert "ARROW_SCAN" in str(world.ask("EXPLAIN SELECT k FROM t").to_pylist())


@pytest.mark.parametrize(
    ("order", "ids"),
    [
        ("a", "4 2 3 1 5"),
        ("a DESC", "5 1 3 2 4"),
        ("j", "5 3 4 1 2"),
        ("i DESC NULLS LAST, id", "3 2 1 4 5"),
        ("a LIMIT 2 OFFSET 1", "2 3"),
    ],
)
def test_rows_are_ordered_by_what_duckdb_orders_otherwise(order: str, ids: str) -> None:
    """As PostgreSQL 15 does: a NULL in an array is behind all values, a JSON number before a truth value."""
    world = SqlSession(Shape())
    with closing(world):
        world.execute("CREATE TABLE o (id INT PRIMARY KEY, a INT[], j JSONB, i INTERVAL)")
        world.execute(
            "INSERT INTO o VALUES (1, ARRAY[2], 'true', '1 day'), (2, ARRAY[1, 2], NULL, '25 hours'), (3, ARRAY[1, NULL], '2', '1 month'), "
            "(4, ARRAY[1], '10', '24 hours'), (5, NULL, '\"x\"', NULL)"
        )
        assert [str(v) for v in world.ask(f"SELECT id FROM o ORDER BY {order}").column(0).to_pylist()] == ids.split()
