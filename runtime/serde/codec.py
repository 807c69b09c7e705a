"""The codecs of one side (key or value) of a topic's records, chosen by format."""

from __future__ import annotations

import struct
from collections.abc import Callable, Sequence
from typing import Any, Protocol

from flowql.compiler.plan.logical import Format
from flowql.compiler.plan.schema import Field
from flowql.compiler.plan.types import Kind, SqlType
from flowql.compiler.schemas.ref import DEBEZIUM, JSON_OBJECT, KINDS, is_wrapped, schema_for
from flowql.runtime.batch import Row
from flowql.runtime.errors import BadRecord, PlanUnsupported
from flowql.runtime.serde.delimited import DelimitedDecoder, DelimitedEncoder
from flowql.runtime.serde.json import (
    JsonDecoder,
    JsonEncoder,
    JsonObjectDecoder,
    JsonRegistryDecoder,
    JsonRegistryEncoder,
)

# Errors of decoders for malformed bytes; all but the first come from conversions of values without a known form.
UNREADABLE = (BadRecord, RecursionError, ValueError, ArithmeticError, struct.error)


def what_is_wrong(error: BaseException) -> str:
    """With a record, of one of UNREADABLE."""
    if isinstance(error, RecursionError):
        return "its values are nested too deeply"
    return str(error) if isinstance(error, BadRecord) else f"{type(error).__name__}: {error}"


class RowDecoder(Protocol):
    """Bytes of one side to the values of the wanted fields, in their reference representation."""

    def decode(self, data: bytes | None) -> Row | None:
        """None for a null side. Raises BadRecord when the bytes cannot be read as the declared types, or one of UNREADABLE."""
        ...


class RowEncoder(Protocol):
    """The values of all fields of one side to bytes."""

    def encode(self, row: Row) -> bytes | None:
        """None where the format writes null (an unwrapped null value, a side without columns).

        Raises BadRecord for a row that the format's schema cannot hold.
        """
        ...


def row_decoder(fields: Sequence[Field], fmt: Format, declared: Sequence[Field], *, is_key: bool) -> RowDecoder:
    """A decoder of `fields`, a subset by name of `declared`: all columns of that side, which are positional in some formats."""
    names = [f.name for f in declared]
    wanted = [names.index(f.name) for f in fields]
    types = [f.type for f in declared]
    if fmt.name == "JSON":
        wrapped = len(declared) > 1 or (fmt.wrap and not is_key)
        return JsonDecoder(names, types, wanted, wrapped=wrapped, standard=fmt.standard)
    if fmt.name == JSON_OBJECT:
        return JsonObjectDecoder(JsonDecoder(names, types, wanted, wrapped=True, standard=fmt.standard))
    if fmt.name == DEBEZIUM:  # the rows of change events are read with their keys: `flowql.runtime.serde.debezium`
        return NoneDecoder()
    if fmt.name in KINDS:
        return _schema_decoder(fmt, declared, wanted, is_key=is_key)
    if fmt.name == "DELIMITED":
        return DelimitedDecoder(types, wanted, fmt.delimiter)
    if fmt.name == "KAFKA":
        return KafkaDecoder(types, wanted)
    if fmt.name == "NONE":
        return NoneDecoder()
    raise PlanUnsupported(f"format {fmt.name} has no codec")


def row_encoder(fields: Sequence[Field], fmt: Format, *, is_key: bool) -> RowEncoder:
    """An encoder of all columns of a side, in order."""
    names, types = [f.name for f in fields], [f.type for f in fields]
    if fmt.name == "JSON":
        return JsonEncoder(names, types, wrapped=len(fields) > 1 or (fmt.wrap and not is_key))
    if fmt.name == JSON_OBJECT:
        return JsonEncoder(names, types, wrapped=True)
    if fmt.name in KINDS:
        return _schema_encoder(fmt, fields, is_key=is_key)
    if fmt.name == "DELIMITED":
        return DelimitedEncoder(types, fmt.delimiter)
    if fmt.name == "KAFKA":
        return KafkaEncoder(types)
    if fmt.name == "NONE":
        return NoneEncoder()
    raise PlanUnsupported(f"format {fmt.name} has no codec")


def _schema_decoder(fmt: Format, declared: Sequence[Field], wanted: Sequence[int], *, is_key: bool) -> RowDecoder:
    """Formats whose records are read with a schema beside them."""
    names, types = [f.name for f in declared], [f.type for f in declared]
    wrapped = is_wrapped(fmt, declared, is_key=is_key)
    if fmt.name == "AVRO":
        from flowql.runtime.serde.avro import AvroDecoder  # fastavro: 0.01 s, which projects without Avro do without

        return AvroDecoder(names, types, wanted, fmt.schema, wrapped=wrapped)
    if fmt.name == "JSON_SR":
        document = JsonDecoder(names, types, wanted, wrapped=wrapped, standard=fmt.standard)
        return JsonRegistryDecoder(document, [(names[i], types[i]) for i in wanted], fmt.schema, wrapped=wrapped)
    from flowql.runtime.serde.protobuf import ProtobufDecoder  # Google's library: 0.02 s

    registered = fmt.name == "PROTOBUF"
    return ProtobufDecoder(names, types, wanted, fmt.schema, registered=registered)


def _schema_encoder(fmt: Format, fields: Sequence[Field], *, is_key: bool) -> RowEncoder:
    names, types = [f.name for f in fields], [f.type for f in fields]
    wrapped = is_wrapped(fmt, fields, is_key=is_key)
    ref = fmt.schema or schema_for(fmt, fields, is_key=is_key)
    if fmt.name == "AVRO":
        from flowql.runtime.serde.avro import AvroEncoder

        return AvroEncoder(names, types, ref, wrapped=wrapped)
    if fmt.name == "JSON_SR":
        columns = list(zip(names, types, strict=True))
        return JsonRegistryEncoder(JsonEncoder(names, types, wrapped=wrapped), columns, ref, wrapped=wrapped)
    from flowql.runtime.serde.protobuf import ProtobufEncoder

    return ProtobufEncoder(names, types, ref, registered=fmt.name == "PROTOBUF")


class NoneDecoder:
    """NONE: an empty row for any bytes of a side without columns."""

    def decode(self, data: bytes | None) -> Row | None:
        return None if data is None else ()


class NoneEncoder:
    """Writes null."""

    def encode(self, row: Row) -> bytes | None:
        return None


# KAFKA: the serializers of the Kafka clients: UTF-8 text, big-endian INT, BIGINT and DOUBLE, plain bytes.

_PACKED = {Kind.INT: ">i", Kind.BIGINT: ">q", Kind.DOUBLE: ">d"}


def _reader(t: SqlType) -> Callable[[bytes], Any]:
    if t.kind in _PACKED:
        layout = struct.Struct(_PACKED[t.kind])

        def unpack(data: bytes) -> Any:
            if len(data) != layout.size:
                raise BadRecord(f"{t} needs {layout.size} bytes, the record has {len(data)}")
            return layout.unpack(data)[0]

        return unpack
    if t.kind is Kind.STRING:
        return _text
    if t.kind is Kind.BYTES:
        return bytes
    raise PlanUnsupported(f"the KAFKA format does not support {t}")


def _text(data: bytes) -> str:
    try:
        return data.decode()
    except UnicodeDecodeError as e:
        raise BadRecord(f"not UTF-8 text: {e.reason} at byte {e.start}") from e


def _writer(t: SqlType) -> Callable[[Any], bytes]:
    if t.kind in _PACKED:
        return struct.Struct(_PACKED[t.kind]).pack
    if t.kind is Kind.STRING:
        return lambda v: v.encode("utf-8", "replace")
    if t.kind is Kind.BYTES:
        return bytes
    raise PlanUnsupported(f"the KAFKA format does not support {t}")


class KafkaDecoder:
    """Reads the single column of a side, if it is wanted and declared."""

    def __init__(self, types: Sequence[SqlType], wanted: Sequence[int]) -> None:
        self._read = _reader(types[0]) if types else None
        self._wanted = bool(wanted)

    def decode(self, data: bytes | None) -> Row | None:
        if data is None:
            return None
        value = self._read(data) if self._read else None
        return (value,) if self._wanted else ()


class KafkaEncoder:
    """Writes the single column of a side; null as null."""

    def __init__(self, types: Sequence[SqlType]) -> None:
        self._write = _writer(types[0]) if types else None

    def encode(self, row: Row) -> bytes | None:
        return None if self._write is None or row[0] is None else self._write(row[0])
