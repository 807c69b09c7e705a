"""Calls of an asynchronous function for many rows at once, as interactive queries make them in the process of a module."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from typing import Any

from flowql.compiler.functions.registry import AsyncFunction
from flowql.runtime.functions.call_results import CallResult, outcome_of


def outcomes_of(
    function: AsyncFunction, rows: Sequence[tuple[Any, ...]], sign_of_life: Callable[[], None]
) -> list[CallResult]:
    """One for each row of arguments. sign_of_life: called when a call begins, and when it has an outcome."""

    async def of_all() -> list[CallResult]:
        free = asyncio.Semaphore(function.options.max_in_flight)
        return await asyncio.gather(*(one(free, args) for args in rows))

    async def one(free: asyncio.Semaphore, args: tuple[Any, ...]) -> CallResult:
        if any(args[n] is None for n in function.required):
            return CallResult()
        async with free:
            sign_of_life()
            outcome = await outcome_of(function, args)
            sign_of_life()
        return outcome

    return asyncio.run(of_all())
