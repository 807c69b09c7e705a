"""LATEST_BY_OFFSET and EARLIEST_BY_OFFSET: the last or first values in order of arrival.

Merging takes the accumulators of sessions in order of their windows: what is kept of two sessions follows that order,
where ksqlDB follows a global sequence number.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from flowql.compiler.functions.aggregates import Add, Init
from flowql.compiler.functions.registry import AggregateFunction, register_aggregate
from flowql.compiler.functions.signatures import FunctionTypeError, Resolution, not_accepted
from flowql.compiler.plan.types import SqlType, array


def _by_offset_options(name: str, init: Init) -> tuple[int | None, bool]:
    """(n, ignore nulls): from (), (n), (ignore), (n, ignore)."""
    n = next((v for v in init if isinstance(v, int) and not isinstance(v, bool)), None)
    ignore = next((v for v in init if isinstance(v, bool)), True)
    if len(init) > 2 or any(not isinstance(v, int) for v in init) or (n is not None and n < 1):
        raise FunctionTypeError(f"Function '{name}' takes a column, then a positive number, TRUE or FALSE, or both")
    return n, ignore


def _by_offset_types(name: str) -> Callable[[tuple[SqlType, ...], Init], Resolution]:
    def resolve(types: tuple[SqlType, ...], init: Init) -> Resolution:
        n, _ = _by_offset_options(name, init)
        if len(types) != 1:
            raise not_accepted(name, types)
        return Resolution(types, types[0] if n is None else array(types[0]))

    return resolve


def _keep(name: str, init: Init) -> Callable[[tuple[Any, ...]], tuple[Any, ...]]:
    n = _by_offset_options(name, init)[0] or 1
    return (lambda acc: acc[-n:]) if name == "LATEST_BY_OFFSET" else (lambda acc: acc[:n])


def _by_offset_add(name: str) -> Callable[[Resolution, Init], Add]:
    def make(_r: Resolution, init: Init) -> Add:
        _, ignore = _by_offset_options(name, init)
        keep = _keep(name, init)
        return lambda acc, v: acc if v is None and ignore else keep((*acc, v))

    return make


def _by_offset_merge(name: str) -> Callable[[Resolution, Init], Callable[[Any, Any], Any]]:
    def make(_r: Resolution, init: Init) -> Callable[[Any, Any], Any]:
        keep = _keep(name, init)
        return lambda a, b: keep((*a, *b))

    return make


def _by_offset_result(name: str) -> Callable[[Resolution, Init], Callable[[Any], Any]]:
    def make(_r: Resolution, init: Init) -> Callable[[Any], Any]:
        n, _ = _by_offset_options(name, init)
        return list if n is not None else (lambda acc: acc[0] if acc else None)

    return make


for _name, _which in (("LATEST_BY_OFFSET", "last"), ("EARLIEST_BY_OFFSET", "first")):
    register_aggregate(
        AggregateFunction(
            _name,
            _by_offset_types(_name),
            initial=lambda _r, _i: (),
            add=_by_offset_add(_name),
            merge=_by_offset_merge(_name),
            result=_by_offset_result(_name),
            constants=lambda n: max(0, n - 1),
            summary=f"The {_which} value in order of arrival, or the {_which} n as an array; NULLs left out unless FALSE.",
            example=f"{_name}(x, 2, FALSE)",
        )
    )
