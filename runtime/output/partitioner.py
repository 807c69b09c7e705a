"""Which partition a record goes to: murmur2 of its key as in Kafka, so that data can move between the logs."""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from flowql.runtime.batch import Ints
from flowql.runtime.log.murmur2 import partitions as murmur2_partitions


def partitions_of(keys: pa.BinaryArray, partitions: int, fallback: int) -> Ints:
    """Partition per record; records without a key stay on `fallback` (the partition of the task that made them)."""
    if partitions == 1:
        return np.zeros(len(keys), np.int64)
    if keys.null_count == len(keys):
        return np.full(len(keys), fallback % partitions, np.int64)
    out = np.asarray(murmur2_partitions(keys, partitions), np.int64)
    if keys.null_count:
        out[~keys.is_valid().to_numpy(zero_copy_only=False)] = fallback % partitions
    return out


def split(records: pa.RecordBatch, partitions: int, fallback: int) -> list[tuple[int, pa.RecordBatch]]:
    """Records (with a `key` column) by partition, order kept within each."""
    target = partitions_of(records.column("key"), partitions, fallback)
    return [(p, records if index is None else records.take(pa.array(index))) for p, index in groups(target)]


def groups(target: Ints) -> list[tuple[int, Ints | None]]:
    """(partition, row indices) for each partition present; indices None when all rows go to one partition."""
    if not len(target):
        return []
    if (target == target[0]).all():
        return [(int(target[0]), None)]
    return [(int(p), np.flatnonzero(target == p)) for p in np.unique(target)]
