"""KAFKA: the serializers of the Kafka clients: UTF-8 text, big-endian INT, BIGINT and DOUBLE, plain bytes."""

from __future__ import annotations

import struct
from collections.abc import Callable, Sequence
from typing import Any

from flowql.compiler.plan.types import Kind, SqlType
from flowql.runtime.batch import Row
from flowql.runtime.errors import BadRecord, PlanUnsupported

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
