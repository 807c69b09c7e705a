"""SQL types as Protobuf messages and back, as Confluent's converter has them (`ProtobufData`)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from flowql.compiler.plan import types as t
from flowql.compiler.plan.types import Kind, SqlType, array, decimal, map_of, struct
from flowql.compiler.schemas.proto_text import ProtoEnum, ProtoField, ProtoFile, ProtoMessage, parse_proto

DECIMAL_PRECISION_MAX = 38
WRAPPERS = "google/protobuf/wrappers.proto"
# Messages that stand for one value; what each file declares is known to the runtime.
_WELL_KNOWN = {
    Kind.DECIMAL: ("confluent.type.Decimal", "confluent/type/decimal.proto"),
    Kind.DATE: ("google.type.Date", "google/type/date.proto"),
    Kind.TIME: ("google.type.TimeOfDay", "google/type/timeofday.proto"),
    Kind.TIMESTAMP: ("google.protobuf.Timestamp", "google/protobuf/timestamp.proto"),
    Kind.MICROS: ("google.protobuf.Timestamp", "google/protobuf/timestamp.proto"),
}
_SCALARS = {
    Kind.BOOLEAN: "bool",
    Kind.INT: "int32",
    Kind.BIGINT: "int64",
    Kind.DOUBLE: "double",
    Kind.STRING: "string",
    Kind.BYTES: "bytes",
}
_WRAPPER = {"bool": "BoolValue", "int32": "Int32Value", "int64": "Int64Value", "double": "DoubleValue", "string": "StringValue", "bytes": "BytesValue"}  # fmt: skip
_TYPES = {
    "bool": t.BOOLEAN, "string": t.STRING, "bytes": t.BYTES, "float": t.DOUBLE, "double": t.DOUBLE,
    "int32": t.INT, "sint32": t.INT, "sfixed32": t.INT, "uint32": t.BIGINT, "fixed32": t.BIGINT,
    "int64": t.BIGINT, "sint64": t.BIGINT, "sfixed64": t.BIGINT, "uint64": t.BIGINT, "fixed64": t.BIGINT,
}  # fmt: skip
_MESSAGES = {
    "google.protobuf.BoolValue": t.BOOLEAN, "google.protobuf.StringValue": t.STRING, "google.protobuf.BytesValue": t.BYTES,
    "google.protobuf.FloatValue": t.DOUBLE, "google.protobuf.DoubleValue": t.DOUBLE,
    "google.protobuf.Int32Value": t.INT, "google.protobuf.UInt32Value": t.BIGINT,
    "google.protobuf.Int64Value": t.BIGINT, "google.protobuf.UInt64Value": t.BIGINT,
    "google.protobuf.Timestamp": t.TIMESTAMP, "google.type.Date": t.DATE, "google.type.TimeOfDay": t.TIME,
}  # fmt: skip


# --- SQL to Protobuf ---


def schema_text(columns: SqlType, *, nullable: str = "", name: str = "") -> str:
    """The text of a message with these columns. nullable: OPTIONAL or WRAPPER, how a scalar that is NULL is written."""
    writer = _Writer(nullable)
    body = writer.message(columns, (name or "ConnectDefault1").rpartition(".")[2], "")
    package = name.rpartition(".")[0]
    lines = ['syntax = "proto3";', *([f"package {package};"] if package else [])]
    lines += ["", *(f'import "{i}";' for i in sorted(writer.imports)), ""] if writer.imports else [""]
    return "\n".join([*lines, *body]) + "\n"


class _Writer:
    """Messages as lines; collects what has to be imported."""

    def __init__(self, nullable: str) -> None:
        self._nullable, self._messages = nullable, 1
        self.imports: set[str] = set()

    def message(self, type_: SqlType, name: str, indent: str) -> list[str]:
        lines = [f"{indent}message {name} {{"]
        inner: list[str] = []
        for number, (column, field) in enumerate(type_.fields, 1):
            written, nested = self._field(field, indent + "  ")
            inner += nested
            lines.append(f"{indent}  {written} {column} = {number}{self._options(field)};")
        return [*lines, *inner, f"{indent}}}"]

    def _field(self, type_: SqlType, indent: str) -> tuple[str, list[str]]:
        if type_.kind is Kind.ARRAY:
            name, nested = self._type(type_.element, indent)
            return f"repeated {name}", nested
        if type_.kind is Kind.MAP:
            name, nested = self._type(type_.element, indent)
            return f"map<{_SCALARS[type_.args[0].kind]}, {name}>", nested
        name, nested = self._type(type_, indent)
        if type_.kind in _SCALARS and self._nullable == "OPTIONAL":
            name = f"optional {name}"
        elif type_.kind in _SCALARS and self._nullable == "WRAPPER":
            self.imports.add(WRAPPERS)
            name = f"google.protobuf.{_WRAPPER[name]}"
        return name, nested

    def _type(self, type_: SqlType, indent: str) -> tuple[str, list[str]]:
        if type_.kind in _SCALARS:
            return _SCALARS[type_.kind], []
        if type_.kind in _WELL_KNOWN:
            name, file = _WELL_KNOWN[type_.kind]
            self.imports.add(file)
            return name, []
        self._messages += 1
        name = f"ConnectDefault{self._messages}"
        return name, self.message(type_, name, indent)

    def _options(self, type_: SqlType) -> str:
        inner = type_.element if type_.kind in (Kind.ARRAY, Kind.MAP) else type_
        if inner.kind is not Kind.DECIMAL:
            return ""
        self.imports.add("confluent/meta.proto")
        digits = (("precision", inner.precision), ("scale", inner.scale))
        params = ", ".join(f'{{key: "{k}", value: "{v}"}}' for k, v in digits)
        return f" [(confluent.field_meta) = {{params: [{params}]}}]"


# --- Protobuf to SQL ---


@dataclass(frozen=True, slots=True)
class Scope:
    """Everything a text and its imports declare, by full name."""

    file: ProtoFile
    messages: dict[str, ProtoMessage]
    enums: dict[str, ProtoEnum]

    def find(self, name: str, within: str) -> str:
        """The full name that a type name means inside the message `within`: the innermost that exists."""
        if name.startswith("."):
            return name[1:]
        scope = within
        while True:
            full = f"{scope}.{name}" if scope else name
            if full in self.messages or full in self.enums or full in _MESSAGES or not scope:
                return full
            scope = scope.rpartition(".")[0]


def scope_of(text: str, references: Sequence[tuple[str, str]]) -> Scope:
    """The declarations of a text and of the texts it refers to. Raises ValueError."""
    file = parse_proto(text)
    messages: dict[str, ProtoMessage] = {}
    enums: dict[str, ProtoEnum] = {}
    for one in (file, *(parse_proto(r) for _, r in references)):
        _declare(ProtoMessage("", (), one.messages, one.enums), one.package, messages, enums)
    return Scope(file, messages, enums)


def _declare(
    message: ProtoMessage, prefix: str, messages: dict[str, ProtoMessage], enums: dict[str, ProtoEnum]
) -> None:
    stem = f"{prefix}." if prefix else ""
    enums |= {stem + e.name: e for e in message.enums}
    for inner in message.messages:
        messages[stem + inner.name] = inner
        _declare(inner, stem + inner.name, messages, enums)


def message_name(scope: Scope, wanted: str) -> str:
    """The full name of the message a schema is about: the one asked for, else the first. Raises LookupError."""
    package = scope.file.package
    names = [f"{package}.{m.name}" if package else m.name for m in scope.file.messages]
    if not wanted:
        if not names:
            raise LookupError("the Protobuf schema declares no message")
        return names[0]
    for name in (wanted, f"{package}.{wanted}"):
        if name in scope.messages:
            return name
    raise LookupError(f"the Protobuf schema has no message {wanted}; it has {', '.join(names)}")


def type_of(text: str, references: Sequence[tuple[str, str]] = (), message: str = "") -> SqlType:
    """The STRUCT of a message. Raises ValueError for what cannot be read, LookupError for a message that is not there."""
    scope = scope_of(text, references)
    return _struct(scope, message_name(scope, message), ())


def _struct(scope: Scope, name: str, above: tuple[str, ...]) -> SqlType:
    if name in above:
        raise ValueError(f"the message {name} contains itself, which no SQL type can")
    fields: dict[str, SqlType] = {}
    for f in scope.messages[name].fields:
        type_ = field_type(scope, f, name, (*above, name))
        if not f.oneof:
            fields[f.name] = type_
            continue
        group = f"{f.oneof}_{_group_number(scope.messages[name], f.oneof)}"
        fields[group] = struct(*fields.get(group, struct()).fields, (f.name, type_))
    return struct(*fields.items())


def _group_number(message: ProtoMessage, oneof: str) -> int:
    return list(dict.fromkeys(f.oneof for f in message.fields if f.oneof)).index(oneof)


def field_type(scope: Scope, f: ProtoField, within: str, above: tuple[str, ...]) -> SqlType:
    """The SQL type of a field of the message `within`."""
    one = _single(scope, f, within, above)
    if f.key:
        return map_of(_TYPES[f.key], one)
    return array(one) if f.label == "repeated" else one


def _single(scope: Scope, f: ProtoField, within: str, above: tuple[str, ...]) -> SqlType:
    if f.type in _TYPES:
        return _TYPES[f.type]
    full = scope.find(f.type, within)
    if full in _MESSAGES:
        return _MESSAGES[full]
    if full == "confluent.type.Decimal":
        digits = dict(f.parameters)
        precision = int(digits.get("precision", DECIMAL_PRECISION_MAX))
        return decimal(min(precision, DECIMAL_PRECISION_MAX), int(digits.get("scale", 0)))
    if full in scope.enums:
        return t.STRING
    if full not in scope.messages:
        raise ValueError(f"the type {f.type} of the field {f.name} is not declared in the schema")
    return _struct(scope, full, above)


def with_references(file: ProtoFile, references: Sequence[tuple[str, str]]) -> list[tuple[str, ProtoFile]]:
    """The files a text imports that are given as texts, in an order in which each comes after what it needs."""
    texts = dict(references)
    done: dict[str, ProtoFile] = {}

    def visit(one: ProtoFile) -> None:
        for name in one.imports:
            if name in texts and name not in done:
                inner = parse_proto(texts[name])
                visit(inner)
                done[name] = inner

    visit(file)
    return list(done.items())
