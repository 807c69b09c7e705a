"""The reconciler: compares the deployed plan with the queries that run, and takes the next step, a coroutine at a time.

Its thread is the only one that starts queries and tasks, stops them, holds and releases them (`tests/tidy` checks the callers).
The next step depends on the plan, on the state of each query, on the partitions that the group has assigned to a member, and on requests for
deployments. `flowql.runtime.app.single_instance` chooses it for a single instance, `flowql.runtime.app.group` for a member of a group; this class runs it. The
class never waits: a coroutine yields the futures that it needs.
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
# Errors after which a coroutine of the reconciler's own is made again, from the state at that time.
TROUBLE = (LogError, RuntimeFailure, TimeoutError)


@dataclass(slots=True, eq=False)
class CoroutineRequest:
    """A request of another thread to run a coroutine. done: its result or error; cancelling it prevents the start.

    withdrawn: why the coroutine must not continue; empty while it may.
    """

    begin: Callable[[], Coroutine]
    done: Future[Any] = field(default_factory=Future)
    withdrawn: str = ""


class Reconciler(ABC):
    """Only its own thread calls it, except for `ask`, `lose` and `idle`."""

    def __init__(self, withdraw: Callable[[Future[Any]], bool]) -> None:
        """withdraw: takes a request for a commit back, where that is still possible."""
        self._withdraw = withdraw
        self._coroutine: Coroutine | None = None  # that runs
        self._awaited: Future[Any] | None = None
        self._result: Any = None  # of the last one that ended
        self._requests: deque[CoroutineRequest] = deque()  # the first one may be under way
        self._current: CoroutineRequest | None = None
        self._retry_at_ms = 0
        self._lost = False  # everything starts over, which is `next`'s first coroutine then
        self.wake: Callable[[], None] = lambda: None

    # -- any thread

    def ask(self, begin: Callable[[], Coroutine]) -> CoroutineRequest:
        """Requests a coroutine, which runs after all that were requested before it."""
        request = CoroutineRequest(begin)
        self._requests.append(request)
        self.wake()
        return request

    def lose(self) -> None:
        """Everything starts over: the producer was fenced, or the state is opened again as of an older commit."""
        self._lost = True
        self.wake()

    @property
    def idle(self) -> bool:
        """No coroutine runs, and none is requested or has to run first."""
        return not self._requests and self._coroutine is None and not self._lost

    # -- the step

    def run_once(self, now_ms: int) -> int:
        self.observe(now_ms)
        if self._coroutine is None:
            if (request := self._next_request()) is not None:
                self._current = request
                self._coroutine = request.begin()
            elif now_ms < self._retry_at_ms:
                return self._retry_at_ms - now_ms
            elif (coroutine := self._next_coroutine(now_ms)) is not None:
                self._coroutine = coroutine
            else:
                return self.look_ms
        return self._advance(now_ms)

    def _next_coroutine(self, now_ms: int) -> Coroutine | None:
        """The coroutine of `next`; none after an error, of brokers for example, until the time of the next attempt."""
        try:
            return self.next(now_ms)
        except TROUBLE as error:
            self._retry_at_ms = now_ms + max(RETRY_MS, self.failed(error))
            return None

    def _advance(self, now_ms: int) -> int:
        request = self._current
        try:
            if not self._run("" if request is None else request.withdrawn):
                return WAITING_MS
        except Exception as error:
            if request is not None:
                self._ended(request).set_exception(error)
            elif isinstance(error, TROUBLE):
                self._retry_at_ms = now_ms + self.failed(error)
            else:
                raise
            return 0
        if request is not None:
            self._ended(request).set_result(self._result)
        else:
            self.succeeded()
        return 0

    def _run(self, withdrawn: str) -> bool:
        """Runs the coroutine up to the next future that is not done. True when it has ended; an error ends it, too.

        withdrawn: why it has to stop; raised in the coroutine as soon as it waits for a commit that can be withdrawn.
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
                if self._awaited is None:  # it continues at the next look
                    return False
            except StopIteration as end:
                self._coroutine, self._result = None, end.value
            except BaseException:
                self._coroutine = None
                raise
        return True

    def _next_request(self) -> CoroutineRequest | None:
        while self._requests:
            if self._requests[0].done.set_running_or_notify_cancel():
                return self._requests[0]
            self._requests.popleft()  # it was cancelled
        return None

    def _ended(self, request: CoroutineRequest) -> Future[Any]:
        """Takes the request out before its future is done: whoever waits for that must find the reconciler idle."""
        self._current = None
        self._requests.popleft()
        return request.done

    # -- what differs between an instance that is alone and a member

    look_ms: int  # between two looks at what comes next

    def observe(self, now_ms: int) -> None:  # noqa: B027
        """Looks at what may change while a coroutine runs."""

    @abstractmethod
    def next(self, now_ms: int) -> Coroutine | None:
        """The most urgent coroutine to run, if any."""

    @abstractmethod
    def failed(self, error: Exception) -> int:
        """Called after a coroutine of `next` has failed. Returns ms until the next attempt."""

    def succeeded(self) -> None:  # noqa: B027
        """Called after a coroutine of `next` has ended without an error."""
