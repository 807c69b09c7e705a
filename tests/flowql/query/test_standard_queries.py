"""Interactive queries of the standard dialect mean what views mean: the same values, or a refusal; what differs all the same is listed here."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from flowql.config.load import load_project
from flowql.query.errors import QueryError
from tests.compiler.functions.test_sql_values import POSTGRESQL
from tests.slt.rows import difference, rendered
from tests.slt.session import Shape, SqlSession

DIFFERENT: tuple[str, ...] = ()


@pytest.fixture(scope="module")
def world() -> Iterator[SqlSession]:
    made = SqlSession(Shape())
    made.execute(
        "CREATE TABLE t (k INT PRIMARY KEY, v INT, s VARCHAR, at_ TIMESTAMP, n NUMERIC, r REAL, a INT[], raw BYTEA, b BIGINT, j JSONB)"
    )
    made.execute(
        "INSERT INTO t VALUES (1, 7, 'Abc', '2024-02-29 13:05:28.5', 1.23456, 1.5, ARRAY[1, 2, 3], '\\x6162', 10, '{\"a\": 1}'), (2, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL)"
    )
    yield made
    made.close()


def test_an_interactive_query_gives_what_a_view_gives(world: SqlSession) -> None:
    same, refused, wrong = 0, 0, []
    for line in POSTGRESQL.strip().splitlines():
        text, wanted = line.rsplit(" => ", 1)
        try:
            found = rendered(world.ask(f"SELECT {text}"))
        except QueryError:
            refused += 1
            continue
        apart = difference([wanted[1:-1] if wanted.startswith("'") else wanted], found, ordered=True)
        same += not apart
        if bool(apart) != (text in DIFFERENT):
            wrong.append(f"{text}: {apart or 'the same'}")
    assert not wrong, "\n".join(wrong)
    assert (same > 200, refused < 35) == (True, True)


@pytest.mark.parametrize(
    ("select", "wanted"),
    [
        ("v / 2, -v / 2, v % 4", "3 -3 3"),
        ("s ~ 'b', s !~ '^b', s ~* 'B$', s SIMILAR TO '(a|A)%'", "t t f t"),
        ("EXTRACT(SECOND FROM at_), EXTRACT(YEAR FROM at_) / 3, DATE_PART('second', at_)", "28.5 674.666666667 28.5"),
        ("TO_CHAR(at_, 'YYYY-MM-DD HH24:MI:SS.MS')", "2024-02-29 13:05:28.500"),
        ("SUBSTRING(s FROM 0 FOR 2), SUBSTRING(s, -1), LPAD(s, 5)", "A Abc Abc"),
        ("a[-1], a[2:9], a[-5:1]", "NULL {2,3} {1}"),
        ("(k, v) IN ((1, 7)), (k, v) = (1, NULL)", "t NULL"),
        ("k BETWEEN SYMMETRIC 5 AND 0", "t"),
        ("(k, v) < (1, 8), (k, v) >= (1, NULL), (k, NULL) < (2, 0), v # 2, v & 3, ~v", "t NULL t 5 3 -8"),
        ("s ~~ 'A%', s !~~* 'a%'", "t f"),
        ("'\\x6162'::bytea::varchar, OCTET_LENGTH(s || 'é'), OCTET_LENGTH('é'::bytea), BIT_LENGTH('a'::bytea), BIT_LENGTH(s)", "\\x6162 5 2 8 24"),
        ("ENCODE(SHA256('a'::bytea), 'hex') = ENCODE(SHA256('a'::bytea), 'hex'), TO_HEX(255)", "t ff"),
        ("a::text, at_::text, ARRAY['b c', NULL]::text, ROW(1, 'x y')::text, '{1,NULL}'::int[], r::text", '{1,2,3} 2024-02-29 13:05:28.5 {"b c",NULL} (1,"x y") {1,NULL} 1.5'),
        ("2 = ANY(a), 9 = ANY(a || NULL), 9 <> ALL(a), NULL::int = ANY(a), 1 = ANY(NULL::int[])", "t f t NULL NULL"),
        ("a @> ARRAY[1], ARRAY[1, NULL] <@ a, array_length('{}'::int[], 1), array_positions(a, 2), array_remove(a, 2)", "t f NULL {2} {1,3}"),
        ("array_to_string(ARRAY[1, NULL], ',', '*'), string_to_array('', ','), string_to_array('ab', NULL)", "1,* {} {a,b}"),
        ("TO_CHAR(v, 'FM000'), TO_CHAR(n, '9.99'), TO_CHAR(at_, 'FMDay J'), TO_NUMBER('1,2', '9,9'), INITCAP('a b'), DIV(v, 2)", "007  1.23 Thursday 2460370 12 A B 3"),
        ("s LIKE 'A\\_c', s LIKE 'A_c', regexp_replace('ä b', '(\\w) (\\w)', '\\2\\1'), SUBSTRING(s FROM 'b(.)'), REGEXP_MATCH(s, '(.)b')", "f t bä c {A}"),
        ("FORMAT('%s %L', a, s), CONCAT(s, NULL, true), at_ + INTERVAL '1 02:00', at_ + MAKE_INTERVAL(days => 1)", "{1,2,3} 'Abc' Abct 2024-03-01 15:05:28.5 2024-03-01 13:05:28.5"),
        ("(s, v) IS NULL, (s, NULL) IS NOT NULL, date_bin('15 minutes', at_, TIMESTAMP '2001-01-01')", "f f 2024-02-29 13:00:00"),
        ("a || NULL, NULL || a, a || 4, 0 || a, array_cat(a, a), array_cat(NULL, a) || 9", "{1,2,3} {1,2,3} {1,2,3,4} {0,1,2,3} {1,2,3,1,2,3} {1,2,3,9}"),
        ("SUBSTRING('abc' FROM NULLIF(v, 7)) IS NULL, SUBSTRING(s FROM 1 FOR NULLIF(v, 7)), a || CASE WHEN v > 7 THEN a END", "t NULL {1,2,3}"),
        ("a[k], a[k - 2], a[k + 9]", "1 NULL NULL"),
        ("SPLIT_PART(s, '', 1), SPLIT_PART(s, '', 2), STRING_TO_ARRAY(s, ''), LENGTH(raw), LENGTH(s)", "Abc (empty) {Abc} 2 3"),
        ("ROUND(r + 1), ROUND(-r - 1), ROUND(n), ROUND(SQRT(6.25)), ROUND(v)", "2 -2 1 3 7"),
        ("(j || '{\"b\": 2}') || '{\"c\": 3}', j || j, a || a[2:3], COALESCE(a, a) || 4", '{"a": 1, "b": 2, "c": 3} {"a": 1} {1,2,3,2,3} {1,2,3,4}'),
        ("UUID 'A0EEBC99-9C0B-4EF8-BB6D-6BB9BD380A11' = 'a0eebc99-9c0b-4ef8-bb6d-6bb9bd380a11'", "t"),
        ("TO_DATE('29.02.2024', 'DD.MM.YYYY'), OVERLAY(s PLACING 'x' FROM 2 FOR 1)", "2024-02-29 Axc"),
    ],
)  # fmt: skip
def test_columns_are_asked_as_views_compute(world: SqlSession, select: str, wanted: str) -> None:
    assert difference([wanted], rendered(world.ask(f"SELECT {select} FROM t WHERE k = 1")), ordered=True) == ""
    nothing = world.ask(f"SELECT {select} FROM t WHERE k = 2")  # no function fails for NULL
    assert nothing.num_rows == 1


def nested(column: str, times: int) -> str:
    return column if not times else f"CAST({nested(column, times - 1)} || 'x' AS TEXT)"


def test_nested_calls_are_planned_once(world: SqlSession) -> None:
    """Three of them took minutes in DuckDB's planner, which nothing can interrupt: each named its argument several times."""
    chain = " || '-' || ".join(("s", "v", "r", "b", "k"))
    arrays = "trim_array(" * 8 + "ARRAY[1, 2, 3, 4, 5, 6, 7, 8, 9, 10]" + ", 1)" * 8
    sql = f"SELECT {nested('r', 12)}, {nested('CAST(j AS TEXT)', 12)}, {chain}, {arrays}, array_to_string(string_to_array(array_to_string(a, '+'), '+'), '*') FROM t"
    first, second = sorted(rendered(world.ask(f"{sql} ORDER BY k")))
    assert difference([f'1.5{"x" * 12} {{"a": 1}}{"x" * 12} Abc-7-1.5-10-1 {{1,2}} 1*2*3'], [first], ordered=True) == ""
    assert difference(["NULL NULL NULL {1,2} NULL"], [second], ordered=True) == ""


RELATIONS = (
    "SELECT v.* FROM (VALUES (1, 'a'), (2, NULL)) AS v, t WHERE t.k = 1",
    "WITH w AS (VALUES (1), (3)) SELECT w.column1, t.v FROM w LEFT JOIN t ON t.k = w.column1",
    "SELECT k, v FROM t UNION ALL VALUES (5, 6)",
    "SELECT k, ARRAY(SELECT u.k + 1 AS n FROM t AS u WHERE u.k > t.k ORDER BY n DESC) AS x, ARRAY(SELECT DISTINCT u.s FROM t AS u WHERE u.k = 1) FROM t",
    "SELECT k, NULL AS x FROM t UNION ALL SELECT NULL, s FROM t",
    "SELECT k, ROW(v, s) IS NULL AS x, (v, s, NULL) IS NOT NULL AS y, ROW(k, 1) IS NOT NULL AS z FROM t",
    "SELECT v, k FROM t UNION CORRESPONDING SELECT k AS k, 9 AS v, s FROM t",
    "SELECT k, v FROM t EXCEPT CORRESPONDING BY (v) SELECT v FROM t WHERE k = 2",
    "SELECT t.k, e.x, e.n FROM t, UNNEST(t.a) WITH ORDINALITY AS e(x, n)",
    "SELECT t.k, e FROM t LEFT JOIN UNNEST(t.a) AS e ON TRUE",
    "SELECT t.k, g.* FROM t, generate_series(t.k, 2) AS g",
    "SELECT t.k, l.m FROM t, LATERAL (SELECT MAX(u.k) AS m FROM t AS u WHERE u.k > t.k) AS l",
    "SELECT k, v > ALL (SELECT u.k FROM t AS u WHERE u.k = t.k) AS c FROM t",
    "SELECT k, GROUPING(k, s) AS g, COUNT(*) AS n FROM t GROUP BY ROLLUP (k, s)",
    "SELECT BIT_AND(k) AS x, BIT_OR(k) AS y, BIT_XOR(v) AS z, CORR(v, k) AS c, REGR_SLOPE(v, k) AS r, COVAR_POP(v, k) AS p FROM t",
    "SELECT SUM(b) / 4 AS x, (SUM(b) + 1) / COUNT(*) AS y, SUM(v) / 2 AS z FROM t",
    "SELECT t.k FROM public.t JOIN public.t AS u ON u.k = t.k",
    "SELECT q.s / 4 AS x FROM (SELECT SUM(b) AS s FROM t) AS q",
    "SELECT k, SUM(COUNT(*)) OVER () / 4 AS x FROM t GROUP BY k",
    "SELECT PERCENTILE_CONT(0.25) WITHIN GROUP (ORDER BY x) AS p FROM (VALUES (1.0), (1.01), (9.5)) AS q(x)",
    "SELECT STRING_AGG(s, NULL) AS x FROM (SELECT s FROM t UNION ALL SELECT s FROM t) AS q",
    "SELECT k FROM t WHERE (k, v) NOT IN (SELECT k, v FROM t AS u WHERE u.k = 2)",
)


def test_relations_are_asked_as_views_compute_them(world: SqlSession) -> None:
    errors = world.define([f"CREATE VIEW asked{n} AS {sql}" for n, sql in enumerate(RELATIONS)])
    assert errors == [None] * len(RELATIONS)
    for n, sql in enumerate(RELATIONS):
        asked, held = world.ask(sql), world.ask(f"SELECT * FROM asked{n}")
        assert asked.column_names == held.column_names, sql
        assert difference(rendered(held), rendered(asked), ordered=False) == "", sql


def test_columns_of_values_are_called_column1_and_so_on(world: SqlSession) -> None:
    assert world.ask("VALUES (1, 'a') ORDER BY 1 LIMIT 1").column_names == ["column1", "column2"]


def test_columns_have_the_names_that_postgresql_gives_them(world: SqlSession) -> None:
    asked = world.ask(
        "SELECT v + 1, COUNT(*), *, UPPER(s), a::text, v::bigint FROM t GROUP BY k, v, s, at_, n, r, a, raw, b, j"
    )
    assert asked.column_names == [
        "?column?",
        "count",
        "k",
        "v",
        "s",
        "at_",
        "n",
        "r",
        "a",
        "raw",
        "b",
        "j",
        "upper",
        "a_1",
        "v_1",
    ]
    inner = (
        "WITH w AS (SELECT SUM(v) FROM t) SELECT q.max + w.sum AS x FROM w, (SELECT MAX(v) FROM t UNION SELECT 1) AS q"
    )
    assert sorted(rendered(world.ask(inner))) == ["14", "8"]


def test_what_reads_no_table_can_be_asked_beside_a_view_that_reads_none(world: SqlSession) -> None:
    """The table that such a view reads has no columns, and DuckDB refuses it: no query without a table was answered."""
    world.execute("CREATE VIEW nothing AS SELECT 1 AS one")
    assert rendered(world.ask("SELECT 1 + 1")) == ["2"]


def test_ties_of_the_last_row_are_shown(world: SqlSession) -> None:
    ask = "SELECT x AS y FROM UNNEST(ARRAY[3, 1, 2, 2]) AS u(x) ORDER BY {} FETCH FIRST 2 ROWS WITH TIES"
    assert [rendered(world.ask(ask.format(by))) for by in ("1", "y", "x")] == [["1", "2", "2"]] * 3


def test_null_is_the_largest_value(world: SqlSession) -> None:
    assert rendered(world.ask("SELECT v FROM t ORDER BY v DESC")) == ["NULL", "7"]
    assert rendered(world.ask("SELECT v FROM t ORDER BY v")) == ["7", "NULL"]


@pytest.mark.parametrize(
    "select",
    [
        "s SIMILAR TO '(' FROM t",
        "s ~ '(?=a)' FROM t",
        "TO_CHAR(at_, 'TMDay') FROM t",
        "DATE 'infinity'",
        "(ARRAY[1])[4294967296:3]",
        "(1, 2) < (3, 4, 5)",
        "FORMAT('%s', s, '%') || FORMAT('%d', v) FROM t",
        "(1, 2) = (1, 2, 3)",
        "'{1,x}'::int[]",
        "'\\x1'::bytea",
        "v / 0 FROM t",
        "k FROM t UNION CORRESPONDING SELECT v FROM t",
    ],
)
def test_what_cannot_be_asked_is_refused(world: SqlSession, select: str) -> None:
    with pytest.raises(QueryError):
        world.ask(f"SELECT {select}")


def test_the_dialect_of_a_project_is_that_of_its_interactive_queries(tmp_path: Path) -> None:
    for dialect in ("standard", "ksql"):
        file = tmp_path / "flowql.yaml"
        file.write_text(f"name: p\ndialect: {dialect}\n")
        assert load_project(file).target.interactive_queries.dialect == dialect
    file.write_text("name: p\ndialect: standard\ntargets: {dev: {memory: 2 GB, interactive_queries: {rows: 5}}}\n")
    target = load_project(file).target
    assert (target.interactive_queries.dialect, target.interactive_queries.rows) == ("standard", 5)


@pytest.mark.parametrize(
    ("sql", "said"),
    [
        ("SELECT REGEXP_MATCHES(s, 'b') FROM t", "REGEXP_MATCH(text, pattern)"),
        ("SELECT CAST(s AS CHAR(5)) FROM t", "CHAR(n), which adds blanks"),
        ("SELECT B'101'", "unknown type b"),
        ("SELECT '24:00'::time", "out of range"),
        ("SELECT * FROM t FOR UPDATE", "leave it out: no row is locked"),
        ("SELECT k FROM t WHERE k == 1 FOR SHARE", "write  ="),
        ("SELECT 'b'::uuid", "invalid input syntax for type uuid"),
    ],
)
def test_what_duckdb_understands_otherwise_is_refused(world: SqlSession, sql: str, said: str) -> None:
    with pytest.raises(QueryError) as caught:
        world.ask(sql)
    assert said in f"{caught.value} {caught.value.help}"
