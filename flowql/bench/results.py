"""Compares the records in a query's topic with the oracle. The same for every engine: they all write to the log."""

from __future__ import annotations

from collections.abc import Iterator

import pyarrow as pa

from flowql.bench.nexmark_input import rows_of
from flowql.bench.oracle import EXPECTED, Rows, difference, rows_of_json, schema_of_json
from flowql.runtime.log.base import EARLIEST, Log, TopicPartition

ROWS, BYTES = 100_000, 1 << 26  # read at once


def wrong(log: Log, query: str, events: int) -> str:
    """Empty when topic `query` holds what the query must give of the timeline up to bid number `events`."""
    inputs = {topic: rows_of(topic, events) for topic in EXPECTED[query].reads}
    return difference(query, inputs, result(log, query))


def result(log: Log, query: str, topic: str = "", table: bool | None = None) -> Rows:
    """The rows in `topic` (by default `query`): every record of a stream, the last of each key of a table.

    table: whether the topic holds a table, for systems that differ from FlowQL in it.
    """

    def values() -> Iterator[pa.Array]:
        is_table = EXPECTED[query].table if table is None else table
        return (_final if is_table else _all)(log, topic or query)

    def read() -> pa.RecordBatchReader:
        return pa.RecordBatchReader.from_batches(schema_of_json(query), rows_of_json(query, values()))

    return read


def _all(log: Log, topic: str) -> Iterator[pa.Array]:
    for batch in batches_of(log, topic):
        yield batch.column("value")


def _final(log: Log, topic: str) -> Iterator[pa.Array]:
    """One array; a key is always in the same partition, so the order of partitions does not matter."""
    last: dict[bytes | None, bytes | None] = {}
    for batch in batches_of(log, topic):
        last.update(zip(batch.column("key").to_pylist(), batch.column("value").to_pylist(), strict=True))
    yield pa.array([v for v in last.values() if v is not None], pa.binary())


def batches_of(log: Log, topic: str) -> Iterator[pa.RecordBatch]:
    """All records of a topic, partition by partition."""
    for partition in range(log.admin().topics()[topic].partitions):
        reader = log.reader(TopicPartition(topic, partition), EARLIEST)
        while (batch := reader.read(ROWS, BYTES)) is not None:
            yield batch.records
