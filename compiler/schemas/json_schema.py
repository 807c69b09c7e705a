"""SQL types as JSON Schemas and back, as Confluent's converter has them (`JsonSchemaData`)."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from flowql.compiler.plan import types as t
from flowql.compiler.plan.types import Kind, SqlType, array, decimal, map_of, struct

_CONNECT = "org.apache.kafka.connect.data."
DECIMAL_PRECISION_MAX = 38
_SCALARS: dict[Kind, dict[str, Any]] = {
    Kind.BOOLEAN: {"type": "boolean"},
    Kind.INT: {"type": "integer", "connect.type": "int32"},
    Kind.BIGINT: {"type": "integer", "connect.type": "int64"},
    Kind.DOUBLE: {"type": "number", "connect.type": "float64"},
    Kind.STRING: {"type": "string"},
    Kind.BYTES: {"type": "string", "connect.type": "bytes"},
    Kind.DATE: {"type": "integer", "title": f"{_CONNECT}Date", "connect.type": "int32"},
    Kind.TIME: {"type": "integer", "title": f"{_CONNECT}Time", "connect.type": "int32"},
    Kind.TIMESTAMP: {"type": "integer", "title": f"{_CONNECT}Timestamp", "connect.type": "int64"},
    Kind.MICROS: {"type": "integer", "title": "io.debezium.time.MicroTimestamp", "connect.type": "int64"},
}
_TITLES = {f"{_CONNECT}Date": t.DATE, f"{_CONNECT}Time": t.TIME, f"{_CONNECT}Timestamp": t.TIMESTAMP}
_NARROWER = {
    ("integer", "int8"): t.INT,
    ("integer", "int16"): t.INT,
    ("integer", "int32"): t.INT,
    ("string", "bytes"): t.BYTES,
}
_BY_TYPE = {"boolean": t.BOOLEAN, "integer": t.BIGINT, "number": t.DOUBLE, "string": t.STRING}


def schema_text(columns: SqlType, *, wrapped: bool, name: str = "") -> str:
    """The schema of a STRUCT of columns; not wrapped: of its single column."""
    if not wrapped:
        return json.dumps(_nullable(columns.fields[0][1]), separators=(",", ":"))
    schema = _object(columns) | ({"title": name} if name else {})
    return json.dumps(schema, separators=(",", ":"))


def _object(type_: SqlType) -> dict[str, Any]:
    fields = {n: {"connect.index": i, **_nullable(f)} for i, (n, f) in enumerate(type_.fields)}
    return {"type": "object", "properties": fields}


def _nullable(type_: SqlType) -> dict[str, Any]:
    return {"oneOf": [{"type": "null"}, _schema(type_)]}


def _schema(type_: SqlType) -> dict[str, Any]:
    if type_.kind is Kind.DECIMAL:
        digits = {"scale": str(type_.scale), "connect.decimal.precision": str(type_.precision)}
        return {
            "type": "number",
            "title": f"{_CONNECT}Decimal",
            "connect.type": "bytes",
            "connect.parameters": digits,
            "connect.version": 1,
        }
    if type_.kind is Kind.ARRAY:
        return {"type": "array", "items": _nullable(type_.element)}
    if type_.kind is Kind.MAP:
        return {"type": "object", "connect.type": "map", "additionalProperties": _nullable(type_.element)}
    return _object(type_) if type_.kind is Kind.STRUCT else _SCALARS[type_.kind]


def type_of(text: str) -> SqlType:
    """The SQL type of a schema. Raises ValueError."""
    root = json.loads(text)
    try:
        return _type(root, root)
    except RecursionError:
        raise ValueError("the JSON Schema contains itself, which no SQL type can") from None


def _type(schema: Mapping[str, Any], root: Mapping[str, Any]) -> SqlType:
    schema = resolved(schema, root)
    title = schema.get("title")
    if title == f"{_CONNECT}Decimal":
        digits = schema.get("connect.parameters", {})
        precision = int(digits.get("connect.decimal.precision", DECIMAL_PRECISION_MAX))
        return decimal(min(precision, DECIMAL_PRECISION_MAX), int(digits.get("scale", 0)))
    if isinstance(title, str) and title in _TITLES:
        return _TITLES[title]
    connect, kind = schema.get("connect.type"), schema.get("type")
    if isinstance(kind, list):
        kind = next((k for k in kind if k != "null"), None)
    if kind == "array":
        return array(_type(schema.get("items", {}), root))
    if connect == "map" or (kind == "object" and "properties" not in schema and _additional(schema)):
        return map_of(t.STRING, _type(schema["additionalProperties"], root))
    if kind == "object" or "properties" in schema:
        return _struct(schema, root)
    found = _NARROWER.get((str(kind), str(connect))) or _BY_TYPE.get(str(kind))
    if found is None and "enum" in schema:
        found = t.STRING
    if found is None:
        raise ValueError(f"the JSON Schema {json.dumps(schema)[:80]} has no SQL type")
    return found


def _additional(schema: Mapping[str, Any]) -> bool:
    return isinstance(schema.get("additionalProperties"), dict)


def _struct(schema: Mapping[str, Any], root: Mapping[str, Any]) -> SqlType:
    """Properties by `connect.index` where they have one, else as they are written."""
    properties = schema.get("properties", {})
    order = sorted(enumerate(properties.items()), key=lambda p: (p[1][1].get("connect.index", p[0]), p[0]))
    return struct(*((name, _type(inner, root)) for _, (name, inner) in order))


def resolved(schema: Mapping[str, Any], root: Mapping[str, Any]) -> Mapping[str, Any]:
    """References within the document followed, and the one type of a union with null taken. Raises ValueError."""
    for _ in range(100):  # a reference to itself has no end
        reference = schema.get("$ref")
        branches = [b for k in ("oneOf", "anyOf", "allOf") for b in schema.get(k, ()) if b.get("type") != "null"]
        if isinstance(reference, str):
            schema = _at(reference, root)
        elif len(branches) == 1:
            schema = branches[0]
        elif branches:
            raise ValueError("a JSON Schema of several types has no SQL type")
        else:
            return schema
    raise ValueError("a JSON Schema refers to itself")


def _at(reference: str, root: Mapping[str, Any]) -> Mapping[str, Any]:
    found: Any = root
    for part in reference.removeprefix("#").strip("/").split("/"):
        found = found.get(part.replace("~1", "/").replace("~0", "~")) if part and isinstance(found, dict) else found
    if not reference.startswith("#") or not isinstance(found, dict):
        raise ValueError(f"the reference {reference} is not in the JSON Schema")
    return found
