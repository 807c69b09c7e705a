"""Logical records of the case files to bytes and back, by the formats of the source over their topic."""

from __future__ import annotations

import base64
import json
from dataclasses import replace
from decimal import Decimal
from struct import pack, unpack
from typing import Any

from flowql.compiler.plan.logical import Format, SchemaRef
from flowql.compiler.plan.schema import Field
from flowql.compiler.plan.topology import SourceDef
from flowql.compiler.plan.types import Kind, SqlType, struct
from flowql.compiler.schemas.ref import KINDS, is_wrapped, type_of
from flowql.runtime.serde.codec import row_decoder, row_encoder
from flowql.runtime.serde.json import JsonDecoder
from flowql.runtime.serde.registry import split_prefix, written_by

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
            return pack(">i", int(value))
        case Kind.BIGINT:
            return pack(">q", int(value))
        case Kind.DOUBLE:
            return pack(">d", float(value))
        case Kind.BYTES:
            return base64.b64decode(value)
    return str(value).encode()


def _kafka_value(data: bytes, field: Field) -> JsonValue:
    match field.type.kind:
        case Kind.INT:
            return unpack(">i", data)[0]
        case Kind.BIGINT:
            return unpack(">q", data)[0]
        case Kind.DOUBLE:
            return unpack(">d", data)[0]
        case Kind.BYTES:
            return base64.b64encode(data).decode()
    return data.decode()


def _sides(fmt: Format, ref: SchemaRef, fields: tuple[Field, ...], *, is_key: bool) -> tuple[list[Field], bool]:
    """The fields of a record as its schema has them, and whether they are those of one object."""
    type_ = type_of(ref)
    wrapped = is_wrapped(fmt, fields, is_key=is_key)
    return [Field(n, t) for n, t in type_.fields] if wrapped else [Field("VALUE", type_)], wrapped


def _through_schema(value: JsonValue, fmt: Format, fields: tuple[Field, ...], *, is_key: bool) -> bytes | None:
    """Written with the schema of the source; what JSON means for its types is the JSON format's to say."""
    assert fmt.schema is not None
    own, wrapped = _sides(fmt, fmt.schema, fields, is_key=is_key)
    names, types = [f.name for f in own], [f.type for f in own]
    decoder = JsonDecoder(names, types, range(len(own)), wrapped=wrapped)
    row = decoder.decode(dumps(_spelt(value, struct(*zip(names, types, strict=True)) if wrapped else types[0])))
    return None if row is None else row_encoder(own, fmt, is_key=is_key).encode(row)


def _spelt(value: JsonValue, t: SqlType) -> JsonValue:
    """The value with the names of fields as the schema spells them."""
    if t.kind is Kind.STRUCT and isinstance(value, dict):
        names = {n.upper(): (n, f) for n, f in t.fields}
        named = {k: names.get(k.upper(), (k, t)) for k in value}
        return {n: _spelt(value[k], f) for k, (n, f) in named.items()}
    if t.kind is Kind.ARRAY and isinstance(value, list):
        return [_spelt(v, t.element) for v in value]
    if t.kind is Kind.MAP and isinstance(value, dict):
        return {k: _spelt(v, t.element) for k, v in value.items()}
    return value


def _by_schema(data: bytes, fmt: Format, fields: tuple[Field, ...], *, is_key: bool) -> JsonValue:
    """Read with the schema that the record names."""
    assert fmt.schema is not None
    ref = fmt.schema if fmt.name == "PROTOBUF_NOSR" else written_by(split_prefix(data), fmt.schema, KINDS[fmt.name])
    own, wrapped = _sides(fmt, ref, fields, is_key=is_key)
    row = row_decoder(own, replace(fmt, schema=ref), own, is_key=is_key).decode(data)
    if row is None:
        return None
    shown = [_logical(v) for v in row]
    return dict(zip([f.name for f in own], shown, strict=True)) if wrapped else shown[0]


def _logical(value: Any) -> JsonValue:
    if isinstance(value, bytes):
        return base64.b64encode(value).decode()
    if isinstance(value, dict):
        return {str(k): _logical(v) for k, v in value.items()}
    return [_logical(v) for v in value] if isinstance(value, list) else value


def encode(value: JsonValue, fmt: Format, fields: tuple[Field, ...], *, is_key: bool = False) -> bytes | None:
    """One side of a record as bytes."""
    if value is None or (fmt.name in KINDS and not fields):
        return None
    if fmt.name in KINDS:
        return _through_schema(value, fmt, fields, is_key=is_key)
    if fmt.name == "KAFKA" and fields:
        if isinstance(value, dict):
            value = next(iter(value.values()))
        return None if value is None else _kafka_bytes(value, fields[0])
    if fmt.name == "DELIMITED":
        return str(value).encode()
    if fmt.name == "NONE":
        return None
    return dumps(value)


def decode(data: bytes | None, fmt: Format, fields: tuple[Field, ...], *, is_key: bool = False) -> JsonValue:
    """One side of a record in its logical form."""
    if data is None:
        return None
    if fmt.name in KINDS and fields:
        return _by_schema(data, fmt, fields, is_key=is_key)
    if fmt.name == "KAFKA" and fields:
        return _kafka_value(data, fields[0])
    if fmt.name == "DELIMITED":
        return data.decode()
    if fmt.name == "NONE":
        return None
    return loads(data)


def encode_key(record: dict[str, Any], source: SourceDef) -> bytes | None:
    """The key of an input record, with its window."""
    key = encode(record.get("key"), source.key_format, source.schema.key, is_key=True)
    window = record.get("window")
    if key is None or window is None:
        return key
    if window["type"].lower() == "session":
        return key + pack(">qq", window["end"], window["start"])
    return key + pack(">q", window["start"])


def decode_key(data: bytes | None, source: SourceDef) -> tuple[JsonValue, tuple[str, int, int] | None]:
    """Logical key and window (kind, start, end) of an output record."""
    window = source.schema.window
    if data is None or window is None:
        return decode(data, source.key_format, source.schema.key, is_key=True), None
    if window.kind == "session":
        end, start = unpack(">qq", data[-16:])
        return decode(data[:-16], source.key_format, source.schema.key, is_key=True), ("session", start, end)
    (start,) = unpack(">q", data[-8:])
    end = start + (window.size_ms or 0)
    return decode(data[:-8], source.key_format, source.schema.key, is_key=True), ("time", start, end)
