"""The list "Not supported yet" of docs/reference/limits.md: each SQL construct that it names is refused, and each that is refused here is named.

A construct that is built makes its example compile, and this test red: the list then names it no longer.
"""

from __future__ import annotations

import re

import pytest

from flowql.compiler.diagnostics.source import SourceText
from flowql.compiler.driver import DialectName, compile_project
from tests.docs.tour import ROOT

STREAM = "CREATE STREAM orders (id INT KEY, customer STRING, amount DOUBLE) WITH (kafka_topic='orders', value_format='JSON');\n"
TABLE = "CREATE TABLE orders (id INT PRIMARY KEY, customer TEXT, amount DOUBLE PRECISION);\n"

# By the words of the list: a statement after STREAM or TABLE.
KSQL = {
    "`SELECT DISTINCT`": "CREATE TABLE t AS SELECT DISTINCT customer FROM orders;",
    "`OVER`": "CREATE STREAM t AS SELECT id, COUNT(*) OVER (PARTITION BY customer) AS n FROM orders;",
    "`UNION` and other set operations": "CREATE STREAM t AS SELECT id FROM orders UNION SELECT id FROM orders;",
    "`ORDER BY` with `LIMIT`": "CREATE STREAM t AS SELECT id, amount FROM orders ORDER BY amount LIMIT 3;",
    "`GROUPING SETS`": "CREATE TABLE t AS SELECT customer, COUNT(*) AS n FROM orders GROUP BY GROUPING SETS ((customer), ());",
    "sub-queries outside of FROM": "CREATE STREAM t AS SELECT id FROM orders WHERE id IN (SELECT id FROM orders);",
}
STANDARD = {
    "`NOW()` in views": "CREATE VIEW t AS SELECT id, now() AS n FROM orders;",
    "`WITH RECURSIVE`": "CREATE VIEW t AS WITH RECURSIVE r AS (SELECT 1 AS n UNION ALL SELECT n + 1 FROM r WHERE n < 3) SELECT n FROM r;",
    "`MATCH_RECOGNIZE`": "CREATE VIEW t AS SELECT * FROM orders MATCH_RECOGNIZE (ORDER BY id MEASURES a.id AS x PATTERN (a) DEFINE a AS amount > 1);",
}
CASES = [("ksql", words, STREAM + sql) for words, sql in KSQL.items()]
CASES += [("standard", words, TABLE + sql) for words, sql in STANDARD.items()]


def _listed() -> str:
    page = (ROOT / "docs/reference/limits.md").read_text(encoding="utf-8")
    return page.split("## Not supported yet", 1)[1].split("\n## ", 1)[0]


@pytest.mark.parametrize(("dialect", "words", "sql"), CASES)
def test_what_is_refused_is_on_the_list(dialect: DialectName, words: str, sql: str) -> None:
    assert words in _listed()
    compiled = compile_project([SourceText("test.sql", sql)], dialect=dialect)
    errors = [d for d in compiled.diagnostics if d.severity == "error"]
    assert errors, f"{words} is supported: the list says that it is not"
    assert {d.code for d in errors} == {"FQ1901"}, "refused as a mistake, not as something that is not supported yet"


def test_what_is_on_the_list_in_capitals_is_refused_here() -> None:
    """SQL words of the lines about the dialects, so that a new one gets its example."""
    lines = [line for line in _listed().splitlines() if "dialect" in line]
    named = {word for line in lines for word in re.findall(r"`([A-Z][A-Z_ ]+(?:\(\))?)`", line)}
    known = {word for words in (*KSQL, *STANDARD) for word in re.findall(r"`([^`]+)`", words)}
    assert named <= known
