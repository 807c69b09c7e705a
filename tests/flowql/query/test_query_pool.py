"""Turns of clients at the child processes of interactive queries, with processes that do nothing."""

from __future__ import annotations

import threading
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import closing

import pytest

from flowql.query import query_pool
from flowql.query.limits import QueryLimits
from flowql.query.query_pool import QueryPool
from flowql.runtime.budget import MIB

WAIT_S = 60.0
ONE, TWO = QueryLimits(64 * MIB), QueryLimits(96 * MIB)


class Process:
    """One that is ready at once."""

    made = 0

    def __init__(self, limits: QueryLimits) -> None:
        del limits
        self.stoppable = self.stopped = False
        self.killed_for, self.idle_bytes = "", 1
        Process.made += 1

    def look(self) -> bool:
        return True

    def resident_bytes(self) -> int:
        return 1

    def kill(self, why: str = "") -> None:
        self.killed_for = why

    def wait(self) -> None: ...

    def end(self) -> None: ...


@pytest.fixture(autouse=True)
def processes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(query_pool, "QueryProcess", Process)
    monkeypatch.setattr(Process, "made", 0)


class Clients:
    """Queries in threads of their own, each of which ends when it is told to."""

    def __init__(self, pool: QueryPool) -> None:
        self._pool, self._changed = pool, threading.Condition()
        self._ends, self._threads = dict[str, threading.Event](), list[threading.Thread]()
        self.order = list[str]()  # of those that got a process

    def ask(self, client: str, number: int = 0) -> str:
        """Returns when it waits or has a process."""
        name = f"{client}{number}"
        self._ends[name] = threading.Event()
        self._threads.append(threading.Thread(target=self._query, args=(client, name)))
        known = len(self._pool._waiting) + len(self._pool._busy)
        self._threads[-1].start()
        self.until(lambda: len(self._pool._waiting) + len(self._pool._busy) > known)
        return name

    def _query(self, client: str, name: str) -> None:
        with self._pool.lease(lambda: None, client):
            self.order.append(name)
            self._ends[name].wait(WAIT_S)

    def end(self, name: str) -> None:
        self._ends[name].set()

    def until(self, holds: object) -> None:
        limit = time.monotonic() + WAIT_S
        while not holds():  # type: ignore[operator]
            assert time.monotonic() < limit
            time.sleep(0.002)

    def close(self) -> None:
        for end in self._ends.values():
            end.set()
        for thread in self._threads:
            thread.join(WAIT_S)


@pytest.fixture(params=[ONE, TWO], ids=["one process", "two processes"])
def pool(request: pytest.FixtureRequest) -> Iterator[QueryPool]:
    with closing(QueryPool(request.param)) as made:
        yield made


@pytest.mark.parametrize("pool", [TWO], indirect=True)
def test_one_client_does_not_have_all_processes(pool: QueryPool) -> None:
    """Eight queries of one client had both, and another waited for all of them."""
    with closing(Clients(pool)) as clients:
        for n in range(4):
            clients.ask("a", n)
        clients.until(lambda: clients.order)
        clients.ask("b")
        clients.until(lambda: "b0" in clients.order)
        assert clients.order == ["a0", "b0"]
        clients.end("b0")
        clients.end("a0")
        clients.until(lambda: len(clients.order) == 3)
        clients.until(lambda: Counter(t.client for t in list(pool._busy.values())) == {"a": 1})  # b0 ends meanwhile


@pytest.mark.parametrize("pool", [ONE], indirect=True)
def test_clients_wait_for_one_query_of_each_other_client(pool: QueryPool) -> None:
    with closing(Clients(pool)) as clients:
        for n in range(3):
            clients.ask("a", n)
        clients.until(lambda: clients.order)
        for client in "bc":
            for n in range(2):
                clients.ask(client, n)
        for n in range(7):
            clients.until(lambda: len(clients.order) > n)  # noqa: B023
            clients.end(clients.order[-1])
        assert clients.order == ["a0", "b0", "c0", "a1", "b1", "c1", "a2"]
    assert pool._served == {}


def test_the_first_process_can_start_before_it_is_needed(pool: QueryPool) -> None:
    assert pool.memory() == (0, 0)
    pool.warm()
    limit = time.monotonic() + WAIT_S
    while pool.memory() != (1, 1):
        assert time.monotonic() < limit
        time.sleep(0.002)
    with closing(Clients(pool)) as clients:
        clients.ask("a")
        clients.until(lambda: clients.order)
    assert Process.made == 1
