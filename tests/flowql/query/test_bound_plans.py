"""A query that was asked before is not bound again; what it then means is what it would mean if it were."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from typing import Any

import pytest

from flowql.compiler.driver import compile_asked
from flowql.query import asked
from flowql.query.bound_plans import BoundPlans, KnownQuery
from tests.slt.session import DATABASE, Shape, SqlSession

TABLE = "CREATE TABLE t (k INT PRIMARY KEY, v INT);"
LOOK_UP = "SELECT *, 7 / 2 FROM t WHERE k = 1"


@pytest.fixture
def session() -> Iterator[SqlSession]:
    DATABASE.plans = BoundPlans()
    made = SqlSession(Shape())
    made.execute(TABLE)
    made.execute("INSERT INTO t VALUES (1, 10), (2, 20)")
    yield made
    made.close()


@pytest.fixture
def bindings(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Grows with each query that is bound."""
    made = list[int]()

    def counted(*args: Any, **named: Any) -> Any:
        made.append(1)
        return compile_asked(*args, **named)

    monkeypatch.setattr(asked, "compile_asked", counted)
    return made


def test_a_query_that_is_asked_again_is_bound_once_and_gives_the_rows_of_now(
    session: SqlSession, bindings: list[int]
) -> None:
    assert session.ask(LOOK_UP).to_pylist() == [{"k": 1, "v": 10, "?column?": 3}]
    session.execute("UPDATE t SET v = 11 WHERE k = 1")
    assert session.ask(LOOK_UP).to_pylist() == [{"k": 1, "v": 11, "?column?": 3}]
    assert session.ask(f"EXPLAIN {LOOK_UP}").num_rows == 1
    assert len(bindings) == 2, "EXPLAIN is another text"


def test_a_deployment_that_changes_a_relation_has_its_queries_bound_again(
    session: SqlSession, bindings: list[int]
) -> None:
    view = TABLE + "CREATE VIEW w AS SELECT k, {} AS x FROM t;"
    for expression, wanted in (("v / 4", 1), ("v", 5), ("v / 4.0", 1.25)):
        session.redefine(view.format(expression))
        found = session.ask("SELECT k, x / 2 AS y FROM w WHERE k = 1").to_pylist()
        assert [(r["k"], float(r["y"])) for r in found] == [(1, wanted)]
    assert len(bindings) == 2, "the first two definitions have columns of one type"


def test_the_present_moment_is_that_of_each_query(session: SqlSession, monkeypatch: pytest.MonkeyPatch) -> None:
    days = itertools.count(1)
    monkeypatch.setattr(asked.time, "time_ns", lambda: next(days) * 86_400_000_000_000)
    query = "SELECT CURRENT_DATE - DATE '1970-01-01' AS d, NOW() = CURRENT_TIMESTAMP AS same FROM t WHERE k = 1"
    found = [session.ask(query).to_pylist()[0] for _ in range(3)]
    assert len({r["d"] for r in found}) == 3
    assert all(r["same"] for r in found)


def test_what_is_kept_has_a_number_and_a_size() -> None:
    made = BoundPlans(entries_max=3, bytes_max=800_000)
    tree = asked._parsed("SELECT 1")
    assert isinstance(tree, KnownQuery)
    for text in ("a", "b", "a", "c", "d"):
        made.keep(text, tree)
    assert [text for text in "abcd" if made.get(text)] == ["a", "c", "d"], "b was asked longest ago"
    made.keep("x" * 1_000, tree)
    made.keep("y" * 10_000, tree)
    assert made.get("y" * 10_000) is None, "one query does not push out all others"
    assert len(made) == 3
    before = made.bytes
    made.keep("x" * 1_000, tree)
    assert made.bytes == before <= 800_000
