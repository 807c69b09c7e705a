"""Batches of rows between operators as bytes: what waits in a repartition, and what travels between stages of another engine."""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from compiler.plan.schema import Schema
from runtime.batch import Batch


def encode_batch(batch: Batch) -> bytes:
    """A batch as one Arrow IPC stream; system columns get reserved names."""
    columns = batch.arrow()
    table = pa.table(
        [*columns.columns, pa.array(batch.rowtime), pa.array(batch.op), _headers(batch)],
        names=[*batch.schema.names, "__rowtime", "__op", "__headers"],
    )
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, table.schema) as writer:
        writer.write_table(table)
    return sink.getvalue().to_pybytes()


def decode_batch(data: bytes, schema: Schema) -> Batch:
    table = pa.ipc.open_stream(data).read_all().combine_chunks()
    n = table.num_rows
    rows = table.select(list(range(len(schema.fields)))).to_batches()
    headers = table["__headers"].to_pylist()
    return Batch(
        schema,
        arrow=rows[0] if schema.fields else pa.RecordBatch.from_struct_array(pa.array([{}] * n, pa.struct([]))),
        rowtime=table["__rowtime"].to_numpy(),
        op=table["__op"].to_numpy(),
        seq=np.arange(n),
        headers=None if all(h is None for h in headers) else [h and [(x["k"], x["v"]) for x in h] for h in headers],
    )


def _headers(batch: Batch) -> pa.Array:
    kind = pa.list_(pa.struct([("k", pa.string()), ("v", pa.binary())]))
    if batch.headers is None:
        return pa.nulls(len(batch), kind)
    return pa.array([None if h is None else [{"k": k, "v": v} for k, v in h] for h in batch.headers], kind)
