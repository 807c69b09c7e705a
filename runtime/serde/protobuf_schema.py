"""Protobuf texts as message classes (google.protobuf builds them from descriptors)."""

from __future__ import annotations

import functools
import importlib
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from google.protobuf import descriptor_pb2, descriptor_pool, message_factory

from flowql.compiler.plan.logical import SchemaRef
from flowql.compiler.schemas.proto_text import ProtoEnum, ProtoField, ProtoFile, ProtoMessage, parse_proto
from flowql.compiler.schemas.protobuf import Scope, message_name, scope_of, with_references
from flowql.runtime.errors import BadRecord

_SCHEMAS_MAX = 1_000
_FILE = "schema.proto"
_Field = descriptor_pb2.FieldDescriptorProto
_NUMBERS = "float double int32 sint32 sfixed32 uint32 fixed32 int64 sint64 sfixed64 uint64 fixed64"
_SCALARS = {n: getattr(_Field, f"TYPE_{n.upper()}") for n in ("bool", "string", "bytes", *_NUMBERS.split())}
# Files that schemas import without bringing them along.
_GIVEN = {
    "google/type/date.proto": 'syntax = "proto3"; package google.type; message Date {int32 year = 1; int32 month = 2; int32 day = 3;}',
    "google/type/timeofday.proto": 'syntax = "proto3"; package google.type; '
    "message TimeOfDay {int32 hours = 1; int32 minutes = 2; int32 seconds = 3; int32 nanos = 4;}",
    "confluent/type/decimal.proto": 'syntax = "proto3"; package confluent.type; '
    "message Decimal {bytes value = 1; uint32 precision = 2; int32 scale = 3;}",
    "confluent/meta.proto": 'syntax = "proto3"; package confluent;',
}


@dataclass(frozen=True, slots=True, eq=False)
class MessageSchema:
    """One message of a schema. path: its place among the messages of the text and of those around it."""

    descriptor: Any
    message: Any
    path: tuple[int, ...]


def message_schema(ref: SchemaRef, path: tuple[int, ...] | None) -> MessageSchema:
    """The message of a schema. path: of another message in its text. Raises BadRecord."""
    try:
        return _schema(ref.text, ref.references, ref.message, path)
    except (ValueError, TypeError, KeyError) as error:  # of our parser, and of Google's library
        raise BadRecord(f"schema {ref.id} of the registry cannot be used: {error}") from error


@functools.lru_cache(maxsize=_SCHEMAS_MAX)
def _schema(
    text: str, references: tuple[tuple[str, str], ...], message: str, path: tuple[int, ...] | None
) -> MessageSchema:
    scope = scope_of(text, references)
    name = message_name(scope, message) if path is None else _name_at(scope.file, path)
    descriptor = _pool(text, references).FindMessageTypeByName(name)
    return MessageSchema(descriptor, message_factory.GetMessageClass(descriptor), path or _path_of(scope, name))


def _name_at(file: ProtoFile, path: Sequence[int]) -> str:
    names = [file.package] if file.package else []
    inside: Sequence[ProtoMessage] = file.messages
    for index in path:
        if index >= len(inside):
            raise BadRecord(f"the schema of the record has no message at {list(path)}")
        names.append(inside[index].name)
        inside = inside[index].messages
    return ".".join(names)


def _path_of(scope: Scope, name: str) -> tuple[int, ...]:
    package = scope.file.package
    path: list[int] = []
    inside: Sequence[ProtoMessage] = scope.file.messages
    for part in name.removeprefix(f"{package}.").split("."):
        index = [m.name for m in inside].index(part)
        path.append(index)
        inside = inside[index].messages
    return tuple(path)


@functools.lru_cache(maxsize=_SCHEMAS_MAX)
def _pool(text: str, references: tuple[tuple[str, str], ...]) -> Any:
    pool = descriptor_pool.DescriptorPool()
    scope = scope_of(text, (*references, *_GIVEN.items()))
    added: set[str] = set()
    for name, file in [*with_references(scope.file, references), (_FILE, scope.file)]:
        _import(pool, file.imports, added)
        _add(pool, name, file, scope, added)
    return pool


def _import(pool: Any, names: Iterable[str], added: set[str]) -> None:
    """Files of Google and Confluent; those given as references are there already."""
    for name in names:
        if name in added:
            continue
        if name in _GIVEN:
            file = parse_proto(_GIVEN[name])
            _add(pool, name, file, scope_of(_GIVEN[name], ()), added)
        elif name.startswith("google/protobuf/"):
            stem = name.removesuffix(".proto").replace("/", ".")
            module = importlib.import_module(f"{stem}_pb2")
            for inner in module.DESCRIPTOR.dependencies:
                _import(pool, [inner.name], added)
            pool.AddSerializedFile(module.DESCRIPTOR.serialized_pb)
            added.add(name)


def _add(pool: Any, name: str, file: ProtoFile, scope: Scope, added: set[str]) -> None:
    proto = descriptor_pb2.FileDescriptorProto(name=name, package=file.package, syntax=file.syntax)
    proto.dependency.extend(i for i in file.imports if i in added)
    for e in file.enums:
        _enum(proto.enum_type.add(), e)
    for m in file.messages:
        _message(proto.message_type.add(), m, file.package, file, scope)
    pool.Add(proto) if hasattr(pool, "Add") else pool.AddSerializedFile(proto.SerializeToString())
    added.add(name)


def _enum(proto: Any, e: ProtoEnum) -> None:
    proto.name = e.name
    numbers = [n for _, n in e.values]
    if len(set(numbers)) < len(numbers):
        proto.options.allow_alias = True
    for name, number in e.values:
        proto.value.add(name=name, number=number)


def _message(proto: Any, m: ProtoMessage, prefix: str, file: ProtoFile, scope: Scope) -> None:
    proto.name = m.name
    full = f"{prefix}.{m.name}" if prefix else m.name
    for e in m.enums:
        _enum(proto.enum_type.add(), e)
    for inner in m.messages:
        _message(proto.nested_type.add(), inner, full, file, scope)
    groups = list(dict.fromkeys(f.oneof for f in m.fields if f.oneof))
    for group in groups:
        proto.oneof_decl.add(name=group)
    for f in m.fields:
        made = proto.field.add(name=f.name, number=f.number, label=_Field.LABEL_OPTIONAL)
        if f.key:
            _map(proto, made, f, full, scope)
            continue
        _type(made, f.type, full, scope)
        if f.label == "repeated":
            made.label = _Field.LABEL_REPEATED
        elif f.oneof:
            made.oneof_index = groups.index(f.oneof)
    if file.syntax == "proto3":  # made oneofs stand behind all others
        for f, made in zip(m.fields, proto.field, strict=True):
            if f.label == "optional":
                made.proto3_optional = True
                made.oneof_index = len(proto.oneof_decl)
                proto.oneof_decl.add(name=f"_{f.name}")


def _map(proto: Any, made: Any, f: ProtoField, full: str, scope: Scope) -> None:
    """A map is a list of messages made for it."""
    entry = "".join(part[:1].upper() + part[1:] for part in f.name.split("_")) + "Entry"
    nested = proto.nested_type.add(name=entry)
    nested.options.map_entry = True
    _type(nested.field.add(name="key", number=1, label=_Field.LABEL_OPTIONAL), f.key, full, scope)
    _type(nested.field.add(name="value", number=2, label=_Field.LABEL_OPTIONAL), f.type, full, scope)
    made.label, made.type, made.type_name = _Field.LABEL_REPEATED, _Field.TYPE_MESSAGE, f".{full}.{entry}"


def _type(made: Any, name: str, within: str, scope: Scope) -> None:
    if name in _SCALARS:
        made.type = _SCALARS[name]
        return
    found = scope.find(name, within)
    made.type = _Field.TYPE_ENUM if found in scope.enums else _Field.TYPE_MESSAGE
    made.type_name = f".{found}"
