"""The codecs of one side (key or value) of a topic's records, chosen by format."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from compiler.plan.logical import Format
from compiler.plan.schema import Field
from runtime.batch import Row
from runtime.errors import PlanUnsupported
from runtime.serde.delimited import DelimitedDecoder, DelimitedEncoder
from runtime.serde.json import JsonDecoder, JsonEncoder
from runtime.serde.kafka import KafkaDecoder, KafkaEncoder
from runtime.serde.none import NoneDecoder, NoneEncoder


class RowDecoder(Protocol):
    """Bytes of one side to the values of the wanted fields, in their reference representation."""

    def decode(self, data: bytes | None) -> Row | None:
        """None for a null side. Raises BadRecord when the bytes cannot be read as the declared types."""
        ...


class RowEncoder(Protocol):
    """The values of all fields of one side to bytes."""

    def encode(self, row: Row) -> bytes | None:
        """None where the format writes null (an unwrapped null value, a side without columns)."""
        ...


def row_decoder(fields: Sequence[Field], fmt: Format, declared: Sequence[Field], *, is_key: bool) -> RowDecoder:
    """A decoder of `fields`, a subset by name of `declared`: all columns of that side, which are positional in some formats."""
    names = [f.name for f in declared]
    wanted = [names.index(f.name) for f in fields]
    types = [f.type for f in declared]
    if fmt.name == "JSON":
        wrapped = len(declared) > 1 or (fmt.wrap and not is_key)
        return JsonDecoder(names, types, wanted, wrapped=wrapped)
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
    if fmt.name == "DELIMITED":
        return DelimitedEncoder(types, fmt.delimiter)
    if fmt.name == "KAFKA":
        return KafkaEncoder(types)
    if fmt.name == "NONE":
        return NoneEncoder()
    raise PlanUnsupported(f"format {fmt.name} has no codec")
