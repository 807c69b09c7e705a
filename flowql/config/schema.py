"""The JSON Schema of `flowql.yaml`, for editors: `schema.json` beside this file is this, written by `python -m flowql.config.schema`."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from flowql.config.shape import (
    Anything,
    Choice,
    Constant,
    Duration,
    Fragment,
    ListOf,
    MapOf,
    Record,
    Shape,
    Size,
    Text,
    Whole,
)
from flowql.config.table import FILE_NAME, PROJECT

SCHEMA_FILE = Path(__file__).with_name("schema.json")
_DIALECT = "http://json-schema.org/draft-07/schema#"
_REFERENCE = r"^\$\{.+\}$"


def json_schema() -> dict[str, Any]:
    """The schema as data."""
    return {"$schema": _DIALECT, "title": f"A FlowQL project ({FILE_NAME})", **_schema(PROJECT)}


def schema_text() -> str:
    return json.dumps(json_schema(), indent=2) + "\n"


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
        case Text() | Fragment():
            return {"type": ["string", "number"] if isinstance(shape, Fragment) else "string"}


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


if __name__ == "__main__":
    SCHEMA_FILE.write_text(schema_text(), encoding="utf-8")
