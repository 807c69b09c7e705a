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


def test_there_are_a_hundred_wrong_statements() -> None:
    assert len(set(WRONG)) == len(WRONG) >= 100
