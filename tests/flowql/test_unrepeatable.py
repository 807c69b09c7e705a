"""Functions that give another value each time, where a value has to be the same again."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from flowql.compiler.diagnostics.render import render
from flowql.config.compile import compile_sources
from flowql.config.load import load_project
from tests.flowql.projects_with_modules import made

MODULE = """
import random
from flowql import udf

@udf(deterministic=False)
def dice(sides: int) -> int:
    return random.randint(1, sides)
"""
TOPICS = """
CREATE STREAM S (ID BIGINT KEY, A BIGINT, B BYTES) WITH (KAFKA_TOPIC = 's', VALUE_FORMAT = 'JSON');
CREATE TABLE T (ID BIGINT PRIMARY KEY, A BIGINT) WITH (KAFKA_TOPIC = 't', VALUE_FORMAT = 'JSON');
"""
OWN = "CREATE TABLE T (ID BIGINT PRIMARY KEY, A BIGINT);\n"
EVENTS = "CREATE STREAM E (A BIGINT) WITH (KAFKA_TOPIC = 'e', VALUE_FORMAT = 'JSON');\n"
MISTAKES = {
    "key of a stream": (TOPICS, "CREATE STREAM X AS SELECT * FROM S PARTITION BY DICE(A);"),
    "group": (TOPICS, "CREATE TABLE X AS SELECT DICE(A) % 2 AS D, COUNT(*) AS N FROM S GROUP BY DICE(A) % 2;"),
    "built-in": (TOPICS, "CREATE STREAM X AS SELECT UUID() AS U, A FROM S PARTITION BY UUID();"),
    "join": (TOPICS, "CREATE STREAM X AS SELECT T.ID, S.A FROM S JOIN T ON DICE(S.A) = T.ID;"),
    "group of a table": (TOPICS, "CREATE TABLE X AS SELECT DICE(A) AS D, COUNT(*) AS N FROM T GROUP BY DICE(A);"),
    "sum over a table": (TOPICS, "CREATE TABLE X AS SELECT A, SUM(DICE(A)) AS N FROM T GROUP BY A;"),
    "rows of a table": (TOPICS, "CREATE TABLE X AS SELECT * FROM T WHERE RANDOM() > 0.5;"),
    "view": (OWN, "CREATE MATERIALIZED VIEW X AS SELECT ID, DICE(A) AS D FROM T;"),
    "rows of a view": (OWN, "CREATE MATERIALIZED VIEW X AS SELECT ID FROM T WHERE DICE(A) > 1;"),
}
RIGHT = {
    "column of a stream": (
        TOPICS,
        "CREATE STREAM X AS SELECT ID, DICE(A) AS D, RANDOM() AS R FROM S WHERE DICE(6) > 1;",
    ),
    "sum over a stream": (TOPICS, "CREATE TABLE X AS SELECT ID, SUM(DICE(A)) AS N FROM S GROUP BY ID;"),
    "time of an argument": (
        TOPICS,
        "CREATE TABLE X AS SELECT UNIX_DATE(FROM_DAYS(CAST(A AS INT))) AS D, COUNT(*) AS N FROM T GROUP BY UNIX_DATE(FROM_DAYS(CAST(A AS INT)));",
    ),
    "column of a table": (TOPICS, "CREATE TABLE X AS SELECT ID, DICE(A) AS D FROM T;"),
    "view of events": (EVENTS, "CREATE MATERIALIZED VIEW X AS SELECT DICE(A) AS D FROM E;"),
    "stored, then the key": (
        TOPICS,
        "CREATE STREAM X AS SELECT ID, DICE(A) AS D FROM S; CREATE STREAM Y AS SELECT * FROM X PARTITION BY D;",
    ),
}


def shown(folder: Path, sources: str, sql: str, monkeypatch: pytest.MonkeyPatch) -> str:
    dialect = "" if sources is TOPICS else "dialect: standard\n"
    made(folder, f"name: x\nfunctions: [m]\n{dialect}sql: [sources.sql, shop.sql]\n", sql, m=MODULE)
    (folder / "sources.sql").write_text(sources)
    monkeypatch.chdir(folder)
    found = [d for d in compile_sources(load_project(folder)).diagnostics if d.severity == "error"]
    return render(found) if found else ""


def test_mistakes_are_shown_with_their_place(
    tmp_path: Path, golden: Callable[[str, str], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    texts = []
    for i, (name, (sources, sql)) in enumerate(MISTAKES.items()):
        said = shown(tmp_path / str(i), sources, sql, monkeypatch)
        assert "FQ2027" in said, name
        texts.append(f"-- {name}\n{said}".rstrip())
    golden("functions/unrepeatable_mistakes.txt", "\n\n".join(texts) + "\n")


@pytest.mark.parametrize("name", RIGHT)
def test_what_is_computed_once_is_right(tmp_path: Path, name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    assert not shown(tmp_path / "x", *RIGHT[name], monkeypatch)
