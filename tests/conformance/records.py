"""Logical records of the case files to bytes and back, by the formats of the source over their topic."""

from __future__ import annotations

import json
import struct
from decimal import Decimal
from typing import Any

from compiler.plan.logical import Format
from compiler.plan.schema import Field
from compiler.plan.topology import SourceDef
from compiler.plan.types import Kind

JsonValue = Any


def dumps(value: JsonValue) -> bytes:
    """JSON with decimals written exactly."""
    return _render(value).encode()


def _render(value: JsonValue) -> str:
    if isinstance(value, Decimal):
        return format(value, "f") if value == value.to_integral_value() or abs(value) > Decimal("1e-6") else str(value)
    if isinstance(value, dict):
        return "{" + ",".join(f"{json.dumps(k)}:{_render(v)}" for k, v in value.items()) + "}"
    if isinstance(value, list):
        return "[" + ",".join(map(_render, value)) + "]"
    return json.dumps(value, ensure_ascii=False)


def loads(text: str | bytes) -> JsonValue:
    return json.loads(text, parse_float=Decimal)


def _kafka_bytes(value: JsonValue, field: Field) -> bytes:
    match field.type.kind:
        case Kind.INT:
            return struct.pack(">i", int(value))
        case Kind.BIGINT:
            return struct.pack(">q", int(value))
        case Kind.DOUBLE:
            return struct.pack(">d", float(value))
        case Kind.BYTES:
            import base64

            return base64.b64decode(value)
    return str(value).encode()


def _kafka_value(data: bytes, field: Field) -> JsonValue:
    match field.type.kind:
        case Kind.INT:
            return struct.unpack(">i", data)[0]
        case Kind.BIGINT:
            return struct.unpack(">q", data)[0]
        case Kind.DOUBLE:
            return struct.unpack(">d", data)[0]
        case Kind.BYTES:
            import base64

            return base64.b64encode(data).decode()
    return data.decode()


def encode(value: JsonValue, fmt: Format, fields: tuple[Field, ...]) -> bytes | None:
    """One side of a record as bytes."""
    if value is None:
        return None
    if fmt.name == "KAFKA" and fields:
        if isinstance(value, dict):
            value = next(iter(value.values()))
        return None if value is None else _kafka_bytes(value, fields[0])
    if fmt.name == "DELIMITED":
        return str(value).encode()
    if fmt.name == "NONE":
        return None
    return dumps(value)


def decode(data: bytes | None, fmt: Format, fields: tuple[Field, ...]) -> JsonValue:
    """One side of a record in its logical form."""
    if data is None:
        return None
    if fmt.name == "KAFKA" and fields:
        return _kafka_value(data, fields[0])
    if fmt.name == "DELIMITED":
        return data.decode()
    if fmt.name == "NONE":
        return None
    return loads(data)


def encode_key(record: dict[str, Any], source: SourceDef) -> bytes | None:
    """The key of an input record, with its window."""
    key = encode(record.get("key"), source.key_format, source.schema.key)
    window = record.get("window")
    if key is None or window is None:
        return key
    if window["type"].lower() == "session":
        return key + struct.pack(">qq", window["end"], window["start"])
    return key + struct.pack(">q", window["start"])


def decode_key(data: bytes | None, source: SourceDef) -> tuple[JsonValue, tuple[str, int, int] | None]:
    """Logical key and window (kind, start, end) of an output record."""
    window = source.schema.window
    if data is None or window is None:
        return decode(data, source.key_format, source.schema.key), None
    if window.kind == "session":
        end, start = struct.unpack(">qq", data[-16:])
        return decode(data[:-16], source.key_format, source.schema.key), ("session", start, end)
    (start,) = struct.unpack(">q", data[-8:])
    end = start + (window.size_ms or 0)
    return decode(data[:-8], source.key_format, source.schema.key), ("time", start, end)
