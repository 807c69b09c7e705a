"""Requests that wrote rows, by their idempotency keys: a topic with a record per request, written in the transaction of its rows.

A request that is sent again within `RETENTION_MS` therefore writes nothing, also after a crash, and on another instance of the application.
"""

from __future__ import annotations

import json
from dataclasses import dataclass

import pyarrow as pa

from flowql.runtime.log.base import EARLIEST, PRODUCE_SCHEMA, Log, Reader, TopicPartition
from flowql.runtime.placement.record import read_fields
from flowql.runtime.state.changelog import changes

RETENTION_MS = 24 * 3_600_000
KEPT_MAX = 1_000_000  # in memory, about 200 bytes each; the oldest ones go
_READ_ROWS, _READ_BYTES = 10_000, 1 << 22
_CONFIG = {"retention.ms": str(RETENTION_MS)}


@dataclass(frozen=True, slots=True)
class WrittenRequest:
    """The write of a request. digest: of its body."""

    digest: str
    rows: int


def topic_name(application_id: str) -> str:
    return f"{application_id}-written-keys"


class WrittenKeys:
    """The requests that wrote rows, read on from where it was. One thread at a time; a writer calls it between requests."""

    def __init__(self, log: Log, application_id: str) -> None:
        self.tp = TopicPartition(topic_name(application_id), 0)
        log.admin().create_topic(self.tp.topic, 1, _CONFIG)
        self._reader: Reader = log.reader(self.tp, EARLIEST)
        self._known: dict[bytes, tuple[WrittenRequest, int]] = {}

    def find(self, key: bytes, now_ms: int) -> WrittenRequest | None:
        """The request of that key within the retention. Raises LogError."""
        while (batch := self._reader.read(_READ_ROWS, _READ_BYTES)) is not None:
            times = batch.records.column(1).to_pylist()
            for (found, value), time in zip(changes(batch), times, strict=True):
                self._known.pop(found, None)
                if value is not None:
                    self._known[found] = read_fields(WrittenRequest, value), time
            while len(self._known) > KEPT_MAX:
                del self._known[next(iter(self._known))]
        written = self._known.get(key)
        return None if written is None or written[1] <= now_ms - RETENTION_MS else written[0]


def key_record(key: bytes, written: WrittenRequest, now_ms: int) -> pa.RecordBatch:
    """The record for a request."""
    value = json.dumps({"digest": written.digest, "rows": written.rows}).encode()
    arrays = [pa.array([v], f.type) for v, f in zip((now_ms, key, value, None), PRODUCE_SCHEMA, strict=True)]
    return pa.RecordBatch.from_arrays(arrays, schema=PRODUCE_SCHEMA)
