"""The record collector: output of completed runs, waiting for the next commit.

Filled under the epoch lock when a run is published, so that outputs, state writes and positions of a run always fall into the
same epoch (rule R1). The cut takes everything; what is published later waits for the next transaction.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import NamedTuple

import numpy as np
import pyarrow as pa

from flowql.runtime.log.base import TopicPartition


class Outgoing(NamedTuple):
    """Records on their way out, and the query that made them ("" for the instance itself)."""

    query: str
    records: pa.RecordBatch


Outgoings = dict[TopicPartition, list[Outgoing]]


class RecordCollector:
    """Outgoing records by partition. All but `size_bytes` and `full` are called under the epoch lock.

    Topics in `upsert_topics` are read as tables by everyone: of several records with the same key in one epoch only the last
    leaves (suppression, rule R13).
    """

    def __init__(self, bytes_max: int = 1 << 28) -> None:
        self._buffers: Outgoings = {}
        self._bytes_max = bytes_max
        self.upsert_topics: set[str] = set()
        self.size_bytes = 0

    def add(self, tp: TopicPartition, records: pa.RecordBatch, query: str = "") -> None:
        self._buffers.setdefault(tp, []).append(Outgoing(query, records))
        self.size_bytes += records.nbytes

    def withdraw(self, queries: Collection[str]) -> None:
        """Forget what these queries have made since the last cut."""
        self._buffers = without(self._buffers, queries)
        self.size_bytes = sum(o.records.nbytes for parts in self._buffers.values() for o in parts)

    def cut(self) -> Outgoings:
        """Everything collected so far; the collector starts the next epoch empty."""
        frozen, self._buffers, self.size_bytes = self._buffers, {}, 0
        return frozen

    def discard(self) -> None:
        self.cut()

    @property
    def full(self) -> bool:
        """There is no more room until the next cut. Any thread."""
        return self.size_bytes >= self._bytes_max

    @property
    def has_reserve(self) -> bool:
        """At least half of the room is free. Any thread."""
        return 2 * self.size_bytes < self._bytes_max

    @property
    def empty(self) -> bool:
        return not self._buffers


def without(records: Outgoings, queries: Collection[str]) -> Outgoings:
    """The records without those that these queries have produced."""
    kept = {tp: [o for o in parts if o.query not in queries] for tp, parts in records.items()}
    return {tp: parts for tp, parts in kept.items() if parts}


def suppress(batches: Sequence[pa.RecordBatch]) -> pa.RecordBatch:
    """The records of one partition with overwritten ones left out: the last record of each key stays, order kept.

    A commit calls it for every partition that has output, mostly for few records: an aggregation of Arrow took 0.4 ms to start.
    """
    if len(batches) == 1:
        records = batches[0]
    else:
        table = pa.Table.from_batches(batches)
        records = pa.RecordBatch.from_arrays([c.combine_chunks() for c in table.columns], schema=table.schema)
    keys = records["key"]
    if keys.null_count:
        return records
    code = keys.dictionary_encode().indices.to_numpy()
    row = np.arange(records.num_rows)
    latest = np.empty(int(code.max(initial=-1)) + 1, np.int64)
    latest[code] = row  # of rows with one key the last is assigned
    stays = latest[code] == row
    return records if stays.all() else records.filter(pa.array(stays))
