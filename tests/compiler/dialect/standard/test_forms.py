"""Forms of standard SQL: those that mean the same, and those that are refused by their names."""

from __future__ import annotations

import pytest

from flowql.compiler.diagnostics.source import SourceText
from flowql.compiler.dialect.parser import parse_expression
from flowql.compiler.driver import Compiled, compile_project
from flowql.compiler.plan.logical import Node

SOURCE = """CREATE STREAM s (k INT KEY, v INT, t VARCHAR, b BOOLEAN) WITH (kafka_topic='s', partitions=1, value_format='JSON', key_format='JSON');
CREATE TABLE r (k INT, g INT, PRIMARY KEY (k)) WITH (kafka_topic='r', partitions=1, value_format='JSON', key_format='JSON');
CREATE TABLE own (k INT PRIMARY KEY, g INT);"""


def compiled(text: str) -> Compiled:
    return compile_project([SourceText("q.sql", f"{SOURCE}\n{text}")], dialect="standard")


def logical(query: str, head: str = "CREATE VIEW w AS") -> Node:
    """The plan of a view."""
    made = compiled(f"{head} {query};")
    assert made.ok, [d.title for d in made.diagnostics]
    (running,) = made.plan.queries
    return running.logical


@pytest.mark.parametrize(
    ("query", "same"),
    [
        (
            "WITH q AS (SELECT k, v FROM s WHERE b) SELECT k, v FROM q",
            "SELECT k, v FROM (SELECT k, v FROM s WHERE b) AS q",
        ),
        ("WITH q AS (SELECT k, v FROM s) SELECT k, x.v FROM q AS x", "SELECT k, x.v FROM (SELECT k, v FROM s) x"),
        ("WITH q (k, w) AS (SELECT k, v FROM s) SELECT k, w FROM q", "SELECT k, w FROM (SELECT k, v AS w FROM s) q"),
        ("SELECT k, w FROM (SELECT k, v FROM s) AS q (k, w)", "SELECT k, w FROM (SELECT k, v AS w FROM s) q"),
        (
            "WITH a AS (SELECT k, v FROM s), q AS (SELECT k, v FROM a WHERE v > 1) SELECT k, v FROM q",
            "SELECT k, v FROM (SELECT k, v FROM (SELECT k, v FROM s) a WHERE v > 1) q",
        ),
        (
            "WITH s AS (SELECT k, v FROM s WHERE v > 1) SELECT k, v FROM s",  # the inner s is the stream
            "SELECT k, v FROM (SELECT k, v FROM s WHERE v > 1) s",
        ),
        (
            "WITH q AS (SELECT k, v FROM s) SELECT k, v FROM (WITH q AS (SELECT k, v + 1 AS v FROM q) SELECT k, v FROM q) x",
            "SELECT k, v FROM (SELECT k, v FROM (SELECT k, v + 1 AS v FROM (SELECT k, v FROM s) q) q) x",
        ),
        (
            "SELECT v + 1 AS w, COUNT(*) AS n FROM s GROUP BY 1",
            "SELECT v + 1 AS w, COUNT(*) AS n FROM s GROUP BY v + 1",
        ),
        ("SELECT v, t, COUNT(*) AS n FROM s GROUP BY (v, t)", "SELECT v, t, COUNT(*) AS n FROM s GROUP BY v, t"),
        ("((SELECT k, v FROM public.s))", "SELECT k, v FROM s"),
        (
            "SELECT k, v::bigint AS x FROM s WHERE b IS TRUE",
            "SELECT k, CAST(v AS bigint) AS x FROM s WHERE b IS NOT DISTINCT FROM TRUE",
        ),
        (
            "SELECT k, TIMESTAMP '2024-05-01' + INTERVAL '1 day 02:00' AS x, INTERVAL '10' * v AS y FROM s",
            "SELECT k, TIMESTAMP '2024-05-01' + INTERVAL '1 day 7200 seconds' AS x, INTERVAL 10 SECONDS * v AS y FROM s",
        ),
        ("SELECT k, v FROM s WHERE t ISNULL AND (b IS UNKNOWN)", "SELECT k, v FROM s WHERE t IS NULL AND b IS NULL"),
        (
            "SELECT k, v FROM s WHERE (v, (t, b)) IS NOT NULL",
            "SELECT k, v FROM s WHERE v IS NOT NULL AND (t IS NOT NULL AND b IS NOT NULL)",
        ),
    ],
)
def test_two_ways_of_one_plan(query: str, same: str) -> None:
    assert logical(query) == logical(same)


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("t + INTERVAL '1' DAY", "(t + INTERVAL '1' DAY)"),
        ("sqrt(t::varchar(3))", "SQRT(CAST(t AS VARCHAR(3)))"),
        ("b * (v BETWEEN SYMMETRIC 1 AND 2)", "(b * (v BETWEEN SYMMETRIC 1 AND 2))"),
        ("sqrt(CASE v WHEN 1 THEN 'x' END)", "SQRT(CASE v WHEN 1 THEN 'x' END)"),
        ("b % 1e3", "(b % 1e3)"),
    ],
)
def test_messages_show_what_was_written(text: str, shown: str) -> None:
    """They showed the forms that these mean: `INTERVAL '0 months 1 days 0 us'`, and both orders of BETWEEN SYMMETRIC."""
    (found,) = compiled(f"CREATE VIEW w AS SELECT k, {text} AS x FROM s;").diagnostics
    assert found.title.startswith(f"error processing expression {shown}: ")


def test_a_view_with_columns_names_those_of_its_query() -> None:
    assert logical("SELECT k, v + 1 FROM s", "CREATE MATERIALIZED VIEW w (a, x) AS") == logical(
        "SELECT k AS a, v + 1 AS x FROM s"
    )


def test_a_key_of_the_table_is_that_of_its_column() -> None:
    (found,) = (x for x in compiled("").plan.sources if x.name == "r")
    assert [(f.name, f.role) for f in found.schema] == [("k", "key"), ("g", "value")]


def test_a_view_is_dropped_as_a_view() -> None:
    view = "CREATE VIEW w AS SELECT k, v FROM s;"
    assert compiled(f"{view} DROP MATERIALIZED VIEW IF EXISTS nowhere; DROP VIEW w;").plan.queries == ()
    (found,) = compiled("DROP VIEW s;").diagnostics
    assert (found.code, found.help) == ("FQ2053", "write DROP STREAM s")


@pytest.mark.parametrize(
    ("query", "named", "at"),
    [
        ("SELECT k FROM s MINUS SELECT k FROM r", "MINUS", "MINUS"),
        ("WITH RECURSIVE q AS (SELECT k FROM s) SELECT k FROM q", "WITH RECURSIVE", "q AS (SELECT k FROM s)"),
        ("SELECT k FROM s QUALIFY v = 1", "QUALIFY", "v = 1"),
        ("SELECT s.k FROM s ANTI JOIN r ON s.k = r.k", "ANTI JOIN", "ANTI JOIN"),
        ("SELECT s.k FROM s x SEMI JOIN r ON x.k = r.k", "SEMI JOIN", "SEMI JOIN"),
        ("SELECT k FROM s LATERAL VIEW explode(b) x", "LATERAL VIEW", "LATERAL"),
        ("SELECT k FROM s TABLESAMPLE BERNOULLI (10)", "TABLESAMPLE", "TABLESAMPLE"),
        ("SELECT k, CURRENT_TIME AS x FROM s", "CURRENT_TIME", "CURRENT_TIME"),
        ("SELECT k, v::timetz AS x FROM s", "the type TIMETZ", "timetz"),
        ("SELECT k, v FROM s WINDOW TUMBLING (SIZE 1 HOUR)", "the WINDOW clause in a view", ""),
        ("SELECT s.k FROM s JOIN s x WITHIN 1 HOUR ON s.k = x.k", "WITHIN in a view", ""),
        ("SELECT k, v FROM s PARTITION BY v", "PARTITION BY in a view", "v"),
        ("SELECT v, COUNT(*) AS n FROM s GROUP BY v EMIT FINAL", "EMIT FINAL of a view", ""),
    ],
)
def test_what_cannot_run_is_refused_by_its_name(query: str, named: str, at: str) -> None:
    (found,) = compile_project(
        [SourceText("q.sql", f"{SOURCE}\nCREATE VIEW w AS\n{query};")], dialect="standard"
    ).diagnostics
    assert (found.code, found.unsupported, found.title) == ("FQ1901", True, f"{named} is not supported yet")
    assert not at or query[found.span.column - 1 :][: found.span.length] == at


@pytest.mark.parametrize(
    ("text", "named"),
    [
        ("UPDATE r SET (g, h) = (SELECT 1, 2) FROM s", "SET of several columns to a sub-query beside FROM"),
        (
            "INSERT INTO own (k) VALUES (1) ON CONFLICT (k) DO UPDATE SET g = 1 WHERE own.k IN (SELECT k FROM s)",
            "IN (a sub-query)",
        ),
        ("CREATE INDEX i ON r (g)", "CREATE INDEX"),
        (
            "CREATE TABLE x (k INT PRIMARY KEY, CHECK (row_number() OVER (PARTITION BY k) > 1))",
            "a window function (OVER)",
        ),
        ("CREATE TABLE x (k INT PRIMARY KEY) ON CONFLICT DO UPDATE", "ON CONFLICT DO UPDATE"),
        (
            "CREATE TABLE x (k INT PRIMARY KEY) WITH (KAFKA_TOPIC='x') APPEND ONLY",
            "APPEND ONLY of a table over a topic with a PRIMARY KEY",
        ),
        (
            "CREATE TABLE x (k INT PRIMARY KEY, ts TIMESTAMP, WATERMARK FOR ts AS ts - INTERVAL '5' SECOND)",
            "WATERMARK of a table with a PRIMARY KEY",
        ),
        ("CREATE TABLE x (k INT PRIMARY KEY, v INT NOT NULL) WITH (KAFKA_TOPIC='x')", "NOT NULL of a column"),
        ("CREATE TABLE x (k INT PRIMARY KEY, v INT DEFAULT 1) WITH (KAFKA_TOPIC='x')", "DEFAULT of a column"),
        ("CREATE TABLE x (k INT PRIMARY KEY, v INT UNIQUE)", "UNIQUE of a column"),
        ("CREATE TABLE x (k INT, v INT AS (k + 1)) WITH (KAFKA_TOPIC='x')", "a generated column"),
        ("INSERT INTO r VALUES (1, 2) ON CONFLICT ON CONSTRAINT c DO NOTHING", "ON CONFLICT ON CONSTRAINT"),
        ("CREATE SINK x INTO y FROM z", "CREATE SINK"),
        ("DROP TABLE r CASCADE", "DROP ... CASCADE"),
        ("CREATE UNIQUE INDEX CONCURRENTLY i ON r USING btree (g)", "CREATE INDEX"),
        ("ALTER TABLE r ADD CONSTRAINT c UNIQUE (g)", "ALTER TABLE ... ADD CONSTRAINT"),
        ("ALTER TABLE r ADD PRIMARY KEY (g)", "ALTER TABLE ... ADD PRIMARY"),
        ("INSERT INTO r VALUES (1, 2) ON DUPLICATE KEY UPDATE g = 1", "ON DUPLICATE KEY"),
        ("INSERT OVERWRITE r SELECT * FROM s", "INSERT OVERWRITE"),
        ("WITH q AS (SELECT 1 AS k) MERGE INTO r USING q ON TRUE WHEN MATCHED THEN DELETE", "WITH ... MERGE"),
        (
            "WITH own AS (SELECT 1 AS k) DELETE FROM own WHERE k IN (SELECT k FROM own)",
            "a table of WITH with the name of the table that is changed",
        ),
        ("INSERT INTO r (k, g) VALUES ((SELECT 1), DEFAULT)", "DEFAULT beside a sub-query in VALUES"),
        ("CREATE TYPE mood AS ENUM ('a', 'b')", "CREATE TYPE ... AS ENUM"),
        ("CREATE TYPE pair AS (a INT, b INT)", "CREATE TYPE ... AS (...)"),
        ("CREATE PUBLICATION p FOR TABLE r", "CREATE PUBLICATION"),
        ("CREATE CONTINUOUS VIEW v AS SELECT k FROM r", "CREATE CONTINUOUS"),
        ("RESET ALL", "RESET"),
        ("DEALLOCATE p", "DEALLOCATE"),
        ("CANCEL JOB 1", "CANCEL"),
        ("\\d r", "a command of psql"),
    ],
)
def test_statements_that_cannot_run_are_refused_by_their_name(text: str, named: str) -> None:
    (found,) = compiled(text).diagnostics
    assert (found.code, found.unsupported, found.title) == ("FQ1901", True, f"{named} is not supported yet")


@pytest.mark.parametrize(
    ("text", "code", "said"),
    [
        ("SELECT a = b = c FROM t", "FQ1001", "expected the end of the statement, found `=`"),
        ("SELECT group FROM t", "FQ1005", 'quote it to use it as a name: "group"'),
        ("SELECT a FROM user", "FQ1005", "user"),
        ("SELECT a FROM t x SIDEWAYS JOIN u ON b", "FQ1001", "`SIDEWAYS` is not a kind of join"),
        ("SELECT a FROM t CROSS JOIN u ON b", "FQ1003", "CROSS JOIN has no condition"),
        ("SELECT a FROM t LEFT u ON b", "FQ1001", "expected JOIN"),
        ("SELECT a FROM t JOIN u", "FQ1001", "`ON` with the condition of the join"),
        ("SELECT k FROM s GROUP BY 2", "FQ2002", "position 2"),
        ("SELECT a FROM t LIMIT 1 LIMIT 2", "FQ1003", "LIMIT cannot be used here"),
        ("SELECT a FROM t ORDER BY a WHERE b", "FQ1003", "WHERE cannot be used here"),
        ("SELECT f(a ROWS BETWEEN UNBOUNDED FOLLOWING AND CURRENT ROW)", "FQ1001", "a comma or `)`"),
        ("SELECT sum(a) OVER (ROWS BETWEEN UNBOUNDED FOLLOWING AND CURRENT ROW)", "FQ1003", "ends before it begins"),
        ("SELECT a FROM other.t", "FQ2001", "there is no schema other"),
        ("SELECT 1x", "FQ1004", "`1x` is not a number"),
        ("SELECT INTERVAL 'soon' FROM s", "FQ1009", "'soon' is not an interval"),
        ("VALUES (1, 2), (3)", "FQ1001", "different lengths"),
        ("WITH q AS (SELECT 1), q AS (SELECT 2) SELECT a FROM q", "FQ2004", "WITH defines q twice"),
        ("SELECT 'abc", "FQ1002", "never closed"),
        ("SELECT a FROM t /* /* */", "FQ1002", "never closed"),
        ("SELECT $1", "FQ1001", "variable is written ${name}"),
    ],
)
def test_mistakes_say_what_is_wrong(text: str, code: str, said: str) -> None:
    (found,) = compiled(f"CREATE VIEW w AS {text};").diagnostics
    assert found.code == code
    assert said in f"{found.title} {found.label} {found.help}"


@pytest.mark.parametrize(
    ("watermark", "code"),
    [
        ("c AS c", "FQ2002"),
        ("a AS a", "FQ2005"),
        ("ts AS b - INTERVAL '1' SECOND", "FQ2005"),
        ("ts AS ts + INTERVAL '1' SECOND", "FQ1901"),
        ("ts AS ts - INTERVAL '-1' SECOND", "FQ2005"),
    ],
)
def test_a_watermark_is_a_time_less_a_constant(watermark: str, code: str) -> None:
    text = f"CREATE TABLE t (a TEXT, b INT, ts TIMESTAMP, WATERMARK FOR {watermark})"
    (found,) = compiled(text).diagnostics
    assert found.code == code


def test_names_and_constants_are_read_as_postgresql_does() -> None:
    for text, same in {
        '"a"': "a",
        "A": "a",
        "e'\\n\\x41\\u0042'": "'\nAB'",
        "$$it's$$": "'it''s'",
        "$x$a$x$": "'a'",
        "'a'\n'b'": "'ab'",
        "a /* b /* c */ */ + 1 -- d": "a + 1",
        "- 5": "-5",
        "not a = b or c": "(NOT (a = b)) OR c",
        "a || b + 1": "a || (b + 1)",
        "- a::int": "-(CAST(a AS int))",
        "a = b is null": "(a = b) IS NULL",
        "a between 1 and 2 and b": "(a BETWEEN 1 AND 2) AND b",
        "trim(leading 'x' from a)": "ltrim(a, 'x')",
        "substring(a from 2 for 3)": "substring(a, 2, 3)",
        "position('x' in a)": "strpos(a, 'x')",
        "(a).b": "a->b",
    }.items():
        assert parse_expression(SourceText("", text), "standard") == parse_expression(
            SourceText("", same), "standard"
        ), text
