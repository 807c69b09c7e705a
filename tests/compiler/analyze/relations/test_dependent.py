"""Sub-queries and functions of FROM that depend on rows of the query around them: what DuckDB answers, after changes too."""

from __future__ import annotations

import pytest

from flowql.compiler.diagnostics.diagnostic import CompileError
from flowql.compiler.diagnostics.source import SourceText
from flowql.compiler.driver import Session
from flowql.compiler.plan.changes import EquiJoin
from flowql.compiler.plan.logical import Explode, Filter, Scan, walk_nodes
from tests.slt.session import Shape
from tests.standard_views.case import Step
from tests.standard_views.check import run

pytestmark = pytest.mark.turns("long")

T = "CREATE TABLE t (id INT, a INT, b INT, c VARCHAR, PRIMARY KEY (id))"
U = "CREATE TABLE u (a INT, b INT)"


def agree(*queries: str, vector: bool | None = None) -> None:
    """Each view is what DuckDB answers; those with ` ## ` are, for DuckDB, the text behind it."""
    views = [Step("view", q.split(" ## ")[0], f"v{n}", q.split(" ## ")[-1]) for n, q in enumerate(queries)]
    steps = (
        Step("table", T, "t", T.replace(", PRIMARY KEY (id)", "")),
        Step("table", U, "u"),
        Step(
            "change", "INSERT INTO t VALUES (1, 1, 2, 'x'), (2, 1, NULL, 'y,z'), (3, NULL, 3, NULL), (4, 2, 2, 'x,y,x')"
        ),
        *views,
        Step("change", "INSERT INTO u VALUES (1, 2), (1, 3), (2, NULL), (NULL, 1), (3, 3)"),
        Step("change", "UPDATE t SET a = 3, c = 'z,x' WHERE id < 3"),
        Step("change", "DELETE FROM u WHERE a = 1 OR a IS NULL"),
        Step("change", "DELETE FROM t WHERE id = 2"),
    )
    outcome = run(steps, Shape(vector, 3))
    assert len(outcome.accepted) == len(queries), outcome.refused or outcome.lacking


@pytest.mark.parametrize("vector", [True, False])
def test_lateral_queries_are_answered_for_each_row_before_them(vector: bool) -> None:
    agree(
        "SELECT t.id, l.n, l.m FROM t, LATERAL (SELECT COUNT(*) AS n, MAX(b) AS m FROM u WHERE u.a < t.a) AS l",
        "SELECT t.id, l.b FROM t LEFT JOIN LATERAL (SELECT b FROM u WHERE u.a <= t.a ORDER BY b, u.a LIMIT 2) AS l ON TRUE",
        "SELECT t.id, l.b FROM t, LATERAL (SELECT DISTINCT b FROM u WHERE u.a <> t.a) AS l WHERE l.b > 0",
        "SELECT t.id, l.a FROM t, LATERAL (SELECT a FROM u WHERE u.b = t.b UNION SELECT t.id) AS l",
        "SELECT t.id, l.s FROM t, LATERAL (SELECT SUM(u.b + t.b) AS s FROM u WHERE u.a >= t.a GROUP BY u.a) AS l",
        "SELECT t.id, l.v FROM t, LATERAL (VALUES (t.a), (t.b)) AS l(v)",
        "SELECT t.id, l.rn FROM t, LATERAL (SELECT ROW_NUMBER() OVER (ORDER BY u.b, u.a) AS rn FROM u WHERE u.a = t.a) AS l",
        "SELECT t.id, u.b, l.n FROM t, u, LATERAL (SELECT COUNT(*) AS n FROM t AS s WHERE s.a = t.a AND s.b < u.b) AS l"
        " WHERE t.a = u.a",
        vector=vector,
    )


def test_a_sub_query_may_name_columns_of_the_query_around_it_anywhere() -> None:
    """Outside WHERE they were looked up in the sub-query's tables, later refused."""
    agree(
        "SELECT id, (SELECT MAX(u.a + t.a) FROM u) AS m, (SELECT t.b FROM t AS z WHERE z.id = t.a) AS b FROM t",
        "SELECT id, (SELECT t.a FROM u ORDER BY u.a NULLS LAST LIMIT 1) AS m FROM t WHERE EXISTS (SELECT t.b)",
        "SELECT id FROM t WHERE t.a IN (SELECT t.b FROM u ORDER BY u.a LIMIT 1)",
        "SELECT id FROM t WHERE EXISTS (SELECT u.a FROM u GROUP BY u.a HAVING COUNT(*) > t.a - 2)",
        "SELECT id FROM t WHERE a IN (SELECT RANK() OVER (ORDER BY t.a) FROM u)",
        "SELECT id, (SELECT COUNT(*) FROM u WHERE u.a = t.a HAVING COUNT(*) > 1) AS n FROM t",
        "SELECT t.a, COUNT(*) AS n, (SELECT MAX(u.b) FROM u WHERE u.a < t.a) AS m FROM t GROUP BY t.a",
    )


def test_sub_queries_may_depend_on_a_query_two_levels_above() -> None:
    agree(
        "SELECT id FROM t WHERE EXISTS (SELECT 1 FROM u WHERE EXISTS (SELECT 1 FROM u AS v WHERE v.a = t.a AND v.b > u.b))",
        "SELECT id FROM t WHERE b >= (SELECT COUNT(*) FROM u WHERE u.b > (SELECT MIN(s.b) FROM t AS s WHERE s.a <> t.a))",
        "SELECT x.id, y.m FROM t AS x CROSS JOIN LATERAL (SELECT MIN(z.m) AS m FROM u, LATERAL"
        " (SELECT MAX(s.b) AS m FROM t AS s WHERE s.a = u.a AND s.id <> x.id) AS z WHERE u.b = x.b) AS y",
        "SELECT id FROM t WHERE a IN (SELECT q.a FROM (SELECT a, MAX(b) AS m FROM u WHERE u.b <> t.b GROUP BY a) AS q)",
    )


def test_any_and_all_of_sub_queries_are_three_valued() -> None:
    agree(
        "SELECT id FROM t WHERE b > ALL (SELECT u.b FROM u WHERE u.a = t.a)",
        "SELECT id FROM t WHERE NOT b >= ANY (SELECT u.b FROM u WHERE u.a < t.a)",
        "SELECT id, b <= ANY (SELECT u.b FROM u) AS y FROM t",
        "SELECT id FROM t WHERE (a, b) NOT IN (SELECT a, b FROM u WHERE a IS NOT NULL AND b IS NOT NULL)",
    )


def test_a_row_is_not_in_rows_only_if_each_differs_in_a_value_that_is_known() -> None:
    """DuckDB takes NULL in a row for a value, so that the answer is said here in other words."""
    agree(
        "SELECT id FROM t WHERE (a, b) NOT IN (SELECT a, b FROM u) ## SELECT id FROM t WHERE NOT EXISTS (SELECT 1 FROM u"
        " WHERE (u.a = t.a OR u.a IS NULL OR t.a IS NULL) AND (u.b = t.b OR u.b IS NULL OR t.b IS NULL))",
    )


def test_sub_queries_in_on_of_outer_joins() -> None:
    agree(
        "SELECT t.id, u.b FROM t LEFT JOIN u ON t.a = u.a AND u.b IN (SELECT s.b FROM t AS s WHERE s.id <> t.id)",
        "SELECT t.id, u.b FROM u RIGHT JOIN t ON t.a = u.a AND EXISTS (SELECT 1 FROM t AS s WHERE s.b = u.b)",
    )


def test_on_of_an_outer_join_may_name_columns_of_the_query_around() -> None:
    agree(
        "SELECT id FROM t WHERE (SELECT COUNT(v.a) FROM u LEFT JOIN u AS v ON v.a = u.a AND v.b > t.b) > 0",
        "SELECT id, (SELECT SUM(v.b) FROM u RIGHT JOIN u AS v ON v.a = u.a AND u.b = t.b WHERE v.a <= t.a) AS s FROM t",
    )


def test_functions_in_from_give_rows_for_each_row_before_them() -> None:
    agree(
        "SELECT t.id, e.x, e.n FROM t, UNNEST(string_to_array(t.c, ',')) WITH ORDINALITY AS e(x, n)",
        "SELECT t.id, e.x FROM t LEFT JOIN UNNEST(string_to_array(t.c, ',')) AS e(x) ON TRUE",
        "SELECT t.id, e.x FROM t LEFT JOIN UNNEST(string_to_array(t.c, ',')) AS e(x) ON e.x <> 'x'",
        "SELECT * FROM UNNEST(ARRAY[1, 2]) AS n(m), (SELECT id, c FROM t) AS t, UNNEST(ARRAY[n.m, t.id]) AS e(x) WHERE n.m <> t.id",
        "SELECT g.x, COUNT(t.id) AS n FROM generate_series(0, 3) AS g(x) LEFT JOIN t ON t.a = g.x GROUP BY g.x",
        "SELECT t.id, g.x FROM t, generate_series(3, t.a, -1) AS g(x)",
        "SELECT t.id, (SELECT COUNT(*) FROM UNNEST(ARRAY[t.a, t.id]) AS e(x) WHERE e.x > 1) AS n FROM t",
    )


def test_values_and_queries_without_from() -> None:
    agree(
        "SELECT v.n, COUNT(t.id) AS c FROM (VALUES (1, 'one'), (2, 'two'), (NULL, 'none')) AS v(k, n) LEFT JOIN t ON t.a = v.k"
        " GROUP BY v.n",
        "WITH w(k) AS (VALUES (1), (2)) SELECT id FROM t WHERE a IN (SELECT k FROM w) OR b IN (VALUES (3), (NULL))",
        "SELECT a, b FROM t UNION ALL VALUES (100, 200)",
        "SELECT (SELECT COUNT(*) FROM t) AS n, (SELECT MAX(b) FROM u) AS m WHERE EXISTS (SELECT 1 FROM u)",
    )


def test_aggregates_of_bits_and_of_pairs() -> None:
    """Where DuckDB divides zero by zero the answer is NULL."""
    agree(
        "SELECT a, BIT_AND(b) AS x, BIT_OR(b) AS y, BIT_XOR(DISTINCT b) AS z, REGR_COUNT(b, id) AS n FROM t GROUP BY a",
        "SELECT REGR_SLOPE(b, id) AS x, REGR_INTERCEPT(b, id) AS y, CORR(b, id) AS z, COVAR_SAMP(b, id) AS s FROM t"
        " HAVING COUNT(b) > 2",
        "SELECT SUM(a) AS s, PERCENTILE_CONT(NULL) WITHIN GROUP (ORDER BY a) AS p FROM t ##"
        " SELECT SUM(a) AS s, CAST(NULL AS DOUBLE) AS p FROM t",
        "SELECT STRING_AGG(c, CASE WHEN id > 3 THEN '+' END ORDER BY id) AS s FROM t ##"
        " SELECT SUBSTRING(STRING_AGG(CASE WHEN id > 3 THEN '+' ELSE '' END || c, '' ORDER BY id)"
        " FROM CASE WHEN FIRST(id ORDER BY id) FILTER (WHERE c IS NOT NULL) > 3 THEN 2 ELSE 1 END) AS s FROM t",
        "SELECT MODE() WITHIN GROUP (ORDER BY a) AS m, ANY_VALUE(a) IS NULL AS n FROM u WHERE a = 1 OR a IS NULL",
    )


def test_what_a_primary_key_decides_may_be_selected_beside_it() -> None:
    agree(
        "SELECT t.id, t.c, COUNT(u.b) AS n FROM t LEFT JOIN u ON u.a = t.a GROUP BY t.id ##"
        " SELECT t.id, t.c, COUNT(u.b) AS n FROM t LEFT JOIN u ON u.a = t.a GROUP BY t.id, t.c",
        "SELECT t.a + 1 AS x, GROUPING(t.id) AS g, SUM(b) AS s FROM t GROUP BY GROUPING SETS ((id), (id, b)) HAVING a > 0 ##"
        " SELECT t.a + 1 AS x, GROUPING(t.id) AS g, SUM(b) AS s FROM t GROUP BY GROUPING SETS ((id, a), (id, a, b)) HAVING a > 0",
    )


def test_corresponding_takes_the_columns_that_both_queries_have() -> None:
    agree(
        "SELECT b, a FROM t UNION CORRESPONDING SELECT a, b FROM u ## SELECT b, a FROM t UNION SELECT b, a FROM u",
        "SELECT a, b, id FROM t EXCEPT CORRESPONDING BY (a) SELECT * FROM u ## SELECT a FROM t EXCEPT SELECT a FROM u",
    )


# --- plans and mistakes ---


@pytest.fixture
def session() -> Session:
    made = Session(dialect="standard")
    made.execute(SourceText("t.sql", f"{T}; {U}; CREATE TABLE lists (id INT, n INT[][])"))
    return made


def test_sub_queries_side_by_side_do_not_read_those_before_them(session: Session) -> None:
    """Each read all joins before it twice, so that six of them had 2^6 times the operators."""
    values = ", ".join(f"(SELECT COUNT(*) FROM u WHERE u.b > t.a + {n}) AS n{n}" for n in range(6))
    session.execute(SourceText("v.sql", f"CREATE VIEW v AS SELECT id, {values} FROM t;"))
    (query,) = session.plan.queries
    specs = [type(n.spec) for n in walk_nodes(query.logical)]
    assert specs.count(Scan) <= 1 + 3 * 6
    assert specs.count(EquiJoin) <= 3 * 6


def test_deep_sub_queries_are_bound_in_time_or_refused(session: Session) -> None:
    """Each level is bound again for what it is tied by: ten levels took minutes."""
    inner = "SELECT COUNT(*) FROM u WHERE u.a < t.a"
    for n in range(10):
        inner = f"SELECT COUNT(*) FROM u AS u{n} WHERE u{n}.b > t.b AND ({inner}) > {n}"
    with pytest.raises(CompileError, match="depend on each other in too many ways"):
        session.execute(SourceText("v.sql", f"CREATE VIEW v AS SELECT id FROM t WHERE ({inner}) > 1;"))


def test_what_a_temporal_join_has_found_is_not_looked_up_again(session: Session) -> None:
    text = "SELECT t.id, l.n FROM t JOIN u FOR SYSTEM_TIME AS OF PROCTIME() ON u.a = t.a, LATERAL (SELECT {} AS n) AS l"
    session.execute(SourceText("v.sql", f"CREATE VIEW v AS {text.format('t.b')};"))
    with pytest.raises(CompileError, match="a sub-query that depends on what a temporal join has found"):
        session.execute(SourceText("w.sql", f"CREATE VIEW w AS {text.format('u.b')};"))


def test_a_condition_on_the_row_is_asked_before_its_elements_are_made(session: Session) -> None:
    text = "SELECT t.id, e.x FROM t LEFT JOIN UNNEST(string_to_array(t.c, ',')) AS e(x) ON TRUE WHERE t.a > 1 AND e.x > 'a'"
    session.execute(SourceText("v.sql", f"CREATE VIEW v AS {text};"))
    (query,) = session.plan.queries
    (node,) = (n for n in walk_nodes(query.logical) if isinstance(n.spec, Explode))
    below = [n.spec for n in walk_nodes(node.inputs[0])]
    above = [n.spec for n in walk_nodes(query.logical) if n.spec not in below]
    assert (sum(isinstance(s, Filter) for s in below), sum(isinstance(s, Filter) for s in above)) == (1, 1)


@pytest.mark.parametrize(
    ("query", "code", "title"),
    [
        ("SELECT l.x FROM t, (SELECT u.a + t.a AS x FROM u) AS l", "FQ2001", "'t' is not a valid stream/table name or alias"),
        ("SELECT t.id FROM t RIGHT JOIN LATERAL (SELECT t.a) AS l ON TRUE", "FQ1901", "LATERAL on the right side of a RIGHT JOIN is not supported yet"),
        ("SELECT e.x FROM t, UNNEST(t.a) AS e(x)", "FQ2005", "UNNEST takes an array, not INT"),
        ("SELECT e.x FROM lists, UNNEST(lists.n) AS e(x)", "FQ1901", "UNNEST of an array of arrays is not supported yet"),
        ("SELECT e.x FROM t, UNNEST(ARRAY[t.a]) AS e(x, y)", "FQ2004", "e has 1 columns, not 2"),
        ("SELECT g.x FROM t, generate_series(t.c, 1) AS g(x)", "FQ2005", "GENERATE_SERIES(t.c, 1): generate_series(TEXT, INT) does not exist"),
        ("SELECT id FROM t UNION CORRESPONDING SELECT b FROM u", "FQ2040", "the queries of UNION CORRESPONDING have no column in common"),
        ("SELECT id, a FROM t UNION CORRESPONDING BY (id) SELECT a FROM u", "FQ2002", "the column id of UNION CORRESPONDING BY is not in both queries"),
        ("SELECT a, GROUPING(b) AS g FROM t GROUP BY a", "FQ2020", "arguments to GROUPING must be grouping expressions of the query"),
        ("SELECT b, COUNT(*) AS n FROM u GROUP BY a", "FQ2021", 'column "b" must appear in the GROUP BY clause or be used in an aggregate function'),
        ("SELECT id FROM t WHERE (a, b) < ANY (SELECT a, b FROM u)", "FQ1901", "rows with < ANY (a sub-query) is not supported yet"),
        ("SELECT t.id FROM t FULL JOIN u ON t.a IN (SELECT a FROM u)", "FQ1901", "a sub-query in ON of a FULL or temporal join is not supported yet"),
    ],
)  # fmt: skip
def test_mistakes_are_named(session: Session, query: str, code: str, title: str) -> None:
    with pytest.raises(CompileError) as found:
        session.execute(SourceText("v.sql", f"CREATE VIEW v AS {query};"))
    (first, *_) = found.value.diagnostics
    assert (first.code, first.title) == (code, title)
