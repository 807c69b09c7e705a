"""Constants are evaluated when a statement is compiled: what fails for every row is refused, with its place."""

import pytest

from flowql.compiler.diagnostics.diagnostic import Diagnostic
from flowql.compiler.diagnostics.source import SourceText
from flowql.compiler.driver import Compiled, DialectName, compile_project
from flowql.compiler.functions.evaluate import compile_predicate
from flowql.compiler.functions.registry import Function, register, unregister
from flowql.compiler.functions.signatures import Resolution
from flowql.compiler.plan.logical import Filter, walk_nodes
from flowql.compiler.plan.types import INT

BOTH: tuple[DialectName, ...] = ("ksql", "standard")
SOURCE = (
    "CREATE STREAM s (id INT KEY, n INT, name STRING, ts TIMESTAMP, d DOUBLE, items ARRAY<INT>)"
    " WITH (kafka_topic='s', value_format='JSON');\n"
)


def compiled(select: str, dialect: DialectName) -> Compiled:
    kind = "TABLE" if "GROUP BY" in select else "STREAM"
    return compile_project([SourceText("t.sql", f"{SOURCE}CREATE {kind} o AS SELECT {select};")], dialect=dialect)


def failing(select: str, dialect: DialectName) -> tuple[Diagnostic, str]:
    """The one mistake of a query, and the text under its caret."""
    (found,) = compiled(select, dialect).diagnostics
    return found, found.span.line_text[found.span.column - 1 :][: found.span.length]


@pytest.mark.parametrize("dialect", BOTH)
@pytest.mark.parametrize(
    ("select", "at"),
    [
        ("id, 1/0 AS x FROM s", "1/0"),
        ("id, n + 2 * (1 % 0) AS x FROM s", "1 % 0"),
        ("id, n / 0 AS x FROM s", "n / 0"),
        ("id, DATE '2024-13-01' AS x FROM s", "DATE '2024-13-01'"),
        ("id, TIME '25:00' AS x FROM s", "TIME '25:00'"),
        ("id, CAST('x' AS INT) AS x FROM s", "CAST('x' AS INT)"),
        ("id, CAST('99999999999' AS INT) AS x FROM s", "CAST('99999999999' AS INT)"),
        (r"id, n FROM s WHERE name LIKE 'a\'", r"name LIKE 'a\'"),
        ("id, FORMAT_TIMESTAMP(ts, 'jjj') AS x FROM s", "FORMAT_TIMESTAMP(ts, 'jjj')"),
        ("id, CONVERT_TZ(ts, 'UTC', 'Nowhere/At') AS x FROM s", "CONVERT_TZ(ts, 'UTC', 'Nowhere/At')"),
        ("id, n FROM s WHERE ts > TIMESTAMP '2024-02-30 00:00:00'", "TIMESTAMP '2024-02-30 00:00:00'"),
        ("id, EXTRACTJSONFIELD(name, 'a.b') AS x FROM s", "EXTRACTJSONFIELD(name, 'a.b')"),
        ("id, n FROM s WHERE ts > 'yesterday'", "'yesterday'"),
        ("id, SUM(n / 0) AS x FROM s GROUP BY id", "n / 0"),
        ("id, SUM(n) AS x FROM s GROUP BY id HAVING SUM(n) > 1 / 0", "1 / 0"),
        ("id, CASE WHEN 1 / 0 = 1 THEN 1 ELSE 2 END AS x FROM s", "1 / 0"),
    ],
)
def test_what_fails_for_every_row_is_refused(select: str, at: str, dialect: DialectName) -> None:
    found, text = failing(select, dialect)
    assert (found.code, text) == ("FQ2026", at)
    assert "fails for every row" in found.title


@pytest.mark.parametrize(
    ("call", "dialect"),
    [
        ("FROM_UNIXTIME(n, 'jjj')", "standard"),
        ("UNIX_TIMESTAMP(name, 'jjj')", "standard"),
    ],
)
def test_a_pattern_is_checked_where_the_dialect_has_it(call: str, dialect: DialectName) -> None:
    found, text = failing(f"id, {call} AS x FROM s", dialect)
    assert (found.code, text) == ("FQ2026", call)


@pytest.mark.parametrize(
    ("call", "dialect", "code", "at", "named"),
    [
        ("REGEXP_EXTRACT('[', name)", "ksql", "FQ2062", "'['", "[ is not closed"),
        ("REGEXP_LIKE(name, '(')", "ksql", "FQ2062", "'('", "closing bracket"),
        ("REGEXP_LIKE(name, '(')", "standard", "FQ2062", "'('", "closing bracket"),
        ("REGEXP_EXTRACT(name, '[')", "standard", "FQ2062", "'['", "[ is not closed"),
        ("REGEXP_EXTRACT_ALL(name, '[', 0)", "standard", "FQ2062", "'['", "[ is not closed"),
        ("REGEXP_SPLIT_TO_ARRAY(name, '[')", "standard", "FQ2062", "'['", "[ is not closed"),
        ("name SIMILAR TO '(a'", "standard", "FQ2062", "'(a'", "closing bracket"),
        ("REGEXP_EXTRACT('(?=a)', name)", "ksql", "FQ2061", "'(?=a)'", "look-ahead"),
        (r"REGEXP_EXTRACT('(a)\1', name)", "ksql", "FQ2061", r"'(a)\\1'", "back-reference"),
        ("REGEXP_EXTRACT('a++', name)", "ksql", "FQ2061", "'a++'", "possessive"),
        ("REGEXP_EXTRACT('(?>a)', name)", "ksql", "FQ2061", "'(?>a)'", "atomic"),
        (r"name ~ '\ya'", "standard", "FQ2061", r"'\ya'", "edge of a word"),
        ("REGEXP_LIKE(name, '((a{1000}){1000}){9}')", "ksql", "FQ2063", "'((a{1000}){1000}){9}'", "instructions"),
        ("REGEXP_MATCH(name, 'a?(ab)?')", "standard", "FQ2064", "'a?(ab)?'", "same characters"),
    ],
)
def test_a_pattern_that_is_not_supported_is_refused_by_name(
    call: str, dialect: DialectName, code: str, at: str, named: str
) -> None:
    found, text = failing(f"id, {call} AS x FROM s", dialect)
    assert (found.code, text.replace("\\\\", "\\")) == (code, at.replace("\\\\", "\\"))
    assert named in found.title


@pytest.mark.parametrize("dialect", BOTH)
@pytest.mark.parametrize(
    "select",
    [
        "id, CASE WHEN n > 1 THEN 1 / 0 ELSE 2 END AS x FROM s",
        "id, COALESCE(n, 1 / 0) AS x FROM s",
        "id, TRANSFORM(items, i => i / 0) AS x FROM s",
        "id, n / d AS x, NULLIF(1, 1) AS y FROM s",
        "id, CAST(NULL AS INT) AS x, LEN(CAST(NULL AS STRING)) AS y FROM s",
        "id, CAST(name AS INT) AS x FROM s",
    ],
)
def test_what_some_rows_could_pass_is_left_to_the_rows(select: str, dialect: DialectName) -> None:
    assert compiled(select, dialect).diagnostics == ()


def test_a_condition_that_always_fails_may_stand_behind_another_in_ksqldbs_dialect() -> None:
    """Conditions of standard SQL have no order, and PostgreSQL refuses this one, too."""
    assert compiled("id, n FROM s WHERE n > 1 AND 1 / 0 = 1", "ksql").diagnostics == ()
    assert failing("id, n FROM s WHERE n > 1 AND 1 / 0 = 1", "standard")[0].code == "FQ2026"


def test_a_double_is_divided_by_zero_in_ksqldbs_dialect_alone() -> None:
    assert compiled("id, d / 0 AS x FROM s", "ksql").diagnostics == ()
    assert failing("id, d / 0 AS x FROM s", "standard")[1] == "d / 0"


def test_a_function_of_a_user_runs_with_the_rows_only() -> None:
    """It may depend on what is not there while a project is compiled."""

    def body(_: int) -> int:
        raise ConnectionError("not now")

    register(Function("SCORE", lambda _: Resolution((INT,), INT), lambda _: body))
    try:
        assert compiled("id, SCORE(1) AS x FROM s", "standard").diagnostics == ()
    finally:
        unregister("SCORE")


def test_every_failing_expression_of_a_query_is_named() -> None:
    found = compiled("id, 1 / 0 AS x, CAST('x' AS INT) AS y FROM s", "standard").diagnostics
    assert [d.code for d in found] == ["FQ2026", "FQ2026"]


@pytest.mark.parametrize("dialect", BOTH)
def test_a_value_to_insert_is_checked_as_well(dialect: DialectName) -> None:
    text = f"{SOURCE}INSERT INTO s (id, n) VALUES (1, 1 / 0);"
    (found,) = compile_project([SourceText("t.sql", text)], dialect=dialect).diagnostics
    assert (found.code, found.span.line) == ("FQ2080", 2)


def _passes(where: str, dialect: DialectName, ts: int) -> bool:
    made = compiled(f"id, n FROM s WHERE {where}", dialect)
    assert made.ok, made.diagnostics
    specs = [n.spec for n in walk_nodes(made.plan.queries[0].logical)]
    (predicate,) = [s.predicate for s in specs if isinstance(s, Filter)]
    names = [f.name for f in made.plan.sources[0].schema]
    row = [ts if n.upper() == "TS" else None for n in names]
    return compile_predicate(predicate, names)(row)


@pytest.mark.parametrize("dialect", BOTH)
def test_timestamp_literals_may_have_a_blank(dialect: DialectName) -> None:
    """It used to compile, and to send every row to the dead letters."""
    start = 1_704_067_200_000
    assert _passes("ts > TIMESTAMP '2024-01-01 00:00:00'", dialect, start + 1)
    assert not _passes("ts > TIMESTAMP '2024-01-01 00:00:00'", dialect, start)


def test_texts_beside_timestamps_may_have_a_blank_in_standard_sql_only() -> None:
    start = 1_704_067_200_000
    for where in (
        "ts = '2024-01-01 00:00:00'",
        "'2024-01-01 00:00:00' = ts",
        "ts = CAST('2024-01-01 00:00' AS TIMESTAMP)",
    ):
        assert _passes(where, "standard", start)
        assert not _passes(where, "standard", start + 1)
        found, _ = failing(f"id, n FROM s WHERE {where}", "ksql")
        assert found.code == "FQ2026"
        assert "T12:00" in found.help
