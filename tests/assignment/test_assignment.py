"""Every way into a column gives what PostgreSQL 15 stores, or refuses what it refuses."""

from __future__ import annotations

import json
from collections.abc import Iterator

import pytest

from tests.assignment.cases import EXPRESSIONS, FINER
from tests.assignment.postgres import ANSWERS, REFUSED, STORED
from tests.assignment.routes import Refused, Ways

POSTGRES = json.loads(ANSWERS.read_text())


@pytest.fixture(scope="module", params=EXPRESSIONS)
def ways(request: pytest.FixtureRequest) -> Iterator[tuple[str, Ways]]:
    made = Ways(request.param)
    yield request.param, made
    made.close()


def test_every_way_stores_what_postgresql_stores(ways: tuple[str, Ways]) -> None:
    column, made = ways
    wrong = []
    for expression, answer in POSTGRES[column].items():
        for name, way in made.all().items():
            found = _outcome(way, expression)
            if found != answer.get(STORED, REFUSED) and (name, column, expression) not in FINER:
                wrong.append(f"{name}: {expression} in {column} is {found!r}, and not {answer}")
    assert not wrong, "\n".join(wrong)


def _outcome(way: object, expression: str) -> str | None:
    assert callable(way)
    try:
        return way(expression)
    except Refused:
        return REFUSED
