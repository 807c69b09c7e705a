"""Windowed keys by column are what they are by row: read and written, whole, too short, of any type, and none."""

from __future__ import annotations

import struct

import pyarrow as pa
from hypothesis import given, settings
from hypothesis import strategies as st

from flowql.compiler.plan.logical import Format, Scan, Sink
from flowql.compiler.plan.schema import Field, KeyWindow, Schema
from flowql.compiler.plan.types import BIGINT, BYTES, DOUBLE, INT, STRING, SqlType
from flowql.runtime.batch import DELETE, INSERT, from_rows
from flowql.runtime.log.base import RECORD_SCHEMA, RawBatch, TopicPartition
from flowql.runtime.operators.decode import Decoder
from flowql.runtime.operators.encode import Encoder, KeyEncoder
from flowql.runtime.serde.windowed import split_window
from tests.property.test_avro_paths import decoded

KEYS = {
    INT: st.integers(-(2**31), 2**31 - 1),
    BIGINT: st.integers(-(2**63), 2**63 - 1),
    DOUBLE: st.floats(allow_nan=False),
    STRING: st.sampled_from(["", "a", "é\U0001f600", "eight by"]),
}
WINDOWS = st.sampled_from([KeyWindow("time", 10_000), KeyWindow("time"), KeyWindow("session")])
TIMES = st.sampled_from([0, 1, -1, 1_700_000_000_000, 2**63 - 1, 2**63 - 10_001, -(2**63)])


def raw_of(keys: list[bytes | None]) -> RawBatch:
    n = len(keys)
    columns = [
        *(pa.array(range(n)), pa.array(range(n)), pa.array(keys, pa.binary()), pa.array([b'{"V":1}'] * n, pa.binary())),
        pa.nulls(n, RECORD_SCHEMA.field("headers").type),
    ]
    records = pa.RecordBatch.from_arrays(columns, schema=RECORD_SCHEMA)
    return RawBatch(TopicPartition("t", 0), records.slice(1), n, 100)  # what is in front of the rows does not count


@settings(max_examples=80, deadline=None)
@given(st.data(), st.sampled_from([INT, BIGINT, DOUBLE, STRING, BYTES]), WINDOWS, st.sampled_from(["stream", "table"]))
def test_windowed_keys_are_read_the_same_by_row_and_by_column(
    data: st.DataObject, t: SqlType, window: KeyWindow, kind: str
) -> None:
    layout = {INT: ">i", BIGINT: ">q", DOUBLE: ">d"}.get(t)
    texts = st.sampled_from([b"", b"a", "é".encode(), b"\xff", b"12345678"])
    key = texts if layout is None else KEYS[t].map(lambda v: struct.pack(layout, v))
    bounds = st.tuples(TIMES, TIMES).map(lambda b: struct.pack(">qq", *b)[: 8 if window.kind == "time" else 16])
    whole = st.tuples(key, bounds).map(b"".join)
    broken = st.sampled_from([None, b"", b"1234567", b"12345678", b"x" * 17, b"x" * 40])
    keys = data.draw(st.lists(whole | broken, min_size=2, max_size=9))
    names = data.draw(st.sampled_from([("WINDOWSTART", "WINDOWEND"), ("WINDOWEND",), ()]))
    fields = (Field("K", t, "key"), *(Field(n, BIGINT, "window") for n in names), Field("V", INT))
    schema = Schema(fields if data.draw(st.booleans()) else fields[1:], window)
    declared = Schema((fields[0], fields[-1]))
    decoder = Decoder(Scan("T", "t", kind, Format("KAFKA"), Format("JSON"), declared=declared), schema)  # type: ignore[arg-type]
    assert decoder.has_vector
    raw = raw_of(keys)
    assert decoded(decoder, raw, vector=True) == decoded(decoder, raw, vector=False)


def test_the_end_of_a_window_beyond_all_times_is_the_largest_time() -> None:
    """It was no BIGINT: a record whose key had such a start ended the run of its whole batch."""
    assert split_window(struct.pack(">q", 2**63 - 1), KeyWindow("time", 10_000))[1:] == (2**63 - 1, 2**63 - 1)


@settings(max_examples=80, deadline=None)
@given(st.data(), st.sampled_from(list(KEYS)), WINDOWS, st.sampled_from(["KAFKA", "JSON"]))
def test_windowed_keys_are_written_the_same_by_row_and_by_column(
    data: st.DataObject, t: SqlType, window: KeyWindow, fmt: str
) -> None:
    bounds = (Field("WINDOWSTART", BIGINT, "window"), Field("WINDOWEND", BIGINT, "window"))
    schema = Schema((Field("V", INT), Field("K", t, "key"), *bounds), window)
    row = st.tuples(st.just(1), KEYS[t] | st.none(), TIMES, TIMES)
    rows = data.draw(st.lists(row, min_size=1, max_size=9))
    n, ops = len(rows), data.draw(st.sampled_from([INSERT, DELETE]))
    encoder = Encoder(Sink("S", "s", "table", Format(fmt), Format("JSON")), schema)
    by_row, by_column = (
        encoder.encode(from_rows(schema, rows, range(n), [ops] * n, range(n)), vector=vector)
        for vector in (False, True)
    )
    assert encoder.has_vector or fmt == "JSON"  # which writes a DOUBLE row by row
    assert by_column.equals(by_row)


@settings(max_examples=80, deadline=None)
@given(st.data(), WINDOWS | st.none(), st.booleans(), st.booleans())
def test_json_keys_of_several_columns_are_written_the_same_by_row_and_by_column(
    data: st.DataObject, window: KeyWindow | None, null_key: bool, null_group: bool
) -> None:
    types = data.draw(st.lists(st.sampled_from(list(KEYS)), min_size=2, max_size=3))
    bounds = (Field("WINDOWSTART", BIGINT, "window"), Field("WINDOWEND", BIGINT, "window")) if window else ()
    schema = Schema((*(Field(f"k{i}", t, "key") for i, t in enumerate(types)), Field("V", INT), *bounds), window)
    row = st.tuples(*(KEYS[t] | st.none() for t in types), st.just(1), *(TIMES for _ in bounds))
    rows = data.draw(st.lists(row, min_size=1, max_size=9))
    encoder = KeyEncoder(schema, Format("JSON"), null_key=null_key, null_group=null_group)
    columns = from_rows(schema, rows, range(len(rows)), [INSERT] * len(rows), range(len(rows))).arrow().columns
    assert encoder.has_vector
    assert encoder.columns(columns, len(rows)).to_pylist() == [encoder.encode(r) for r in rows]
