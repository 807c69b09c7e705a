"""What a producer collects before its commit."""

from __future__ import annotations

import pyarrow as pa

from flowql.runtime.log.base import PRODUCE_SCHEMA, TopicPartition
from flowql.runtime.log.transaction import Transaction


def test_small_batches_of_unlike_schemas_are_stored_as_one() -> None:
    """Producers make slices, columns that could be NULL, and schemas with metadata; a stored batch has the schema of records."""
    headers = [None, [{"key": "h", "value": b"x"}]]
    rows = [
        {"timestamp": n, "key": b"%d" % n, "value": None if n % 3 else b"v", "headers": headers[n % 2]}
        for n in range(6)
    ]
    every = pa.RecordBatch.from_pylist(rows, PRODUCE_SCHEMA)
    loose = PRODUCE_SCHEMA.set(0, pa.field("timestamp", pa.int64()))
    transaction, tp = Transaction(), TopicPartition("t", 0)
    transaction.add(tp, every.slice(0, 2))
    transaction.add(tp, pa.RecordBatch.from_arrays(every.slice(2, 1).columns, schema=loose))
    transaction.add(tp, every.slice(3, 3).replace_schema_metadata({"a": "b"}))
    ((_, stored),) = transaction.batches()
    assert len(stored) == 1
    assert stored[0].schema.equals(PRODUCE_SCHEMA, check_metadata=True)
    assert stored[0].to_pylist() == every.to_pylist()
