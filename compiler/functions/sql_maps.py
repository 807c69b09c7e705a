"""Maps that standard SQL makes of arrays."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from flowql.compiler.functions.registry import standard
from flowql.compiler.functions.signatures import FunctionTypeError, Resolution
from flowql.compiler.plan.types import Kind, SqlType, map_of

_KEYS = (Kind.INT, Kind.BIGINT, Kind.STRING)


def _map(pairs: Iterable[tuple[Any, Any]]) -> dict[Any, Any]:
    found: dict[Any, Any] = {}
    for key, value in pairs:
        if key is None:
            raise ValueError("a key of a map is NULL")
        if key in found:
            raise ValueError(f"the key {key} of a map comes twice")
        found[key] = value
    return found


def _of_two(keys: Sequence[Any], values: Sequence[Any]) -> dict[Any, Any]:
    if len(keys) != len(values):
        raise ValueError(f"{len(keys)} keys and {len(values)} values do not make a map")
    return _map(zip(keys, values, strict=True))


def _type(key: SqlType, value: SqlType) -> SqlType:
    if key.kind not in _KEYS:
        raise FunctionTypeError(f"keys of a map are whole numbers or strings, not {key}")
    return map_of(key, value)


def _arrays(types: tuple[SqlType, ...]) -> Resolution:
    if len(types) != 2 or any(t.kind is not Kind.ARRAY for t in types):
        raise FunctionTypeError("MAP_FROM_KEY_VALUES takes an array of keys and one of values")
    return Resolution(types, _type(types[0].element, types[1].element))


def _rows(types: tuple[SqlType, ...]) -> Resolution:
    fields = types[0].element.fields if len(types) == 1 and types[0].kind is Kind.ARRAY else ()
    if len(fields) != 2:
        raise FunctionTypeError("MAP_FROM_ENTRIES takes an array of rows of a key and a value")
    return Resolution(types, _type(*(t for _, t in fields)))


standard("MAP_FROM_KEY_VALUES", resolve=_arrays, by=_of_two)
standard("MAP_FROM_ENTRIES", resolve=_rows, by=lambda rows: _map(tuple(r.values()) for r in rows))
