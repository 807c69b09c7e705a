"""Limits: however deep or long a text is, it is read or refused with a diagnostic, and what is read can be analyzed."""

from __future__ import annotations

import contextlib

import pytest

from flowql.compiler.diagnostics.diagnostic import CompileError
from flowql.compiler.diagnostics.source import SourceText
from flowql.compiler.dialect.standard import parser
from flowql.compiler.dialect.standard.parser import parse_trees
from flowql.compiler.driver import Session
from tests.compiler.dialect.standard.checks import without_text
from tests.compiler.dialect.standard.writing import to_sql

SOURCE = "CREATE STREAM s (k INT KEY, v INT, t VARCHAR, b BOOLEAN) WITH (kafka_topic='s', partitions=1, value_format='JSON');"
NESTED = {
    "parentheses": ("(", "v", ")"),
    "calls": ("abs(", "v", ")"),
    "cases": ("CASE WHEN b THEN ", "v", " ELSE 1 END"),
    "casts": ("CAST(", "v", " AS int)"),
    "minus": ("- ", "v", ""),
    "not": ("NOT ", "b", ""),
    "arrays": ("ARRAY[", "v", "]"),
    "inner arrays": ("ARRAY[" + "[", "v", "]" + "]"),
    "sub-queries": ("(SELECT ", "v", ")"),
    "sub-queries and operators": ("1 + (SELECT v * ", "v", " - 1)"),
    "exists": ("EXISTS (SELECT ", "v", ")"),
    "loose to tight": ("b OR b AND NOT v = v BETWEEN 1 || 2 + 3 * -(", "v", ") AND 9"),
    "in": ("v IN (", "v", ")"),
    "windows": ("sum(v) OVER (ORDER BY ", "v", ")"),
    "filters": ("sum(v) FILTER (WHERE ", "b", ")"),
    "subscripts": ("a[", "1", "]"),
    "zones": ("t AT TIME ZONE (", "t", ")"),
}
CHAINED = {
    "sums": (" + ", "v"),
    "ands": (" AND ", "b"),
    "comparisons of sums": (" + ", "v * v"),
    "concatenations": (" || ", "t"),
    "powers": (" ^ ", "v"),
    "casts": ("", "::int"),
}


def view(expression: str) -> str:
    return f"CREATE VIEW w AS SELECT k, {expression} AS x FROM s"


def accepted(text: str) -> bool:
    """Read, written and analyzed; or refused for its depth, or for what has no operator."""
    statements, mistakes = parse_trees(SourceText("", text))
    if mistakes:
        assert mistakes[0].code in ("FQ1013", "FQ2065"), mistakes[0].title
        return False
    again, _ = parse_trees(SourceText("", to_sql(statements[0])))
    assert list(map(without_text, again)) == list(map(without_text, statements))
    session = Session(dialect="standard")
    session.execute(SourceText("", SOURCE))
    with contextlib.suppress(CompileError):
        session.execute(SourceText("", text))
    return True


@pytest.mark.parametrize("shape", NESTED)
def test_what_is_nested(shape: str) -> None:
    opened, inner, closed = NESTED[shape]
    results = [accepted(view(opened * n + inner + closed * n)) for n in (1, 8, 15, 30, 60, 80, 130, 2000)]
    assert results[0]
    assert results[1] or shape == "loose to tight"
    assert not results[-1]
    assert sorted(results, reverse=True) == results


@pytest.mark.parametrize("shape", CHAINED)
def test_what_is_in_a_row(shape: str) -> None:
    sign, operand = CHAINED[shape]
    made = (lambda n: "v" + operand * n) if not sign else (lambda n: sign.join([operand] * n))
    results = [accepted(view(made(n))) for n in (2, 30, 90, 119, 125, 199, 220, 2000)]
    assert results[:3] == [True, True, True]
    assert results[-1] is (shape == "ands")  # a row of ANDs is one node


def test_relations() -> None:
    for n in (5, 20, 60, 130, 400):
        accepted("SELECT * FROM " + "(" * n + "t" + ")" * n)
        accepted("SELECT * FROM " + "(SELECT * FROM " * n + "t" + ")" * n)
        accepted("SELECT * FROM t" + " JOIN t ON b" * n)
        accepted("SELECT * FROM " + "t JOIN " * n + "t" + " ON b" * n)
        accepted(" UNION ".join(["SELECT 1"] * n))
        accepted("(" * n + "SELECT 1" + ")" * n)
        accepted("SELECT CAST(a AS " + "ARRAY<" * n + "INT" + ">" * n + ")")
        accepted("CREATE TABLE t (a " + "struct<a " * n + "int" + ">" * n + ")")
        accepted("CREATE VIEW v AS " + "WITH q AS (" * n + "SELECT 1 FROM t" + ") SELECT 1 FROM q" * n)
        accepted("SELECT 1 GROUP BY " + "GROUPING SETS (" * n + "a" + ")" * n)


def test_common_table_expressions_that_double() -> None:
    tables = ", ".join(f"q{n} AS (SELECT a.k FROM q{n - 1} a JOIN q{n - 1} b ON a.k = b.k)" for n in range(1, 30))
    session = Session(dialect="standard")
    session.execute(SourceText("", SOURCE))
    with pytest.raises(CompileError, match="named more than 64 times"):
        session.execute(SourceText("", f"CREATE VIEW w AS WITH q0 AS (SELECT k FROM s), {tables} SELECT k FROM q29"))


def test_a_statement_has_a_length(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(parser, "STATEMENT_CHARS_MAX", 1000)
    short, long = "SELECT 1;", f"SELECT '{'x' * 1000}';"
    statements, (found,) = parse_trees(SourceText("", short + long + short))
    assert len(statements) == 2
    assert (found.code, found.span.column) == ("FQ1015", len(short) + 1)
    assert found.help == "split it into several"
