"""INSERT INTO ... VALUES as a record."""

from __future__ import annotations

import pyarrow as pa

from flowql.compiler.functions.evaluate import compile_row
from flowql.compiler.plan.logical import Sink
from flowql.compiler.plan.topology import InsertValues, SourceDef
from flowql.runtime.batch import DELETE, INSERT, from_rows
from flowql.runtime.errors import StatementFailed
from flowql.runtime.operators.encode import Encoder


def encode_insert(source: SourceDef, insert: InsertValues, now_ms: int) -> pa.RecordBatch:
    """The record an INSERT VALUES writes; columns it leaves out are null, its time is ROWTIME or now. Raises StatementFailed."""

    def refuse(index: int, error: Exception) -> None:
        raise StatementFailed(f"VALUES, column {insert.columns[max(index, ~index)]}: {error}") from error

    values = dict(zip(insert.columns, compile_row(insert.values, [], on_error=refuse)(()), strict=True))
    row = tuple(values.get(name) for name in source.schema.names)
    no_value = source.kind == "table" and all(values.get(f.name) is None for f in source.schema.value)
    rowtime = now_ms if insert.rowtime is None else insert.rowtime
    sink = Sink(source.name, source.topic, source.kind, source.key_format, source.value_format, source.timestamp)
    batch = from_rows(source.schema, [row], [rowtime], [DELETE if no_value else INSERT], [0])
    records = Encoder(sink, source.schema).encode(batch)
    if source.timestamp is not None and not records.num_rows:
        column = source.timestamp.column
        value = "NULL" if values.get(column) is None else values[column]
        raise StatementFailed(f"VALUES, column {column}: {value} cannot be the time of a record")
    return records
