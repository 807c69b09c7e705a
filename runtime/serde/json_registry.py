"""JSON_SR: the JSON format behind a zero byte and the id of a JSON Schema. The documents are read as JSON reads them."""

from __future__ import annotations

from flowql.compiler.plan.logical import SchemaRef
from flowql.runtime.batch import Row
from flowql.runtime.serde.json import JsonDecoder, JsonEncoder
from flowql.runtime.serde.registry import PREFIX, numbered, prefix, split_prefix


class JsonRegistryDecoder:
    """Takes the prefix off."""

    def __init__(self, document: JsonDecoder) -> None:
        self._document = document

    def decode(self, data: bytes | None) -> Row | None:
        if data is None:
            return None
        split_prefix(data)
        return self._document.decode(data[PREFIX:])


class JsonRegistryEncoder:
    """Puts the prefix before."""

    def __init__(self, document: JsonEncoder, ref: SchemaRef) -> None:
        self._document, self._prefix = document, prefix(numbered(ref).id)

    def encode(self, row: Row) -> bytes | None:
        data = self._document.encode(row)
        return None if data is None else self._prefix + data
