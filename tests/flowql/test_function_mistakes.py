"""How mistakes in modules with functions are shown: the code, the line with a caret, and what to write."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from flowql.compiler.diagnostics.render import render
from flowql.config.compile import compile_sources
from flowql.config.load import load_project
from tests.flowql import test_processors, test_user_aggregates, test_user_functions
from tests.flowql.projects_with_modules import made

pytestmark = pytest.mark.turns("functions")
SOURCES = {
    "function": (test_user_functions.MISTAKES, "from flowql import udf\n\n\n{}\n".format),
    "topology": (test_processors.MISTAKES, (test_processors.T.replace("{", "{{").replace("}", "}}") + "{}\n").format),
    "aggregate": (test_user_aggregates.MISTAKES, test_user_aggregates.source_of),
}


@pytest.mark.parametrize("kind", list(SOURCES))
def test_every_mistake_is_shown_with_its_place_and_what_to_write(
    tmp_path: Path, kind: str, golden: Callable[[str, str], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    mistakes, module_of = SOURCES[kind]
    shown = []
    for name, (source, _) in mistakes.items():
        folder = made(tmp_path / name, "name: x\nfunctions: m\n", "", m=module_of(source))
        monkeypatch.chdir(folder)
        found = [d for d in compile_sources(load_project(folder)).diagnostics if d.code == "FQ3012"]
        assert found
        shown.append(f"-- {name}\n{render(found)}".rstrip())
    golden(f"functions/{kind}_mistakes.txt", "\n\n".join(shown) + "\n")


CALLED = """
import random
from flowql import udaf, udf, udtf

@udf
def score(amount: float, country: str | None) -> float:
    return amount

@udf(deterministic=False)
def dice(amount: float) -> float:
    return random.random()

@udtf
def words(line: str) -> list[str]:
    return line.split()

@udaf
class Most:
    def init(self) -> float:
        return 0.0

    def add(self, most: float, amount: float) -> float:
        return max(most, amount)
"""
DECLARED = """CREATE STREAM ORDERS (ID BIGINT KEY, AMOUNT DOUBLE, COUNTRY STRING) WITH (KAFKA_TOPIC = 'orders', PARTITIONS = 1, VALUE_FORMAT = 'JSON');
CREATE TABLE PRICES (ID BIGINT PRIMARY KEY, AMOUNT DOUBLE) WITH (KAFKA_TOPIC = 'prices', PARTITIONS = 1, VALUE_FORMAT = 'JSON');
"""
CALLS = {
    "too few arguments": "CREATE STREAM X AS SELECT ID, SCORE(AMOUNT) AS S FROM ORDERS;",
    "too many arguments": "CREATE STREAM X AS SELECT ID, SCORE(AMOUNT, COUNTRY, 1) AS S FROM ORDERS;",
    "other types": "CREATE STREAM X AS SELECT ID, SCORE(COUNTRY, AMOUNT) AS S FROM ORDERS;",
    "arguments of an aggregate": "CREATE TABLE X AS SELECT ID, MOST(COUNTRY) AS M FROM ORDERS GROUP BY ID;",
    "an aggregate where none can be": "CREATE STREAM X AS SELECT ID FROM ORDERS WHERE MOST(AMOUNT) > 1;",
    "no undo": "CREATE TABLE X AS SELECT AMOUNT, MOST(AMOUNT) AS M FROM PRICES GROUP BY AMOUNT;",
    "no merge": "CREATE TABLE X AS SELECT ID, MOST(AMOUNT) AS M FROM ORDERS WINDOW SESSION (5 SECONDS) GROUP BY ID;",
    "rows where there is one value": "CREATE STREAM X AS SELECT ID FROM ORDERS WHERE WORDS(COUNTRY) = 'a';",
    "a key that changes": "CREATE STREAM X AS SELECT * FROM ORDERS PARTITION BY DICE(AMOUNT);",
    "another name": "CREATE STREAM X AS SELECT ID, SCORES(AMOUNT, COUNTRY) AS S FROM ORDERS;",
}


def test_every_mistake_in_a_call_is_shown_with_its_place(
    tmp_path: Path, golden: Callable[[str, str], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    shown = []
    for name, sql in CALLS.items():
        folder = made(tmp_path / name, "name: x\nfunctions: m\nsql: [shop.sql]\n", DECLARED + sql + "\n", m=CALLED)
        monkeypatch.chdir(folder)
        found = compile_sources(load_project(folder)).diagnostics
        assert found, name
        shown.append(f"-- {name}\n{render(found)}".rstrip())
    golden("functions/call_mistakes.txt", "\n\n".join(shown) + "\n")
