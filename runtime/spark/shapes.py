"""The shapes of rows that travel between the parts of the Spark engine. Imports no pyspark.

Packed rows: a Spark row costs 1-25 microseconds in Python, so thousands of records travel in one, as an Arrow IPC stream.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import reduce
from typing import TYPE_CHECKING, NamedTuple

import pyarrow as pa

from flowql.runtime.state.computed_history import HISTORY_SCHEMA

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

Emit = Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]  # makes batches of EMITTED, in a worker


@dataclass(frozen=True, slots=True)
class Emitting:
    """EMITTED rows that are made of other rows. emit: makes them in a worker; None where the rows are EMITTED already.

    Apart, so that the process that makes records can also stage them: between two `mapInArrow` all of them pass through Java.
    """

    rows: DataFrame
    emit: Emit | None = None

    @property
    def emitted(self) -> DataFrame:
        return self.rows if self.emit is None else self.rows.mapInArrow(self.emit, EMITTED_DDL)

    def beside(self, others: Sequence[DataFrame]) -> Emitting:
        """With more EMITTED rows."""
        return Emitting(reduce(lambda a, b: a.unionAll(b), others, self.emitted)) if others else self


SINK, EXCHANGE, DEAD, NOTE = "sink", "exchange", "dead", "note"

# Rows of stages and encoders. `source`: the task partition that made the row; `seq`: order within a source.
# sink: batch in PRODUCE_SCHEMA for (topic, partition). exchange: an internal batch for that channel of the repartition.
# dead: batch in PRODUCE_SCHEMA as `flowql.runtime.task.dead_letters.encode` gives it; topic is the query's id, partition 0 (who writes
# them knows the topic's name). note: `ipc` is UTF-8 JSON {"query", "subtopology", "partition", "records_in", "records_out",
# "dead", "late": {operator: n}, "functions": {name: counts}, "since_start": {the first four numbers, since the task began}, "keys": see `key_places`}; topic is the query's id, partition that
# of the task. Tasks that keep no state begin anew with every note. "dead" is a number of records, which may have several letters each; where no note has it,
# every letter is counted.
EMITTED = HISTORY_SCHEMA

# The same as Spark DDL, for `applyInArrow`, `mapInArrow`, `transformWithState` and data sources.
# PACKED: contiguous records of one partition per row. `ipc`: one batch in RECORD_SCHEMA.
PACKED_DDL = "topic string, partition int, first_offset bigint, next_offset bigint, ipc binary"
EMITTED_DDL = "kind string, topic string, partition int, source int, seq bigint, ipc binary"


def to_ipc(records: pa.RecordBatch) -> bytes:
    """A batch as one Arrow IPC stream."""
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, records.schema) as writer:
        writer.write_batch(records)
    return bytes(sink.getvalue())


def from_ipc(data: bytes) -> pa.RecordBatch:
    """The inverse of `to_ipc`; several batches of one stream come back as one."""
    with pa.ipc.open_stream(data) as reader:
        batches = list(reader)
        if len(batches) == 1:
            return batches[0]
        table = pa.Table.from_batches(batches, reader.schema).combine_chunks()
    return table.to_batches()[0] if table.num_rows else pa.RecordBatch.from_pylist([], schema=table.schema)


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
