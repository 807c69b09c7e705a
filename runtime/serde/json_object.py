"""Keys that are a JSON object, also of a single column, with or without Kafka Connect's schema around them."""

from __future__ import annotations

from typing import Any

from flowql.runtime.batch import Row
from flowql.runtime.serde.json import JsonDecoder


class JsonObjectDecoder:
    """Reads `{"id": 1}` and `{"schema": ..., "payload": {"id": 1}}`."""

    def __init__(self, columns: JsonDecoder) -> None:
        self._columns = columns

    def decode(self, data: bytes | None) -> Row | None:
        return self._columns.decode(data, within=_payload)


def _payload(document: Any) -> Any:
    connect = isinstance(document, dict) and set(document) == {"schema", "payload"}
    return document["payload"] if connect else document
