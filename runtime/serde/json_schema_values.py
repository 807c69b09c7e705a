"""Meanings that a registry's JSON Schema gives to numbers and texts in a document: units of times, and decimals in base64."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from typing import Any

from flowql.compiler.plan.types import Kind, SqlType
from flowql.compiler.schemas.json_schema import resolved
from flowql.runtime.errors import BadRecord
from flowql.runtime.serde.debezium_values import unscaled_decimal, usual_ms
from flowql.runtime.serde.numbers import NAMED_TIMES, TIMES, time_number

Convert = Callable[[Any], Any]
Schema = Mapping[str, Any]
Scalar = Callable[[SqlType, Schema], Convert | None]
_DECIMAL = "org.apache.kafka.connect.data.Decimal"


def has_units(t: SqlType) -> bool:
    """Whether values of the type may be written in several ways, of which their schema tells one."""
    return t.kind in TIMES or t.kind is Kind.DECIMAL or any(map(has_units, (*t.args, *(f for _, f in t.fields))))


def reading(t: SqlType, text: str | None) -> Convert | None:
    """From a parsed document of a schema to one whose times are in milliseconds; None where it is one already. It raises BadRecord.

    text: the schema; None if it is not known. Then a number that would be no usual time is refused: it may be one of microseconds.
    """
    return _converter(t, {}, {}, _usual) if text is None else _by_schema(t, text, _read)


def writing(t: SqlType, text: str) -> Convert | None:
    """From values to those in the units of a schema; None where they are so already. It raises BadRecord."""
    return _by_schema(t, text, _written)


def _by_schema(t: SqlType, text: str, scalar: Scalar) -> Convert | None:
    try:
        root = json.loads(text)
    except (ValueError, RecursionError):
        return None
    return _converter(t, root, root, scalar)


def _converter(t: SqlType, schema: Any, root: Any, scalar: Scalar) -> Convert | None:
    """The conversion of values other than None. Values of another type stay for their reader; the schema may be of any kind."""
    try:
        schema = resolved(schema, root) if isinstance(schema, dict) else {}
    except (ValueError, TypeError, AttributeError):
        return None
    if t.kind is Kind.STRUCT:
        return _of_object(t, schema, root, scalar)
    if t.kind is Kind.ARRAY:
        element = _converter(t.element, schema.get("items"), root, scalar)
        return element and (lambda v: [x if x is None else element(x) for x in v] if type(v) is list else v)
    if t.kind is Kind.MAP:
        value = _converter(t.element, schema.get("additionalProperties"), root, scalar)
        return value and (lambda v: {k: x if x is None else value(x) for k, x in v.items()} if type(v) is dict else v)
    return scalar(t, schema)


def _of_object(t: SqlType, schema: Schema, root: Any, scalar: Scalar) -> Convert | None:
    """Fields of a document are those of the schema, whose names are the columns' in some case."""
    properties = schema.get("properties")
    described: dict[str, Any] = properties if isinstance(properties, dict) else {}
    parts, others = {}, {}  # others: of fields that the schema does not have, by their names in upper case
    for name, field in t.fields:
        if (convert := _converter(field, None, root, scalar)) is not None:
            others[name.upper()] = convert
        for found in (p for p in described if p.upper() == name.upper()):
            if (convert := _converter(field, described[found], root, scalar)) is not None:
                parts[found] = convert

    def convert_object(v: Any) -> Any:
        if type(v) is not dict:
            return v
        changed = {}
        for name, value in v.items():
            convert = parts.get(name) or (others.get(name.upper()) if others else None)
            if convert is not None and value is not None:
                try:
                    changed[name] = convert(value)
                except (TypeError, ValueError, ArithmeticError) as error:
                    raise BadRecord(f"{name}: {error}") from error
        return {**v, **changed} if changed else v

    return convert_object if parts or others else None


def _read(t: SqlType, schema: Schema) -> Convert | None:
    title = schema.get("title")
    counted = NAMED_TIMES.get(title) if isinstance(title, str) else None
    if t.kind in TIMES and counted is not None and (counted.per_ms > 1 or counted.kind is not t.kind):
        return lambda v: time_number(counted(v), t.kind) if type(v) is int else v
    if t.kind is Kind.DECIMAL and title == _DECIMAL and schema.get("type") == "string":
        scale = int(schema.get("connect.parameters", {}).get("scale", 0))
        return lambda v: unscaled_decimal(v, scale) if type(v) is str else v
    return None


def _written(t: SqlType, schema: Schema) -> Convert | None:
    title = schema.get("title")
    counted = NAMED_TIMES.get(title) if isinstance(title, str) else None
    if t.kind in TIMES and counted is not None and (counted.per_ms > 1 or counted.kind is not t.kind):
        return lambda v: counted.written(t.kind, v)
    return None


def _usual(t: SqlType, _schema: Schema) -> Convert | None:
    way = "register the schema that the record names"
    return (lambda v: usual_ms(v, way) if type(v) is int else v) if t.kind is Kind.TIMESTAMP else None
