"""struct, array, map, field and subscript: building containers and reaching into them.

Elements must already have one type: the analyzer passes the operands of ARRAY and MAP through `coercion.unify`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from flowql.compiler.functions.registry import Reference, define, scalar, takes
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
    common_numeric,
)
from flowql.compiler.functions.spark_text import is_plain, text
from flowql.compiler.functions.values import map_key
from flowql.compiler.plan.types import BIGINT, BOOLEAN, INT, NULL, Kind, SqlType, array, map_of, spark_type, struct

_INDEX_MAX = 2**31 - 1


def _common(types: Sequence[SqlType], what: str) -> SqlType:
    common = NULL
    for t in types:
        wider = t if common in (NULL, t) else common if t == NULL else common_numeric(common, t)
        if wider is None:
            raise FunctionTypeError(f"{what} must have one type, not {common} and {t}", "add an explicit CAST")
        common = wider
    return common


def _array_types(types: tuple[SqlType, ...]) -> Resolution:
    element = _common(types, "the elements of ARRAY")
    if element.kind is Kind.NULL:
        raise FunctionTypeError("array cannot be empty or all NULL: its element type is unknown", "add a CAST")
    return Resolution(tuple(element for _ in types), array(element))


def _map_types(types: tuple[SqlType, ...]) -> Resolution:
    key, value = _common(types[::2], "the keys of MAP"), _common(types[1::2], "the values of MAP")
    if Kind.NULL in (key.kind, value.kind):
        raise FunctionTypeError("map cannot be empty or all NULL: its types are unknown", "add a CAST")
    return Resolution(tuple((key, value)[i % 2] for i in range(len(types))), map_of(key, value))


def _struct_types(types: tuple[SqlType, ...]) -> Resolution:
    """Field names are in the type of the call; the names given here are placeholders."""
    return Resolution(types, struct(*((f"F{i}", t) for i, t in enumerate(types))))


def _make_struct(r: Resolution) -> Reference:
    names = [n for n, _ in r.result.fields]
    return lambda *values: dict(zip(names, values, strict=True))


def _make_map(r: Resolution) -> Reference:
    key = map_key(r.result)
    return lambda *items: dict(zip(map(key, items[::2]), items[1::2], strict=True))


def _struct_sql(args: Sequence[str], r: Resolution) -> str:
    fields = zip(r.result.fields, args, strict=True)
    return "struct_pack(" + ", ".join(f'"{_quoted(n)}" := {a}' for (n, _), a in fields) + ")"


def _quoted(name: str) -> str:
    return name.replace('"', '""')


def _struct_on_spark(args: Sequence[str], r: Resolution) -> str:
    fields = zip(r.result.fields, args, strict=True)
    return "named_struct(" + ", ".join(f"{text(n)}, CAST({a} AS {spark_type(t)})" for (n, t), a in fields) + ")"


def _array_on_spark(args: Sequence[str], r: Resolution) -> str:
    element = spark_type(r.result.element)
    return f"array({', '.join(f'CAST({a} AS {element})' for a in args)})"


define(
    "array",
    _array_types,
    lambda _r: lambda *v: list(v),
    null_propagating=False,
    duckdb=lambda a, _r: f"[{', '.join(a)}]",
    spark=_array_on_spark,
)
define("map", _map_types, _make_map, null_propagating=False)
define(
    "struct",
    _struct_types,
    _make_struct,
    null_propagating=False,
    duckdb=_struct_sql,
    spark=_struct_on_spark,
)


def _field_types(types: tuple[SqlType, ...]) -> Resolution:
    """The type of the field depends on its name, so the analyzer sets the type of the call."""
    if types[0].kind is not Kind.STRUCT:
        raise FunctionTypeError(f"-> needs a STRUCT, not {types[0]}")
    return Resolution(types, NULL)


define(
    "field",
    _field_types,
    lambda _r: lambda s, name: s[name],
    duckdb=lambda a, _r: f"struct_extract({a[0]}, {a[1]})",
)


def _subscript_types(types: tuple[SqlType, ...]) -> Resolution:
    base, index = types
    if base.kind is Kind.ARRAY and index.kind in (Kind.INT, Kind.BIGINT, Kind.NULL):
        return Resolution((base, BIGINT if index.kind is Kind.BIGINT else INT), base.element)
    if base.kind is Kind.MAP and index.kind in (base.args[0].kind, Kind.NULL):
        return Resolution((base, base.args[0]), base.element)
    raise FunctionTypeError(f"[] does not accept {base} and {index}", "an ARRAY takes a number, a MAP a key")


def element_at(items: list[Any], index: int) -> Any:
    """Element `index` counted from 1, or from the end when negative; NULL outside."""
    n = len(items)
    if 0 < index <= n:
        return items[index - 1]
    return items[index] if -n <= index < 0 else None


def _subscript(r: Resolution) -> Callable[[Any, Any], Any]:
    return element_at if r.args[0].kind is Kind.ARRAY else (lambda m, k: m.get(k))


def _subscript_on_spark(args: Sequence[str], r: Resolution) -> str:
    base, index = args
    if r.args[0].kind is Kind.MAP:
        return f"({base})[{index}]" if is_plain(r.args[0].args[0]) else ""
    at = f"CAST({index} AS INT)"
    inside = f"{index} BETWEEN -{_INDEX_MAX} AND {_INDEX_MAX}"
    forward = f"WHEN {inside} AND {index} > 0 THEN get({base}, {at} - 1)"
    return f"(CASE {forward} WHEN {inside} AND {index} < 0 THEN get({base}, array_size({base}) + {at}) END)"


define(
    "subscript",
    _subscript_types,
    _subscript,
    duckdb=lambda a, _r: f"({a[0]})[{a[1]}]",
    spark=_subscript_on_spark,
)

# --- functions that take lambdas, over arrays and maps ---

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
