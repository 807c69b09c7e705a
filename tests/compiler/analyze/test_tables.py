"""Tables of one's own: how they are bound, and what is refused by its code."""

from __future__ import annotations

import pytest

from flowql.compiler.diagnostics.diagnostic import CompileError, Diagnostic
from flowql.compiler.diagnostics.source import SourceText
from flowql.compiler.driver import compile_changes, compile_project
from flowql.compiler.plan import codec
from flowql.compiler.plan.expr import Literal
from flowql.compiler.plan.tables import TableChange
from flowql.compiler.plan.topology import InsertValues, Plan, SourceDef
from tests.compiler.sql import columns
from tests.slt.rows import rendered
from tests.slt.session import Shape, SqlSession

TABLES = """
CREATE TABLE t (a INT, b TEXT PRIMARY KEY, c NUMERIC(6, 2) NOT NULL DEFAULT 1.5);
CREATE TABLE bag (v BIGINT, at TIMESTAMP);
CREATE TABLE pair (x INT, y INT, z INT, PRIMARY KEY (y, x));
CREATE TABLE log (line TEXT) APPEND ONLY;
CREATE TABLE over (a INT PRIMARY KEY, b INT) WITH (KAFKA_TOPIC='over', VALUE_FORMAT='JSON', PARTITIONS=1);
CREATE STREAM s (a INT KEY, b INT) WITH (KAFKA_TOPIC='s', VALUE_FORMAT='JSON', PARTITIONS=1);
CREATE MATERIALIZED VIEW made AS SELECT a, COUNT(*) AS n FROM over GROUP BY a;
"""
SUMS = "CREATE TABLE sums (a INT, total INT GENERATED ALWAYS AS (a + b) STORED, b INT);"


def plan(sql: str = TABLES) -> Plan:
    result = compile_project([SourceText("t.sql", sql)], dialect="standard")
    assert result.ok, [f"{d.code} {d.title}" for d in result.diagnostics]
    return result.plan


def table(sql: str) -> SourceDef:
    return plan(sql).sources[-1]


def change(sql: str) -> TableChange:
    (found,) = compile_changes(SourceText("", sql), plan().sources, dialect="standard")
    assert isinstance(found, TableChange)
    return found


def refused(sql: str) -> Diagnostic:
    with pytest.raises(CompileError) as error:
        compile_changes(SourceText("", sql), plan(TABLES + SUMS).sources, dialect="standard")
    (found,) = error.value.diagnostics
    assert found.span.line > 0, "it points nowhere"
    return found


def test_a_key_is_first_in_the_schema_and_columns_keep_their_order() -> None:
    t = table("CREATE TABLE t (a INT, b TEXT PRIMARY KEY, c DOUBLE NOT NULL)")
    assert columns(t.schema) == "b STRING KEY, a INT, c DOUBLE"
    assert t.columns == t.visible == ("a", "b", "c")
    assert (t.kind, t.topic, t.query, t.relation, t.null_group) == ("table", "t", None, True, False)
    assert t.rules is not None
    assert t.rules.not_null == ("b", "c")


def test_rows_without_a_key_are_told_apart_by_a_number_that_no_one_sees() -> None:
    t = table("CREATE TABLE t (a INT, b TEXT)")
    assert columns(t.schema) == "__row BIGINT KEY, a INT, b STRING"
    assert t.visible == t.shown.names == ("a", "b")


def test_a_key_of_the_table_has_the_order_of_the_constraint() -> None:
    t = table("CREATE TABLE t (x INT, y INT, z INT, PRIMARY KEY (y, x))")
    assert columns(t.schema) == "y INT KEY, x INT KEY, z INT"


def test_a_plan_says_nothing_of_what_other_tables_do_not_have() -> None:
    others = "CREATE VIEW made AS SELECT a, b + 1 AS c FROM s;"
    text = codec.dumps(plan(TABLES.split("APPEND ONLY;")[1].split("CREATE MATERIALIZED")[0] + others))
    assert not any(f'"{word}"' in text for word in ("relation", "columns", "rules", "changes") if word != "columns")
    again = codec.loads(codec.dumps(plan()))
    assert again == plan()


@pytest.mark.parametrize(
    ("sql", "code", "named"),
    [
        ("CREATE TABLE t (a INT, a TEXT)", "FQ2004", "a"),
        ("CREATE TABLE t (a INT, __a TEXT)", "FQ2008", "__a"),
        ("CREATE TABLE t (a INT, PRIMARY KEY (b))", "FQ2002", "b"),
        ("CREATE TABLE t (a INT PRIMARY KEY, PRIMARY KEY (a))", "FQ1003", "PRIMARY KEY"),
        ("CREATE TABLE t (a INT[] PRIMARY KEY)", "FQ2022", "a"),
        ("CREATE TABLE t (a INT) ON CONFLICT DO NOTHING", "FQ2022", "ON CONFLICT"),
        ("CREATE TABLE t (a INT DEFAULT 'x')", "FQ2026", "x"),
        ("CREATE TABLE t (a INT DEFAULT b, b INT)", "FQ2002", "b"),
        ("CREATE TABLE t (a INT DEFAULT 1 / 0)", "FQ2026", "1 / 0"),
        ("CREATE TABLE t (a BOOLEAN DEFAULT 1)", "FQ2005", "a"),
        ("CREATE TABLE t (a INT) WITH (VALUE_FORMAT='JSON')", "FQ2014", "KAFKA_TOPIC"),
        ("CREATE STREAM t (a INT)", "FQ2014", "KAFKA_TOPIC"),
        ("CREATE OR REPLACE TABLE t (a INT)", "FQ2090", "CREATE OR REPLACE"),
        ("CREATE TABLE t (a INT); CREATE TABLE t (a INT)", "FQ2050", "t"),
        ("CREATE TABLE t (a NOPE)", "FQ2001", "nope"),
        ("CREATE TABLE t (a INT, b INT AS (a + 1), c INT AS (b + 1))", "FQ2005", "computed from b"),
        ("CREATE TABLE t (a INT, b INT AS (b + 1))", "FQ2005", "computed from b"),
        ("CREATE TABLE t (a INT, b INT DEFAULT 1 GENERATED ALWAYS AS (a))", "FQ1003", "DEFAULT"),
        ("CREATE TABLE t (a INT, b BOOLEAN AS (a))", "FQ2005", "b"),
        ("CREATE TABLE t (a INT, b INT AS (nope))", "FQ2002", "nope"),
        ("CREATE TABLE t (a INT, b INT AS (COUNT(*)))", "FQ2020", "COUNT"),
        ("CREATE TABLE t (a INT, b INT AS (1 / 0))", "FQ2026", "1 / 0"),
        ("CREATE TABLE t (a INT, b TIMESTAMPTZ AS (NOW()))", "FQ2005", "another value each time"),
        ("CREATE TABLE t (a INT); INSERT INTO t SELECT 1", "FQ2090", "INSERT INTO t ... SELECT"),
        ("CREATE TABLE t (a INT); UPDATE t SET a = (SELECT 1)", "FQ2090", "UPDATE of t with FROM or a sub-query"),
        ("CREATE TABLE t (a INT); DELETE FROM t USING t AS u WHERE u.a = t.a", "FQ2090", "DELETE FROM t with USING"),
        ("CREATE TABLE t (a INT); CREATE VIEW v AS SELECT __row FROM t", "FQ2002", "__row"),
    ],
)
def test_a_table_that_cannot_be_made_is_refused(sql: str, code: str, named: str) -> None:
    (found,) = compile_project([SourceText("t.sql", sql)], dialect="standard").diagnostics
    assert (found.code, named in f"{found.title} {found.label}") == (code, True), found.title


@pytest.mark.parametrize(
    ("sql", "code"),
    [
        ("INSERT INTO t VALUES (1, NULL, 2)", "FQ2040"),
        ("INSERT INTO t VALUES (1, 'x', NULL)", "FQ2040"),
        ("INSERT INTO t (a) VALUES (1)", "FQ2040"),
        ("INSERT INTO t VALUES (1, 'x', 2, 3)", "FQ2040"),
        ("INSERT INTO t (a, b) VALUES (1)", "FQ2040"),
        ("INSERT INTO t (a, nope) VALUES (1, 'x')", "FQ2002"),
        ("INSERT INTO t (a, a) VALUES (1, 2)", "FQ2004"),
        ("INSERT INTO bag (__row) VALUES (1)", "FQ2002"),
        ("INSERT INTO t VALUES ('x', 'y', 1)", "FQ2080"),
        ("INSERT INTO t VALUES (TRUE, 'y', 1)", "FQ2005"),
        ("INSERT INTO t VALUES (2147483648, 'y', 1)", "FQ2080"),
        ("INSERT INTO t VALUES (a, 'y', 1)", "FQ2002"),
        ("INSERT INTO nope VALUES (1)", "FQ2001"),
        ("INSERT INTO pair VALUES (1, 2, 3) ON CONFLICT (x) DO NOTHING", "FQ2040"),
        ("INSERT INTO bag VALUES (1) ON CONFLICT DO UPDATE SET v = 1", "FQ2040"),
        ("INSERT INTO pair VALUES (1, 2, 3) ON CONFLICT (x, y) DO UPDATE SET z = z + 1", "FQ2003"),
        ("INSERT INTO over VALUES (1, 2) ON CONFLICT DO NOTHING", "FQ2090"),
        ("INSERT INTO over VALUES (1, DEFAULT)", "FQ2090"),
        ("UPDATE t SET nope = 1", "FQ2002"),
        ("UPDATE bag SET __row = 1", "FQ2002"),
        ("UPDATE t SET a = 1, a = 2", "FQ2004"),
        ("UPDATE t SET b = NULL", "FQ2040"),
        ("UPDATE t SET a = b", "FQ2005"),
        ("UPDATE t SET a = COUNT(*)", "FQ2020"),
        ("UPDATE t SET a = 1 WHERE b", "FQ2007"),
        ("UPDATE t AS k SET a = t.a", "FQ2001"),
        ("UPDATE nope SET a = 1", "FQ2001"),
        ("UPDATE over SET b = 1", "FQ2041"),
        ("UPDATE s SET b = 1", "FQ2041"),
        ("UPDATE made SET n = 1", "FQ2041"),
        ("UPDATE log SET line = ''", "FQ2041"),
        ("DELETE FROM over", "FQ2041"),
        ("DELETE FROM s", "FQ2041"),
        ("DELETE FROM made", "FQ2041"),
        ("DELETE FROM log", "FQ2041"),
        ("DELETE FROM bag WHERE __row = 1", "FQ2002"),
        ("DELETE FROM bag WHERE at > 'yesterday'", "FQ2026"),
        ("INSERT INTO sums VALUES (1, 2, 3)", "FQ2040"),
        ("INSERT INTO sums (total) VALUES (1)", "FQ2040"),
        ("INSERT INTO sums SELECT 1, 2", "FQ2040"),
        ("INSERT INTO sums (a, total) SELECT 1, 2", "FQ2040"),
        ("UPDATE sums SET total = 1", "FQ2040"),
        ("CREATE TABLE x (a INT)", "FQ2018"),
        ("SELECT 1", "FQ2018"),
        ("INSERT INTO s SELECT a, b FROM s", "FQ2018"),
    ],
)
def test_a_statement_that_cannot_be_carried_out_is_refused(sql: str, code: str) -> None:
    assert refused(sql).code == code


def test_rows_have_all_columns() -> None:
    made = change("INSERT INTO t (b) VALUES ('x')")
    assert made.columns == ("a", "b", "c")
    assert [[str(e.value) for e in row if isinstance(e, Literal)] for row in made.rows] == [["None", "x", "1.50"]]


def test_values_that_come_last_may_be_left_out() -> None:
    assert change("INSERT INTO pair VALUES (1, 2)").rows[0][2].type.kind.value == "INT"


def test_a_record_of_a_topic_is_no_change_of_a_table() -> None:
    found = compile_changes(
        SourceText("", "INSERT INTO over VALUES (1, 2), (2, 3)"), plan().sources, dialect="standard"
    )
    assert [type(c) for c in found] == [InsertValues, InsertValues]


def test_layout_and_comments_do_not_make_another_statement() -> None:
    texts = ("UPDATE t SET a=1 WHERE b='  x'", "update  T -- note\n set a = 1\twhere b = '  x'")
    assert len({change(text).statement for text in texts}) == 1
    assert change(texts[0]).statement != change("UPDATE t SET a=1 WHERE b=' x'").statement


def test_types_of_postgresql_that_are_missing_are_named_unless_the_user_declares_one() -> None:
    for name, help in (("MONEY", "NUMERIC(12, 2)"), ("INT4RANGE", "two columns"), ("POINT", "DOUBLE PRECISION")):
        (found,) = compile_project([SourceText("t.sql", f"CREATE TABLE x (a {name});")], dialect="standard").diagnostics
        assert (found.unsupported, name in found.title, help in found.help) == (True, True, True)
    own = plan("CREATE TYPE point AS STRUCT<x INT, y DOUBLE PRECISION>; CREATE TABLE x (a point);").sources[-1]
    assert str(own.schema.value[0].type) == "STRUCT<x INT, y DOUBLE>"


def test_an_empty_array_has_the_type_of_its_column() -> None:
    """It was refused as an array whose type is not known."""
    world = SqlSession(Shape())
    try:
        world.execute("CREATE TABLE l (k INT PRIMARY KEY, a INT[])")
        world.execute("INSERT INTO l VALUES (1, ARRAY[]), (2, ARRAY[3])")
        world.execute("UPDATE l SET a = ARRAY[] WHERE k = 2")
        assert sorted(rendered(world.ask("SELECT k, CARDINALITY(a) FROM l"))) == ["1 0", "2 0"]
    finally:
        world.close()
