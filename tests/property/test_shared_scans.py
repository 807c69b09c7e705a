"""Readers that share the decoding of a topic see what each would see alone: the same rows, and the same records as bad."""

from __future__ import annotations

import json
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from flowql.compiler.plan.logical import Format, Scan, TimestampSpec
from flowql.compiler.plan.schema import Field, Schema
from flowql.compiler.plan.topology import Operator
from flowql.compiler.plan.types import BIGINT, DOUBLE, INT, STRING, array
from flowql.runtime.log.base import RECORD_SCHEMA, RawBatch, TopicPartition
from flowql.runtime.metrics import Metrics
from flowql.runtime.operators.base import NO_STATE, MicroBatchContext
from flowql.runtime.operators.decode import Decoder
from flowql.runtime.topology.scans import Scans, SharedScan

KEY = Field("K", BIGINT, "key")
VALUES = (Field("A", INT), Field("S", STRING), Field("X", DOUBLE), Field("L", array(INT)))
OFFSET = Field("ROWOFFSET", BIGINT, "pseudo")
DECLARED = Schema(VALUES)

values: dict[str, st.SearchStrategy[Any]] = {
    "A": st.sampled_from([1, -5, None, "7", "many", True]),
    "S": st.sampled_from(["x", "é", None, 3, 1.10, {"a": 1}]),
    "X": st.sampled_from([1.5, 2, None, "0.25", "wide"]),
    "L": st.sampled_from([[1], [], None, "none", [True]]),
}
documents = st.one_of(
    st.fixed_dictionaries({}, optional=values).map(lambda d: json.dumps(d).encode()),
    st.fixed_dictionaries({"A": st.integers(0, 9), "S": st.just("x"), "X": st.just(1.5)}).map(
        lambda d: json.dumps(d).encode()
    ),
    st.sampled_from([None, b"null", b"{", b"[]", b"\xff", b'{"a":3}']),
)
keys = st.sampled_from([*(n.to_bytes(8, "big") for n in range(3)), None, b"123"])
schemas = st.sets(st.sampled_from([KEY, *VALUES, OFFSET]), min_size=1).map(
    lambda s: Schema(tuple(f for f in (KEY, *VALUES, OFFSET) if f in s))
)


def raw_of(records: list[tuple[bytes | None, bytes | None]]) -> RawBatch:
    n = len(records)
    columns = [
        *(pa.array(range(n)), pa.array(range(n))),
        pa.array([k for k, _ in records], pa.binary()),
        pa.array([v for _, v in records], pa.binary()),
        pa.nulls(n, RECORD_SCHEMA.field("headers").type),
    ]
    return RawBatch(TopicPartition("t", 0), pa.RecordBatch.from_arrays(columns, schema=RECORD_SCHEMA), n, 100)


def scan(fmt: str = "JSON", timestamp: TimestampSpec | None = None, declared: Schema = DECLARED) -> Scan:
    return Scan("T", "t", "stream", Format("KAFKA"), Format(fmt), timestamp, declared=declared)


def attached(scans: Scans, query: str, spec: Scan, schema: Schema) -> SharedScan:
    return scans.attach(query, Operator("scan-1", spec, (), schema, "append"))


def alone(spec: Scan, schema: Schema, raw: RawBatch) -> tuple[list[Any], list[Any]]:
    run = MicroBatchContext(NO_STATE, vector=False)
    batch = Decoder(spec, schema).decode(raw, run)
    return shown(batch), [(d.seq, d.code, d.message) for d in run.dead_letters]


def shown(batch: Any) -> list[Any]:
    return list(
        map(repr, zip(batch.rows(), batch.rowtime.tolist(), batch.op.tolist(), batch.seq.tolist(), strict=True))
    )


@pytest.mark.parametrize("vector", [False, True])
@settings(max_examples=80, deadline=None)
@given(
    readers=st.lists(schemas, min_size=2, max_size=4),
    records=st.lists(st.tuples(keys, documents), min_size=1, max_size=12),
    timestamp=st.sampled_from([None, TimestampSpec("A")]),
)
def test_readers_see_what_they_would_see_alone(vector, readers, records, timestamp):
    if timestamp is not None:
        timed = Field("A", BIGINT)
        readers = [Schema(tuple(timed if f.name == "A" else f for f in s)) for s in readers]
        spec = scan(timestamp=timestamp, declared=Schema((timed, *VALUES[1:])))
    else:
        spec = scan()
    scans, raw = Scans(Metrics()), raw_of(records)
    for i, schema in enumerate(readers):
        attached(scans, f"Q{i}", spec, schema)
    for i, schema in enumerate(readers):
        shared = attached(scans, f"Q{i}", spec, schema)
        staged = shared.decode(schema, raw, MicroBatchContext(NO_STATE, vector=vector))
        expected, letters = alone(spec, schema, raw)
        assert staged.batch.schema == schema
        assert shown(staged.batch) == expected
        assert staged.origin.tolist() == staged.batch.seq.tolist()
        assert sorted((d.seq, d.code, d.message) for d in staged.dead_letters) == letters


def test_a_query_planned_before_a_column_was_added_shares_with_those_planned_since() -> None:
    scans, raw = Scans(Metrics()), raw_of([(None, b'{"A":1,"N":2}'), (None, b'{"A":1,"N":"many"}')])
    new = Schema((Field("N", INT),))
    old = attached(scans, "OLD", scan(), Schema(VALUES[:1]))
    shared = attached(scans, "NEW", scan(declared=Schema((*new.fields, *VALUES))), new)
    assert shared is old
    assert len(shared.decode(Schema(VALUES[:1]), raw, MicroBatchContext(NO_STATE)).batch) == 2
    staged = shared.decode(new, raw, MicroBatchContext(NO_STATE))
    assert (staged.batch.rows(), [d.seq for d in staged.dead_letters]) == ([(2,)], [1])
    assert scans.attach("OLD", Operator("scan-1", scan(), (), Schema(VALUES[:1]), "append")) is old
    scans.release("OLD")
    assert list(shared.readers) == ["NEW/scan-1"]
    scans.release("NEW")
    assert not shared.readers


def test_readers_that_declare_a_column_differently_do_not_share() -> None:
    scans = Scans(Metrics())
    numbers, texts = Schema((Field("A", INT),)), Schema((Field("A", STRING),))
    first = attached(scans, "Q1", scan(declared=numbers), numbers)
    second = attached(scans, "Q2", scan(declared=texts), texts)
    third = attached(scans, "Q3", scan(declared=texts), texts)
    assert first is not second
    assert second is third
    raw = raw_of([(None, b'{"A":1}'), (None, b'{"A":"many"}')])
    assert first.decode(numbers, raw, MicroBatchContext(NO_STATE)).batch.rows() == [(1,)]
    assert second.decode(texts, raw, MicroBatchContext(NO_STATE)).batch.rows() == [("1",), ("many",)]


def test_readers_of_lines_share_only_what_is_declared_alike() -> None:
    scans = Scans(Metrics())
    one = attached(scans, "Q1", scan("DELIMITED", declared=Schema(VALUES[:2])), Schema(VALUES[:1]))
    two = attached(scans, "Q2", scan("DELIMITED", declared=Schema(VALUES[:3])), Schema(VALUES[:1]))
    assert one is not two
