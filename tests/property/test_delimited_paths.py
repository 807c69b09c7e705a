"""Lines of CSV by column give what the reference gives, line by line: any field in any place, quoted, broken, or missing."""

from __future__ import annotations

import pyarrow as pa
from hypothesis import given, settings
from hypothesis import strategies as st

from flowql.compiler.plan.logical import Format, Scan, TimestampSpec
from flowql.compiler.plan.schema import Field, Schema
from flowql.compiler.plan.types import (
    BIGINT,
    BOOLEAN,
    BYTES,
    DATE,
    DOUBLE,
    INT,
    MICROS,
    STRING,
    TIME,
    TIMESTAMP,
    decimal,
)
from flowql.runtime.log.base import RECORD_SCHEMA, RawBatch, TopicPartition
from flowql.runtime.operators.decode import Decoder
from tests.property.test_avro_paths import decoded, raw_of

FIELDS = Schema(
    (
        *(Field("I", INT), Field("L", BIGINT), Field("F", DOUBLE), Field("S", STRING), Field("B", BOOLEAN)),
        *(
            Field("N", decimal(9, 2)),
            Field("D", DATE),
            Field("T", TIME),
            Field("TS", TIMESTAMP),
            Field("US", MICROS),
            Field("Z", STRING),
        ),
    )
)
NUMBERS = [
    "",
    "0",
    "-0",
    "7",
    "-12",
    "+3",
    "007",
    " 5",
    "2147483647",
    "2147483648",
    "86399999",
    "86400000",
    "null",
    "x",
    "1.5",
    "1.",
]
NUMBERS += [
    "-0.0",
    "-0.5",
    "1e3",
    "9223372036854775807",
    "9223372036854775808",
    "123456789012345678901234567890",
    "1_0",
    "٣",
    "NaN",
]
NUMBERS += [".5", "1f", "9999999.99", "9999999.999", "-1.25", "1e400"]
TEXTS = [
    "",
    " ",
    "a",
    "é",
    "😀" * 9,
    "twelve bytes",
    "thirteen byte",
    'q"',
    '"a|b"',
    '"x""y"',
    "a\nb",
    "true",
    "TRUE",
    "false",
    "no",
]
field = (
    st.sampled_from(NUMBERS) | st.sampled_from(TEXTS) | st.integers(-(2**70), 2**70).map(str) | st.floats().map(repr)
)
GOOD = ["1", "-2", "1.5", "text", "true", "-1.25", "3", "4", "5", "-6", "é"]


@st.composite
def lines(draw: st.DrawFn) -> bytes:
    """A good line in which some fields are anything."""
    fields = list(GOOD)
    for _ in range(draw(st.sampled_from([0, 1, 1, 1, 2, 10]))):
        fields[draw(st.integers(0, 9))] = draw(field)
    count = draw(st.sampled_from([10] * 8 + [9, 11, 0]))
    return "|".join([*fields, "more"][:count]).encode() + draw(st.sampled_from([b""] * 9 + [b"\xff", b"\r\n"]))


def decoder_of(schema: Schema = FIELDS, timestamp: TimestampSpec | None = None) -> Decoder:
    scan = Scan("T", "t", "stream", Format("KAFKA"), Format("DELIMITED", delimiter="|"), timestamp, declared=FIELDS)
    return Decoder(scan, schema)


@settings(max_examples=60, deadline=None)
@given(
    st.lists(lines() | st.none(), min_size=1, max_size=30),
    st.sampled_from([FIELDS, Schema(FIELDS.fields[:2])]),
    st.sampled_from([None, TimestampSpec("TS")]),
)
def test_lines_are_the_same_by_row_and_by_column(
    values: list[bytes | None], schema: Schema, timestamp: TimestampSpec | None
) -> None:
    decoder = decoder_of(schema, timestamp)
    assert decoder.has_vector
    raw = raw_of(values)
    assert decoded(decoder, raw, vector=True) == decoded(decoder, raw, vector=False)


def test_plain_lines_are_not_declined() -> None:
    """Else the vector path would be the row path in disguise."""
    empty = "|" * 10
    records = pa.array(["|".join(GOOD).encode(), empty.encode(), b"1|2", "|".join(GOOD).encode()], pa.binary())
    batch = raw_of([None] * 4).records.set_column(3, RECORD_SCHEMA.field("value"), records)
    good, rows = decoder_of().columns(RawBatch(TopicPartition("t", 0), batch, 4, 100))
    assert good.tolist() == [True, True, False, True]
    assert [c.to_pylist()[1] for c in rows.columns] == [None] * 11
    assert [c.to_pylist()[2] for c in rows.columns[:5]] == [1, -2, 1.5, "text", True]


def test_one_column_of_bytes_goes_by_rows() -> None:
    fields = Schema((Field("Y", BYTES),))
    scan = Scan("T", "t", "stream", Format("KAFKA"), Format("DELIMITED"), None, declared=fields)
    assert not Decoder(scan, fields).has_vector
