"""Calls of asynchronous processors: of rows of their sources, with results as bytes."""

from __future__ import annotations

import inspect
import pickle
from typing import Any

from flowql.compiler.functions.async_options import ONCE, AsyncOptions
from flowql.compiler.functions.registry import AsyncFunction, QueryFailure
from flowql.compiler.plan.processors import CALL
from flowql.compiler.plan.schema import Schema
from flowql.compiler.processors.processor import AsyncProcessor
from flowql.compiler.processors.topology import topology_in_plan
from flowql.runtime.operators.processors.values import RecordOfRow


def call_of_processor(name: str, source: Schema) -> AsyncFunction:
    """name: of its calls in plans. Calls run in the engine's own process, as processors do, on an object that is made for them. Raises QueryFailure."""
    topology_name, _, step = name.partition(CALL)
    topology, reader = topology_in_plan(topology_name), RecordOfRow(source)
    made = topology.make(step)
    if not isinstance(made, AsyncProcessor):
        raise QueryFailure(f"processor {step} is not asynchronous any more")
    asks = made.call

    async def call(*row: Any) -> bytes:
        return pickle.dumps(await asks(reader.key(row), reader.value(row)), 5)

    def blocking_call(*row: Any) -> bytes:
        return pickle.dumps(asks(reader.key(row), reader.value(row)), 5)

    is_coroutine = inspect.iscoroutinefunction(asks)
    options = AsyncOptions(made.max_in_flight, float(made.timeout), made.retry or ONCE, made.order)
    return AsyncFunction(options, call if is_coroutine else blocking_call, is_coroutine, (), name)
