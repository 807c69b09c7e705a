"""Records of a topic as rows: keys and values as JSON texts, decoded as declared."""

from __future__ import annotations

from collections.abc import Generator, Mapping

import pyarrow as pa

from flowql.runtime.log.base import Log, TopicPartition
from flowql.topics.codecs import RecordReader
from flowql.topics.records import headers_json, read_records

SCHEMA = pa.schema(
    [
        pa.field("partition", pa.int32()),
        pa.field("offset", pa.int64()),
        pa.field("timestamp", pa.int64()),
        pa.field("key", pa.string()),
        pa.field("value", pa.string()),
        pa.field("headers", pa.string()),
    ]
)


def exported(
    log: Log, positions: Mapping[TopicPartition, int], ends: Mapping[TopicPartition, int], reader: RecordReader
) -> Generator[pa.RecordBatch]:
    """Records from `positions` up to `ends`, partition after partition. A missing key is NULL, and so is a tombstone's value."""
    for batch in read_records(log, positions, ends):
        if batch is None:
            continue
        offset, time, key, value, headers = batch.records.columns
        columns = [
            pa.array([batch.tp.partition] * len(offset), pa.int32()),
            offset,
            time,
            pa.array([None if k is None else reader.key(k).decode() for k in key.to_pylist()], pa.string()),
            pa.array([None if v is None else reader.value(v).decode() for v in value.to_pylist()], pa.string()),
            pa.array([headers_json(h).decode() if h else None for h in headers.to_pylist()], pa.string()),
        ]
        yield pa.RecordBatch.from_arrays(columns, schema=SCHEMA)
