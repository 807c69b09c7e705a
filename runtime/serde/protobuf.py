"""PROTOBUF: a zero byte, the schema's id, which message of the schema it is, and the message. PROTOBUF_NOSR: the message alone.

Records are read with the schema they were written with. A scalar that is not there has its default, unless the schema can tell
(`optional`, a wrapper); messages, lists and maps that are not there are NULL, empty and empty.
"""

from __future__ import annotations

import datetime
import functools
import importlib
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal
from typing import Any

from google.protobuf import descriptor_pb2, descriptor_pool, message_factory
from google.protobuf.message import DecodeError, EncodeError

from flowql.compiler.functions.numeric import WIDE
from flowql.compiler.plan.logical import SchemaRef
from flowql.compiler.plan.types import Kind, SqlType, struct
from flowql.compiler.schemas.proto_text import ProtoEnum, ProtoField, ProtoFile, ProtoMessage, parse_proto
from flowql.compiler.schemas.protobuf import Scope, message_name, scope_of, with_references
from flowql.runtime.batch import Row
from flowql.runtime.errors import BadRecord
from flowql.runtime.serde.generic import Unreadable, same_name, struct_reader
from flowql.runtime.serde.numbers import TimeNumber
from flowql.runtime.serde.registry import PREFIX, numbered, prefix, split_prefix, written_by

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


Read = Callable[[Any], Any]
Write = Callable[[Any, Any], None]  # (message, value): the value is not None


class ProtobufDecoder:
    """Reads the wanted ones of the declared columns. registered: records name their schema."""

    def __init__(
        self,
        names: Sequence[str],
        types: Sequence[SqlType],
        wanted: Sequence[int],
        ref: SchemaRef | None,
        *,
        registered: bool,
    ) -> None:
        self._convert = struct_reader([(names[i], types[i]) for i in wanted])
        self._ref, self._registered = ref, registered
        self._readers: dict[MessageSchema, Read] = {}

    def decode(self, data: bytes | None) -> Row | None:
        if data is None:
            return None
        ref, start = self._ref, 0
        path: tuple[int, ...] | None = None
        if self._registered:
            ref = written_by(split_prefix(data), ref, "PROTOBUF")
            path, start = _message_path(data, PREFIX)
        assert ref is not None, "PROTOBUF_NOSR is always declared"
        schema = message_schema(ref, path)
        message = schema.message()
        try:
            message.ParseFromString(data[start:])
        except DecodeError as error:
            raise BadRecord(f"not a Protobuf message of its schema: {error}") from error
        read = self._readers.get(schema)
        if read is None:
            read = self._readers[schema] = message_reader(schema.descriptor)
        return tuple(self._convert(read(message)))


class ProtobufEncoder:
    """Writes all columns of a side with the schema of its format."""

    def __init__(self, names: Sequence[str], types: Sequence[SqlType], ref: SchemaRef, *, registered: bool) -> None:
        schema = message_schema(numbered(ref) if registered else ref, None)
        self._message = schema.message
        self._prefix = prefix(numbered(ref).id) + _path_bytes(schema.path) if registered else b""
        self._names = tuple(names)
        self._write = message_writer(struct(*zip(names, types, strict=True)), schema.descriptor, by_place=True)

    def encode(self, row: Row) -> bytes | None:
        message = self._message()
        try:
            self._write(message, dict(zip(self._names, row, strict=True)))
            data: bytes = message.SerializeToString(deterministic=True)
        except (TypeError, ValueError, EncodeError) as error:
            raise BadRecord(f"the row does not fit its Protobuf schema: {error}") from error
        return self._prefix + data


# --- which message of a schema ---


def _path_bytes(path: Sequence[int]) -> bytes:
    """The indexes of nested messages as zigzag varints behind their number; the first message is a single zero."""
    if tuple(path) == (0,):
        return b"\0"
    return b"".join(_varint(n << 1) for n in (len(path), *path))


def _varint(n: int) -> bytes:
    out = bytearray()
    while n > 0x7F:
        out.append(n & 0x7F | 0x80)
        n >>= 7
    return bytes([*out, n])


def _message_path(data: bytes, at: int) -> tuple[tuple[int, ...], int]:
    """(indexes, where the message begins). Raises BadRecord."""
    count, at = _read_varint(data, at)
    if not count:
        return (0,), at
    path = []
    for _ in range(count):
        index, at = _read_varint(data, at)
        path.append(index)
    return tuple(path), at


def _read_varint(data: bytes, at: int) -> tuple[int, int]:
    n = shift = 0
    while at < len(data) and shift < 35:
        n |= (data[at] & 0x7F) << shift
        at, shift = at + 1, shift + 7
        if not data[at - 1] & 0x80:
            return n >> 1, at
    raise BadRecord("the record does not say which message it is")


# --- messages to plain values ---


def message_reader(descriptor: Any) -> Read:
    """From a message to a dict of its fields; a oneof is one field, a dict of those in it."""
    plain = [f for f in descriptor.fields if f.containing_oneof is None or _is_synthetic(f.containing_oneof)]
    readers = [(f.name, _field_reader(f)) for f in plain]
    groups = [o for o in descriptor.oneofs if not _is_synthetic(o)]
    ones = [(f"{o.name}_{i}", o.name, [(f.name, _field_reader(f)) for f in o.fields]) for i, o in enumerate(groups)]

    def read(message: Any) -> dict[str, Any]:
        out = {name: r(message) for name, r in readers}
        for name, oneof, inside in ones:
            out[name] = {n: r(message) for n, r in inside} if message.WhichOneof(oneof) else None
        return out

    return read


def _is_synthetic(oneof: Any) -> bool:
    """Made for one `optional` field of proto3."""
    return len(oneof.fields) == 1 and oneof.name == f"_{oneof.fields[0].name}"


def _field_reader(f: Any) -> Read:
    name = f.name
    if _is_map(f):
        value = _value_reader(f.message_type.fields_by_name["value"])
        return lambda m: {k: value(v) for k, v in getattr(m, name).items()}
    one = _value_reader(f)
    if f.is_repeated:
        return lambda m: [one(v) for v in getattr(m, name)]
    if f.has_presence:
        return lambda m: one(getattr(m, name)) if m.HasField(name) else None
    return lambda m: one(getattr(m, name))


def _is_map(f: Any) -> bool:
    return f.message_type is not None and f.message_type.GetOptions().map_entry


def _value_reader(f: Any) -> Read:
    if f.enum_type is not None:
        names = f.enum_type.values_by_number
        return lambda v: names[v].name if v in names else str(v)
    if f.message_type is None:
        return lambda v: v
    return read_well_known(f.message_type.full_name) or _nested_reader(f.message_type)


def _nested_reader(descriptor: Any) -> Read:
    """Made when the first such message is read: a message may hold itself."""
    made: list[Read] = []

    def read(message: Any) -> Any:
        if not made:
            made.append(message_reader(descriptor))
        return made[0](message)

    return read


# --- reference values to messages ---


def message_writer(t: SqlType, descriptor: Any, *, by_place: bool = False) -> Write:
    """Fills a message from a dict. by_place: fields stand for columns of other names where there are as many."""
    fields = {f.name: f for f in descriptor.fields}
    groups = {f"{o.name}_{i}": o for i, o in enumerate(o for o in descriptor.oneofs if not _is_synthetic(o))}
    names = [n for n, _ in t.fields]
    found = [same_name(n, (*fields, *groups)) for n in names]
    if by_place and None in found and len(fields) == len(names):
        found = list(fields)
    writers: list[tuple[str, Write]] = []
    for name, target, (_, inner) in zip(names, found, t.fields, strict=True):
        if target in groups:
            writers.append((name, message_writer(inner, descriptor)))
        elif target is not None:
            writers.append((name, _field_writer(inner, fields[target])))

    def write(message: Any, value: Mapping[str, Any]) -> None:
        for name, w in writers:
            if (v := value[name]) is not None:
                w(message, v)

    return write


def _field_writer(t: SqlType, f: Any) -> Write:
    name = f.name
    if _is_map(f):
        return _map_writer(t, f)
    if f.is_repeated:
        return _list_writer(t, f)
    if f.message_type is not None:
        fill = _message_filler(t, f)

        def write(message: Any, v: Any) -> None:
            inner = getattr(message, name)
            inner.SetInParent()
            fill(inner, v)

        return write
    convert = _scalar(f)
    return lambda m, v: setattr(m, name, convert(v))


def _list_writer(t: SqlType, f: Any) -> Write:
    """A NULL in a list is an empty message or the default of its type, as a repeated field has no gaps."""
    name = f.name
    if f.message_type is None:
        convert, default = _scalar(f), _default(f)
        return lambda m, v: getattr(m, name).extend([default if x is None else convert(x) for x in v])
    fill = _message_filler(t.element, f)

    def write(message: Any, values: Sequence[Any]) -> None:
        for v in values:
            added = getattr(message, name).add()
            if v is not None:
                fill(added, v)

    return write


def _map_writer(t: SqlType, f: Any) -> Write:
    name, value = f.name, f.message_type.fields_by_name["value"]
    if value.message_type is None:
        convert, default = _scalar(value), _default(value)

        def write(message: Any, v: Mapping[Any, Any]) -> None:
            target = getattr(message, name)
            for k, x in v.items():
                target[k] = default if x is None else convert(x)

        return write
    fill = _message_filler(t.element, value)

    def write_messages(message: Any, v: Mapping[Any, Any]) -> None:
        target = getattr(message, name)
        for k, x in v.items():
            inner = target[k]  # made by being asked for
            if x is not None:
                fill(inner, x)

    return write_messages


def _message_filler(t: SqlType, f: Any) -> Write:
    known = write_well_known(f.message_type.full_name, t)
    if known is not None:
        return known
    if t.kind is not Kind.STRUCT:
        raise ValueError(f"{t} cannot be written as the message {f.message_type.name}")
    return message_writer(t, f.message_type)


def _scalar(f: Any) -> Read:
    if f.enum_type is None:
        return lambda v: v
    values = f.enum_type.values_by_name

    def number(v: str) -> int:
        if v not in values:
            raise ValueError(f"{v!r} is not a value of {f.enum_type.name}")
        found: int = values[v].number
        return found

    return number


def _default(f: Any) -> Any:
    """The value that is written for a missing element."""
    if f.type == f.TYPE_BYTES:
        return b""
    return "" if f.type == f.TYPE_STRING else 0


# Messages that stand for one value: wrappers, times, dates and decimals.

_EPOCH = datetime.date(1970, 1, 1).toordinal()
_WRAPPERS = ("Bool", "String", "Bytes", "Float", "Double", "Int32", "UInt32", "Int64", "UInt64")
_WRAPPER_NAMES = frozenset(f"google.protobuf.{n}Value" for n in _WRAPPERS)


def read_well_known(name: str) -> Callable[[Any], Any] | None:
    """From a message of that full name to a plain value; None for messages that are records."""
    return _read_value if name in _WRAPPER_NAMES else _READERS.get(name)


def write_well_known(name: str, t: SqlType) -> Callable[[Any, Any], None] | None:
    """Fills a message of that full name from a reference value of `t`; None for messages that are records."""
    if name == "confluent.type.Decimal":
        return lambda m, v: _write_decimal(m, v, t)
    if name == "google.protobuf.Timestamp" and t.kind is Kind.MICROS:
        return _write_micros
    return _write_value if name in _WRAPPER_NAMES else _WRITERS.get(name)


def _read_value(m: Any) -> Any:
    return m.value


def _write_value(m: Any, v: Any) -> None:
    m.value = v


class _Moment(TimeNumber):
    """A moment: its number is that of milliseconds, and TIMESTAMP(6) takes the microseconds as well."""

    kind = Kind.TIMESTAMP
    per_ms = 1
    micros = 0

    def in_unit_of(self, kind: Kind) -> int:
        return self.micros if kind is Kind.MICROS else int(self)


def _read_timestamp(m: Any) -> int:
    moment = _Moment(m.seconds * 1000 + m.nanos // 1_000_000)
    moment.micros = m.seconds * 1_000_000 + m.nanos // 1000
    return moment


def _write_timestamp(m: Any, v: int) -> None:
    m.seconds, m.nanos = v // 1000, v % 1000 * 1_000_000


def _write_micros(m: Any, v: int) -> None:
    m.seconds, m.nanos = v // 1_000_000, v % 1_000_000 * 1000


def _read_date(m: Any) -> int | Unreadable:
    try:
        return datetime.date(m.year, m.month, m.day).toordinal() - _EPOCH
    except ValueError as error:  # such as a year or a month alone, whose other parts are 0
        return Unreadable(f"{m.year:04}-{m.month:02}-{m.day:02}", str(error))


def _write_date(m: Any, v: int) -> None:
    day = datetime.date.fromordinal(v + _EPOCH)
    m.year, m.month, m.day = day.year, day.month, day.day


def _read_time(m: Any) -> int:
    ms: int = ((m.hours * 60 + m.minutes) * 60 + m.seconds) * 1000 + m.nanos // 1_000_000
    return ms


def _write_time(m: Any, v: int) -> None:
    seconds, ms = divmod(v, 1000)
    m.hours, m.minutes, m.seconds, m.nanos = seconds // 3600, seconds // 60 % 60, seconds % 60, ms * 1_000_000


def _read_decimal(m: Any) -> Decimal | Unreadable:
    try:
        return Decimal(int.from_bytes(m.value, "big", signed=True)).scaleb(-m.scale, WIDE)
    except ArithmeticError:
        return Unreadable(f"a decimal of scale {m.scale}", "out of range")


def _write_decimal(m: Any, v: Decimal, t: SqlType) -> None:
    unscaled = int(v.scaleb(t.scale, WIDE))
    m.value = unscaled.to_bytes(unscaled.bit_length() // 8 + 1, "big", signed=True)
    m.precision, m.scale = t.precision, t.scale


_READERS: dict[str, Callable[[Any], Any]] = {
    "google.protobuf.Timestamp": _read_timestamp,
    "google.type.Date": _read_date,
    "google.type.TimeOfDay": _read_time,
    "confluent.type.Decimal": _read_decimal,
}
_WRITERS: dict[str, Callable[[Any, Any], None]] = {
    "google.protobuf.Timestamp": _write_timestamp,
    "google.type.Date": _write_date,
    "google.type.TimeOfDay": _write_time,
}
