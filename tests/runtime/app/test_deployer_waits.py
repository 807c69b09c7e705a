"""How long who deploys waits: for commits that do not get through, for functions that hang, for a request that is withdrawn."""

from __future__ import annotations

from concurrent.futures import Future
from types import SimpleNamespace
from typing import Any, cast

import pytest

from flowql.runtime.app.deployer import BLOCKED_MS, HANGS_MS, WITHDRAWN_MS, Deployer
from flowql.runtime.app.reconciler import CoroutineRequest
from flowql.runtime.clock import VirtualClock
from flowql.runtime.errors import CommitsBlocked, RuntimeFailure, StateError


class Site:
    """A deployer whose host does nothing but let time pass. at: what happens at a time, in ms since the begin."""

    def __init__(self) -> None:
        self.clock = VirtualClock(0)
        self.begin = self.clock.timer_ms()
        self.commit = SimpleNamespace(held_up="")
        self.fatal: Exception | None = None
        self.at: dict[int, Any] = {}
        self.deployer = Deployer(cast(Any, self), cast(Any, None), cast(Any, None), cast(Any, None), None)

    @property
    def now(self) -> int:
        return self.clock.timer_ms() - self.begin

    def look(self, wait_s: float, until: Future[Any] | None = None) -> None:
        self.clock.advance(1)
        if (action := self.at.get(self.now)) is not None:
            action()


def test_commits_that_do_not_get_through_are_waited_for_a_while() -> None:
    site, done = Site(), Future[int]()
    site.commit.held_up = "no space"
    refused = r"^commits fail \(no space\), and nothing has changed$"
    with pytest.raises(CommitsBlocked, match=refused):
        site.deployer._until(done)
    assert site.now == BLOCKED_MS + 1


def test_what_comes_in_the_last_moment_is_the_answer() -> None:
    site, done = Site(), Future[int]()
    site.commit.held_up = "no space"
    site.at[BLOCKED_MS + 1] = lambda: done.set_result(7)
    assert site.deployer._until(done) == 7


def test_time_in_which_commits_got_through_does_not_count() -> None:
    site, done = Site(), Future[int]()
    site.commit.held_up = "no space"
    pause = BLOCKED_MS - 10

    def works() -> None:
        site.commit.held_up = ""

    def fails() -> None:
        site.commit.held_up = "no space again"

    site.at = {pause: works, pause + 1: fails}
    with pytest.raises(CommitsBlocked, match="no space again"):
        site.deployer._until(done)
    assert site.now == pause + BLOCKED_MS + 1


@pytest.mark.parametrize("hangs_ms", [HANGS_MS, 70])
def test_a_function_that_does_not_return_is_waited_for_longer(hangs_ms: int) -> None:
    site, done = Site(), Future[int]()
    with pytest.raises(CommitsBlocked, match=rf"it is not done after {HANGS_MS // 1000} s: a function does not return"):
        site.deployer._until(done, hangs_ms)
    assert site.now == hangs_ms + 1


def test_a_broken_instance_is_not_waited_for() -> None:
    site, done = Site(), Future[int]()
    site.at[5] = lambda: setattr(site, "fatal", StateError("a bug"))
    with pytest.raises(RuntimeFailure, match="the instance is broken: a bug"):
        site.deployer._until(done)
    assert site.now == 5
    done.set_result(1)
    assert site.deployer._until(done) == 1


def test_a_request_that_has_not_begun_is_taken_back() -> None:
    site, request = Site(), CoroutineRequest(cast(Any, None))
    site.commit.held_up = "no space"
    with pytest.raises(CommitsBlocked, match="and nothing has changed"):
        site.deployer._wait(request)
    assert (request.done.cancelled(), request.withdrawn) == (True, "")


@pytest.mark.parametrize("answers", [True, False])
def test_a_request_that_has_begun_is_withdrawn_and_waited_for(answers: bool) -> None:
    site, request = Site(), CoroutineRequest(cast(Any, None))
    request.done.set_running_or_notify_cancel()
    site.commit.held_up = "no space"
    end = BLOCKED_MS + 1 + WITHDRAWN_MS
    if answers:
        site.at[end] = lambda: request.done.set_result("committed all the same")
        assert site.deployer._wait(request) == "committed all the same"
    else:
        with pytest.raises(CommitsBlocked, match=r"no space\): what was begun takes effect when that is over"):
            site.deployer._wait(request)
    assert site.now == end
    assert request.withdrawn == "commits fail (no space), and nothing has changed"


def test_what_waits_for_the_end_of_a_swap_is_asked_again() -> None:
    site, results = Site(), [None, None, "deployed"]
    asked = list[int]()

    def ask(begin: Any) -> CoroutineRequest:
        asked.append(site.now)
        request = CoroutineRequest(begin)
        request.done.set_result(results.pop(0))
        return request

    site.deployer._reconciler = cast(Any, SimpleNamespace(ask=ask))
    assert site.deployer._carried_out(cast(Any, None)) == "deployed"
    assert asked == [0, 1, 2]
