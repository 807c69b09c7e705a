"""The JSON Schema of `flowql.yaml`, for editors: `flowql/config/schema.json`."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import flowql.config
from flowql.config.shape import (
    Anything,
    Choice,
    Constant,
    Duration,
    Fragment,
    ListOf,
    MapOf,
    Record,
    Secret,
    Shape,
    Size,
    Text,
    Whole,
)
from flowql.config.table import FILE_NAME, PROJECT

SCHEMA_FILE = Path(flowql.config.__file__).with_name("schema.json")
_DIALECT = "http://json-schema.org/draft-07/schema#"
_REFERENCE = r"^\$\{.+\}$"


def pages() -> dict[Path, str]:
    schema = {"$schema": _DIALECT, "title": f"A FlowQL project ({FILE_NAME})", **_schema(PROJECT)}
    return {SCHEMA_FILE: json.dumps(schema, indent=2) + "\n"}


def _schema(shape: Shape) -> dict[str, Any]:
    match shape:
        case Record():
            return _record(shape)
        case MapOf(value):
            return {"type": "object", "additionalProperties": _schema(value)}
        case ListOf(item, single):
            many = {"type": "array", "items": _schema(item)}
            return {"anyOf": [_schema(item), many]} if single else many
        case Choice(words):
            return {"enum": list(words)}
        case Whole(least, most):
            number: dict[str, Any] = {"type": "integer", "minimum": least}
            if most is not None:
                number["maximum"] = most
            return {"anyOf": [number, {"type": "string", "pattern": _REFERENCE}]}
        case Size():
            return {"type": ["string", "integer"], "examples": ["1 GB"]}
        case Duration():
            return {"type": ["string", "integer"], "examples": ["500 ms"]}
        case Constant():
            return {"type": ["string", "number", "boolean"]}
        case Anything():
            return {}
        case Secret(constant=constant):
            plain = {"type": ["string", "number", "boolean"] if constant else "string"}
            return {"anyOf": [plain, *(_reference(kind) for kind in ("env", "file", "command"))]}
        case Text() | Fragment():
            return {"type": ["string", "number"] if isinstance(shape, Fragment) else "string"}


def _reference(kind: str) -> dict[str, Any]:
    value: dict[str, Any] = {"type": "string"}
    if kind == "command":
        value = {"anyOf": [value, {"type": "array", "items": value}]}
    return {"type": "object", "additionalProperties": False, "properties": {kind: value}, "required": [kind]}


def _record(shape: Record) -> dict[str, Any]:
    schema: dict[str, Any] = {
        "type": "object",
        "additionalProperties": False,
        "properties": {name: {"description": key.doc, **_schema(key.shape)} for name, key in shape.keys.items()},
    }
    required = [name for name, key in shape.keys.items() if key.required]
    if required:
        schema["required"] = required
    return {"anyOf": [_schema(shape.keys[shape.short].shape), schema]} if shape.short else schema
