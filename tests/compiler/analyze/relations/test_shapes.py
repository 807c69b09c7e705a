"""Which operators a view over tables becomes, what its columns are called, and what it is refused for."""

from __future__ import annotations

import pytest

from flowql.compiler.diagnostics.diagnostic import CompileError, UnsupportedError
from flowql.compiler.diagnostics.source import SourceText
from flowql.compiler.driver import Session
from flowql.compiler.plan.changes import EquiJoin, GroupAggregate, TopN
from flowql.compiler.plan.logical import Node, Scan, walk_nodes

TABLES = """
    CREATE TABLE t (id INT PRIMARY KEY, a INT, b TEXT, at TIMESTAMP);
    CREATE TABLE u (uid INT PRIMARY KEY, a INT, c DOUBLE PRECISION);
    CREATE TABLE bag (x INT, y TEXT);
"""


def compiled(query: str) -> tuple[Node, tuple[str, ...]]:
    session = Session(dialect="standard")
    session.execute(SourceText("tables.sql", TABLES))
    (made,) = session.execute(SourceText("view.sql", f"CREATE VIEW v AS {query}"))
    assert made.query is not None
    return made.query.logical, session.catalog.sources["v"].visible


def refusal(query: str) -> str:
    with pytest.raises(CompileError) as raised:
        compiled(query)
    (found,) = raised.value.diagnostics
    assert "\0" not in found.title + found.label
    return f"{found.code} {found.title}"


def operators(node: Node) -> list[str]:
    """What is no projection, from the sink down."""
    plain = ("Sink", "Consolidate", "Project", "Scan", "Materialise")
    return [type(n.spec).__name__ for n in reversed(list(walk_nodes(node))) if type(n.spec).__name__ not in plain]


def joins(node: Node) -> list[tuple[str, int, bool]]:
    """(kind, equalities, whether there is another condition) of each join, the last one first."""
    specs = [n.spec for n in reversed(list(walk_nodes(node))) if isinstance(n.spec, EquiJoin)]
    return [(s.kind, len(s.left_keys), s.residual is not None) for s in specs]


@pytest.mark.parametrize(
    ("query", "expected"),
    [
        ("SELECT t.b, u.c FROM t JOIN u ON t.a = u.a", [("inner", 1, False)]),
        ("SELECT t.b, u.c FROM t, u WHERE t.a = u.a AND t.id = 3", [("inner", 1, False)]),
        ("SELECT t.b, u.c FROM t, u WHERE t.a < u.a", [("inner", 0, True)]),
        ("SELECT t.b FROM t CROSS JOIN u", [("inner", 0, False)]),
        ("SELECT b FROM t LEFT JOIN u USING (a)", [("left", 1, False)]),
        ("SELECT b FROM t FULL JOIN u ON t.a = u.a AND t.id > u.uid", [("full", 1, True)]),
        ("SELECT b FROM t NATURAL JOIN u", [("inner", 1, False)]),
        ("SELECT x.b FROM t x JOIN t y ON x.a = y.id", [("inner", 1, False)]),
        ("SELECT b FROM t WHERE id IN (SELECT uid FROM u WHERE u.a = t.a)", [("semi", 2, False)]),
        ("SELECT b FROM t WHERE id NOT IN (SELECT uid FROM u)", [("anti", 0, True)]),
        ("SELECT b FROM t WHERE EXISTS (SELECT 1 FROM u WHERE u.a = t.a AND u.c > t.id)", [("semi", 1, True)]),
        ("SELECT b FROM t WHERE NOT EXISTS (SELECT 1 FROM u WHERE u.a = t.a)", [("anti", 1, False)]),
        ("SELECT b, (SELECT max(c) FROM u WHERE u.a = t.a) FROM t", [("left", 1, False)]),
        ("SELECT b FROM t WHERE a > (SELECT avg(a) FROM u)", [("left", 0, False)]),
        ("SELECT b, (SELECT c FROM u WHERE u.uid = t.a) FROM t", [("left", 1, False)]),
        (
            "SELECT 1 AS one FROM t, u, bag WHERE bag.x = u.uid AND t.a = u.a",
            [("inner", 1, False), ("inner", 1, False)],
        ),
    ],
)
def test_a_join_takes_its_equalities_as_keys(query: str, expected: list[tuple[str, int, bool]]) -> None:
    assert joins(compiled(query)[0]) == expected


@pytest.mark.parametrize(
    ("query", "expected"),
    [
        ("SELECT a, count(*) FROM t GROUP BY a HAVING count(*) > 1", ["Filter", "GroupAggregate"]),
        ("SELECT DISTINCT a FROM t", ["SetOperation"]),
        ("SELECT a FROM t UNION SELECT a FROM u", ["SetOperation", "Union"]),
        ("SELECT a FROM t INTERSECT ALL SELECT a FROM u", ["SetOperation"]),
        ("SELECT DISTINCT ON (a) a, b FROM t ORDER BY a, b", ["TopN"]),
        ("SELECT id FROM t ORDER BY b LIMIT 2", ["TopN"]),
        ("SELECT id FROM t ORDER BY b", []),
        ("SELECT id, sum(a) OVER (PARTITION BY b) FROM t", ["Over"]),
        ("SELECT id, rank() OVER (ORDER BY a) FROM t", ["TopN"]),
        ("SELECT a, b, count(*) FROM t GROUP BY ROLLUP (a, b)", ["Union", *["GroupAggregate"] * 3]),
        ("SELECT window_start FROM HOP(t, at, INTERVAL '1' MINUTE, INTERVAL '2' MINUTE)", ["Filter", "Explode"]),
        (
            "SELECT (SELECT count(*) FROM u WHERE u.a = t.a) AS k, count(*) FROM t GROUP BY 1",
            ["GroupAggregate", "EquiJoin", "GroupAggregate"],
        ),
        (
            "SELECT a, sum((SELECT max(c) FROM u WHERE u.a = t.a)) FROM t GROUP BY a",
            ["GroupAggregate", "EquiJoin", "GroupAggregate"],
        ),
    ],
)
def test_a_view_becomes_operators_over_changes(query: str, expected: list[str]) -> None:
    assert operators(compiled(query)[0]) == expected


@pytest.mark.parametrize(
    ("query", "names"),
    [
        ("SELECT count(*), sum(a), max(b) AS m FROM t", ("count", "sum", "m")),
        (
            "SELECT a + 1, b::int, CASE WHEN a = 1 THEN 2 END, EXISTS (SELECT 1 FROM u) FROM t",
            ("?column?", "b", "case", "exists"),
        ),
        ("SELECT * FROM t JOIN u USING (a)", ("a", "id", "b", "at", "uid", "c")),
        ("SELECT * FROM bag", ("x", "y")),
        ("SELECT (SELECT max(c) FROM u), row_number() OVER () FROM t", ("max", "row_number")),
    ],
)
def test_columns_are_called_as_in_postgresql(query: str, names: tuple[str, ...]) -> None:
    assert compiled(query)[1] == names


@pytest.mark.parametrize(
    ("query", "said"),
    [
        ("SELECT z FROM t", "FQ2002 SELECT column 'z' cannot be resolved"),
        ("SELECT __row FROM bag", "FQ2002 SELECT column '__row' cannot be resolved"),
        ("SELECT a FROM t, u", "FQ2003 column 'a' is ambiguous: could be t.a or u.a"),
        ("SELECT b FROM t GROUP BY a", 'FQ2021 column "b" must appear in the GROUP BY clause or be used in an aggregate function'),
        ("SELECT sum(b) FROM t", "FQ2005 Function 'SUM' does not accept parameters (TEXT)"),
        ("SELECT a FROM t WHERE count(*) > 1", "FQ2020 aggregate functions are not allowed in WHERE"),
        ("SELECT sum(count(*)) FROM t", "FQ2020 aggregate function calls cannot be nested"),
        ("SELECT a, a FROM t", 'FQ2004 column "a" is specified more than once'),
        ("SELECT a FROM t UNION SELECT a, c FROM u", "FQ2040 each UNION query must have the same number of columns: 1 and 2"),
        ("SELECT a FROM t ORDER BY 3 LIMIT 1", "FQ2002 ORDER BY position 3 is not in the select list"),
        ("SELECT id, UUID() AS u FROM t", "FQ2027 a value of a table is computed by UUID, which gives another value each time"),
        ("SELECT id, GEN_RANDOM_UUID() AS u FROM t", "FQ2027 a value of a table is computed by GEN_RANDOM_UUID, which gives another value each time"),
        ("SELECT id FROM t WHERE a > RANDOM()", "FQ2027 a value of a table is computed by RANDOM, which gives another value each time"),
        (
            "SELECT count(*) OVER (ORDER BY b RANGE BETWEEN 1 PRECEDING AND CURRENT ROW) FROM t",
            "FQ2005 RANGE with an offset needs ORDER BY a number or a time, not TEXT",
        ),
        ("SELECT ntile(0) OVER (ORDER BY a) FROM t", "FQ2005 the number of ntile must be greater than zero"),
    ],
)  # fmt: skip
def test_what_cannot_be_is_refused_with_its_reason(query: str, said: str) -> None:
    assert refusal(query).startswith(said)


@pytest.mark.parametrize(("call", "word"), [("NOW()", "clock"), ("CURRENT_DATE", "clock"), ("RANDOM()", "store")])
def test_what_gives_another_value_each_time_is_refused_with_what_to_do(call: str, word: str) -> None:
    with pytest.raises(CompileError) as raised:
        compiled(f"SELECT id FROM t WHERE id < 3 AND {call} IS NOT NULL")
    assert word in raised.value.diagnostics[0].help


def test_a_rank_is_kept_for_as_many_rows_as_are_wanted() -> None:
    node, _ = compiled(
        "SELECT id FROM (SELECT id, row_number() OVER (PARTITION BY a ORDER BY b) AS n FROM t) r WHERE n <= 3 AND id > 1"
    )
    (top,) = [n.spec for n in walk_nodes(node) if isinstance(n.spec, TopN)]
    assert top.limit == 3


def test_a_condition_on_groups_filters_before_they_are_made() -> None:
    node, _ = compiled("SELECT * FROM (SELECT a, count(*) AS n FROM t GROUP BY a) g WHERE a = 2")
    assert operators(node) == ["GroupAggregate", "Filter"]


def test_columns_that_no_one_reads_are_not_carried() -> None:
    node, _ = compiled("SELECT t.b FROM t JOIN u ON t.a = u.a")
    scans = {n.spec.source: n.schema.names for n in walk_nodes(node) if isinstance(n.spec, Scan)}
    assert scans == {"t": ("id", "a", "b"), "u": ("uid", "a")}
    (group,) = [
        n.spec for n in walk_nodes(compiled("SELECT a FROM t GROUP BY a")[0]) if isinstance(n.spec, GroupAggregate)
    ]
    assert group.calls == ()


@pytest.mark.parametrize("option", ["KEY_FORMAT = 'KAFKA'", "VALUE_FORMAT = 'AVRO'", "TIMESTAMP = 'at'"])
def test_records_of_a_view_are_json_and_have_the_time_of_their_change(option: str) -> None:
    session = Session(dialect="standard")
    session.execute(SourceText("tables.sql", TABLES))
    with pytest.raises(UnsupportedError):
        session.execute(SourceText("view.sql", f"CREATE VIEW v WITH ({option}) AS SELECT id, at FROM t"))


@pytest.mark.parametrize(
    ("query", "aggregates"),
    [
        ("SELECT id, (SELECT c FROM u WHERE u.uid = t.id) AS c FROM t", 0),
        ("SELECT id, (SELECT c FROM u WHERE uid = 7) AS c FROM t", 0),
        (
            "WITH m AS (SELECT a, MAX(c) AS c FROM u GROUP BY a) SELECT id, (SELECT c FROM m WHERE m.a = t.a) AS c FROM t",
            1,
        ),
        ("WITH m AS (SELECT MAX(c) AS c FROM u) SELECT id, (SELECT c FROM m WHERE c > 2) AS c FROM t", 1),
        ("SELECT id, (SELECT u.c FROM u JOIN u AS v ON u.a = v.uid WHERE u.uid = t.id) AS c FROM t", 0),
        ("SELECT id, (SELECT c FROM u WHERE u.a = t.a ORDER BY uid LIMIT 1) AS c FROM t", 0),
        ("SELECT id, (SELECT c FROM u WHERE u.a = t.a) AS c FROM t", 1),
        ("SELECT id, (SELECT v.c FROM u JOIN u AS v ON u.uid = v.a WHERE u.uid = t.id) AS c FROM t", 1),
    ],
)
def test_a_sub_query_that_has_one_row_by_its_form_is_not_counted(query: str, aggregates: int) -> None:
    node, _ = compiled(query)
    assert sum(isinstance(n.spec, GroupAggregate) for n in walk_nodes(node)) == aggregates
