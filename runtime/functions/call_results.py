"""Calls of asynchronous functions: what one gives, and how one is awaited, in the engine and in a process of the functions' own."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, Protocol

from flowql.compiler.functions.async_options import RetryAfter
from flowql.compiler.functions.registry import FAILURES, AsyncFunction
from flowql.runtime.functions.failures import frames_of


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
