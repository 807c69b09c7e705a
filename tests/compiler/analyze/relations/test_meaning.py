"""Views that once were accepted and wrong, or failed inside: each is what DuckDB answers, after changes too, or is refused by name."""

from __future__ import annotations

from dataclasses import replace

import pytest

from flowql.compiler.diagnostics.diagnostic import CompileError
from flowql.compiler.diagnostics.source import SourceText
from flowql.compiler.driver import Session, compile_project
from flowql.compiler.plan.changes import GroupAggregate
from flowql.compiler.plan.logical import walk_nodes
from tests.slt.session import Shape
from tests.standard_views.case import Step
from tests.standard_views.check import run

pytestmark = pytest.mark.turns("long")

T = "CREATE TABLE t (id INT, a INT, b INT, PRIMARY KEY (id))"
U = "CREATE TABLE u (a INT, b INT)"


def agrees(query: str) -> None:
    """Over 3 partitions, the view before the rows and after them."""
    steps = (
        Step("table", T, "t", T.replace(", PRIMARY KEY (id)", "")),
        Step("table", U, "u"),
        Step("view", query, "before"),
        Step("change", "INSERT INTO t VALUES (1, 1, 2), (2, 1, NULL), (3, NULL, 3), (4, 2, 2), (5, 3, 1)"),
        Step("change", "INSERT INTO u VALUES (1, 2), (1, 2), (2, NULL), (NULL, 1), (3, 3)"),
        Step("view", query, "after"),
        Step("change", "DELETE FROM u WHERE a = 1 OR a IS NULL"),
        Step("change", "UPDATE t SET a = 5 WHERE id < 3"),
        Step("change", "DELETE FROM u"),
        Step("change", "INSERT INTO u VALUES (5, 1)"),
    )
    outcome = run(steps, Shape(None, 3))
    assert len(outcome.accepted) == 2, outcome.refused or outcome.lacking


@pytest.mark.parametrize("operator", ["IN", "NOT IN"])
def test_null_selected_in_a_sub_query_equals_nothing(operator: str) -> None:
    """It was taken for 1, as the selected constant of EXISTS does not matter."""
    agrees(f"SELECT id FROM t WHERE a {operator} (SELECT NULL FROM u)")
    agrees("SELECT id FROM t WHERE EXISTS (SELECT NULL FROM u WHERE u.a = t.a)")


@pytest.mark.parametrize("value", ["1", "COALESCE(z.b, 0)", "z.b"])
def test_a_value_of_a_row_that_does_not_exist_is_null(value: str) -> None:
    """The expression was computed behind the join, where a missing row has NULLs."""
    agrees(f"SELECT id, (SELECT {value} FROM t z WHERE z.id = t.a) AS b FROM t")


def test_a_common_table_named_like_the_table_that_it_reads() -> None:
    """The query was taken for one that reads no table, and lost the column of the key."""
    agrees("WITH t AS (SELECT * FROM t WHERE a = 1) SELECT * FROM t")
    agrees("WITH x AS (SELECT * FROM t), t AS (SELECT b FROM u) SELECT x.id, t.b FROM x JOIN t ON x.b = t.b")


@pytest.mark.parametrize("order", ["a + 1 NULLS LAST", "t.a + 1 NULLS LAST", "x NULLS LAST", "1 DESC NULLS LAST"])
def test_order_of_select_distinct_may_repeat_a_selected_expression(order: str) -> None:
    agrees(f"SELECT DISTINCT a + 1 AS x FROM t ORDER BY {order} LIMIT 2")


@pytest.mark.parametrize(
    "condition",
    [
        "a IN (SELECT a FROM u) OR b = 3",
        "NOT (a NOT IN (SELECT a FROM u) OR b = 3)",
        "(a IN (SELECT a FROM u)) IS NOT TRUE",
        "(a NOT IN (SELECT u.b FROM u WHERE u.a = t.a)) IS NULL",
        "a + 1 = ANY (SELECT b FROM u WHERE b IS NOT NULL) OR a <> ALL (SELECT b FROM u)",
        "a <> ALL (SELECT b FROM u)",
        "CASE WHEN b IN (SELECT a FROM u) THEN id > 2 ELSE id < 3 END",
    ],
)
def test_in_within_other_expressions_is_unknown_where_sql_says_so(condition: str) -> None:
    agrees(f"SELECT id FROM t WHERE {condition}")
    agrees(f"SELECT id, {condition} AS c FROM t")


# --- refused ---


@pytest.fixture
def session() -> Session:
    made = Session(dialect="standard")
    made.execute(SourceText("t.sql", f"{T}; {U};"))
    return made


@pytest.mark.parametrize(
    ("query", "code", "title", "marked"),
    [
        ("SELECT DISTINCT a FROM t ORDER BY b LIMIT 1", "FQ2005", "for SELECT DISTINCT, ORDER BY expressions must appear in the select list", "b"),
        ("SELECT a, b FROM t GROUP BY a", "FQ2021", 'column "b" must appear in the GROUP BY clause or be used in an aggregate function', "b"),
        ("SELECT SUM(COUNT(*)) AS n FROM t", "FQ2020", "aggregate function calls cannot be nested", "SUM(COUNT(*))"),
        ("SELECT a FROM t WHERE COUNT(*) > 1", "FQ2020", "aggregate functions are not allowed in WHERE", "COUNT(*) > 1"),
        ("SELECT a, COUNT(*) AS n FROM t GROUP BY COUNT(*)", "FQ2020", "aggregate functions are not allowed in GROUP BY", "COUNT(*)"),
        ("SELECT a FROM t ORDER BY 2 LIMIT 1", "FQ2002", "ORDER BY position 2 is not in the select list", "2"),
        ("SELECT a FROM t GROUP BY 3", "FQ2002", "GROUP BY position 3 is not in the select list", "3"),
        ("SELECT a FROM t LIMIT -1", "FQ2005", "LIMIT must not be negative", "-1"),
        ("SELECT a, b FROM t UNION SELECT a FROM u", "FQ2040", "each UNION query must have the same number of columns: 2 and 1", "UNION"),
        ("SELECT t.a, u.a FROM t, u", "FQ2004", 'column "a" is specified more than once', None),
        ("SELECT id FROM t WHERE a IN (SELECT a, b FROM u)", "FQ2005", "the sub-query gives 2 columns, not one for each of 1 expression", None),
        ("SELECT SUM(a) OVER w AS s FROM t", "FQ2001", 'window "w" does not exist', None),
    ],
)  # fmt: skip
def test_mistakes_are_named_where_they_are(
    session: Session, query: str, code: str, title: str, marked: str | None
) -> None:
    text = f"CREATE VIEW v AS {query};"
    with pytest.raises(CompileError) as found:
        session.execute(SourceText("v.sql", text))
    (first, *_) = found.value.diagnostics
    assert (first.code, first.title) == (code, title)
    assert "\0" not in first.title + first.label + (first.help or "")
    if marked is not None:
        assert first.span.line_text[first.span.column - 1 :][: first.span.length] == marked
    assert "v" not in session.catalog.sources


@pytest.mark.parametrize(
    "query",
    [
        "SELECT UPPER(COUNT(*)) AS n FROM t",
        "SELECT ABS((SELECT MAX(a) IS NULL FROM u)) AS n FROM t",
        "SELECT SUM(a) OVER () || UPPER(b) AS n FROM t",
        "SELECT a FROM t GROUP BY a HAVING SUM(b)",
        "SELECT nothing(SUM(b)) AS n FROM t",
    ],
)
def test_messages_show_the_text_of_what_is_bound_already(session: Session, query: str) -> None:
    with pytest.raises(CompileError) as found:
        session.execute(SourceText("v.sql", f"CREATE VIEW v AS {query};"))
    for d in found.value.diagnostics:
        assert "\0" not in f"{d.title}{d.label}{d.why}{d.help}"


@pytest.mark.parametrize(
    ("items", "names"),
    [
        ("COUNT(*), SUM(a), MAX(b) AS top", ["count", "sum", "top"]),
        ("id, a + 1, CAST(b AS BIGINT)", ["id", "?column?", "b"]),
        ("COALESCE(a, b), CASE WHEN a = 1 THEN 2 END", ["coalesce", "case"]),
        ("CASE WHEN a = 1 THEN 2 ELSE b END, UPPER('x')", ["b", "upper"]),
        ("(SELECT MAX(u.b) FROM u), EXISTS (SELECT 1 FROM u)", ["max", "exists"]),
        ("ROW_NUMBER() OVER (ORDER BY id), EXTRACT(DAY FROM DATE '2024-01-01')", ["row_number", "extract"]),
    ],
)
def test_output_columns_are_named_as_in_postgresql(session: Session, items: str, names: list[str]) -> None:
    session.execute(SourceText("v.sql", f"CREATE VIEW v AS SELECT {items} FROM t;"))
    assert list(session.catalog.sources["v"].visible) == names


@pytest.mark.parametrize(
    ("query", "code"),
    [
        ("SELECT a FROM t ORDER BY nothing", "FQ2002"),
        ("SELECT b FROM t GROUP BY b ORDER BY a", "FQ2021"),
        ("SELECT a AS x FROM t ORDER BY x, t.b", ""),
        ("SELECT a, COUNT(*) AS n FROM t GROUP BY a ORDER BY n DESC", ""),
    ],
)
def test_names_in_an_order_without_a_limit_are_looked_up(query: str, code: str) -> None:
    text = f"CREATE TABLE t (a INT PRIMARY KEY, b INT); CREATE VIEW v AS {query};"
    compiled = compile_project([SourceText("a.sql", text)], dialect="standard")
    assert [d.code for d in compiled.diagnostics if d.severity == "error"] == ([code] if code else [])


@pytest.mark.parametrize("fraction", ["'half'", "1.5", "-0.1", "DATE '2024-01-01'", "TRUE", "'NaN'"])
def test_the_fraction_of_a_percentile_is_a_number_from_0_to_1(fraction: str) -> None:
    """A text ended the compiler with an internal error; 1.5 was accepted. A text that is a number counts as one, as in PostgreSQL."""

    def compiled(fraction: str) -> list[str]:
        view = (
            f"CREATE MATERIALIZED VIEW v AS SELECT PERCENTILE_CONT({fraction}) WITHIN GROUP (ORDER BY b) AS p FROM u;"
        )
        found = compile_project([SourceText("v.sql", f"{U};\n{view}")], dialect="standard")
        return [f"{d.code} {d.title}" for d in found.diagnostics]

    (said,) = compiled(fraction)
    assert said.startswith("FQ2005 PERCENTILE_CONT takes a fraction from 0 to 1, not ")
    assert compiled("0") == compiled("1.0") == compiled("'0.5'") == []


def test_listagg_takes_its_order_from_within_group() -> None:
    """As in Snowflake, Redshift and Oracle, and as the macro `listagg` of dbt writes it."""
    written = "LISTAGG(b, '-') WITHIN GROUP (ORDER BY a DESC)", "STRING_AGG(b, '-' ORDER BY a DESC)"
    table = "CREATE TABLE s (id INT PRIMARY KEY, a INT, b TEXT);"
    texts = [f"{table} CREATE VIEW v AS SELECT {call} AS x FROM s;" for call in written]
    plans = [compile_project([SourceText("a.sql", text)], dialect="standard") for text in texts]
    assert [plan.diagnostics for plan in plans] == [(), ()]
    calls = [
        n.spec.calls for p in plans for n in walk_nodes(p.plan.queries[0].logical) if isinstance(n.spec, GroupAggregate)
    ]
    first, second = ([replace(c, name="") for c in one] for one in calls)
    assert first == second
