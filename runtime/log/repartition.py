"""All records of a topic, moved to the partitions that their keys have when the topic has another number of them.

The old partitions are merged in the order of their stream times (the running maximum of the timestamps), so a record comes no
later after others than it did: within each new partition the stream time at a record is never above what it was. Records of one
key lie in one old partition and keep their order.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pyarrow as pa

from flowql.runtime.log.base import EARLIEST, PRODUCE_SCHEMA, Log, Reader, TopicPartition
from flowql.runtime.log.clients import LogReader, Lookup
from flowql.runtime.log.murmur2 import partitions as murmur2_partitions

READ_ROWS, READ_BYTES = 50_000, 64 << 20
WRITE_ROWS = 50_000
Batches = list[tuple[TopicPartition, list[pa.RecordBatch]]]


def moved(lookup: Lookup, topic: str, before: int, after: int) -> Batches:
    """The records of the `before` partitions of a topic as batches (PRODUCE_SCHEMA) of its `after` partitions. The topic has no writer meanwhile."""
    batches, times, targets = list[pa.RecordBatch](), [], []
    for p in range(before):
        highest = np.iinfo(np.int64).min
        for batch in _records(LogReader(lookup, TopicPartition(topic, p), EARLIEST)):
            time = np.maximum(np.maximum.accumulate(batch.column("timestamp").to_numpy()), highest)
            highest = int(time[-1])
            batches.append(batch)
            times.append(time)
            targets.append(_targets(batch.column("key"), after, p))
    if not batches:
        return []
    table, target = pa.Table.from_batches(batches), np.concatenate(targets)
    order = np.argsort(np.concatenate(times), kind="stable")  # ties: by old partition and offset, as they were read
    found = []
    for p in range(after):
        rows = order[target[order] == p]
        parts = [table.take(rows[i : i + WRITE_ROWS]) for i in range(0, len(rows), WRITE_ROWS)]
        if parts:
            found.append((TopicPartition(topic, p), [b for t in parts for b in t.combine_chunks().to_batches()]))
    return found


def followed_by(first: Batches, then: Batches) -> Batches:
    """All of them, those of a partition together."""
    found = {tp: list(parts) for tp, parts in first}
    for tp, parts in then:
        found[tp] = [*found.get(tp, []), *parts]
    return list(found.items())


def misplaced(log: Log, topic: str, partitions: int) -> TopicPartition | None:
    """A partition that holds a record whose key belongs into another one; None if there is none."""
    for tp in (TopicPartition(topic, p) for p in range(partitions)):
        for batch in _records(log.reader(tp)):
            if (_targets(batch.column("key"), partitions, tp.partition) != tp.partition).any():
                return tp
    return None


def _targets(keys: pa.BinaryArray, partitions: int, fallback: int) -> np.ndarray:
    """The partition of each key; records without one stay together."""
    out = np.full(len(keys), fallback % partitions, np.int64)
    there = keys.is_valid().to_numpy(zero_copy_only=False)
    out[there] = np.asarray(murmur2_partitions(keys.drop_null(), partitions), np.int64) if there.any() else 0
    return out


def _records(reader: Reader) -> Iterator[pa.RecordBatch]:
    while (batch := reader.read(READ_ROWS, READ_BYTES)) is not None:
        yield batch.records.select(PRODUCE_SCHEMA.names)
