"""Which partition a record goes to: murmur2 of its key as in Kafka, so that data can move between the logs."""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from flowql.runtime.batch import Ints
from flowql.runtime.log.murmur2 import partitions as murmur2_partitions

Placed = tuple[Ints | None, list[tuple[int, int, int, int]]]


def partitions_of(keys: pa.BinaryArray, partitions: int, fallback: int | Ints) -> Ints:
    """Partition per record; records without a key stay on `fallback` (the partition of the task that made them), one for all or one per record."""
    if partitions == 1:
        return np.zeros(len(keys), np.int64)
    if keys.null_count == len(keys):
        return np.full(len(keys), fallback % partitions, np.int64)
    out = np.asarray(murmur2_partitions(keys, partitions), np.int64)
    if keys.null_count:
        out = np.where(keys.is_valid().to_numpy(zero_copy_only=False), out, fallback % partitions)
    return out


def split(records: pa.RecordBatch, partitions: int, fallback: int) -> list[tuple[int, pa.RecordBatch]]:
    """Records (with a `key` column) by partition, order kept within each."""
    order, parts = groups(partitions_of(records.column("key"), partitions, fallback))
    ordered = records if order is None else records.take(pa.array(order))
    return [(p, ordered.slice(start, end - start)) for p, start, end in parts]


def placed(keys: pa.BinaryArray, partitions: int, fallback: Ints, owner: Ints) -> Placed:
    """The rows by owner and partition: (their indices, None if all stay in their order; (owner, partition, first, end) of each present)."""
    order, parts = groups(owner * partitions + partitions_of(keys, partitions, fallback))
    return order, [(*divmod(group, partitions), start, end) for group, start, end in parts]


def groups(target: Ints) -> tuple[Ints | None, list[tuple[int, int, int]]]:
    """The rows by partition, order kept within each: (their indices, None if all go to one; (partition, first, end) of each present).

    One take for all and slices of it: a take for each partition costs more than the rows in it where there are many.
    """
    if not len(target):
        return None, []
    if (target == target[0]).all():
        return None, [(int(target[0]), 0, len(target))]
    order = np.argsort(target, kind="stable")
    counts = np.bincount(target)
    ends = np.cumsum(counts)
    present = np.flatnonzero(counts)
    return order, [
        (p, end - n, end)
        for p, n, end in zip(present.tolist(), counts[present].tolist(), ends[present].tolist(), strict=True)
    ]
