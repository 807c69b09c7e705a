"""Records between Kafka's client and Arrow.

Kafka's client takes no time before 1 ms after the epoch (0 means "now" to it, brokers refuse less). Such records are sent with
the time 1 and their own in a header, which readers take off again.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import pyarrow as pa
from confluent_kafka import Message

from runtime.log.base import HEADERS_TYPE, RECORD_SCHEMA

TIME_HEADER = "flowql.time"
_RECORD_BYTES = 16  # what a record costs besides key and value, for byte limits
Sending = Callable[..., None]


def to_arrow(messages: Sequence[Message]) -> tuple[pa.RecordBatch, int]:
    """Messages of one partition, in order, as RECORD_SCHEMA, and their approximate size."""
    keys, values = list(map(Message.key, messages)), list(map(Message.value, messages))
    times = [t for _, t in map(Message.timestamp, messages)]
    headers = list(map(Message.headers, messages))
    if any(headers):
        structs = [_headers(given, times, i) for i, given in enumerate(headers)]
        header_column = pa.array(structs, HEADERS_TYPE)
    else:
        header_column = pa.nulls(len(messages), HEADERS_TYPE)
    arrays = [
        pa.array(list(map(Message.offset, messages)), pa.int64()),
        pa.array(times, pa.int64()),
        pa.array(keys, pa.binary()),
        pa.array(values, pa.binary()),
        header_column,
    ]
    size = sum(len(k) for k in keys if k) + sum(len(v) for v in values if v) + _RECORD_BYTES * len(messages)
    return pa.RecordBatch.from_arrays(arrays, schema=RECORD_SCHEMA), size


def _headers(given: Any, times: list[int], row: int) -> list[dict[str, Any]] | None:
    kept = []
    for key, value in given or ():
        if key == TIME_HEADER and value is not None:
            times[row] = int(value)
        else:
            kept.append({"key": key, "value": value})
    return kept or None


def send_all(records: pa.RecordBatch, send: Sending) -> None:
    """Call `send(value=, key=, timestamp=, headers=)` per row of PRODUCE_SCHEMA.

    Not `produce_batch`, which takes neither timestamps nor headers.
    """
    times, keys, values = (records.column(i).to_pylist() for i in range(3))
    column = records.column(3)
    headers = None if column.null_count == len(column) else column.to_pylist()
    for i, (time, key, value) in enumerate(zip(times, keys, values, strict=True)):
        given = [(h["key"], h["value"]) for h in headers[i] or ()] if headers is not None else None
        if time <= 0:
            given = [*(given or ()), (TIME_HEADER, str(time).encode())]
            time = 1
        if given:
            send(value=value, key=key, timestamp=time, headers=given)
        else:
            send(value=value, key=key, timestamp=time)
