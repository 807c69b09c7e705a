"""Rows between the stages of one query: emitted rows with where they go next. Imports no pyspark."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import NamedTuple

import pyarrow as pa

from flowql.runtime.spark.shapes import EMITTED, EMITTED_DDL

LOG = "log"  # records on their way to a task; all other kinds but the next one are those of EMITTED
WAKE = "wake"  # no data: calls a task that has no rows
DONE = -1

# target: the sub-topology that reads the row, or DONE. For kind `log`, seq is the first offset; next_offset belongs to it alone.
ENVELOPE = pa.schema(
    [
        pa.field("target", pa.int32()),
        *EMITTED,
        pa.field("next_offset", pa.int64()),
    ]
)
ENVELOPE_DDL = f"target int, {EMITTED_DDL}, next_offset bigint"

# Rows are fat: this many bytes per batch keep Arrow's 2 GB limit on a binary column far away.
BATCH_BYTES = 32 << 20


class Row(NamedTuple):
    """One row of ENVELOPE."""

    target: int
    kind: str
    topic: str
    partition: int
    source: int
    seq: int
    ipc: bytes | pa.Buffer
    next_offset: int = 0


def read_rows(batch: pa.RecordBatch) -> Iterator[Row]:
    """Rows of a batch in ENVELOPE; payloads are views of the batch."""
    plain = [batch.column(i).to_pylist() for i in (0, 1, 2, 3, 4, 5, 7)]
    payload = batch.column(6)
    for i, (target, kind, topic, partition, source, seq, next_offset) in enumerate(zip(*plain, strict=True)):
        yield Row(target, kind, topic, partition, source, seq, payload[i].as_buffer(), next_offset)


def write_rows(rows: Iterable[Row]) -> Iterator[pa.RecordBatch]:
    """Batches in ENVELOPE of at most about BATCH_BYTES."""
    waiting: list[Row] = []
    size = 0
    for row in rows:
        waiting.append(row)
        size += len(row.ipc)
        if size >= BATCH_BYTES:
            yield _batch(waiting)
            waiting, size = [], 0
    if waiting:
        yield _batch(waiting)


def _batch(rows: list[Row]) -> pa.RecordBatch:
    columns = [pa.array(list(values), f.type) for values, f in zip(zip(*rows, strict=True), ENVELOPE, strict=True)]
    return pa.RecordBatch.from_arrays(columns, schema=ENVELOPE)
