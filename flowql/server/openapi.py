"""The OpenAPI document of the public requests, made from their entries."""

from __future__ import annotations

import types
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import MISSING, fields, is_dataclass
from importlib import metadata
from typing import Any, Literal, Union, get_args, get_origin, get_type_hints

from flowql.server.entries import JSON, Entry, Parameter

_SCALARS: Mapping[Any, Mapping[str, Any]] = {
    str: {"type": "string"},
    int: {"type": "integer"},
    float: {"type": "number"},
    bool: {"type": "boolean"},
    Any: {},
}
_BINARY = {"type": "string", "format": "binary"}
_COLUMNS = {
    "name": "column",
    "in": "query",
    "description": "Values by the names of columns.",
    "schema": {"type": "object", "additionalProperties": {"type": "string"}},
}
_ERROR = {
    "type": "object",
    "required": ["error"],
    "properties": {
        "error": {
            "type": "object",
            "required": ["code", "message", "position", "help"],
            "properties": {
                "code": {"type": "string", "description": "`flowql explain CODE` describes it."},
                "message": {"type": "string"},
                "position": {
                    "type": ["object", "null"],
                    "description": "The place in the SQL text, from 1.",
                    "properties": {"line": {"type": "integer"}, "column": {"type": "integer"}},
                },
                "help": {"type": "string"},
                "details": {
                    "type": "object",
                    "description": "For FlowQL's client in Python. Its fields may change with each version.",
                    "properties": {
                        "kind": {"type": "string", "description": "The class of the error."},
                        "span": {"type": "object", "description": "`position`, with file and length."},
                        "diagnostics": {
                            "type": "array",
                            "description": "All mistakes of a statement that does not compile.",
                        },
                    },
                },
            },
        }
    },
}


def public(entries: Iterable[Entry]) -> list[Entry]:
    """The entries with a promise, in the order of their paths."""
    return sorted((e for e in entries if not e.internal), key=lambda e: (e.path, e.method))


def document(entries: Iterable[Entry]) -> dict[str, Any]:
    """The document, OpenAPI 3.1."""
    paths: dict[str, dict[str, Any]] = {}
    for entry in public(entries):
        paths.setdefault(entry.path, {})[entry.method.lower()] = _operation(entry)
    return {
        "openapi": "3.1.0",
        "info": {"title": "FlowQL", "version": metadata.version("flowql")},
        "security": [{"token": []}],
        "paths": paths,
        "components": {
            "securitySchemes": {"token": {"type": "http", "scheme": "bearer"}},
            "schemas": {"Error": _ERROR},
        },
    }


def _operation(entry: Entry) -> dict[str, Any]:
    failed = {"description": "An error.", "content": {JSON: {"schema": {"$ref": "#/components/schemas/Error"}}}}
    made: dict[str, Any] = {
        "summary": entry.about,
        "x-action": entry.action,
        "responses": {"200": {"description": "Done.", "content": _contents(entry)}, "default": failed},
    }
    if entry.follow is not None:
        made["responses"]["101"] = {
            "description": "With `Upgrade: websocket`: the same events, each a message in JSON."
        }
    if entry.parameters:
        made["parameters"] = [*map(_parameter, entry.parameters), *([_COLUMNS] if entry.any_column else [])]
    if entry.body is not None:
        made["requestBody"] = {"required": True, "content": {JSON: {"schema": schema_of(entry.body)}}}
    elif entry.accepts:
        content = {media: {"schema": {} if media == JSON else _BINARY} for media in entry.accepts}
        made["requestBody"] = {"required": True, "content": content}
    return made


def _contents(entry: Entry) -> dict[str, Any]:
    return {media: {"schema": entry.answer if media == JSON else _BINARY} for media in entry.produces}


def _parameter(parameter: Parameter) -> dict[str, Any]:
    schema = dict(_SCALARS[parameter.kind])
    if parameter.choices:
        schema["enum"] = list(parameter.choices)
    about = {"name": parameter.name, "in": parameter.where, "description": parameter.about, "schema": schema}
    return {**about, "required": True} if parameter.required else about


def schema_of(kind: Any) -> dict[str, Any]:
    """The JSON schema of a type: of dataclasses, lists, tuples, dicts, literals, unions with None and plain values."""
    origin, arguments = get_origin(kind), get_args(kind)
    if origin in (Union, types.UnionType):
        (inner,) = [a for a in arguments if a is not type(None)]
        found = schema_of(inner)
        return {**found, "type": [found["type"], "null"]} if "type" in found else found
    if origin is Literal:
        return {"type": "string", "enum": list(arguments)}
    if origin in (list, tuple):
        return {"type": "array", "items": schema_of(arguments[0])}
    if origin is dict:
        return {"type": "object", "additionalProperties": schema_of(arguments[1])}
    if is_dataclass(kind):
        return _object(kind)
    return dict(_SCALARS[kind])


def _object(cls: Any) -> dict[str, Any]:
    hints = get_type_hints(cls)
    required = [f.name for f in fields(cls) if f.default is MISSING and f.default_factory is MISSING]
    about = " ".join((cls.__doc__ or "").split())
    properties = {f.name: schema_of(hints[f.name]) for f in fields(cls)}
    return {
        "type": "object",
        "description": about,
        "required": required,
        "properties": properties,
        "additionalProperties": False,
    }


def fields_shown(cls: type | None) -> Sequence[str]:
    """The fields of a body, those that may be left out in brackets."""
    if cls is None:
        return []
    optional = {f.name for f in fields(cls) if f.default is not MISSING or f.default_factory is not MISSING}
    return [f"[{f.name}]" if f.name in optional else f.name for f in fields(cls)]
