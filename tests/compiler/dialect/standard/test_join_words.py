"""The words in front of JOIN: in the order of the standard, and no others."""

from __future__ import annotations

import pytest

from flowql.compiler.diagnostics.diagnostic import CompileError
from flowql.compiler.diagnostics.source import SourceText
from flowql.compiler.driver import Session


def made(join: str) -> None:
    session = Session(dialect="standard")
    session.execute(SourceText("t.sql", "CREATE TABLE a (id INT PRIMARY KEY); CREATE TABLE b (id INT PRIMARY KEY);"))
    on = "" if "NATURAL" in join or "CROSS" in join else " ON a.id = b.id"
    session.execute(SourceText("v.sql", f"CREATE VIEW v AS SELECT b.id FROM a {join} JOIN b{on}"))


@pytest.mark.parametrize(
    "join", ["", "INNER", "LEFT", "FULL OUTER", "CROSS", "NATURAL", "NATURAL RIGHT OUTER", "NATURAL INNER"]
)
def test_a_join_of_the_standard_is_one(join: str) -> None:
    made(join)


@pytest.mark.parametrize(
    "join",
    ["OUTER", "INNER OUTER", "LEFT RIGHT", "INNER LEFT", "CROSS LEFT", "LEFT CROSS", "OUTER LEFT", "NATURAL NATURAL", "LEFT NATURAL", "NATURAL CROSS"],
)  # fmt: skip
def test_other_words_are_no_join(join: str) -> None:
    """OUTER JOIN alone was an inner join."""
    with pytest.raises(CompileError) as refused:
        made(join)
    assert (refused.value.diagnostics[0].code, refused.value.diagnostics[0].title) == (
        "FQ1003",
        f"{join} JOIN is not a join",
    )


def test_a_zone_that_there_is_not_is_refused() -> None:
    session = Session(dialect="standard")
    session.execute(SourceText("t.sql", "CREATE TABLE a (id INT PRIMARY KEY, ts TIMESTAMP)"))
    with pytest.raises(CompileError) as refused:
        session.execute(SourceText("v.sql", "CREATE VIEW v AS SELECT ts AT TIME ZONE 'Husum' AS x FROM a"))
    assert refused.value.diagnostics[0].code == "FQ2026"
