"""Flat Avro by column gives what the reference gives, record by record: any schema of the writer, any record, whole or broken."""

from __future__ import annotations

import io
import json
from decimal import Decimal
from typing import Any

import fastavro
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from flowql.compiler.plan.logical import Format, Scan, SchemaRef, TimestampSpec
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
from flowql.runtime.batch import Batch
from flowql.runtime.log.base import RECORD_SCHEMA, RawBatch, TopicPartition
from flowql.runtime.operators.base import NO_STATE, MicroBatchContext
from flowql.runtime.operators.decode import Decoder
from flowql.runtime.serde.registry import KNOWN, prefix

FIELDS = Schema(
    (
        *(Field("I", INT), Field("L", BIGINT), Field("F", DOUBLE), Field("S", STRING), Field("B", BOOLEAN)),
        *(Field("Y", BYTES), Field("N", decimal(9, 2)), Field("D", DATE), Field("T", TIME), Field("TS", TIMESTAMP)),
        Field("US", MICROS),
    )
)
OWN_ID, OTHER_ID = 701, 702
DECIMAL = {"type": "bytes", "logicalType": "decimal", "precision": 9, "scale": 2}
ENUM = {"type": "enum", "name": "E", "symbols": ["X", "Y"]}
TYPES: dict[str, Any] = {
    "I": "int", "L": "long", "F": "double", "S": "string", "B": "boolean", "Y": "bytes", "N": DECIMAL,
    "D": {"type": "int", "logicalType": "date"}, "T": {"type": "int", "logicalType": "time-millis"},
    "TS": {"type": "long", "logicalType": "timestamp-millis"}, "US": {"type": "long", "logicalType": "timestamp-micros"},
}  # fmt: skip
MICROS, NANOS = ({"type": "long", "logicalType": f"timestamp-{unit}"} for unit in ("micros", "nanos"))
LOCAL, OF_DAY = (
    {"type": "long", "logicalType": "local-timestamp-micros"},
    {"type": "long", "logicalType": "time-micros"},
)
DEBEZIUM = {"type": "long", "connect.version": 1, "connect.name": "io.debezium.time.MicroTimestamp"}
NO_SUCH = {"type": "int", "logicalType": "timestamp-micros"}  # which is ignored
# As writers evolve: other types, orders and unions, fields more and fields fewer.
OTHERS: dict[str, list[Any]] = {
    "I": ["int", "long", ["int", "null"]], "L": ["int", ["null", "long"], "string", MICROS], "F": ["float", ["null", "float"], "int", "long"],
    "S": [ENUM, ["null", ENUM], ["string", "null"], "int"], "B": [["boolean", "null"]], "Y": [["null", "bytes"]],
    "N": [DECIMAL, {**DECIMAL, "scale": 1}, ["null", DECIMAL], "int"], "D": ["int", "long", MICROS], "T": ["int", OF_DAY],
    "TS": ["long", "int", MICROS, ["null", MICROS], NANOS, LOCAL, DEBEZIUM, NO_SUCH, TYPES["D"]],
    "US": ["long", "int", TYPES["TS"], ["null", TYPES["TS"]], NANOS, LOCAL, DEBEZIUM, NO_SUCH, TYPES["D"]],
    "more": ["string", ENUM, "bytes", "boolean", DECIMAL],
}  # fmt: skip
VALUES: dict[str, st.SearchStrategy[Any]] = {
    "int": st.sampled_from([0, 1, -1, 63, 64, 2**31 - 1, -(2**31)]) | st.integers(0, 86_399_999),
    "long": st.sampled_from([0, -1, 2**31, 2**54, 2**55, -(2**55) - 1, 2**63 - 1, -(2**63), 1_700_000_000_000, -1_999, 123_456_789]),
    "double": st.floats(),
    "float": st.floats(width=32),
    "string": st.sampled_from(["", "a", "twelve bytes", "thirteen byte", "é", "😀" * 5]) | st.text(),
    "boolean": st.booleans(),
    "bytes": st.binary(max_size=20),
    "enum": st.sampled_from(["X", "Y"]),
    "decimal": st.integers(-(10**9) + 1, 10**9 - 1).map(lambda n: Decimal(n).scaleb(-2)),
}  # fmt: skip


def own_schema() -> str:
    fields = [{"name": n, "type": ["null", t], "default": None} for n, t in TYPES.items()]
    return json.dumps({"type": "record", "name": "R", "fields": fields})


def value_of(schema: Any) -> st.SearchStrategy[Any]:
    if isinstance(schema, list):
        return st.none() | value_of(next(s for s in schema if s != "null"))
    if isinstance(schema, dict):
        if schema.get("scale") == 1:
            return st.just(Decimal("2.5"))
        return VALUES["decimal" if schema.get("logicalType") == "decimal" else schema["type"]]
    return VALUES[schema]


def plain(schema: Any) -> Any:
    """Without the logical types whose numbers are written as they are."""
    if isinstance(schema, list):
        return [plain(s) for s in schema]
    return schema["type"] if isinstance(schema, dict) and schema["type"] in ("int", "long") else schema


@st.composite
def other_schemas(draw: st.DrawFn) -> dict[str, Any]:
    names = draw(st.permutations(draw(st.lists(st.sampled_from(sorted(OTHERS)), unique=True, min_size=1))))
    fields, enums = [], 0
    for name in names:
        t = draw(st.sampled_from(OTHERS[name]))
        if "enum" in json.dumps(t):
            enums += 1
            t = json.loads(json.dumps(t).replace('"E"', f'"E{enums}"'))
        fields.append({"name": name.lower() if draw(st.booleans()) else name, "type": t})
    return {"type": "record", "name": "R", "fields": fields}


def written(schema: dict[str, Any], value: dict[str, Any], schema_id: int) -> bytes:
    out = io.BytesIO()
    out.write(prefix(schema_id))
    out.seek(0, 2)
    plain_schema = {**schema, "fields": [{**f, "type": plain(f["type"])} for f in schema["fields"]]}
    fastavro.schemaless_writer(out, fastavro.parse_schema(plain_schema), value)
    return out.getvalue()


@st.composite
def records(draw: st.DrawFn, schema: dict[str, Any], schema_id: int) -> bytes:
    return written(schema, {f["name"]: draw(value_of(f["type"])) for f in schema["fields"]}, schema_id)


@st.composite
def broken(draw: st.DrawFn, whole: bytes) -> bytes:
    at, to = draw(st.integers(0, len(whole))), draw(st.integers(0, len(whole)))
    return whole[:at] + draw(st.binary(max_size=3)) + whole[to:]


def raw_of(values: list[bytes | None]) -> RawBatch:
    n = len(values)
    columns = [
        *(pa.array(range(n)), pa.array(range(n)), pa.nulls(n, pa.binary()), pa.array(values, pa.binary())),
        pa.nulls(n, RECORD_SCHEMA.field("headers").type),
    ]
    return RawBatch(TopicPartition("t", 0), pa.RecordBatch.from_arrays(columns, schema=RECORD_SCHEMA), n, 100)


def decoder_of(schema: Schema = FIELDS, timestamp: TimestampSpec | None = None) -> Decoder:
    ref = SchemaRef("AVRO", own_schema(), OWN_ID, "t-value")
    scan = Scan("T", "t", "stream", Format("KAFKA"), Format("AVRO", schema=ref), timestamp, declared=FIELDS)
    return Decoder(scan, schema)


def decoded(decoder: Decoder, raw: RawBatch, *, vector: bool) -> tuple[list[str], list[Any]]:
    run = MicroBatchContext(NO_STATE, vector=vector)
    batch: Batch = decoder.decode(raw, run)
    rows = zip(map(repr, batch.rows()), batch.rowtime.tolist(), batch.seq.tolist(), strict=True)
    return list(map(str, rows)), sorted((d.seq, d.code, d.message) for d in run.dead_letters)


@settings(max_examples=60, deadline=None)
@given(st.data())
def test_records_are_the_same_by_row_and_by_column(data: st.DataObject) -> None:
    other = data.draw(other_schemas())
    KNOWN.remember([SchemaRef("AVRO", json.dumps(other), OTHER_ID)])
    own = json.loads(own_schema())
    values: list[bytes | None] = data.draw(
        st.lists(records(own, OWN_ID) | records(other, OTHER_ID), min_size=1, max_size=12)
    )
    values += [data.draw(broken(v)) for v in values[:6] if v is not None]
    values += [None, b"", b"\0\0\0\0\x09x"]
    schema = data.draw(st.sampled_from([FIELDS, Schema(FIELDS.fields[:3])]))
    decoder = decoder_of(schema, data.draw(st.sampled_from([None, TimestampSpec("TS")])))
    assert decoder.has_vector
    raw = raw_of(values)
    assert decoded(decoder, raw, vector=True) == decoded(decoder, raw, vector=False)


def test_a_record_that_names_a_schema_of_another_kind_is_bad() -> None:
    """The first byte lost, a record may name any schema: one of JSON ended the query with fastavro's KeyError."""
    documents = [SchemaRef("JSON", '{"properties": {}}', 721), SchemaRef("AVRO", '{"properties": {}}', 722)]
    documents += [
        SchemaRef("AVRO", '{"type": "record", "name": "R", "fields": [{"name": "I"}]}', 723),
        SchemaRef("AVRO", "[3]", 724),
    ]
    KNOWN.remember([*documents, SchemaRef("PROTOBUF", "message M {}", 725), SchemaRef("AVRO", '"no such type"', 726)])
    raw = raw_of([prefix(i) + b"\2" for i in range(721, 727)])
    rows, letters = decoded(decoder_of(), raw, vector=True)
    assert rows == []
    assert len(letters) == 6, letters
    assert (rows, letters) == decoded(decoder_of(), raw, vector=False)


def test_whole_records_of_plain_values_are_not_declined() -> None:
    """Else the vector path would be the row path in disguise."""
    row = {
        "I": 1,
        "L": 2**40,
        "F": 1.5,
        "S": "é" * 9,
        "B": True,
        "Y": b"\xff",
        "N": Decimal("-1.25"),
        "D": -3,
        "T": 5,
        "TS": 6,
    }
    empty = dict.fromkeys(row)
    own = json.loads(own_schema())
    good, rows = decoder_of().columns(raw_of([written(own, row, OWN_ID), written(own, empty, OWN_ID)]))
    assert good.tolist() == [True, True]
    assert [c.to_pylist()[0] for c in rows.columns[:7]] == [*row.values()][:7]


@pytest.mark.parametrize(
    "t", [{"type": "array", "items": "int"}, ["null", "int", "string"], {"type": "map", "values": "int"}]
)
def test_what_is_not_flat_is_read_by_rows(t: Any) -> None:
    text = json.dumps(
        {"type": "record", "name": "R", "fields": [{"name": "I", "type": "int"}, {"name": "X", "type": t}]}
    )
    ref = SchemaRef("AVRO", text, 703)
    scan = Scan("T", "t", "stream", Format("KAFKA"), Format("AVRO", schema=ref), None, declared=FIELDS)
    assert not Decoder(scan, FIELDS).has_vector
