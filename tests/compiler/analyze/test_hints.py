"""Warnings and hints about queries that compile."""

from __future__ import annotations

import pytest

from flowql.compiler.diagnostics.source import SourceText
from flowql.compiler.dialect.parser import DialectName
from flowql.compiler.driver import compile_project

SOURCES = """
CREATE STREAM s (k STRING KEY, v INT) WITH (KAFKA_TOPIC='s', VALUE_FORMAT='JSON');
CREATE TABLE timeless (k STRING PRIMARY KEY, c STRING) WITH (KAFKA_TOPIC='t', VALUE_FORMAT='JSON');
CREATE TABLE timed (k STRING PRIMARY KEY, c STRING, at BIGINT) WITH (KAFKA_TOPIC='u', VALUE_FORMAT='JSON', TIMESTAMP='at');
"""


def said(query: str) -> list[tuple[str, str, int]]:
    """(severity, code, line) of what is said about one query."""
    compiled = compile_project([SourceText("q.sql", SOURCES + query)])
    assert compiled.ok, compiled.diagnostics
    return [(d.severity, d.code, d.span.line) for d in compiled.diagnostics]


@pytest.mark.parametrize(
    ("window", "severity"),
    [
        ("TUMBLING (SIZE 1 MINUTE, GRACE PERIOD 0 SECONDS)", "warning"),
        ("TUMBLING (SIZE 1 MINUTE, RETENTION 90 SECONDS, GRACE PERIOD 0 SECONDS)", "warning"),
        ("HOPPING (SIZE 1 MINUTE, ADVANCE BY 10 SECONDS, GRACE PERIOD 1 HOUR)", "warning"),
        ("TUMBLING (SIZE 1 MINUTE)", "hint"),
        ("TUMBLING (SIZE 1 MINUTE, RETENTION 7 DAYS, GRACE PERIOD 0 SECONDS)", ""),
        ("SESSION (1 MINUTE, GRACE PERIOD 0 SECONDS)", ""),
    ],
)
def test_final_windows_that_a_pause_loses_are_warned_of(window: str, severity: str) -> None:
    query = f"CREATE TABLE r AS SELECT k, COUNT(*) AS n FROM s WINDOW {window} GROUP BY k EMIT "
    assert said(f"{query}FINAL;") == ([(severity, "FQ2120", 5)] if severity else [])
    assert said(f"{query}CHANGES;") == []


def test_a_join_with_a_table_whose_records_have_no_time_of_their_own_is_hinted_at() -> None:
    assert said("CREATE STREAM r AS SELECT s.k AS k, c FROM s JOIN timeless ON s.k = timeless.k;") == [
        ("hint", "FQ2121", 5)
    ]
    assert said("CREATE STREAM r AS SELECT s.k AS k, c FROM s LEFT JOIN timed ON s.k = timed.k;") == []


def test_a_table_that_a_query_makes_is_nobodys_import() -> None:
    made = "CREATE TABLE n AS SELECT k, COUNT(*) AS n FROM s GROUP BY k;\n"
    assert said(f"{made}CREATE STREAM r AS SELECT s.k AS k, n FROM s JOIN n ON s.k = n.k;") == []


@pytest.mark.parametrize("dialect", ["ksql", "standard"])
@pytest.mark.parametrize("name", ["REPLICAS", "RETENTION_MS", "CLEANUP_POLICY"])
def test_a_property_without_effect_is_named(name: str, dialect: DialectName) -> None:
    given = f"WITH (KAFKA_TOPIC='t', VALUE_FORMAT='JSON', {name}=1)"
    text = f"CREATE STREAM a (v INT) {given};\nCREATE STREAM b {given} AS SELECT v FROM a;"
    text = text if dialect == "ksql" else text.replace(f"b {given}", "b")
    compiled = compile_project([SourceText("q.sql", text)], dialect=dialect)
    assert compiled.ok, compiled.diagnostics
    found = [(d.severity, d.code, d.title, d.span.line) for d in compiled.diagnostics]
    lines = (1, 2) if dialect == "ksql" else (1,)
    assert found == [("warning", "FQ2122", f"{name} has no effect", line) for line in lines]


@pytest.mark.parametrize(
    ("condition", "advice"),
    [("v = NULL", "IS NULL"), ("NOT v <> NULL", "IS NOT NULL"), ("v IS NULL", ""), ("v IS NOT DISTINCT FROM NULL", "")],
)
def test_a_comparison_with_null_is_warned_of(condition: str, advice: str) -> None:
    text = f"CREATE TABLE t (k INT PRIMARY KEY, v INT);\nCREATE VIEW r AS SELECT k FROM t WHERE {condition};"
    compiled = compile_project([SourceText("q.sql", text)], dialect="standard")
    assert compiled.ok, compiled.diagnostics
    found = [(d.severity, d.code, d.span.line, d.help) for d in compiled.diagnostics]
    assert found == ([("warning", "FQ2123", 2, f"write  {advice}")] if advice else [])
