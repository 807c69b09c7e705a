"""Calls of asynchronous functions: what one gives, and how one is awaited, in the engine and in a process of the functions' own."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from typing import Any, Protocol

from flowql.compiler.functions.asynchronous import RetryAfter
from flowql.compiler.functions.registry import FAILURES, AsyncFunction
from flowql.runtime.functions.failures import frames_of
from flowql.runtime.functions.metrics import FunctionMetrics, metrics_of


@dataclass(frozen=True, slots=True)
class CallResult:
    """The result of one call. error: why there is no value. again_ms: the delay before the call is repeated. fails_query: no value has caused the error."""

    value: Any = None
    error: str = ""
    again_ms: int | None = None
    fails_query: bool = False


Done = Callable[[CallResult], None]


class Calls(Protocol):
    """Makes calls of one function."""

    def begin(self, args: tuple[Any, ...], done: Done) -> Callable[[], None]:
        """Makes a call over reference values. done: told of the outcome, once, in another thread. Gives what abandons the call: nothing is told then,
        unless it is too late.
        """
        ...


async def outcome_of(function: AsyncFunction, args: tuple[Any, ...]) -> CallResult:
    """Awaits a call. Raises CancelledError alone."""
    timeout_s = function.options.timeout_s
    try:
        async with asyncio.timeout(timeout_s) as limit:
            return CallResult(await (function.call(*args) if function.is_coroutine else _blocking(function.call, args)))
    except RetryAfter as again:
        return CallResult(again_ms=again.delay_ms)
    except (SystemExit, KeyboardInterrupt) as error:  # which would end the loop
        return CallResult(error=f"{type(error).__name__}: {error}")
    except TimeoutError as error:
        text = f"it did not return within {timeout_s:g} s" if limit.expired() else f"{error}{frames_of(error)}"
        return CallResult(error=f"TimeoutError: {text}")
    except Exception as error:
        kind = "MemoryError" if isinstance(error, MemoryError) else type(error).__name__  # Arrow has one of its own
        return CallResult(error=f"{kind}: {error}{frames_of(error)}", fails_query=isinstance(error, FAILURES))


def _blocking(call: Callable[..., Any], args: tuple[Any, ...]) -> asyncio.Future[Any]:
    """A call in a thread of its own. One that does not return costs this thread, and neither a place in a pool nor the end of the process."""
    loop = asyncio.get_running_loop()
    future: asyncio.Future[Any] = loop.create_future()

    def finish(value: Any, error: BaseException | None) -> None:
        if future.done():
            return  # it has timed out
        if error is None:
            future.set_result(value)
        else:
            future.set_exception(error)

    def run() -> None:
        value, failure = None, None
        try:
            value = call(*args)
        except BaseException as error:
            failure = error
        with suppress(RuntimeError):  # the loop is closed
            loop.call_soon_threadsafe(finish, value, failure)

    threading.Thread(target=run, name="blocking-call", daemon=True).start()
    return future


def calls_of(function: AsyncFunction) -> Calls:
    """Where the calls of a function are made. They are counted."""
    return CountedCalls(function.home or LoopCalls(function), metrics_of(function.key))


class CountedCalls:
    """Implements `Calls` by others."""

    def __init__(self, calls: Calls, metrics: FunctionMetrics) -> None:
        self._calls, self._metrics = calls, metrics

    def begin(self, args: tuple[Any, ...], done: Done) -> Callable[[], None]:
        start = time.perf_counter()

        def counted(outcome: CallResult) -> None:
            self._metrics.here().add(1, time.perf_counter() - start, failures=int(bool(outcome.error)))
            done(outcome)

        return self._calls.begin(args, counted)


class LoopCalls:
    """Implements `Calls` by the event loop of this process (isolation="inline"): one loop in a thread, for all functions."""

    def __init__(self, function: AsyncFunction) -> None:
        self._function = function

    def begin(self, args: tuple[Any, ...], done: Done) -> Callable[[], None]:
        call = _Call(self._function, args, done)
        _loop.soon(call.begin)
        return partial(_loop.soon, call.abandon)


class _Call:
    """A call, as the thread of the loop sees it."""

    __slots__ = ("_args", "_done", "_function", "_task")

    def __init__(self, function: AsyncFunction, args: tuple[Any, ...], done: Done) -> None:
        self._function, self._args, self._done = function, args, done
        self._task: asyncio.Task[None] | None = None

    def begin(self) -> None:
        self._task = asyncio.get_running_loop().create_task(self._made())

    async def _made(self) -> None:
        self._done(await outcome_of(self._function, self._args))

    def abandon(self) -> None:
        if self._task is not None:
            self._task.cancel()


class _Loop:
    """The event loop, and what is to be done in its thread: waking it costs more than what is done there."""

    def __init__(self) -> None:
        self._lock = threading.Lock()  # guards the two below
        self._loop: asyncio.AbstractEventLoop | None = None
        self._actions: list[Callable[[], None]] = []

    def soon(self, action: Callable[[], None]) -> None:
        """Any thread."""
        with self._lock:
            self._actions.append(action)
            if len(self._actions) > 1:
                return  # it has been woken
            loop = self._loop = self._loop or _started()
        with suppress(RuntimeError):  # it is closed: the process ends
            loop.call_soon_threadsafe(self._act)

    def _act(self) -> None:
        with self._lock:
            actions, self._actions = self._actions, []
        for action in actions:
            action()


def _started() -> asyncio.AbstractEventLoop:
    loop = asyncio.new_event_loop()
    threading.Thread(target=loop.run_forever, name="asynchronous-functions", daemon=True).start()
    return loop


_loop = _Loop()
