"""The reconciler runs one coroutine at a time: how long it waits between two looks, and what becomes of errors."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from concurrent.futures import Future
from typing import Any

import pytest

from flowql.runtime.app.coroutines import Coroutine
from flowql.runtime.app.reconciler import RETRY_MS, WAITING_MS, Reconciler
from flowql.runtime.errors import CommitsBlocked, LogUnavailable


class Own(Reconciler):
    """Its coroutines are those of `wanted`, in turn. again_ms: what it says after an error."""

    look_ms = 50

    def __init__(self, withdrawable: bool = True) -> None:
        super().__init__(self._taken_back)
        self._withdrawable = withdrawable
        self.wanted: deque[Callable[[], Coroutine]] = deque()
        self.looks: list[int] = []
        self.events: list[str] = []
        self.again_ms = 0

    def _taken_back(self, awaited: Future[Any]) -> bool:
        self.events.append("asked back")
        return self._withdrawable

    def next(self, now_ms: int) -> Coroutine | None:
        self.looks.append(now_ms)
        return self.wanted.popleft()() if self.wanted else None

    def failed(self, error: Exception) -> int:
        self.events.append(f"failed: {error}")
        return self.again_ms

    def succeeded(self) -> None:
        self.events.append("succeeded")


def waiting(future: Future[Any]) -> Callable[[], Coroutine]:
    """Ends with the result of a future."""

    def run() -> Coroutine:
        return (yield future)

    return run


def failing(error: Exception) -> Callable[[], Coroutine]:
    def run() -> Coroutine:
        yield from ()
        raise error

    return run


def test_without_work_it_looks_again_after_its_time() -> None:
    own = Own()
    assert (own.run_once(0), own.run_once(1), own.looks, own.idle) == (50, 50, [0, 1], True)


def test_a_coroutine_of_its_own_is_run_to_its_end_before_the_next() -> None:
    own, first, second = Own(), Future[Any](), Future[Any]()
    own.wanted += [waiting(first), waiting(second)]
    assert (own.run_once(0), own.run_once(1), own.looks, own.idle) == (WAITING_MS, WAITING_MS, [0], False)
    first.set_result(None)
    assert (own.run_once(2), own.events, own.looks) == (0, ["succeeded"], [0])
    assert (own.run_once(3), own.looks) == (WAITING_MS, [0, 3])
    second.set_result(None)
    assert (own.run_once(4), own.run_once(5), own.events) == (0, 50, ["succeeded", "succeeded"])


def test_a_coroutine_that_yields_nothing_goes_on_at_the_next_look() -> None:
    own, steps = Own(), list[int]()

    def run() -> Coroutine:
        for n in range(3):
            steps.append(n)
            yield None

    own.wanted.append(run)
    assert [own.run_once(n) for n in range(4)] == [WAITING_MS] * 3 + [0]
    assert steps == [0, 1, 2]


@pytest.mark.parametrize("again_ms", [0, 700])
def test_after_an_error_of_brokers_it_is_asked_again_when_it_has_said(again_ms: int) -> None:
    own = Own()
    own.again_ms = again_ms
    own.wanted.append(failing(LogUnavailable("no answer")))
    assert (own.run_once(10), own.events) == (0, ["failed: no answer"])
    assert own.run_once(11) == (again_ms - 1 if again_ms else 50)
    if again_ms:
        assert (own.run_once(10 + again_ms - 1), own.looks) == (1, [10])
    own.run_once(10 + again_ms + 2)
    assert own.looks[-1] == 10 + again_ms + 2


@pytest.mark.parametrize(("again_ms", "expected"), [(0, RETRY_MS), (RETRY_MS + 1, RETRY_MS + 1)])
def test_after_a_look_that_failed_some_time_passes(again_ms: int, expected: int) -> None:
    own = Own()
    own.again_ms = again_ms

    def unseen() -> Coroutine:
        raise LogUnavailable("brokers are away")

    own.wanted.append(unseen)
    assert own.run_once(5) == 50
    assert (own.events, own.run_once(6)) == (["failed: brokers are away"], expected - 1)
    assert (own.run_once(5 + expected), own.looks) == (50, [5, 5 + expected])


def test_a_bug_in_a_coroutine_of_its_own_ends_the_thread() -> None:
    own = Own()
    own.wanted.append(failing(ValueError("a bug")))
    with pytest.raises(ValueError, match="a bug"):
        own.run_once(0)
    assert own.events == []


def test_requests_come_first_in_their_order_and_also_while_it_waits_after_an_error() -> None:
    own = Own()
    own.again_ms = 1_000
    own.wanted.append(failing(LogUnavailable("no answer")))
    own.run_once(0)
    answer, bug = Future[Any](), ValueError("a bug")
    asked = [own.ask(waiting(answer)), own.ask(failing(bug))]
    cancelled = own.ask(waiting(answer))
    cancelled.done.cancel()
    last = own.ask(waiting(answer))
    assert (own.run_once(1), own.idle) == (WAITING_MS, False)
    assert not asked[0].done.cancel(), "it has begun"
    answer.set_result("answer")
    assert [own.run_once(n) for n in (2, 3, 4)] == [0, 0, 0]
    assert (asked[0].done.result(), asked[1].done.exception(), last.done.result()) == ("answer", bug, "answer")
    assert (own.idle, own.looks) == (True, [0])
    assert own.events == ["failed: no answer"], "who asked learns of the error"
    assert own.run_once(5) == 995


def test_an_error_of_what_a_coroutine_waits_for_is_raised_in_it() -> None:
    own, awaited, seen = Own(), Future[Any](), list[Exception]()

    def run() -> Coroutine:
        try:
            yield awaited
        except LogUnavailable as error:
            seen.append(error)
        return "went on"

    request = own.ask(run)
    own.run_once(0)
    awaited.set_exception(error := LogUnavailable("no answer"))
    assert (own.run_once(1), request.done.result(), seen) == (0, "went on", [error])


@pytest.mark.parametrize("withdrawable", [True, False])
def test_a_request_that_is_withdrawn_ends_where_its_commit_can_be_taken_back(withdrawable: bool) -> None:
    own, awaited = Own(withdrawable), Future[Any]()
    request = own.ask(waiting(awaited))
    assert (own.run_once(0), own.events) == (WAITING_MS, [])
    request.withdrawn = "commits fail"
    if withdrawable:
        assert own.run_once(1) == 0
        with pytest.raises(CommitsBlocked, match="commits fail"):
            request.done.result()
    else:
        assert (own.run_once(1), request.done.done()) == (WAITING_MS, False)
        awaited.set_result("committed")
        assert (own.run_once(2), request.done.result()) == (0, "committed")
    assert own.events == ["asked back"]
