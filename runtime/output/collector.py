"""The record collector: output of completed runs, waiting for the next commit.

Filled under the epoch lock when a run is published, so that outputs, state writes and positions of a run always fall into the
same epoch (rule R1). The cut takes everything; what is published later waits for the next transaction.
"""

from __future__ import annotations

from collections.abc import Collection, Hashable, Sequence
from typing import NamedTuple

import numpy as np
import pyarrow as pa

from flowql.runtime.log.base import TopicPartition


class Outgoing(NamedTuple):
    """Records on their way out, and the query that made them ("" for the instance itself)."""

    query: str
    records: pa.RecordBatch


Outgoings = dict[TopicPartition, list[Outgoing]]

# A partition may hold this many times the free bytes. A single hot one gets two thirds, and some room is always left for others. Source:
# dynamic queue length thresholds for shared buffers (Choudhury and Hahne 1998).
FREE_SHARE = 2


class RecordCollector:
    """Outgoing records by partition. All but the properties, `size_bytes` and `holds_up` are called under the epoch lock.

    The bytes of all partitions have a bound. Each partition has one that shrinks as the others grow: a task that writes more waits for the next cut,
    and the others go on. Topics in `upsert_topics` are read as tables by everyone: of several records with the same key in one epoch only the last
    leaves (suppression, rule R13).
    """

    def __init__(self, bytes_max: int = 1 << 28) -> None:
        self._buffers: Outgoings = {}
        self._bytes_max = bytes_max
        self.upsert_topics: set[str] = set()
        self.size_bytes = 0
        self._bytes: dict[TopicPartition, int] = {}
        self._crowding: set[Hashable] = set()  # writers that have to wait; any thread may look

    def add(self, tp: TopicPartition, records: pa.RecordBatch, query: str = "", writer: Hashable = None) -> None:
        """writer: the task that waits if the partition is full; None if none can wait."""
        self._buffers.setdefault(tp, []).append(Outgoing(query, records))
        size = records.nbytes
        self.size_bytes += size
        taken = self._bytes[tp] = self._bytes.get(tp, 0) + size
        if writer is not None and taken >= FREE_SHARE * (self._bytes_max - self.size_bytes):
            self._crowding.add(writer)

    def withdraw(self, queries: Collection[str]) -> None:
        """Forget what these queries have made since the last cut."""
        self._buffers = without(self._buffers, queries)
        self._bytes = {tp: sum(o.records.nbytes for o in parts) for tp, parts in self._buffers.items()}
        self.size_bytes = sum(self._bytes.values())
        self._crowding = set()  # a writer that still has to wait is added when it writes again

    def cut(self) -> Outgoings:
        """Everything collected so far; the collector starts the next epoch empty."""
        frozen, self._buffers, self.size_bytes = self._buffers, {}, 0
        self._bytes, self._crowding = {}, set()
        return frozen

    def discard(self) -> None:
        self.cut()

    def holds_up(self, writer: Hashable) -> bool:
        """Whether this writer waits for the next cut, because a partition is full. Any thread."""
        return writer in self._crowding

    @property
    def crowded(self) -> bool:
        """Whether any writer waits for the next cut. Any thread."""
        return bool(self._crowding)

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
