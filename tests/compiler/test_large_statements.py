"""Statements of a megabyte, and deep ones, are errors with a code and a place: they do not hold the interpreter or exhaust its stack."""

from __future__ import annotations

import pytest

from flowql.compiler.analyze.relations import clock
from flowql.compiler.diagnostics.diagnostic import CompileError, ParseError
from flowql.compiler.diagnostics.source import SourceText
from flowql.compiler.dialect import limits, parser
from flowql.compiler.dialect.request_size import check_request
from flowql.compiler.dialect.standard import parser as standard_parser
from flowql.compiler.driver import DialectName, Session, compile_changes, compile_project, compile_push
from flowql.compiler.plan.expr import Expr
from flowql.compiler.plan.topology import SourceDef

SOURCES: dict[DialectName, str] = {
    "ksql": "CREATE STREAM S (A INT, B STRING) WITH (KAFKA_TOPIC='s', VALUE_FORMAT='JSON');\n",
    "standard": "CREATE TABLE S (A INT PRIMARY KEY, B VARCHAR);\n",
}
VIEW: dict[DialectName, str] = {"ksql": "CREATE STREAM {} AS", "standard": "CREATE MATERIALIZED VIEW {} AS"}
N = 5_001  # one of the full size: others are above 3,000
# The SELECT, and the code.
LARGE = {
    "sum": (f"SELECT A, {'1+' * 1_600}1 AS X FROM S", "FQ2065"),
    "parentheses": (f"SELECT A, {'(' * 1_600}1{')' * 1_600} AS X FROM S", "FQ2065"),
    "arms of CASE": (f"SELECT A, CASE {'WHEN A = 1 THEN 2 ' * 600} END AS X FROM S", "FQ2065"),
    "columns": ("SELECT " + ",".join(f"A+{i}" for i in range(900)) + " FROM S", "FQ2065"),
    "joins": ("SELECT S.A FROM S " + " ".join(f"JOIN S S{i} ON S.A = S{i}.A" for i in range(300)), "FQ2065"),
    "unions": ("SELECT A FROM S " + "UNION ALL SELECT A FROM S " * 600, "FQ2065"),
    "sub-queries": (f"SELECT A FROM {'(SELECT A FROM ' * 600}S{') Q' * 600}", "FQ2065"),
    "some parentheses": (f"SELECT A, {'(' * 1_000}1{')' * 1_000} AS X FROM S", "FQ1013"),
}


@pytest.mark.parametrize("dialect", ["ksql", "standard"])
def test_a_large_statement_is_an_error_with_a_code_and_a_place(
    dialect: DialectName, monkeypatch: pytest.MonkeyPatch
) -> None:
    """All in one project: the rest of it is compiled."""
    monkeypatch.setattr(limits, "TOKENS_MAX", 3_000)
    views = [VIEW[dialect].format(f"R{i}") + f" {select};\n" for i, (select, _) in enumerate(LARGE.values())]
    text = SOURCES[dialect] + "".join(views) + VIEW[dialect].format("beside") + " SELECT A FROM S;"
    found = compile_project([SourceText("a.sql", text)], dialect=dialect)
    codes = {d.span.line - 2: d.code for d in found.diagnostics if d.severity == "error"}
    assert [codes[i] for i in range(len(LARGE))] == [code for _, code in LARGE.values()]
    assert found.plan.source("BESIDE" if dialect == "ksql" else "beside") is not None


def test_conditions_that_make_a_plan_too_deep_are_an_error() -> None:
    where = " AND ".join(["A = 1"] * 600)
    view = f"CREATE MATERIALIZED VIEW v AS SELECT A FROM S WHERE {where};"
    found = compile_project([SourceText("a.sql", SOURCES["standard"] + view)], dialect="standard")
    assert [(d.code, d.span.line) for d in found.diagnostics] == [("FQ2066", 2)]


@pytest.mark.parametrize("dialect", ["ksql", "standard"])
def test_a_schema_of_4000_fields_is_an_error(dialect: DialectName) -> None:
    fields = ", ".join(f"F{i} INT" for i in range(4_000))
    text = {
        "ksql": f"CREATE STREAM S (A INT, {fields}) WITH (KAFKA_TOPIC='s', VALUE_FORMAT='JSON');",
        "standard": f"CREATE TABLE S (A INT PRIMARY KEY, {fields});",
    }[dialect]
    (mistake,) = compile_project([SourceText("a.sql", text)], dialect=dialect).diagnostics
    assert mistake.code == "FQ2065"


def _sources(dialect: DialectName) -> list[SourceDef]:
    session = Session(dialect=dialect)
    session.execute(SourceText("s.sql", SOURCES[dialect]))
    return list(session.plan.sources)


def test_a_large_subscription_is_an_error() -> None:
    with pytest.raises(CompileError) as error:
        compile_push(SourceText("", f"SELECT {'A + ' * N}1 AS X FROM S EMIT CHANGES"), _sources("ksql"))
    assert [d.code for d in error.value.diagnostics] == ["FQ2065"]


@pytest.mark.parametrize("standard", [False, True])
def test_a_text_of_a_megabyte_is_refused_before_it_is_read(standard: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its tokens took seconds. As many characters in one string, in comments or between words are no error."""
    signs = SourceText("", "SELECT " + "1+" * 500_000 + "1 AS X FROM S")
    rows = "INSERT INTO s VALUES " + ", ".join(["(1, 'x')"] * 9_000)
    fine = [
        "SELECT '" + "x;" * 500_000 + "'",
        "SELECT /* " + "x " * 500_000 + "*/ 1",
        " " * 1_000_000,
        f"SELECT 1; {rows}",
    ]
    for text in fine:
        check_request(SourceText("", text), standard=standard)
    for text in (signs.text, "SELECT 1; " * 3_400, f"{rows}; {rows}", f"{rows}; {'SELECT 1; ' * 1_500}"):
        with pytest.raises(ParseError) as error:
            check_request(SourceText("", text), standard=standard)
        assert error.value.diagnostics[0].code == "FQ2065"


def test_a_subscription_of_a_megabyte_is_not_read(monkeypatch: pytest.MonkeyPatch) -> None:
    for module in (parser, standard_parser):
        monkeypatch.setattr(module, "tokenize", lambda *_: pytest.fail("it is read"))
    for dialect in SOURCES:
        with pytest.raises(CompileError, match="words and signs"):
            compile_push(SourceText("", f"SELECT {'A + ' * 250_000}1 AS X FROM S EMIT CHANGES"), (), dialect=dialect)


def test_conditions_beyond_the_depth_of_a_plan_are_looked_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each part of a conjunction looked for NOW() in all that were before it: 2,500 of them took 15 s."""
    looks = 0

    def counted(e: Expr) -> bool:
        nonlocal looks
        looks += 1
        return has_moment(e)

    has_moment = clock._has_moment
    monkeypatch.setattr(clock, "_has_moment", counted)
    where = " AND ".join(f"A <> {i}" for i in range(300))
    text = f"{SOURCES['standard']} CREATE MATERIALIZED VIEW v AS SELECT A FROM S WHERE {where};"
    compile_project([SourceText("a.sql", text)], dialect="standard")
    assert 300 <= looks <= 3_000


def test_a_long_list_of_rows_is_no_error() -> None:
    rows = ", ".join(f"({i}, 'x')" for i in range(10_000))
    (change,) = compile_changes(
        SourceText("", f"INSERT INTO s (a, b) VALUES {rows};"), _sources("standard"), dialect="standard"
    )
    assert change is not None
