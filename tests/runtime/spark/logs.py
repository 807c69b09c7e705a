"""Logs with numbered records, and what Spark is asked to do with them, for the tests of source and sink."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from flowql.runtime.log.base import PRODUCE_SCHEMA, Log, TopicPartition
from flowql.runtime.log.embedded.log import EmbeddedLog
from flowql.runtime.spark.log_append import Appended, Target, split
from flowql.runtime.spark.log_append import append as append_pieces
from flowql.runtime.spark.shapes import DEAD, EMITTED, NOTE, SINK, from_ipc, to_ipc

if TYPE_CHECKING:
    from contextlib import AbstractContextManager

    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming import DataStreamWriter

    from flowql.runtime.spark.log_sink import Results
    from flowql.runtime.spark.log_staging import Staging

PARTITIONS = 2


def open_log(folder: Path, *topics: str) -> EmbeddedLog:
    log = EmbeddedLog(folder / "log")
    for topic in topics:
        log.create_topic(topic, PARTITIONS)
    return log


def records(
    values: Sequence[bytes | None], keys: Sequence[bytes | None] | None = None, headers: Any = None
) -> pa.RecordBatch:
    n = len(values)
    arrays = [
        pa.array(range(1_000, 1_000 + n), pa.int64()),
        pa.array(keys if keys is not None else [b"k"] * n, pa.binary()),
        pa.array(values, pa.binary()),
        pa.array(headers if headers is not None else [None] * n, PRODUCE_SCHEMA.field("headers").type),
    ]
    return pa.RecordBatch.from_arrays(arrays, schema=PRODUCE_SCHEMA)


def append(log: EmbeddedLog, topic: str, partition: int, values: Sequence[bytes | None]) -> None:
    producer = log.producer("test")
    producer.begin()
    producer.send(TopicPartition(topic, partition), records(values))
    producer.commit()
    producer.close()


def fill(log: EmbeddedLog, topic: str, first: int, count: int) -> None:
    """Values p0-<n>, p1-<n> for n from `first`: `count` in each partition."""
    for p in range(PARTITIONS):
        append(log, topic, p, [f"p{p}-{n}".encode() for n in range(first, first + count)])


def values(log: EmbeddedLog, topic: str) -> list[list[bytes | None]]:
    """All values of a topic by partition, in order."""
    found: list[list[bytes | None]] = []
    for p in range(log.topics()[topic].partitions):
        reader = log.reader(TopicPartition(topic, p))
        found.append([])
        while (raw := reader.read(100, 1 << 20)) is not None:
            found[-1] += raw.records.column("value").to_pylist()
    return found


def emitted(*rows: tuple[str, str, int, int, int, Any]) -> pa.RecordBatch:
    """EMITTED rows; the last element is a batch of records, or a note's text."""
    return pa.RecordBatch.from_pylist(
        [
            dict(
                zip(
                    EMITTED.names,
                    (*row[:5], to_ipc(row[5]) if row[0] in (SINK, DEAD) else row[5].encode()),
                    strict=True,
                )
            )
            for row in rows
        ],
        schema=EMITTED,
    )


def copy_to_out(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """PACKED rows as EMITTED rows for topic `out`, with a note each. Runs in Spark's workers."""
    for batch in batches:
        rows = []
        for row in batch.to_pylist():
            taken = from_ipc(row["ipc"])
            place = (row["partition"], row["partition"], row["first_offset"])
            rows.append((SINK, "out", *place, taken.select(PRODUCE_SCHEMA.names)))
            rows.append((NOTE, "Q", *place, f'{{"query": "Q", "partition": 1, "records_in": {taken.num_rows}}}'))
        yield emitted(*rows)


def append_emitted(
    log: Log,
    target: Target,
    epoch: int,
    batches: Sequence[pa.RecordBatch],
    positions: Mapping[TopicPartition, int] | None = None,
) -> Appended:
    """Commit one epoch of EMITTED rows."""
    pieces, notes = split(batches)
    return append_pieces(log, target, epoch, pieces, notes, positions)


def epochs_of(rows: DataFrame, log: Log, target: Target, checkpoint: Path) -> DataStreamWriter:
    """The writer of a stream of EMITTED rows whose micro-batches are epochs; the caller adds the trigger and starts it."""

    def commit(batch: DataFrame, epoch: int) -> None:
        append_emitted(log, target, epoch, batch.toArrow().to_batches())

    return rows.writeStream.foreachBatch(commit).option("checkpointLocation", str(checkpoint))


def results(
    spark: SparkSession, rows: pa.RecordBatch, staging: Staging, *, staged: bool = True
) -> AbstractContextManager[Results]:
    """Results of query Q that a micro-batch would have, from EMITTED rows."""
    from flowql.runtime.spark.log_sink import results_of

    return results_of(spark.createDataFrame(pa.Table.from_batches([rows])), staging, "Q", staged=staged)
