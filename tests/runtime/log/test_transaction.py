"""What a producer collects before its commit."""

from __future__ import annotations

import pyarrow as pa
import pytest

from flowql.runtime.log import transaction as transactions
from flowql.runtime.log.base import PRODUCE_SCHEMA, TopicPartition
from flowql.runtime.log.transaction import Transaction, join_small


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


@pytest.mark.parametrize(("limit", "of_rows"), [("_JOINED_ROWS_MAX", 1), ("_JOINED_BYTES_MAX", 8)])
def test_small_batches_are_joined_up_to_the_most_rows_and_bytes(
    limit: str, of_rows: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(transactions, limit, 10 * of_rows)
    monkeypatch.setattr(transactions, "PRODUCE_SCHEMA", pa.schema([("timestamp", pa.int64())]))
    batches = [pa.RecordBatch.from_arrays([pa.array(range(n))], names=["timestamp"]) for n in (4, 6, 7, 3, 1)]
    assert [b.num_rows for b in join_small(batches)] == [10, 10, 1]


@pytest.mark.parametrize(
    ("limit", "value"),
    [("_SMALL_ROWS", 4_096), ("_SMALL_ROWS", 6), ("_JOINED_ROWS_MAX", 7), ("_JOINED_BYTES_MAX", 200)],
)
def test_partitions_with_few_records_are_joined_in_one_go(
    limit: str, value: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each partition has its own records, in their order, whatever is joined with what."""
    monkeypatch.setattr(transactions, limit, value)
    transaction, sent, number = Transaction(), dict[TopicPartition, list[bytes]](), 0
    for p, sizes in enumerate([[2, 3], [4], [1, 1, 1], [5, 2], [3, 3]]):
        tp = TopicPartition("t", p)
        for size in sizes:
            values = [b"%d" % n for n in range(number, number + size)]
            arrays = [range(size), [None, b"k", b"", b"l", b"m"][:size], values, [[], None, None, None, None][:size]]
            columns = [pa.array(a, f.type) for a, f in zip(arrays, PRODUCE_SCHEMA, strict=True)]
            transaction.add(tp, pa.RecordBatch.from_arrays(columns, schema=PRODUCE_SCHEMA))
            sent[tp], number = sent.get(tp, []) + values, number + size
    stored = transaction.batches()
    assert [tp for tp, _ in stored] == list(sent)
    assert {tp: [v for b in batches for v in b.column(2).to_pylist()] for tp, batches in stored} == sent
    for _, batches in stored:
        for b in batches:
            b.validate(full=True)
            assert b.schema.equals(PRODUCE_SCHEMA, check_metadata=True)
