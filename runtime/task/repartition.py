"""A repartition as a topic: how rows travel between tasks that may be at different members of a group (rules R6 and R7).

A record is an envelope of rows that one upstream task sends to one partition in one run: its key says which task, its value is
the batch, with changes, times and order. So a record's offset and the row's number in it name a row for good. Readers take each
upstream task's records as an ordered channel of their own and merge the channels by time, as in a local exchange.
"""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from flowql.compiler.plan.schema import Schema
from flowql.runtime import formats
from flowql.runtime.batch import Batch, Origins, concat, concat_origins
from flowql.runtime.errors import NewerVersion
from flowql.runtime.log.base import PRODUCE_SCHEMA, RawBatch
from flowql.runtime.state.changelog import in_topic_name
from flowql.runtime.task.batch_ipc import decode_batch, encode_batch
from flowql.runtime.task.input_buffer import DecodedRows

ENVELOPE_ROWS = 1_000  # well below the megabyte that brokers take by default, unless rows are large
KEPT = {"cleanup.policy": "delete", "retention.ms": "-1", "retention.bytes": "-1"}  # until it is processed
# Records say nothing by their time. Not 0, which Kafka's client takes for "now".
_TIME = 1
_FORMAT = "format"


def topic_of(application_id: str, repartition: str) -> str:
    """The topic of a repartition, by its name in the plan."""
    return f"{application_id}-{in_topic_name(repartition)}"


def channel_key(source: int) -> bytes:
    """The key of all records of one upstream task."""
    return source.to_bytes(4, "big")


def enclose(batch: Batch, source: int, number: int = formats.FIRST) -> pa.RecordBatch:
    """Rows as records of PRODUCE_SCHEMA. number: of the format, in a header if it is not the first one."""
    pieces = [batch]
    if len(batch) > ENVELOPE_ROWS:
        starts = range(0, len(batch), ENVELOPE_ROWS)
        pieces = [batch.slice(s, min(len(batch), s + ENVELOPE_ROWS)) for s in starts]
    n = len(pieces)
    columns = [
        pa.array([_TIME] * n, pa.int64()),
        pa.array([channel_key(source)] * n, pa.binary()),
        pa.array([encode_batch(piece) for piece in pieces], pa.binary()),
        pa.array([_headers(number)] * n, PRODUCE_SCHEMA.field("headers").type),
    ]
    return pa.RecordBatch.from_arrays(columns, schema=PRODUCE_SCHEMA)


def open_envelopes(raw: RawBatch, schema: Schema) -> DecodedRows:
    """The rows of fetched records; `origin` tells of which record each is. NewerVersion."""
    _check_formats(raw)
    batches = [decode_batch(value, schema) for value in raw.records.column("value").to_pylist()]
    origin = np.repeat(np.arange(len(batches)), [len(b) for b in batches])
    known = [b.origins or Origins.unknown(len(b)) for b in batches if len(b)]
    rows = concat(schema, batches)
    return DecodedRows(
        rows.with_origins(concat_origins(known)) if known else rows, origin, raw.records.num_rows, [], raw
    )


def _headers(number: int) -> list[dict[str, object]] | None:
    return None if number == formats.FIRST else [{"key": _FORMAT, "value": str(number).encode()}]


def _check_formats(raw: RawBatch) -> None:
    headers = raw.records.column("headers")
    for number in headers.flatten().field("value").unique().to_pylist() if headers.null_count < len(headers) else ():
        if not formats.reads("envelope", int(number)):
            raise NewerVersion(
                f"{raw.tp}: records have envelope format {int(number)}, this version of FlowQL reads {formats.newest('envelope')}"
            )
