"""Asynchronous functions that run in the engine's own process (isolation="inline"): one event loop in a thread, for all of them."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from typing import Any

from flowql.compiler.functions.registry import AsyncFunction
from flowql.runtime.functions.call_results import CallResult, Calls, Done, outcome_of
from flowql.runtime.functions.metrics import FunctionMetrics, metrics_of


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
    """Implements `Calls` by the event loop of this process."""

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
