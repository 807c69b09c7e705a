"""The reconciler: compares the deployed plan with the queries that run, and takes the next step, a coroutine at a time.

Its thread is the only one that starts queries and tasks, stops them, holds and releases them (`tests/tidy` checks who calls that).
What is wanted comes from the plan, from the state of each query, of a member from what its group has assigned, and from who asks
for a deployment. An instance that is alone has `flowql.runtime.app.alone`, a member of a group `flowql.runtime.app.group`; both say what comes
next, and this class carries it out. It never waits: a coroutine yields the futures it needs.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Callable
from concurrent.futures import Future
from dataclasses import dataclass, field
from typing import Any

from flowql.runtime.app.coroutines import Coroutine
from flowql.runtime.errors import CommitsBlocked, LogError, RuntimeFailure

WAITING_MS = 5  # between two looks whether a future is done
RETRY_MS = 200  # after a look that failed
TROUBLE = (
    LogError,
    RuntimeFailure,
    TimeoutError,
)  # what a coroutine of its own may fail with: made again, from what is the case then


@dataclass(slots=True, eq=False)
class Asked:
    """A coroutine that another thread asks for. done: its result, or what it raised; cancelled, it does not begin any more.

    withdrawn: why it is not to go on.
    """

    begin: Callable[[], Coroutine]
    done: Future[Any] = field(default_factory=Future)
    withdrawn: str = ""


class Running:
    """A coroutine under way, or none. withdraw: takes a request for a commit back, if that can be."""

    def __init__(self, withdraw: Callable[[Future[Any]], bool]) -> None:
        self._withdraw = withdraw
        self._coroutine: Coroutine | None = None
        self._awaited: Future[Any] | None = None
        self.result: Any = None  # of the last one that ended

    @property
    def idle(self) -> bool:
        return self._coroutine is None

    def begin(self, coroutine: Coroutine) -> None:
        assert self.idle, "one at a time"
        self._coroutine, self._awaited, self.result = coroutine, None, None

    def advance(self, withdrawn: str = "") -> bool:
        """Up to the next future that is not done; True when there is no more to do. What it raises ends it.

        withdrawn: why it has to stop; it is told as soon as it waits for a commit that can be withdrawn.
        """
        while self._coroutine is not None:
            awaited = self._awaited
            error: BaseException | None = None
            if awaited is not None and not awaited.done():
                if not (withdrawn and self._withdraw(awaited)):
                    return False
                error = CommitsBlocked(withdrawn)
            elif awaited is not None:
                error = awaited.exception()
            self._awaited = None
            try:
                if error is not None:
                    self._awaited = self._coroutine.throw(error)
                else:
                    self._awaited = self._coroutine.send(awaited.result() if awaited is not None else None)
                if self._awaited is None:  # it wants to look again later
                    return False
            except StopIteration as end:
                self._coroutine, self.result = None, end.value
            except BaseException:
                self._coroutine = None
                raise
        return True


class Reconciler(ABC):
    """Owned by its thread, but for `ask` and `idle`."""

    def __init__(self, withdraw: Callable[[Future[Any]], bool]) -> None:
        self._running = Running(withdraw)
        self._asked: deque[Asked] = deque()  # the first one may be under way
        self._current: Asked | None = None
        self._retry_at_ms = 0
        self.wake: Callable[[], None] = lambda: None

    # -- any thread

    def ask(self, begin: Callable[[], Coroutine]) -> Asked:
        """Have a coroutine carried out as soon as those before it have ended."""
        asked = Asked(begin)
        self._asked.append(asked)
        self.wake()
        return asked

    @property
    def idle(self) -> bool:
        """Nothing is under way, and nothing was asked for."""
        return not self._asked and self._running.idle

    # -- the step

    def run_once(self, now_ms: int) -> int:
        self.observe(now_ms)
        if self._running.idle:
            if (asked := self._next_asked()) is not None:
                self._current = asked
                self._running.begin(asked.begin())
            elif now_ms < self._retry_at_ms:
                return self._retry_at_ms - now_ms
            elif (coroutine := self._next_coroutine(now_ms)) is not None:
                self._running.begin(coroutine)
            else:
                return self.look_ms
        return self._advance(now_ms)

    def _next_coroutine(self, now_ms: int) -> Coroutine | None:
        """What comes next. Brokers who do not answer are asked again."""
        try:
            return self.next(now_ms)
        except TROUBLE as error:
            self._retry_at_ms = now_ms + max(RETRY_MS, self.failed(error))
            return None

    def _advance(self, now_ms: int) -> int:
        """The coroutine up to the next future that is not done."""
        asked = self._current
        try:
            if not self._running.advance("" if asked is None else asked.withdrawn):
                return WAITING_MS
        except Exception as error:
            if asked is not None:
                self._answer(asked).set_exception(error)
            elif isinstance(error, TROUBLE):
                self._retry_at_ms = now_ms + self.failed(error)
            else:
                raise
            return 0
        if asked is not None:
            self._answer(asked).set_result(self._running.result)
        else:
            self.succeeded()
        return 0

    def _next_asked(self) -> Asked | None:
        while self._asked:
            if self._asked[0].done.set_running_or_notify_cancel():
                return self._asked[0]
            self._asked.popleft()  # who asked has given up
        return None

    def _answer(self, asked: Asked) -> Future[Any]:
        """It has ended: who waits for it must find the reconciler idle."""
        self._current = None
        self._asked.popleft()
        return asked.done

    # -- what differs between an instance that is alone and a member

    look_ms: int  # between two looks at what comes next

    @abstractmethod
    def observe(self, now_ms: int) -> None:
        """What has to be seen even while a coroutine is under way."""

    @abstractmethod
    def next(self, now_ms: int) -> Coroutine | None:
        """The most urgent thing to do, or nothing."""

    @abstractmethod
    def failed(self, error: Exception) -> int:
        """A coroutine of `next` did not get through; ms until the next attempt."""

    @abstractmethod
    def succeeded(self) -> None:
        """A coroutine of `next` got through."""
