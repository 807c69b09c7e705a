"""Batches of rows between operators as bytes: what waits in a repartition, and what travels between stages of another engine."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec
import numpy as np
import pyarrow as pa

from flowql.compiler.plan.schema import Schema
from flowql.runtime.batch import UNKNOWN, Batch, Origins, concat, concat_origins

# In the metadata of the stream's schema, so that streams without it are read as well: places, then what tells rows apart, in as few
# bytes as will do: an index into the places, if there are several, and the offset over the lowest one plus 1, or 0.
_ORIGINS = b"origins"
_END = b"\xff\xff\xff\xff\0\0\0\0"
_HEADERS = pa.list_(pa.struct([("k", pa.string()), ("v", pa.binary())]))
_SYSTEM = pa.field("__rowtime", pa.int64()), pa.field("__op", pa.int8()), pa.field("__headers", _HEADERS)


def encode_batch(batch: Batch) -> bytes:
    """A batch as one Arrow IPC stream; system columns get reserved names."""
    columns, origins = batch.arrow(), batch.origins
    schema = columns.schema
    for field in _SYSTEM:
        schema = schema.append(field)
    if origins is not None and origins.places:
        schema = schema.with_metadata({_ORIGINS: _packed(origins)})
    arrays = [*columns.columns, pa.array(batch.rowtime), pa.array(batch.op), _headers(batch)]
    # Message by message: a commit encodes many small batches, and a writer of streams costs as much as the messages.
    rows = pa.RecordBatch.from_arrays(arrays, schema=schema).serialize()
    return b"".join((schema.serialize(), rows, _END))


def encode_batches(batches: Sequence[Batch]) -> bytes:
    """The rows of batches of one schema, one after the other, as `encode_batch` writes them."""
    rows = concat(batches[0].schema, batches)
    if len(batches) > 1 and any(b.origins is not None for b in batches):
        rows = rows.with_origins(concat_origins([b.origins or Origins.unknown(len(b)) for b in batches]))
    return encode_batch(rows)


def decode_batch(data: bytes, schema: Schema) -> Batch:
    table = pa.ipc.open_stream(data).read_all().combine_chunks()
    n = table.num_rows
    packed = (table.schema.metadata or {}).get(_ORIGINS)
    table = table.replace_schema_metadata(None)
    rows = table.select(list(range(len(schema.fields)))).to_batches()
    headers = table["__headers"].to_pylist()
    return Batch(
        schema,
        arrow=rows[0] if schema.fields else pa.RecordBatch.from_struct_array(pa.array([{}] * n, pa.struct([]))),
        rowtime=table["__rowtime"].to_numpy(),
        op=table["__op"].to_numpy(),
        seq=np.arange(n),
        headers=None if all(h is None for h in headers) else [h and [(x["k"], x["v"]) for x in h] for h in headers],
        origins=None if packed is None else _unpacked(packed, n),
    )


def _packed(origins: Origins) -> bytes:
    known = origins.offsets[origins.offsets != UNKNOWN]
    lowest = int(known.min()) if len(known) else 0
    over = np.where(origins.offsets == UNKNOWN, 0, origins.offsets - lowest + 1)
    which = _narrow(origins.which) if len(origins.places) > 1 else ("", b"")
    return msgspec.msgpack.encode((origins.places, which, lowest, _narrow(over)))


def _unpacked(data: bytes, n: int) -> Origins:
    places, which, lowest, over = msgspec.msgpack.decode(data)
    offsets = np.frombuffer(over[1], over[0]).astype(np.int64)
    index = np.frombuffer(which[1], which[0]).astype(np.int16) if which[0] else np.zeros(n, np.int16)
    return Origins(tuple((t, p) for t, p in places), index, np.where(offsets == 0, UNKNOWN, offsets + lowest - 1))


def _narrow(numbers: Any) -> tuple[str, bytes]:
    """Numbers from 0 on in the least bytes that hold the largest of them."""
    kind = np.min_scalar_type(int(numbers.max()) if len(numbers) else 0).newbyteorder("<")
    return kind.str, numbers.astype(kind).tobytes()


def _headers(batch: Batch) -> pa.Array:
    if batch.headers is None:
        return pa.nulls(len(batch), _HEADERS)
    return pa.array([None if h is None else [{"k": k, "v": v} for k, v in h] for h in batch.headers], _HEADERS)
