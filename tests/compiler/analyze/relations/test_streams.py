"""CREATE TABLE and STREAM ... AS, and INSERT ... SELECT of standard SQL: spellings of the same relation as CREATE VIEW."""

from __future__ import annotations

from dataclasses import replace

import pytest

from flowql.compiler.diagnostics.source import SourceText
from flowql.compiler.driver import Compiled, compile_project
from flowql.compiler.plan.topology import QueryPlan, SourceDef

SOURCES = """CREATE STREAM s (id INT KEY, name TEXT, v INT) WITH (KAFKA_TOPIC='s', VALUE_FORMAT='JSON', PARTITIONS=1);
CREATE STREAM r (id BIGINT KEY, name TEXT, v DOUBLE PRECISION) WITH (KAFKA_TOPIC='r', VALUE_FORMAT='JSON', PARTITIONS=1);
CREATE TABLE t (id INT PRIMARY KEY, name TEXT);
"""
QUERIES = (
    "SELECT id, v + 1 AS more FROM s WHERE v > 1",
    "SELECT name, COUNT(*) AS n, SUM(v) AS total FROM s GROUP BY name",
    "SELECT s.id, t.name FROM s JOIN t ON s.id = t.id",
    "SELECT DISTINCT name FROM t",
    "SELECT window_end, COUNT(*) AS n FROM TUMBLE(s, rowtime, INTERVAL '1' MINUTE) GROUP BY window_end",
    "WITH q AS (SELECT id FROM t) SELECT id, (SELECT MAX(v) FROM s) AS most FROM q",
)


def compiled(text: str) -> Compiled:
    return compile_project([SourceText("q.sql", SOURCES + text)], dialect="standard")


def result(text: str) -> tuple[SourceDef, QueryPlan]:
    made = compiled(text)
    assert made.ok, [d.title for d in made.diagnostics]
    (query,) = made.plan.queries
    found = made.plan.source(query.sink)
    assert found is not None
    return found, query


@pytest.mark.parametrize("query", QUERIES)
def test_create_table_as_is_create_view(query: str) -> None:
    """A grouped table over a stream went to another binder, with another meaning and other keys."""
    view, of_view = result(f"CREATE VIEW x AS {query};")
    table, of_table = result(f"CREATE TABLE x AS {query};")
    assert replace(table, statement="") == replace(view, statement="")
    assert of_table.logical == of_view.logical


def test_create_stream_as_is_a_view_that_is_a_stream() -> None:
    view, of_view = result(f"CREATE VIEW x AS {QUERIES[0]};")
    stream, of_stream = result(f"CREATE STREAM x AS {QUERIES[0]};")
    assert (view.kind, stream) == ("stream", view)
    assert of_stream.logical == of_view.logical


@pytest.mark.parametrize(
    ("query", "why"),
    [
        (QUERIES[1], "GROUP BY"),
        (QUERIES[2], "JOIN"),
        ("SELECT DISTINCT name FROM s", "DISTINCT"),
        ("SELECT id, name FROM t", "t is a table"),
        ("SELECT id, v FROM s ORDER BY v LIMIT 3", "LIMIT"),
        ("SELECT id, ROW_NUMBER() OVER (ORDER BY v) AS n FROM s", "numbered"),
        ("SELECT 1 AS id", "without FROM"),
    ],
)
@pytest.mark.parametrize("head", ["CREATE STREAM x AS", "INSERT INTO r"])
def test_what_makes_a_table_is_named(head: str, query: str, why: str) -> None:
    (found,) = compiled(f"{head} {query};").diagnostics
    assert (found.code, why in found.why) == ("FQ2104", True), found
    assert "CREATE VIEW" in found.help


def test_partition_by_makes_selected_columns_the_key() -> None:
    def key(query: str) -> list[str]:
        return [f.name for f in result(f"CREATE STREAM x WITH (KEY_FORMAT='JSON') AS {query};")[0].schema.key]

    assert key("SELECT id, name FROM s") == ["id"]
    assert key("SELECT name FROM s") == []
    assert key("SELECT * FROM s PARTITION BY name") == ["name"]
    assert key("SELECT UPPER(name) AS u, v, id FROM s PARTITION BY UPPER(name), v") == ["u", "v"]
    assert [f.name for f in result("CREATE STREAM x AS SELECT id, name FROM s PARTITION BY NULL;")[0].schema.key] == []


@pytest.mark.parametrize(
    ("text", "code"),
    [
        ("CREATE STREAM x AS SELECT id, name FROM s PARTITION BY v;", "FQ2022"),
        ("CREATE STREAM x AS SELECT name FROM s PARTITION BY name;", "FQ2024"),
        ("CREATE STREAM x AS SELECT id, name FROM s PARTITION BY name, name;", "FQ2004"),
        ("CREATE VIEW x AS SELECT id, name FROM s PARTITION BY name;", "FQ1901"),
        ("INSERT INTO r SELECT id, name, v FROM s PARTITION BY name;", "FQ1901"),
        ("INSERT INTO r SELECT id, name, v, 1 AS w FROM s;", "FQ2040"),
        ("INSERT INTO r SELECT v, name, id FROM s;", "FQ2040"),  # by their names they belong elsewhere
        ("INSERT INTO r (id, name) SELECT id FROM s;", "FQ2040"),
        ("INSERT INTO r (id, nome) SELECT id, name FROM s;", "FQ2002"),
        ("INSERT INTO r (id, v) SELECT id, name FROM s;", "FQ2040"),
        ("INSERT INTO r VALUES ((SELECT 1), 'a', 2);", "FQ2090"),
        ("CREATE STREAM x AS SELECT id, COUNT(*) AS n FROM s WINDOW TUMBLING (SIZE 1 MINUTE) GROUP BY id;", "FQ1901"),
        ("CREATE STREAM x AS SELECT s.id, r.v FROM s JOIN r WITHIN 1 HOUR ON s.id = r.id;", "FQ1901"),
        ("CREATE TABLE x AS SELECT name, COLLECT_LIST(v) AS l FROM s GROUP BY name;", "FQ1901"),
        ("CREATE TABLE x AS SELECT name, COUNT(*) AS n FROM s GROUP BY name EMIT FINAL;", "FQ1901"),
        ("CREATE VIEW x AS WITH q AS (SELECT 1 AS a), q AS (SELECT 2 AS a) SELECT a FROM q;", "FQ2004"),
    ],
)
def test_what_is_refused(text: str, code: str) -> None:
    (found,) = compiled(text).diagnostics
    assert (found.code, found.span.line) == (code, 4), found


def test_a_name_of_four_parts_is_refused() -> None:
    """`a.v . b.v`, which lacks an operator, ended as an internal error."""
    (found,) = compiled("CREATE VIEW x AS SELECT a.id FROM s a, s b WHERE a.v . b.v = 1;").diagnostics
    assert (found.code, found.unsupported) == ("FQ2090", True)


def test_a_result_is_dropped_by_the_word_that_made_it() -> None:
    for kind in ("TABLE", "STREAM", "VIEW"):
        assert compiled(f"CREATE TABLE x AS {QUERIES[0]}; DROP {kind} x;").plan.queries == ()
