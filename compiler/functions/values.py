"""Reference values in general: order, identity and text of any SQL value."""

from __future__ import annotations

import base64
from collections.abc import Callable
from decimal import Decimal
from typing import Any

from flowql.compiler.functions.numeric import double_text
from flowql.compiler.functions.temporal import date_text, micros_text, time_text, timestamp_text
from flowql.compiler.plan.types import Kind, SqlType


def map_key(t: SqlType) -> Callable[[Any], Any]:
    """A key as a map of type `t` may have it. NULL is the text 'null', as ksqlDB writes it; ValueError where keys are no texts."""

    def key(k: Any) -> Any:
        if k is None and t.args[0].kind is not Kind.STRING:
            raise ValueError("a key of the map is NULL")
        return "null" if k is None else k

    return key


_ORDERED = frozenset(
    {Kind.INT, Kind.BIGINT, Kind.DOUBLE, Kind.DECIMAL, Kind.STRING, Kind.BYTES, Kind.DATE, Kind.TIME, Kind.TIMESTAMP}
    | {Kind.MICROS}
)


def is_ordered(t: SqlType) -> bool:
    """Whether values of the type can be compared with < (BOOLEAN and containers cannot)."""
    return t.kind in _ORDERED and t.form not in ("JSONB", "INTERVAL")


def less(a: Any, b: Any) -> bool:
    """Whether a < b, where NaN equals itself and is above every other double."""
    if isinstance(a, float) and isinstance(b, float):
        return a < b or (b != b and a == a)
    return bool(a < b)


def has_order(t: SqlType) -> bool:
    """Whether MIN and MAX can order values of the type: what `<` can, and structs of such."""
    return is_ordered(t) or (t.kind is Kind.STRUCT and all(has_order(f) for _, f in t.fields))


def less_of(t: SqlType) -> Callable[[Any, Any], bool]:
    """Whether a < b for non-null values of a type with an order; structs field by field, NULL before every value."""
    if t.kind is not Kind.STRUCT:
        return less
    fields = [(n, less_of(f)) for n, f in t.fields]

    def run(a: Any, b: Any) -> bool:
        for name, below in fields:
            x, y = a.get(name), b.get(name)
            if x is None or y is None:
                if x is not y:
                    return x is None
            elif below(x, y):
                return True
            elif below(y, x):
                return False
        return False

    return run


def same(a: Any, b: Any) -> bool:
    """Equality of two non-null values: deep, NaN equals itself."""
    if isinstance(a, float) and isinstance(b, float):
        return a == b or (a != a and b != b)
    if isinstance(a, dict) and isinstance(b, dict):
        return a.keys() == b.keys() and all(_same_or_null(v, b[k]) for k, v in a.items())
    if isinstance(a, (list, tuple)) and isinstance(b, (list, tuple)):
        return len(a) == len(b) and all(map(_same_or_null, a, b))
    return bool(a == b)


def _same_or_null(a: Any, b: Any) -> bool:
    return a is b if a is None or b is None else same(a, b)


class _NanLast:
    """Sort key of a double."""

    __slots__ = ("value",)

    def __init__(self, value: float) -> None:
        self.value = value

    def __lt__(self, other: _NanLast) -> bool:
        return less(self.value, other.value)


def sort_key(v: Any) -> Any:
    """A key that sorts non-null values of one type."""
    return _NanLast(v) if isinstance(v, float) and v != v else v


def identity(v: Any) -> Any:
    """A hashable stand-in that is equal for equal values (1 and 1.0 and True stay apart by type)."""
    if isinstance(v, dict):
        return ("{", *sorted(((identity(k), identity(x)) for k, x in v.items()), key=repr))
    if isinstance(v, (list, tuple)):
        return ("[", *map(identity, v))
    if isinstance(v, float) and v != v:
        return (float, "nan")
    return (type(v), v)


def decimal_text(d: Decimal) -> str:
    return format(d, "f")


def text_of(t: SqlType) -> Callable[[Any], str]:
    """The text a CAST to STRING gives for non-null values of the type."""
    plain = _TEXT.get(t.kind)
    if plain is not None:
        return plain
    if t.kind is Kind.ARRAY:
        element = _or_null(text_of(t.element))
        return lambda v: "[" + ", ".join(map(element, v)) + "]"
    if t.kind is Kind.MAP:
        key, value = _or_null(text_of(t.args[0])), _or_null(text_of(t.args[1]))
        return lambda v: "{" + ", ".join(f"{key(k)}={value(x)}" for k, x in v.items()) + "}"
    fields = [(n, text_of(f)) for n, f in t.fields]
    return lambda v: "Struct{" + ",".join(f"{n}={f(v[n])}" for n, f in fields if v.get(n) is not None) + "}"


def _or_null(text: Callable[[Any], str]) -> Callable[[Any], str]:
    return lambda v: "null" if v is None else text(v)


_TEXT: dict[Kind, Callable[[Any], str]] = {
    Kind.STRING: lambda v: v,
    Kind.BOOLEAN: lambda v: "true" if v else "false",
    Kind.INT: str,
    Kind.BIGINT: str,
    Kind.DOUBLE: double_text,
    Kind.DECIMAL: decimal_text,
    Kind.DATE: date_text,
    Kind.TIME: time_text,
    Kind.TIMESTAMP: timestamp_text,
    Kind.MICROS: micros_text,
    Kind.BYTES: lambda v: base64.b64encode(v).decode(),
    Kind.NULL: lambda _v: "null",
}
