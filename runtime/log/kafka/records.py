"""Records between Kafka's client and Arrow.

Kafka's client takes no time before 1 ms after the epoch (0 means "now" to it, brokers refuse less). Such records are sent with
the time 1 and their own in a header, which readers take off again.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from operator import itemgetter
from typing import Any

import numpy as np
import pyarrow as pa
from confluent_kafka import Message

from flowql.runtime.log.base import HEADERS_TYPE, RECORD_SCHEMA, TopicPartition

TIME_HEADER = "flowql.time"
_RECORD_BYTES = 16  # what a record costs besides key and value, for byte limits
_TIME = itemgetter(1)
Produce = Callable[..., None]


def to_arrow(messages: Sequence[Message]) -> tuple[pa.RecordBatch, int]:
    """Messages of one partition, in order, as RECORD_SCHEMA, and their approximate size."""
    n = len(messages)
    times = np.fromiter(map(_TIME, map(Message.timestamp, messages)), np.int64, n)
    if any(map(Message.headers, messages)):
        structs = [_headers(given, times, i) for i, given in enumerate(map(Message.headers, messages))]
        header_column = pa.array(structs, HEADERS_TYPE)
    else:
        header_column = pa.nulls(n, HEADERS_TYPE)
    keys = pa.array(list(map(Message.key, messages)), pa.binary())
    values = pa.array(list(map(Message.value, messages)), pa.binary())
    offsets = pa.array(np.fromiter(map(Message.offset, messages), np.int64, n))
    size = keys.nbytes + values.nbytes + _RECORD_BYTES * n
    return pa.RecordBatch.from_arrays(
        [offsets, pa.array(times), keys, values, header_column], schema=RECORD_SCHEMA
    ), size


def to_key_values(messages: Sequence[Message]) -> tuple[list[bytes], list[bytes | None], int]:
    """Keys and values of messages, and their approximate size. They have keys."""
    keys, values = list(map(Message.key, messages)), list(map(Message.value, messages))
    size = len(b"".join(filter(None, keys))) + len(b"".join(filter(None, values))) + _RECORD_BYTES * len(messages)
    return keys, values, size


def _headers(given: Any, times: np.ndarray, row: int) -> list[dict[str, Any]] | None:
    kept = []
    for key, value in given or ():
        if key == TIME_HEADER and value is not None:
            times[row] = int(value)
        else:
            kept.append({"key": key, "value": value})
    return kept or None


def send_all(records: pa.RecordBatch, tp: TopicPartition, produce: Produce, wait: Callable[[], None]) -> None:
    """Call `produce` per row of PRODUCE_SCHEMA; while its queue is full `wait`, which raises when that has taken too long.

    Arguments by position, the callback's two names among them: by name they cost as much again as the whole call. Not
    `produce_batch`, which takes neither timestamps nor headers.
    """
    topic, partition = tp
    times, keys, values = (records.column(i).to_pylist() for i in range(3))
    headers = records.column(3)
    if headers.null_count == len(headers) and (not times or min(times) > 0):
        for time, key, value in zip(times, keys, values, strict=True):
            while True:
                try:
                    produce(topic, value, key, partition, None, None, time)
                    break
                except BufferError:
                    wait()
        return
    for time, key, value, given in zip(times, keys, values, headers.to_pylist(), strict=True):
        kept = [(h["key"], h["value"]) for h in given or ()]
        if time <= 0:
            kept.append((TIME_HEADER, str(time).encode()))
        more = (kept,) if kept else ()
        while True:
            try:
                produce(topic, value, key, partition, None, None, max(1, time), *more)
                break
            except BufferError:
                wait()
