"""Changes as Arrow batches, and back as Python has their values."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from typing import Any, cast

import pyarrow as pa

from flowql.compiler.plan.schema import Schema
from flowql.query.change import Change, Op
from flowql.query.far_times import far_time
from flowql.query.tail import with_bounds
from flowql.runtime.batch import to_arrow, to_python

_KEY = b"flowql.key"  # in the metadata of the schema: columns that deleted rows have


def to_batch(changes: Sequence[Change], result: Schema) -> pa.RecordBatch:
    """One row per change: op, event time, then the columns of the rows. result: of the push query; values are reference values.

    All changes have the same columns, but for deleted rows, which have those of the key.
    """
    deleted = next((tuple(c.row) for c in changes if c.op == "delete"), ())
    names = next((tuple(c.row) for c in changes if c.op != "delete"), deleted)
    assert all(tuple(c.row) == (deleted if c.op == "delete" else names) for c in changes), "changes of one schema"
    types = {f.name: f.type for f in with_bounds(result)}
    columns = [to_arrow([c.row.get(n) for c in changes], types[n]) for n in names]
    head = [pa.array([c.op for c in changes], pa.string()), pa.array([c.rowtime_ms for c in changes], pa.int64())]
    fields = [pa.field(n, column.type) for n, column in zip(("op", "rowtime", *names), [*head, *columns], strict=True)]
    return pa.RecordBatch.from_arrays(
        [*head, *columns], schema=pa.schema(fields, metadata={_KEY: json.dumps(deleted).encode()})
    )


def as_reference(batch: pa.RecordBatch, result: Schema) -> list[Change]:
    """The changes of a batch with reference values, as they were before `to_batch`. result: of the push query."""
    types = {f.name: f.type for f in with_bounds(result)}
    names = batch.schema.names[2:]
    columns = [to_python(column, types[n]) for n, column in zip(names, batch.columns[2:], strict=True)]
    key = set(json.loads(batch.schema.metadata[_KEY]))
    return [
        Change(op, time, {n: v for n, v in zip(names, row, strict=True) if op != "delete" or n in key})
        for op, time, *row in zip(batch[0].to_pylist(), batch[1].to_pylist(), *columns, strict=True)
    ]


def of_batch(batch: pa.RecordBatch) -> Iterator[Change]:
    """The changes of a batch, DECIMAL as `Decimal`, DATE and TIMESTAMP as `date` and `datetime`. Raises QueryError for times that these do not hold."""
    try:
        ops, times, *columns = [column.to_pylist(maps_as_pydicts="strict") for column in batch.columns]
    except OverflowError as error:
        raise far_time() from error
    names = batch.schema.names[2:]
    key = {n: i for i, n in enumerate(names) if n in json.loads(batch.schema.metadata[_KEY])}
    for i, (op, time) in enumerate(zip(ops, times, strict=True)):
        row: dict[str, Any] = (
            {n: columns[at][i] for n, at in key.items()}
            if op == "delete"
            else {n: column[i] for n, column in zip(names, columns, strict=True)}
        )
        yield Change(cast("Op", op), time, row)
