"""What is typed: cut into statements, and completed."""

from __future__ import annotations

import pytest

from flowql.cli.names import Names
from flowql.cli.shell.prompt import suggestions
from flowql.cli.shell.split import blanked, split, without_comments
from flowql.compiler.functions.registry import all_aggregates, all_functions
from tests.flowql.query.harness import plan_of

PLAN = plan_of("""
CREATE STREAM ORDERS (CUSTOMER STRING KEY, AMOUNT DOUBLE) WITH (KAFKA_TOPIC = 'orders', PARTITIONS = 1, VALUE_FORMAT = 'JSON');
CREATE TABLE SPENT AS SELECT CUSTOMER, SUM(AMOUNT) AS TOTAL FROM ORDERS WINDOW TUMBLING (SIZE 1 HOUR) GROUP BY CUSTOMER;
""")
NAMES = Names.of(PLAN, {"orders": 1, "SPENT": 1})
FUNCTIONS = tuple(n for n in (*all_functions(), *all_aggregates()) if n.isupper())


@pytest.mark.parametrize(
    ("text", "whole", "rest"),
    [
        ("", [], ""),
        ("SELECT 1;", ["SELECT 1"], ""),
        ("SELECT 1", [], "SELECT 1"),
        ("SELECT ';' AS a, \"b;\", `c;`; SELECT 2;", ["SELECT ';' AS a, \"b;\", `c;`", " SELECT 2"], ""),
        ("SELECT 'it''s; not over', 1;", ["SELECT 'it''s; not over', 1"], ""),
        ("SELECT 'open;", [], "SELECT 'open;"),
        ("-- a; comment\nSELECT 1; -- end;\n", ["-- a; comment\nSELECT 1"], ""),
        ("/* a;\n b */ SELECT 1;", ["/* a;\n b */ SELECT 1"], ""),
        ("/* never closed; ", [], ""),
        ("\\d ORDERS\nSELECT 1;\\x", ["\\d ORDERS", "SELECT 1", "\\x"], ""),
        ("\\d;", ["\\d"], ""),
        ("SELECT 1\n\\d", [], "SELECT 1\n\\d"),
        (";;\n;", [], ""),
    ],
)
def test_statements_end_with_semicolons(text: str, whole: list[str], rest: str) -> None:
    assert split(text) == (whole, rest)


def test_what_stands_before_and_within_a_statement() -> None:
    assert without_comments("-- why\n /* how */ SELECT 1 -- x") == "SELECT 1 -- x"
    assert "EMIT" not in blanked("SELECT 'EMIT CHANGES' -- EMIT CHANGES\n")


@pytest.mark.parametrize(
    ("before", "after", "expected", "kind"),
    [
        ("SELECT * FROM or", "", "ORDERS", "relation"),
        ("SELECT * FROM ", "", "SPENT", "relation"),
        ("SELECT * FROM `SP", "", "SPENT", "relation"),
        ("SELECT * FROM CTAS", "", '"CTAS_SPENT-aggregate-1"', "relation"),
        ("SELECT am", " FROM orders", "AMOUNT", "column"),
        ("SELECT ", " FROM spent", "TOTAL", "column"),
        ("SELECT ", " FROM spent", "WINDOWSTART", "column"),
        ("SELECT o.cus", " FROM orders o JOIN spent s", "CUSTOMER", "column"),
        ("SELECT s.", " FROM orders o JOIN spent AS s", "ROWTIME", "column"),
        ("SELECT coun", " FROM orders", "count(", "function"),
        ("SELECT SUBSTR", " FROM orders", "SUBSTRING(", "function"),
        ("SELECT * FROM ORDERS wh", "", "where", "keyword"),
        ("SELECT * FROM ORDERS EM", "", "EMIT CHANGES", "keyword"),
        ("sel", "", "select", "statement"),
        ("SHOW T", "", "SHOW TABLES", "statement"),
        ("EXPLAIN CTAS", "", "CTAS_SPENT", "query"),
        ("DESCRIBE or", "", "ORDERS", "relation"),
        ("\\d", "", "\\dt", "command"),
        ("\\d or", "", "ORDERS", "relation"),
    ],
)
def test_completion(before: str, after: str, expected: str, kind: str) -> None:
    found = {s.text: s for s in suggestions(before, after, NAMES, FUNCTIONS)}
    assert expected in found
    assert found[expected].kind == kind
    typed = before[len(before) - found[expected].length :]
    assert expected.strip('"').casefold().startswith(typed.casefold())


def test_nothing_is_suggested_that_does_not_begin_so() -> None:
    assert not list(suggestions("SELECT * FROM zzz", "", NAMES, FUNCTIONS))
    assert {s.kind for s in suggestions("SELECT * FROM ", "", NAMES, FUNCTIONS)} == {"relation"}
    assert "TOTAL" not in {s.text for s in suggestions("SELECT ", " FROM orders", NAMES, FUNCTIONS)}
