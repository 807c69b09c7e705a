"""Suggestions and the registry of codes."""

from __future__ import annotations

import re

from flowql.compiler.diagnostics.codes import code_pages
from flowql.compiler.diagnostics.source import SourceText
from flowql.compiler.diagnostics.suggest import closest, did_you_mean
from flowql.compiler.dialect.parser import parse_statements


def test_the_nearest_name_ignores_case() -> None:
    assert closest("amuont", ["ID", "AMOUNT", "COUNT"]) == ["AMOUNT"]
    assert did_you_mean("amuont", ["ID", "AMOUNT"]) == "did you mean `AMOUNT`?"


def test_nothing_near_gives_nothing() -> None:
    assert closest("zebra", ["ID", "AMOUNT"]) == []
    assert did_you_mean("zebra", []) == ""


def test_codes_are_well_formed() -> None:
    for code, page in code_pages().items():
        assert re.fullmatch(r"FQ[1-5]\d{3}", code)
        assert page.title
        assert page.explanation.endswith("."), code


def test_syntax_examples_are_wrong_and_right() -> None:
    """Whole statements among the examples of FQ1xxx fail with their own code, and their correction is read."""
    checked = 0
    for code, page in code_pages().items():
        if not code.startswith("FQ1") or not page.wrong.endswith(";") or "..." in page.wrong:
            continue
        _, wrong = parse_statements(SourceText("wrong.sql", page.wrong))
        assert [d.code for d in wrong] == [code], page.wrong
        assert parse_statements(SourceText("right.sql", page.right))[1] == [], page.right
        checked += 1
    assert checked >= 6
