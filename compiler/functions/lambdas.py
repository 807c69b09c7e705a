"""TRANSFORM, FILTER and REDUCE: functions that take lambdas, over arrays and maps."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from flowql.compiler.functions.registry import Reference, scalar, takes
from flowql.compiler.functions.signatures import (
    ArrayOf,
    FunctionTypeError,
    K,
    LambdaOf,
    MapOf,
    Resolution,
    T,
    U,
    V,
    Var,
)
from flowql.compiler.functions.values import map_key
from flowql.compiler.plan.types import BOOLEAN, Kind, SqlType

_S = Var("S")


def _elements(name: str, t: SqlType) -> tuple[SqlType, ...]:
    if t.kind not in (Kind.ARRAY, Kind.MAP):
        raise FunctionTypeError(f"Function '{name}' does not accept a {t}: it takes an ARRAY or a MAP and lambdas")
    return t.args


def _params_of_elements(name: str) -> Callable[[tuple[SqlType, ...], int], tuple[SqlType, ...]]:
    return lambda before, _index: _elements(name, before[0])


def _transform(r: Resolution) -> Reference:
    if r.args[0].kind is Kind.ARRAY:
        return lambda items, f: [f(v) for v in items]
    return _transform_map(map_key(r.result))


def _transform_map(of_map: Callable[[Any], Any]) -> Reference:
    """Raises ValueError for two equal keys or a NULL value, which ksqlDB refuses too."""

    def transform(m: dict[Any, Any], key: Callable[..., Any], value: Callable[..., Any]) -> dict[Any, Any]:
        out: dict[Any, Any] = {}
        for k, v in m.items():
            made, new = of_map(key(k, v)), value(k, v)
            if made in out or new is None:
                raise ValueError(f"TRANSFORM gives {'a NULL value' if new is None else f'the key {made!r} twice'}")
            out[made] = new
        return out

    return transform


def _filter(r: Resolution) -> Reference:
    if r.args[0].kind is Kind.ARRAY:
        return lambda items, f: [v for v in items if f(v) is True]
    return lambda m, f: {k: v for k, v in m.items() if f(k, v) is True}


def _reduce(r: Resolution) -> Reference:
    """A NULL collection gives the state it started with; a NULL state gives NULL."""
    of_map = r.args[0].kind is Kind.MAP

    def run(items: Any, state: Any, f: Callable[..., Any]) -> Any:
        if items is None or state is None:
            return state
        for entry in items.items() if of_map else items:
            state = f(state, *entry) if of_map else f(state, entry)
        return state

    return run


scalar(
    "TRANSFORM",
    takes(ArrayOf(T), LambdaOf(U), gives=ArrayOf(U)),
    takes(MapOf(K, V), LambdaOf(U), LambdaOf(_S), gives=MapOf(U, _S)),
    by_types=_transform,
    lambda_params=_params_of_elements("TRANSFORM"),
)
scalar(
    "FILTER",
    takes(ArrayOf(T), LambdaOf(BOOLEAN), gives=ArrayOf(T)),
    takes(MapOf(K, V), LambdaOf(BOOLEAN), gives=MapOf(K, V)),
    by_types=_filter,
    lambda_params=_params_of_elements("FILTER"),
)
scalar(
    "REDUCE",
    takes(ArrayOf(T), _S, LambdaOf(_S), gives=_S),
    takes(MapOf(K, V), _S, LambdaOf(_S), gives=_S),
    by_types=_reduce,
    null_propagating=False,
    lambda_params=lambda before, _index: (before[1], *_elements("REDUCE", before[0])),
)
