"""Wrong statements of standard SQL: each error has a code, a place, a reason and an edit, and the edit leads to a right statement."""

from __future__ import annotations

from pathlib import Path

import pytest

from flowql.compiler.diagnostics.diagnostic import CompileError, Diagnostic
from flowql.compiler.diagnostics.edits import applied
from flowql.compiler.diagnostics.source import SourceText
from flowql.compiler.driver import Session

TABLES = """
CREATE TABLE orders (id INT PRIMARY KEY, customer TEXT, amount NUMERIC(8, 2), placed_at TIMESTAMP);
CREATE TABLE customers (name TEXT PRIMARY KEY, city TEXT, since INT);
CREATE TABLE shipments (id INT PRIMARY KEY, sent_at TIMESTAMP);
CREATE TABLE events (id INT PRIMARY KEY, details JSONB, place STRUCT<city TEXT, street TEXT>, labels TEXT[], active BOOLEAN);
"""
FILE = Path(__file__).with_name("wrong.sql")
WRONG = [line for line in FILE.read_text().splitlines() if line and not line.startswith("--")]
EDITS_MAX = 2  # a mistake may show another one


def refused(text: str) -> Diagnostic | None:
    """The first error of a statement."""
    session = Session(dialect="standard")
    session.execute(SourceText("tables.sql", TABLES))
    try:
        session.execute(SourceText("statement.sql", text))
    except CompileError as error:
        return error.diagnostics[0]
    return None


@pytest.mark.parametrize("wrong", WRONG)
def test_the_advice_makes_a_right_statement(wrong: str) -> None:
    text = wrong
    for _ in range(EDITS_MAX):
        found = refused(text)
        if found is None:
            break
        assert found.code.startswith("FQ")
        assert found.title
        assert found.help, found.title
        assert found.span.path == "statement.sql"
        assert found.edit is not None, f"{found.title}; {found.help}"
        text = applied(text, found.edit)
    assert text != wrong
    again = refused(text)
    assert again is None, f"{text}: {again}"


# What has no form that an edit could make: an interactive query, or another statement.
NAMED = {
    "SUBSCRIBE TO orders;": "flowql subscribe",
    "TAIL orders;": "flowql subscribe",
    "DECLARE c CURSOR FOR SELECT id FROM orders;": "flowql query",
    "DECLARE c SUBSCRIPTION CURSOR FOR orders;": "flowql subscribe",
    "FETCH 10 FROM c;": "flowql query",
    "REFRESH MATERIALIZED VIEW v;": "up to date by itself",
    "CREATE MATERIALIZED VIEW v WITH (REFRESH EVERY '1 day') AS SELECT id FROM orders;": "up to date by itself",
    "CREATE SOURCE s FROM KAFKA CONNECTION c (TOPIC 't') FORMAT JSON;": "KAFKA_TOPIC",
    "CREATE CONNECTION c TO KAFKA (BROKER 'b');": "flowql.yaml",
    "CREATE SECRET s AS 'x';": "flowql.yaml",
    "CREATE FUNCTION f(int) RETURNS int LANGUAGE python AS 'f';": "docs/guide/python/functions.md",
    "CREATE DATABASE d;": "leave it out",
    "CREATE CATALOG c WITH ('type' = 'x');": "leave it out",
    "CREATE TABLE t (id INT, ts TIMESTAMP METADATA FROM 'timestamp') WITH ('connector' = 'kafka', 'topic' = 't', 'format' = 'json');": "ROWTIME",
    "CREATE VIEW v AS SELECT id FROM orders WHERE mz_now() <= placed_at;": "where the view is asked",
    "CREATE VIEW v AS SELECT * REPLACE (amount * 2 AS amount) FROM orders;": "SELECT * EXCEPT (a), a + 1 AS a",
    "CREATE VIEW v AS WITH MUTUALLY RECURSIVE r (a INT) AS (SELECT id FROM orders) SELECT a FROM r;": "GENERATE_SERIES(1, 10)",
    "CREATE VIEW v AS WITH RECURSIVE r AS (SELECT id FROM orders) SELECT id FROM r;": "once for each level",
    "CREATE VIEW v AS SELECT COUNT(*) AS n FROM orders GROUP BY SESSION(placed_at, INTERVAL '1' MINUTE);": "FROM TABLE(SESSION(TABLE t",
    "CREATE VIEW v AS SELECT STRFTIME(placed_at, '%Y') AS y FROM orders;": "TO_CHAR(time",
    "CREATE VIEW v AS SELECT LAST_DAY(placed_at) AS d FROM orders;": "DATE_TRUNC('month', time)",
    "CREATE VIEW v AS SELECT x.a FROM events, JSONB_TO_RECORDSET(details) AS x(a INT);": "JSONB_ARRAY_ELEMENTS(j)",
    "CREATE TABLE t (id INT PRIMARY KEY) FROM s TABLE 'public.t';": "VALUE_FORMAT = 'DEBEZIUM'",
    "CREATE MATERIALIZED VIEW v WITH (RETAIN HISTORY FOR '1 hour') AS SELECT id FROM orders;": "leave it out",
    "CREATE VIEW v AS SELECT id, PROCTIME() AS p FROM orders;": "FOR SYSTEM_TIME AS OF PROCTIME()",
    "CREATE VIEW v AS SELECT id, CURRENT_WATERMARK(placed_at) AS w FROM orders;": "EMIT ON WINDOW CLOSE",
    "CREATE VIEW v AS SELECT COUNT_IF(id > 3) AS n FROM orders;": "FILTER (WHERE condition)",
    "CREATE VIEW v AS SELECT COUNT(*) AS n FROM orders GROUP BY TUMBLE(placed_at, INTERVAL '1' MINUTE);": "FROM TUMBLE(",
    "CREATE VIEW v AS SELECT DATEDIFF(placed_at, placed_at) AS n FROM orders;": "TIMESTAMPDIFF(DAY",
    "CREATE VIEW v AS SELECT TO_TIMESTAMP_LTZ(id, 3) AS t FROM orders;": "/ 1000.0",
    "CREATE VIEW v AS SELECT customer, SUM(amount) AS total FROM orders WHERE total > 10 GROUP BY customer;": "HAVING sum(amount)",
    "CREATE VIEW v AS SELECT id, RANK() OVER (ORDER BY amount) AS r FROM orders WHERE r < 3;": "SELECT * FROM (SELECT ...) AS q WHERE r",
    "CREATE VIEW v AS SELECT CONVERT(INT, customer) AS n FROM orders;": "CAST(x AS type)",
    "CREATE VIEW v AS SELECT COUNT(*) AS n FROM orders GROUP BY 3;": "name the column",
    "CREATE VIEW v AS SELECT id FROM orders UNION SELECT id, sent_at FROM shipments;": "select NULL",
    "CREATE VIEW v AS SELECT id FROM orders WHERE id = (SELECT id, sent_at FROM shipments);": "(a, b) = (SELECT ...)",
    "CREATE VIEW v AS SELECT id FROM orders WHERE id IN (SELECT id, sent_at FROM shipments);": "(a, b) IN (SELECT c, d ...)",
    "CREATE VIEW v AS SELECT l.value FROM events, LATERAL FLATTEN(labels) l;": "UNNEST(array)",
    "CREATE VIEW v AS SELECT nothing AS n;": "add  FROM relation",
    "CREATE VIEW v AS SELECT id FROM orders WHERE placed_at > NOW() - id;": "x * INTERVAL '1' SECOND",
    "CREATE VIEW v AS SELECT JSON_VALUE('{}', '$.a') AS j FROM orders;": "AS JSONB)",
}  # fmt: skip


@pytest.mark.parametrize("wrong", NAMED)
def test_what_an_edit_cannot_make_is_said(wrong: str) -> None:
    found = refused(wrong)
    assert found is not None
    assert NAMED[wrong] in found.help
    assert found.edit is None  # which would make another statement than the one that was meant
    assert found.span.line == 1


def test_there_are_a_hundred_wrong_statements() -> None:
    assert len(set(WRONG)) == len(WRONG) >= 100
