"""Equal queries that wait at the same time get one answer, over HTTP and over PostgreSQL's protocol (`flowql.query.shared_answers`)."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from typing import Any

import httpx
import pyarrow as pa
import pytest

from flowql.config.api import ApiSettings, TokenSettings
from flowql.query import session, shared_answers
from flowql.query.answer import Answer
from flowql.query.pace import Share
from flowql.query.shared_answers import KEPT_MAX, SharedAnswers, is_repeatable
from flowql.server.access import hash_of
from tests.flowql.pg.conftest import Shop
from tests.flowql.pg.inside import served_with
from tests.flowql.pg.wire import Wire
from tests.gateway import gateway_of, port_of

COUNT = "SELECT COUNT(*) AS n FROM notes"
ALL = "all-the-rights-there-are"
TOKENS = {"notes": ("notes",), "orders": ("orders",)}


@dataclass(frozen=True, slots=True)
class Door:
    """ask: the rows of an answer, or the words of an error. shared: its groups."""

    ask: Callable[..., Any]
    shared: SharedAnswers


@pytest.fixture(params=["http", "pg"])
def door(request: pytest.FixtureRequest, shop: Shop) -> Iterator[Door]:
    if request.param == "pg":
        with served_with(shop) as (port, reading):

            def asked(sql: str) -> Any:
                with Wire(port) as w:
                    return [tuple(map(int, row)) for row in w.rows(sql)]

            yield Door(asked, reading.database.shared)
        return
    host = shop.instance._host
    assert host is not None
    tokens = {name: TokenSettings(hash_of(name), ("read",), results) for name, results in TOKENS.items()}
    with gateway_of(host, ApiSettings(1, ALL, tokens=tokens)) as gateway:
        url = f"http://127.0.0.1:{port_of(gateway)}/v1/query"

        def got(sql: str, token: str = ALL, **more: str) -> Any:
            headers = {"Authorization": f"Bearer {token}"}
            answer = httpx.post(url, json={"sql": sql, **more}, headers=headers, timeout=60, trust_env=False).json()
            return [tuple(row.values()) for row in answer["rows"]] if "rows" in answer else answer["error"]["message"]

        yield Door(got, gateway.reading.database.shared)


class Held:
    """Answers whose rows are read wait until they may go on. begun: their statements."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.begun, self.may_go_on = list[str](), threading.Event()
        usual = session._result

        def held(query: Any, *arguments: Any) -> Any:
            self.begun.append(query.sql)
            assert self.may_go_on.wait(10)
            return usual(query, *arguments)

        monkeypatch.setattr(session, "_result", held)


def until(reached: Callable[[], bool]) -> None:
    limit_s = time.monotonic() + 6
    while not reached():
        assert time.monotonic() < limit_s
        time.sleep(0.005)


def wait_beside(door: Door, held: Held, pool: ThreadPoolExecutor, sql: str, count: int) -> list[Future[Any]]:
    """One query whose rows are read, and so many equal ones that wait for it."""
    found = [pool.submit(door.ask, sql)]
    until(lambda: len(held.begun) == 1)
    found += [pool.submit(door.ask, sql) for _ in range(count)]
    until(lambda: door.shared.waiting == count)
    return found


def test_queries_that_wait_are_computed_together(door: Door, monkeypatch: pytest.MonkeyPatch) -> None:
    usual, held = door.ask(COUNT), Held(monkeypatch)
    with ThreadPoolExecutor(8) as pool:
        found = wait_beside(door, held, pool, COUNT, 4)
        other = pool.submit(door.ask, "SELECT COUNT(*) AS n FROM orders")  # does not wait for them
        until(lambda: len(held.begun) == 2)
        held.may_go_on.set()
        assert [f.result() for f in found] == [usual] * 5
        assert other.result() == [(3,)]
    assert held.begun.count(held.begun[0]) == 2
    assert not door.shared.waiting
    assert not door.shared._running


def test_an_answer_is_no_older_than_its_question(door: Door, shop: Shop, monkeypatch: pytest.MonkeyPatch) -> None:
    ((before,),), held = door.ask(COUNT), Held(monkeypatch)
    with ThreadPoolExecutor(8) as pool, shop.wire() as writer:
        first = pool.submit(door.ask, COUNT)
        until(lambda: len(held.begun) == 1)
        writer.ask("INSERT INTO notes VALUES (9300, 'seen by its writer')")
        later = [pool.submit(door.ask, COUNT) for _ in range(3)]
        until(lambda: door.shared.waiting == 3)
        held.may_go_on.set()
        assert first.result() == [(before,)]
        assert [f.result() for f in later] == [[(before + 1,)]] * 3
        writer.ask("DELETE FROM notes WHERE id = 9300")


def test_a_long_answer_is_computed_for_each(door: Door, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shared_answers, "BYTES_MAX", 20)
    sql, held = "SELECT id FROM orders ORDER BY id", Held(monkeypatch)
    with ThreadPoolExecutor(8) as pool:
        found = wait_beside(door, held, pool, sql, 3)
        held.may_go_on.set()
        assert [f.result() for f in found] == [[(1,), (2,), (3,)]] * 4
    assert len(held.begun) == 4


def test_an_error_is_that_of_all(door: Door, monkeypatch: pytest.MonkeyPatch) -> None:
    calls = list[str]()

    def failing(query: Any, *_: Any) -> Any:
        calls.append(query.sql)
        until(lambda: len(calls) > 1 or door.shared.waiting == 3)
        raise session.QueryError("not today", code="FQ5102")

    def told() -> str:
        try:
            return str(door.ask(COUNT))
        except Exception as error:
            return str(error)

    monkeypatch.setattr(session, "_result", failing)
    with ThreadPoolExecutor(8) as pool:
        first = pool.submit(told)
        until(lambda: len(calls) == 1)
        others = [pool.submit(told) for _ in range(3)]
        assert all("not today" in f.result() for f in (first, *others))
    assert len(calls) == 2


@pytest.mark.parametrize("door", ["http"], indirect=True)
def test_an_answer_is_for_those_with_the_same_rights(door: Door, monkeypatch: pytest.MonkeyPatch) -> None:
    held = Held(monkeypatch)
    with ThreadPoolExecutor(8) as pool:
        found = [pool.submit(door.ask, COUNT, "notes")]
        until(lambda: len(held.begun) == 1)
        found += [pool.submit(door.ask, COUNT, "notes") for _ in range(2)]
        until(lambda: door.shared.waiting == 2)
        assert "there is no table" in door.ask(COUNT, "orders")  # without waiting for the others
        held.may_go_on.set()
        assert len({str(f.result()) for f in found}) == 1


@pytest.mark.parametrize("door", ["http"], indirect=True)
def test_a_reader_that_leaves_takes_no_answer_with_it(door: Door, monkeypatch: pytest.MonkeyPatch) -> None:
    usual, held = door.ask(COUNT), Held(monkeypatch)
    with ThreadPoolExecutor(8) as pool:
        first = pool.submit(door.ask, COUNT)
        until(lambda: len(held.begun) == 1)
        breaks_off = list[Callable[[], None]]()
        compute = lambda begun: pytest.fail("its client has left")  # noqa: E731
        (key,) = door.shared._running
        leaves = pool.submit(door.shared.get, key, compute, breaks_off.append)  # would compute it for the others
        until(lambda: door.shared.waiting == 1)
        others = [pool.submit(door.ask, COUNT) for _ in range(2)]
        until(lambda: door.shared.waiting == 3)
        breaks_off[0]()
        assert leaves.exception() is not None
        held.may_go_on.set()
        assert [f.result() for f in (first, *others)] == [usual] * 3


@pytest.mark.parametrize("door", ["http"], indirect=True)
def test_a_query_that_names_a_tick_has_an_answer_of_its_own(door: Door, monkeypatch: pytest.MonkeyPatch) -> None:
    usual, held = door.ask(COUNT), Held(monkeypatch)
    with ThreadPoolExecutor(8) as pool:
        found = wait_beside(door, held, pool, COUNT, 2)
        found.append(pool.submit(partial(door.ask, COUNT, at_least="")))
        until(lambda: len(held.begun) == 2)
        assert door.shared.waiting == 2
        held.may_go_on.set()
        assert [f.result() for f in found] == [usual] * 4


def test_functions_that_give_something_else_each_time_are_called_for_each_reader() -> None:
    for sql in (
        "SELECT RANDOM()", "SELECT random /* */ ()", "SELECT random --\n()", "SELECT uuid()", "SELECT NOW()",
        "SELECT my_function(x) FROM t", 'SELECT "random"()', "SELECT * FROM t USING SAMPLE 3",
    ):  # fmt: skip
        assert not is_repeatable(sql), sql
    for sql in ("SELECT COUNT(*), sum(x) FROM t WHERE y IN (1, 2)", "SELECT UPPER(s) FROM t ORDER BY (1)"):
        assert is_repeatable(sql), sql


def test_few_answers_are_kept_and_of_one_commit_only() -> None:
    shared = SharedAnswers(Share(yields=False))
    empty = pa.table({"n": pa.array([], pa.int64())})
    for commit in (1, 2):
        for n in range(KEPT_MAX * 2):
            shared.get(n, lambda _: Answer.of(empty), lambda _: None, lambda commit=commit: commit)  # type: ignore[misc]
        assert len(shared._kept) == KEPT_MAX
        assert shared.kept(0, commit) is not None
    assert shared.kept(0, 1) is None
    shared.get("late", lambda _: Answer.of(empty), lambda _: None, lambda: 1)
    assert shared.kept(0, 2) is not None
