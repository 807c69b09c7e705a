"""Statements of each dialect, what they become, and why the others are listed: `cases/NAME.sql`, tests/golden/foreign/NAME.txt."""

from pathlib import Path

import pytest

from flowql.compiler.diagnostics.source import SourceText
from flowql.compiler.dialect.foreign.dialects import NAMES
from flowql.compiler.driver import Session
from flowql.foreign.scripts import Translated, translated

CASES = Path(__file__).parent / "cases"


def translation(dialect: str) -> Translated:
    return translated([SourceText(f"{dialect}.sql", (CASES / f"{dialect}.sql").read_text())], dialect)


@pytest.mark.parametrize("dialect", NAMES)
def test_statements_of_each_dialect(dialect, golden):
    made = translation(dialect)
    listed = [f"{d.span.line}:{d.span.column} {d.code} {d.title}\n  {d.why}\n  {d.help}" for d in made.listed]
    golden(f"foreign/{dialect}.txt", made.script() + "\n" + "\n".join(listed) + "\n")


@pytest.mark.parametrize("dialect", NAMES)
def test_what_counts_as_translated_compiles(dialect):
    session = Session(dialect="standard")
    for outcome in translation(dialect).outcomes:
        assert bool(outcome.text) != bool(outcome.listed)
        source = SourceText("", outcome.text)
        if outcome.text and session.asked(source) is None:
            session.execute(source)


@pytest.mark.parametrize("dialect", NAMES)
def test_hostile_text_is_listed(dialect):
    for text in (
        "SELECT 'open",
        "SELECT " + "(" * 1200 + "1",
        "SELECT /* open",
        "\x00;;;",
        "CREATE",
        "SELECT " + "1+" * 1500 + "1",
    ):
        made = translated([SourceText("x.sql", text)], dialect)
        assert all(o.text or o.listed for o in made.outcomes), text[:40]
