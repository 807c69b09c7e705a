"""What may be asked, and what is found out about an interactive query before it is."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import duckdb
import pytest

from flowql.query.errors import QueryError
from flowql.query.statement import EXPLAIN, Condition, Literal, Statement, parse


@pytest.fixture
def connection() -> Iterator[duckdb.DuckDBPyConnection]:
    made = duckdb.connect(":memory:", config={"threads": "1"})
    yield made
    made.close()


@pytest.mark.parametrize(
    ("sql", "said"),
    [
        ("INSERT INTO t VALUES (1)", "INSERT"),
        ("UPDATE t SET a = 1", "UPDATE"),
        ("DELETE FROM t", "DELETE"),
        ("CREATE TABLE x (a INT)", "CREATE"),
        ("DROP TABLE t", "DROP"),
        ("ATTACH 'x.db'", "ATTACH"),
        ("COPY t TO 'x.csv'", "COPY"),
        ("COPY (SELECT 1) TO 'x.csv'", "COPY"),
        ("EXPORT DATABASE 'x'", "EXPORT"),
        ("INSTALL httpfs", "LOAD"),
        ("LOAD httpfs", "LOAD"),
        ("PRAGMA version", "PRAGMA"),
        ("SET threads = 4", "SET"),
        ("USE other", "SET"),
        ("CALL duckdb_tables()", "CALL"),
        ("PREPARE p AS SELECT 1", "PREPARE"),
        ("BEGIN", "TRANSACTION"),
        ("VACUUM", "VACUUM"),
        ("WITH w AS (INSERT INTO t VALUES (1)) SELECT 1", "writes"),
        ("WITH w AS (DELETE FROM t) SELECT 1", "writes"),
        ("EXPLAIN INSERT INTO t VALUES (1)", "INSERT"),
        ("/* a */ EXPLAIN ANALYZE COPY (SELECT 1) TO 'x'", "COPY"),
        ("/* /* */ explain SELECT 1 -- */ explain analyze create table x as select 1", "CREATE"),
        ("EXPLAIN /* /* */ ANALYZE SELECT 1 -- */ ANALYZE CREATE TABLE x AS SELECT 1", "CREATE"),
        ("EXPLAIN --\r ANALYZE CREATE TABLE x AS SELECT 1", "CREATE"),
        ("SELECT 1; DROP TABLE t", "2 statements"),
        ("SELECT * FROM query('SELECT 1')", "query()"),
        ("SELECT * FROM query_table('t')", "query_table()"),
        ("", "no statement"),
        ("SELEC 1", "syntax error"),
        ("SELECT " + "(SELECT " * 300 + "1" + ")" * 300, "nested too deeply"),
    ],
)
def test_refuses(sql: str, said: str, connection: duckdb.DuckDBPyConnection) -> None:
    with pytest.raises(QueryError) as refused:
        parse(sql, connection)
    assert said.casefold() in refused.value.title.casefold()


@pytest.mark.parametrize("sql", ["print 'orders' FROM BEGINNING", "LIST STREAMS", "SHOW QUERIES FROM x y"])
def test_statements_of_the_shell_are_named(sql: str, connection: duckdb.DuckDBPyConnection) -> None:
    """`flowql query "PRINT ..."` said only that DuckDB found a syntax error."""
    with pytest.raises(QueryError) as refused:
        parse(sql, connection)
    assert f"flowql shell -c '{sql.split()[0].upper()} ...'" in refused.value.help


def joined(n: int) -> str:
    return "SELECT 1 FROM range(1) t0" + "".join(f" JOIN range(1) t{i} USING (range)" for i in range(1, n + 1))


def copied(levels: int) -> str:
    """A join per level, and of the last one as many copies as there are ways to it."""
    named = [f"a{i} AS NOT MATERIALIZED (SELECT x.range FROM a{i - 1} x, a{i - 1} y)" for i in range(1, levels)]
    return f"WITH a0 AS (SELECT range FROM range(2)), {', '.join(named)} SELECT * FROM a{levels - 1}"


@pytest.mark.parametrize(
    ("made", "most", "said"),
    [
        (joined, 64, "at most 64 joins"),
        (copied, 3, "at most 64 joins"),
        (lambda n: "SELECT " + ", ".join(["(SELECT 1)"] * n), 32, "at most 64 joins"),
        (lambda n: " UNION ALL ".join(["SELECT 1"] * n), 1_000, "at most 1,000 SELECTs"),
    ],
)
def test_what_takes_longer_to_plan_than_an_interactive_query_may_take_is_refused(
    made: Callable[[int], str], most: int, said: str, connection: duckdb.DuckDBPyConnection
) -> None:
    """DuckDB was planning for minutes after the interactive query's time was over, and nothing ended that."""
    assert parse(made(most), connection).sql == made(most)
    with pytest.raises(QueryError, match=said) as raised:
        parse(made(most + 1), connection)
    assert raised.value.code == "FQ5109"


def test_a_comment_in_a_comment_hides_no_other_statement() -> None:
    """DuckDB takes comments before a statement away; what it might leave is not taken for a comment that ends earlier."""
    assert EXPLAIN.match("/* /* */ explain SELECT 1 -- */ explain analyze create table x as select 1") is None
    assert EXPLAIN.match("SELECT 1 /* explain */") is None


@pytest.mark.parametrize(
    ("sql", "is_short"),
    [
        ("SELECT * FROM t LIMIT 20", True),
        ("SELECT * FROM t ORDER BY a LIMIT 20 OFFSET 8000", True),
        ("SELECT 1 UNION ALL SELECT a FROM t LIMIT 3", True),
        ("DESCRIBE t", True),
        ("SUMMARIZE t", True),
        ("EXPLAIN SELECT * FROM t", True),
        ("SELECT * FROM t", False),
        ("SELECT * FROM t LIMIT 10%", False),
        ("SELECT * FROM t LIMIT 100000", False),
        ("SELECT * FROM t LIMIT 5 OFFSET 100000", False),
        ("SELECT * FROM t OFFSET 5", False),
        ("SELECT * FROM t LIMIT (SELECT 3)", False),
        ("SELECT * FROM (SELECT * FROM t LIMIT 3) u", False),
    ],
)
def test_an_answer_is_known_to_be_short(sql: str, is_short: bool, connection: duckdb.DuckDBPyConnection) -> None:
    assert parse(sql, connection).is_short is is_short


@pytest.mark.parametrize(
    ("sql", "tables"),
    [
        ("SELECT 1", ()),
        ("WITH a AS (SELECT * FROM t) SELECT * FROM a JOIN B ON true", ("B", "a", "t")),
        ('SELECT * FROM "CTAS_X-aggregate-1" WHERE k IN (SELECT k FROM u)', ("CTAS_X-aggregate-1", "u")),
        ("DESCRIBE t", ("t",)),
        ("SHOW TABLES", ()),
        ("FROM t", ("t",)),
        ("EXPLAIN ANALYZE SELECT * FROM t", ("t",)),
        ("-- a\n/* b */ EXPLAIN /* c */ ANALYZE -- d\n (FORMAT json) /* e */ SELECT * FROM t", ("t",)),
        ("EXPLAIN /* a /* b */ */ SELECT * FROM t", ("t",)),
    ],
)
def test_finds_relations(sql: str, tables: tuple[str, ...], connection: duckdb.DuckDBPyConnection) -> None:
    assert parse(sql, connection).tables == tables


def integers(*values: int) -> tuple[Literal, ...]:
    return tuple(Literal("INTEGER", str(v)) for v in values)


@pytest.mark.parametrize(
    ("sql", "conditions"),
    [
        ("SELECT * FROM t WHERE k = 1", (Condition("k", "=", integers(1)),)),
        (
            "SELECT * FROM T x WHERE x.K = -1 AND 5 > k",
            (Condition("k", "=", integers(-1)), Condition("k", "<", integers(5))),
        ),
        ("SELECT * FROM t WHERE k IN (1, 2)", (Condition("k", "=", integers(1, 2)),)),
        (
            "SELECT * FROM t WHERE k BETWEEN 1 AND 2",
            (Condition("k", ">=", integers(1)), Condition("k", "<=", integers(2))),
        ),
        ("SELECT * FROM t WHERE k = 1 OR k = 2", ()),
        ("SELECT * FROM t WHERE NOT k = 1", ()),
        ("SELECT * FROM t WHERE k = other", ()),
        ("SELECT * FROM t WHERE y.k = 1", ()),
    ],
)
def test_finds_conditions(sql: str, conditions: tuple[Condition, ...], connection: duckdb.DuckDBPyConnection) -> None:
    assert parse(sql, connection).conditions.get("t", ()) == conditions


@pytest.mark.parametrize(
    "sql",
    [
        "SELECT * FROM t WHERE k = 1 UNION ALL SELECT * FROM t",
        "SELECT * FROM t a, t b WHERE a.k = 1",
        "SELECT * FROM t WHERE k = 1 AND EXISTS (SELECT 1 FROM t)",
        "SELECT * FROM t LEFT JOIN u ON true WHERE t.k = 1",
        "SELECT * FROM t AS x(other, k) WHERE k = 1",
    ],
)
def test_a_relation_read_twice_or_beside_others_is_read_whole(sql: str, connection: duckdb.DuckDBPyConnection) -> None:
    assert not parse(sql, connection).conditions.get("t")


def test_columns_are_those_a_text_can_name(connection: duckdb.DuckDBPyConnection) -> None:
    def touches(sql: str) -> Statement:
        return parse(sql, connection)

    assert {"a", "b", "c"} <= (touches("SELECT A FROM t JOIN u USING (b) WHERE u.c > 1").columns or set())
    assert "d" not in (touches("SELECT A FROM t").columns or {"d"})
    for sql in (
        "SELECT * FROM t",
        "SELECT t FROM t",
        "SELECT count(*) FROM t NATURAL JOIN u",
        "SELECT COLUMNS('x') FROM t",
    ):
        assert touches(sql).columns is None


@pytest.mark.parametrize(
    ("sql", "line", "column", "length"),
    [
        ("SELECT 1 FORM x", 1, 15, 1),
        ("SELECT 1,\n  count( FROM x", 2, 10, 4),
        ("SELECT " + "1, " * 60 + "FROM FROM x", 1, 193, 4),
    ],
)
def test_what_duckdb_cannot_read_has_a_place(sql: str, line: int, column: int, length: int) -> None:
    with pytest.raises(QueryError) as refused:
        parse(sql, duckdb.connect())
    span = refused.value.span
    assert (span.line, span.column, span.length) == (line, column, length)
    assert span.line_text == sql.splitlines()[line - 1]
