"""Values as Avro and Protobuf libraries give them, to reference values and back; rules of ksqlDB's `ConnectDataTranslator`.

Fields are found by their exact name, else ignoring case; a field that is not there is NULL. STRING takes any scalar, BIGINT
any whole number, DOUBLE any number; everything else must fit.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal
from typing import Any

from flowql.compiler.functions.numeric import BIGINT_MAX, BIGINT_MIN, INT_MAX, INT_MIN, double_text, fit_decimal
from flowql.compiler.plan.types import Kind, SqlType
from flowql.runtime.errors import BadRecord
from flowql.runtime.serde.numbers import day_number, time_number, time_of_day

Convert = Callable[[Any], Any]


@dataclass(frozen=True, slots=True)
class Unreadable:
    """An unreadable value in a record, with the reason. The record is malformed for readers of that column."""

    shown: str
    why: str

    def __repr__(self) -> str:
        return self.shown


def reader(t: SqlType) -> Convert:
    """From a library's value, which may be None, to a reference value of `t`. The function raises BadRecord."""
    convert = _reader(t)

    def read(v: Any) -> Any:
        if v is None:
            return None
        if type(v) is Unreadable:
            raise BadRecord(f"{v.shown} is not a valid {t}: {v.why}")
        try:
            return convert(v)
        except (TypeError, ValueError, ArithmeticError) as error:
            raise BadRecord(f"{_shown(v)} is not a valid {t}: {error}") from error

    return read


def struct_reader(fields: Sequence[tuple[str, SqlType]]) -> Callable[[Mapping[str, Any]], list[Any]]:
    """From an object to the values of these fields, in order."""
    readers = [(name, reader(t)) for name, t in fields]
    places: dict[tuple[str, ...], list[str | None]] = {}

    def read(v: Mapping[str, Any]) -> list[Any]:
        if not isinstance(v, Mapping):
            raise TypeError("not a record")
        names = tuple(v)
        found = places.get(names)
        if found is None:
            found = places[names] = [same_name(name, names) for name, _ in readers]
        return [None if n is None else convert(v[n]) for n, (_, convert) in zip(found, readers, strict=True)]

    return read


def same_name(name: str, names: Sequence[str]) -> str | None:
    """Which of the names is meant: the same one, else the last that differs in case alone."""
    if name in names:
        return name
    return next((n for n in reversed(names) if n.upper() == name.upper()), None)


def _shown(v: Any) -> str:
    text = repr(v)
    return text if len(text) <= 40 else text[:37] + "..."


def _reader(t: SqlType) -> Convert:
    if t.kind is Kind.ARRAY:
        element = reader(t.element)
        return lambda v: [element(x) for x in _of(v, list)]
    if t.kind is Kind.MAP:
        return _map_reader(t)
    if t.kind is Kind.STRUCT:
        names = [n for n, _ in t.fields]
        read = struct_reader(t.fields)
        return lambda v: dict(zip(names, read(v), strict=True))
    if t.kind is Kind.DECIMAL:
        return lambda v: fit_decimal(_number(v), t.precision, t.scale)
    return _SCALARS[t.kind]


def _map_reader(t: SqlType) -> Convert:
    key, value = reader(t.args[0]), reader(t.element)

    def read(v: Any) -> dict[Any, Any]:
        if isinstance(v, list):  # of entries, as Connect writes maps whose keys are no text
            v = {e["key"]: e["value"] for e in v}
        return {key(k): value(x) for k, x in _of(v, dict).items()}

    return read


def _of(v: Any, kind: type) -> Any:
    if not isinstance(v, kind):
        raise TypeError(f"it is a {type(v).__name__}")
    return v


def _number(v: Any) -> Decimal:
    if isinstance(v, bool) or not isinstance(v, (int, Decimal)):
        raise TypeError("not a decimal")
    return Decimal(v)


def _whole(v: Any, low: int, high: int) -> int:
    if isinstance(v, bool) or not isinstance(v, int):
        raise TypeError("not a whole number")
    if not low <= v <= high:
        raise ValueError("out of range")
    return int(v)


def _double(v: Any) -> float:
    if isinstance(v, bool) or not isinstance(v, (int, float)):
        raise TypeError("not a number")
    return float(v)


def _text(v: Any) -> str:
    if isinstance(v, str):
        return v
    if isinstance(v, bool):
        return "true" if v else "false"
    if isinstance(v, float):
        return double_text(v)
    if isinstance(v, int):
        return str(v)
    raise TypeError("not a string")


_SCALARS: dict[Kind, Convert] = {
    Kind.BOOLEAN: lambda v: _of(v, bool),
    Kind.INT: lambda v: _whole(v, INT_MIN, INT_MAX),
    Kind.BIGINT: lambda v: _whole(v, BIGINT_MIN, BIGINT_MAX),
    Kind.DOUBLE: _double,
    Kind.STRING: _text,
    Kind.BYTES: lambda v: _of(v, bytes),
    Kind.DATE: lambda v: day_number(_whole(time_number(v, Kind.DATE), INT_MIN, INT_MAX)),
    Kind.TIME: lambda v: time_of_day(_whole(time_number(v, Kind.TIME), INT_MIN, INT_MAX)),
    Kind.TIMESTAMP: lambda v: _whole(time_number(v, Kind.TIMESTAMP), BIGINT_MIN, BIGINT_MAX),
    Kind.MICROS: lambda v: _whole(time_number(v, Kind.MICROS), BIGINT_MIN, BIGINT_MAX),
}
