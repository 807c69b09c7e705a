"""SQL types as Avro schemas and back, as Confluent's converter has them (`AvroData`)."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from flowql.compiler.plan import types as t
from flowql.compiler.plan.types import Kind, SqlType, array, decimal, map_of, struct

NAME = "io.confluent.ksql.avro_schemas.KsqlDataSourceSchema"
DECIMAL_PRECISION_MAX = 38
_SCALARS: dict[Kind, Any] = {
    Kind.BOOLEAN: "boolean",
    Kind.INT: "int",
    Kind.BIGINT: "long",
    Kind.DOUBLE: "double",
    Kind.STRING: "string",
    Kind.BYTES: "bytes",
    Kind.DATE: {"type": "int", "logicalType": "date"},
    Kind.TIME: {"type": "int", "logicalType": "time-millis"},
    Kind.TIMESTAMP: {"type": "long", "logicalType": "timestamp-millis"},
    Kind.MICROS: {"type": "long", "logicalType": "timestamp-micros"},
}
_TYPES = {
    "boolean": t.BOOLEAN,
    "int": t.INT,
    "long": t.BIGINT,
    "float": t.DOUBLE,
    "double": t.DOUBLE,
    "string": t.STRING,
    "bytes": t.BYTES,
    "fixed": t.BYTES,
    "enum": t.STRING,
}
_LOGICAL = {"date": t.DATE, "time-millis": t.TIME, "timestamp-millis": t.TIMESTAMP}


def is_name(text: str) -> bool:
    """Whether a column can be the field of an Avro record."""
    return text.isascii() and text.isidentifier()


def schema_text(columns: SqlType, *, wrapped: bool, name: str = "") -> str:
    """The schema of a STRUCT of columns; not wrapped: of its single column."""
    schema = _record(columns, name or NAME) if wrapped else _nullable(columns.fields[0][1], NAME)
    return json.dumps(schema, separators=(",", ":"))


def _nullable(type_: SqlType, name: str) -> list[Any]:
    return ["null", _schema(type_, name)]


def _record(type_: SqlType, name: str) -> dict[str, Any]:
    namespace, _, short = name.rpartition(".")
    fields = [{"name": n, "type": _nullable(f, f"{name}_{n}"), "default": None} for n, f in type_.fields]
    named = {"namespace": namespace} if namespace else {}
    return {"type": "record", "name": short, **named, "fields": fields}


def _schema(type_: SqlType, name: str) -> Any:
    if type_.kind is Kind.DECIMAL:
        return {"type": "bytes", "logicalType": "decimal", "precision": type_.precision, "scale": type_.scale}
    if type_.kind is Kind.ARRAY:
        return {"type": "array", "items": _nullable(type_.element, name)}
    if type_.kind is Kind.MAP:
        return {"type": "map", "values": _nullable(type_.element, f"{name}_MapValue")}
    return _record(type_, name) if type_.kind is Kind.STRUCT else _SCALARS[type_.kind]


def type_of(text: str) -> SqlType:
    """The SQL type of a schema. Raises ValueError."""
    try:
        schema = json.loads(text)
    except ValueError:
        schema = text  # a bare type name, which registries also give without quotes
    return _type(schema, {})


def _type(schema: Any, named: dict[str, SqlType]) -> SqlType:
    if isinstance(schema, list):
        return _union(schema, named)
    if isinstance(schema, str):
        found = _TYPES.get(schema) or named.get(schema) or named.get(schema.rpartition(".")[2])
        if found is None:
            raise ValueError(f"the Avro type {schema} has no SQL type")
        return found
    if schema["type"] in ("record", "error"):
        made = struct(*((f["name"], _type(f["type"], named)) for f in schema["fields"]))
        return _remember(schema, made, named)
    logical = _logical(schema)
    if logical is not None:
        return logical
    if schema["type"] == "array":
        return _array(schema, named)
    if schema["type"] == "map":
        return map_of(t.STRING, _type(schema["values"], named))
    made = _type(schema["type"], named)
    return _remember(schema, made, named) if "name" in schema else made


def _remember(schema: Mapping[str, Any], made: SqlType, named: dict[str, SqlType]) -> SqlType:
    named[str(schema["name"]).rpartition(".")[2]] = made
    return made


def _logical(schema: Mapping[str, Any]) -> SqlType | None:
    logical = schema.get("logicalType")
    if logical == "decimal":
        return decimal(min(int(schema["precision"]), DECIMAL_PRECISION_MAX), int(schema.get("scale", 0)))
    return _LOGICAL.get(str(logical))


def _array(schema: Mapping[str, Any], named: dict[str, SqlType]) -> SqlType:
    """A list, or a map written as a list of its entries, as Connect writes maps whose keys are no text."""
    items = schema["items"]
    if isinstance(items, dict) and items.get("connect.internal.type") == "MapEntry":
        entry = _type(items, named)
        return map_of(entry.fields[0][1], entry.fields[1][1])
    return array(_type(items, named))


def _union(branches: list[Any], named: dict[str, SqlType]) -> SqlType:
    """`["null", T]` is T; a union of several types is a STRUCT with a field for each, as Connect reads it."""
    real = [b for b in branches if b != "null"]
    if len(real) == 1:
        return _type(real[0], named)
    return struct(*((branch_name(b), _type(b, named)) for b in real))


def branch_name(branch: Any) -> str:
    """Kafka Connect's name for the field of a branch of a union."""
    if isinstance(branch, str):
        return branch.rpartition(".")[2]
    return str(branch["name"] if "name" in branch else branch["type"]).rpartition(".")[2]


def required_fields(text: str) -> list[str]:
    """The fields of a record that a writer has to give: those without a default that cannot be NULL."""
    schema = json.loads(text)
    fields = schema.get("fields", []) if isinstance(schema, dict) else []
    return [f["name"] for f in fields if "default" not in f and not _takes_null(f["type"])]


def _takes_null(schema: Any) -> bool:
    return schema == "null" or (isinstance(schema, list) and "null" in schema)
