"""Topics to frames and back, by the runtime's own decoder, encoder and partitioner in Spark's Python workers.

Records are decoded where they are read (`rows_of`), so that no packed record goes to Java and back. Those that give no row are dead letters, which
go beside the rows, to where the commit picks them up (`log_letters`).
"""

from __future__ import annotations

import json
from base64 import b64decode
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import lru_cache, partial
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from flowql.compiler.functions.spark_text import quoted
from flowql.compiler.plan.codec import from_data, to_data
from flowql.compiler.plan.expr import ROWTIME
from flowql.compiler.plan.logical import SchemaRef, Sink
from flowql.compiler.plan.schema import Schema
from flowql.compiler.plan.topology import QueryPlan, SourceDef, scan_of
from flowql.runtime.batch import DELETE, Batch, Headers
from flowql.runtime.log.base import RawBatch
from flowql.runtime.operators.base import NO_STATE, DeadLetter, MicroBatchContext
from flowql.runtime.operators.decode import Decoder
from flowql.runtime.operators.encode import Encoder
from flowql.runtime.output.partitioner import split
from flowql.runtime.serde.registry import KNOWN
from flowql.runtime.spark.log_address import Address
from flowql.runtime.spark.log_letters import put_letters
from flowql.runtime.spark.native.frames import (
    BESIDE,
    HEADERS,
    NO_VALUE,
    OFFSET,
    PARTITION,
    Beside,
    frame_ddl,
    from_spark,
    to_spark,
)
from flowql.runtime.spark.shapes import DEAD, EMITTED, EMITTED_DDL, NOTE, SINK, Emitting, to_ipc
from flowql.runtime.task.dead_letters import LocatedDeadLetter
from flowql.runtime.task.dead_letters import encode as encode_letters

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

_TYPES = {
    PARTITION: "INT",
    OFFSET: "BIGINT",
    HEADERS: "ARRAY<STRUCT<key: STRING, value: BINARY>>",
    NO_VALUE: "BOOLEAN",
}
HEADERS_ARROW = pa.list_(pa.struct([pa.field("key", pa.string()), pa.field("value", pa.binary())]))


@dataclass(frozen=True, slots=True)
class Reading:
    """The rows that a reader of a topic makes of its records: rows of a schema, with BESIDE columns behind their times.

    letters: where dead letters of decoding wait for the commit (`log_letters.Letters.place`); "" if they are not kept. schemas: that records may
    name and no registry keeps. Records without a value are rows where NO_VALUE tells them, and else left out: what is native groups
    and joins, and both skip them.
    """

    source: SourceDef
    schema: Schema
    query: str
    letters: str
    schemas: tuple[SchemaRef, ...] = ()
    beside: Beside = "nothing"

    def dumps(self) -> str:
        """As text for the options of a source."""
        plain = [to_data(scan_of(self.source)), to_data(self.schema), self.query, to_data(self.schemas)]
        return json.dumps([json.dumps(plain), self.letters, self.beside])

    @property
    def ddl(self) -> str:
        return _ddl(self.schema, self.beside)


def ddl_of(reading: str) -> str:
    """The columns of `rows_of`."""
    text, _, beside = json.loads(reading)
    return _ddl(_decoder(text)[1], beside)


def _ddl(schema: Schema, beside: Beside) -> str:
    return ", ".join([frame_ddl(schema), *(f"{quoted(n)} {_TYPES[n]}" for n in BESIDE[beside])])


def rows_of(reading: str, records: Iterable[RawBatch], address: Address | None = None) -> Iterator[list[pa.Array]]:
    """Columns of `ddl_of` for each batch of records. address: of the log that they are of. In a worker."""
    text, letters, beside = json.loads(reading)
    decoder, schema, query = _decoder(text)
    for raw in records:
        if not raw.records.num_rows:
            continue
        run = MicroBatchContext(NO_STATE)
        rows = decoder.decode(raw, run)
        if run.dead_letters and letters:
            found = run.dead_letters
            put_letters(letters, address, query, raw, [d.seq for d in found], _encoded_letters(query, raw, found))
        if NO_VALUE not in BESIDE[beside]:
            rows = _with_values(rows)
        arrow = rows.arrow()
        columns: list[Any] = [to_spark(arrow.column(i), f.type) for i, f in enumerate(schema)]
        columns.append(pa.array(rows.rowtime))
        columns += [_beside(name, raw, rows) for name in BESIDE[beside]]
        yield columns


def _beside(name: str, raw: RawBatch, rows: Batch) -> pa.Array:
    if name == PARTITION:
        return pa.array(np.full(len(rows), raw.tp.partition, np.int32))
    if name == HEADERS:
        return _headers_column(rows.headers, len(rows))
    if name == OFFSET:
        return pa.array(raw.records.column("offset").to_numpy()[rows.seq])
    assert name == NO_VALUE
    return pa.array(rows.op == DELETE)


def _headers_column(headers: Headers | None, n: int) -> pa.Array:
    if headers is None:
        return pa.nulls(n, HEADERS_ARROW)
    pairs = [None if h is None else [{"key": k, "value": v} for k, v in h] for h in headers]
    return pa.array(pairs, HEADERS_ARROW)


def encode(query: QueryPlan, frame: DataFrame, partitions: Mapping[str, int]) -> Emitting:
    """The rows of a query's result as records of its topic. A row without a key goes where its Spark task sends it."""
    sink, schema = query.logical.spec, query.logical.schema
    assert isinstance(sink, Sink)
    text = json.dumps([to_data(sink), to_data(schema)])
    present = frame.columns
    beside = [n for n in (PARTITION, HEADERS, NO_VALUE) if n in present]
    columns = [_sent(frame, n) for n in (*schema.names, ROWTIME, *beside)]
    return Emitting(frame.select(*columns), partial(_encoded, text, partitions[sink.topic]))


def _sent(frame: DataFrame, name: str) -> Column:
    """A column as workers get it. Headers as text: Spark asks how large an Arrow batch is after each row, and of a list without values that takes
    as long as the batch has rows (10 us for each of 10,000; PySpark 4.2.0 with Arrow 19).
    """
    from pyspark.sql import functions as F

    return F.to_json(frame[quoted(name)]).alias(name) if name == HEADERS else frame[quoted(name)]


# -- in workers


@lru_cache(maxsize=64)
def _decoder(text: str) -> tuple[Decoder, Schema, str]:
    scan, schema, query, schemas = json.loads(text)
    KNOWN.remember(from_data(schemas))
    wanted: Schema = from_data(schema)
    return Decoder(from_data(scan), wanted), wanted, query


def _with_values(rows: Batch) -> Batch:
    deleted = rows.op == DELETE
    return rows.take(np.flatnonzero(~deleted)) if deleted.any() else rows


def _encoded_letters(query: str, raw: RawBatch, found: list[DeadLetter]) -> pa.RecordBatch:
    """A record for each."""
    return encode_letters(query, [LocatedDeadLetter(d, raw, d.seq) for d in found])


def told(letters: DataFrame, query: str) -> DataFrame:
    """Rows of LETTERS_DDL, of rows of files and of failed expressions over them, as EMITTED dead letters."""
    return letters.mapInArrow(partial(_told, query), EMITTED_DDL)


def _told(query: str, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    task = _task()
    for seq, batch in enumerate(batches, 1):
        rows = [(r["code"], message) for r in batch.to_pylist() for message in r["messages"]]
        found = [LocatedDeadLetter(DeadLetter(0, *row), None, in_files=True) for row in rows]
        if found:
            note = json.dumps({"query": query, "dead": batch.num_rows}).encode()
            letters = (DEAD, query, 0, task, seq, to_ipc(encode_letters(query, found)))
            yield _emitted([letters, (NOTE, query, 0, task, seq, note)])


@lru_cache(maxsize=64)
def _encoder(text: str) -> tuple[Encoder, Schema]:
    sink, schema = json.loads(text)
    wanted: Schema = from_data(schema)
    return Encoder(from_data(sink), wanted), wanted


def _encoded(text: str, partitions: int, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    encoder, schema = _encoder(text)
    task, seq = _task(), 0
    for batch in batches:
        out = []
        for partition, records in _records(encoder, schema, batch, partitions, task):
            seq += 1
            out.append((SINK, encoder.sink.topic, partition, task, seq, to_ipc(records)))
        if out:
            yield _emitted(out)


def _records(
    encoder: Encoder, schema: Schema, batch: pa.RecordBatch, partitions: int, task: int
) -> list[tuple[int, pa.RecordBatch]]:
    n = batch.num_rows
    if not n:
        return []
    arrays = [from_spark(batch.column(i), f.type) for i, f in enumerate(schema)]
    op, headers, fallback = np.zeros(n, np.int8), None, task
    present = batch.schema.names
    if HEADERS in present:
        headers = _headers_in(batch.column(HEADERS))
    if NO_VALUE in present:
        op[batch.column(NO_VALUE).to_numpy(zero_copy_only=False)] = DELETE
        fallback = batch.column(PARTITION)[0].as_py()  # a Spark task reads one partition
    rows = Batch(
        schema,
        arrow=pa.RecordBatch.from_arrays(arrays, names=list(schema.names)),
        rowtime=batch.column(len(arrays)).to_numpy(zero_copy_only=False).astype(np.int64),
        op=op,
        seq=np.arange(n),
        headers=headers,
    )
    return split(encoder.encode(rows), partitions, fallback)


def _headers_in(column: pa.Array) -> Headers | None:
    if column.null_count == len(column):
        return None
    return [None if h is None else [_header(pair) for pair in json.loads(h)] for h in column.to_pylist()]


def _header(pair: Mapping[str, str]) -> tuple[str, bytes | None]:
    """Spark's JSON leaves out values that are null, and has bytes in base 64."""
    return pair["key"], b64decode(pair["value"]) if "value" in pair else None


def _emitted(rows: list[tuple[Any, ...]]) -> pa.RecordBatch:
    columns = zip(*rows, strict=True)
    return pa.RecordBatch.from_arrays(
        [pa.array(c, t) for c, t in zip(columns, EMITTED.types, strict=True)], schema=EMITTED
    )


def _task() -> int:
    from pyspark import TaskContext

    context = TaskContext.get()
    return 0 if context is None else int(context.partitionId())
