"""AVRO, JSON_SR and PROTOBUF: rows come back, other libraries read them, and schemas may differ between writer and reader."""

from __future__ import annotations

import io
import json
from decimal import Decimal
from typing import Any

import fastavro
import hypothesis.strategies as st
import pytest
from hypothesis import given, settings

from flowql.compiler.plan.logical import Format, SchemaRef
from flowql.compiler.plan.schema import Field
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
    Kind,
    SqlType,
    array,
    decimal,
    map_of,
    struct,
)
from flowql.compiler.schemas.ref import content_id, schema_for
from flowql.runtime.errors import BadRecord, RegistryUnavailable
from flowql.runtime.serde.codec import row_decoder, row_encoder
from flowql.runtime.serde.registry import KNOWN, PREFIX, registry_at
from tests.property.test_vector_equals_row import values_of

INNER = struct(("X", INT), ("Y", STRING))
TYPES = [
    *(BOOLEAN, INT, BIGINT, DOUBLE, STRING, BYTES, TIME, TIMESTAMP, MICROS, decimal(9, 3), INNER),
    *(
        array(STRING),
        array(INNER),
        map_of(STRING, DOUBLE),
        map_of(STRING, INNER),
        struct(("S", INNER), ("L", array(INT))),
    ),
]
FIELDS = [Field(f"F{i}", t) for i, t in enumerate(TYPES)]
ROWS = st.tuples(*(values_of(t) for t in TYPES))
DEFAULTS: dict[Kind, Any] = {Kind.BOOLEAN: False, Kind.INT: 0, Kind.BIGINT: 0, Kind.DOUBLE: 0.0, Kind.STRING: "", Kind.BYTES: b""}  # fmt: skip


def made(name: str, fields: list[Field], **options: Any) -> Format:
    fmt = Format(name, **options)
    ref = schema_for(fmt, fields, is_key=False)
    return Format(name, **options, schema=SchemaRef(ref.kind, ref.text, content_id(ref), "t-value"))


def there_and_back(fmt: Format, fields: list[Field], row: tuple[Any, ...]) -> Any:
    data = row_encoder(fields, fmt, is_key=False).encode(row)
    return row_decoder(fields, fmt, fields, is_key=False).decode(data)


def same(a: Any, b: Any) -> bool:
    """Equal in type and value, whatever the order in objects."""
    return repr(in_order(a)) == repr(in_order(b))


def in_order(v: Any) -> Any:
    if isinstance(v, dict):
        return {k: in_order(v[k]) for k in sorted(v)}
    return [in_order(x) for x in v] if isinstance(v, (list, tuple)) else v


@settings(deadline=None, max_examples=60)
@given(ROWS, st.sampled_from(["AVRO", "JSON_SR"]))
def test_rows_come_back(row: tuple[Any, ...], name: str) -> None:
    if name == "JSON_SR":  # JSON has no infinities; the JSON format's own tests are about them
        row = tuple(None if isinstance(v, float) or "nan" in repr(v) or "inf" in repr(v) else v for v in row)
    assert same(there_and_back(made(name, FIELDS), FIELDS, row), row)


def in_protobuf(v: Any, t: SqlType, *, nullable: bool) -> Any:
    """What a Protobuf message holds of a value."""
    if v is None:
        empty = {Kind.ARRAY: [], Kind.MAP: {}}.get(t.kind)
        return DEFAULTS.get(t.kind, empty) if not nullable or t.kind not in DEFAULTS else None
    if t.kind is Kind.STRUCT:
        return {n: in_protobuf(v[n], f, nullable=nullable) for n, f in t.fields}
    if t.kind is Kind.ARRAY:
        return [_element(x, t.element, nullable=nullable) for x in v]
    return {k: _element(x, t.element, nullable=nullable) for k, x in v.items()} if t.kind is Kind.MAP else v


def _element(v: Any, t: SqlType, *, nullable: bool) -> Any:
    """A list has no gaps: an absent message is an empty one."""
    if v is None and t.kind is Kind.STRUCT:
        v = {n: None for n, _ in t.fields}
    return in_protobuf(v, t, nullable=nullable and t.kind is Kind.STRUCT)


@settings(deadline=None, max_examples=60)
@given(ROWS, st.sampled_from(["PROTOBUF", "PROTOBUF_NOSR"]), st.sampled_from(["", "OPTIONAL", "WRAPPER"]))
def test_rows_come_back_from_protobuf_with_its_defaults(row: tuple[Any, ...], name: str, nullable: str) -> None:
    fmt = made(name, FIELDS, nullable=nullable)
    expected = tuple(in_protobuf(v, t, nullable=bool(nullable)) for v, t in zip(row, TYPES, strict=True))
    found = there_and_back(fmt, FIELDS, row)
    assert same(found, expected)


def test_avro_is_read_by_others() -> None:
    fields = [Field("A", INT), Field("D", decimal(4, 2)), Field("L", array(STRING)), Field("T", DATE)]
    fmt = made("AVRO", fields)
    assert fmt.schema is not None
    data = row_encoder(fields, fmt, is_key=False).encode((7, Decimal("1.50"), ["x", None], 3))
    assert data is not None
    assert data[:PREFIX] == b"\0" + fmt.schema.id.to_bytes(4, "big")
    schema = fastavro.parse_schema(json.loads(fmt.schema.text))
    value = fastavro.schemaless_reader(io.BytesIO(data[PREFIX:]), schema, None)
    assert value == {"A": 7, "D": Decimal("1.50"), "L": ["x", None], "T": value["T"]}
    assert value["T"].isoformat() == "1970-01-04"


def test_avro_of_an_older_writer_is_read_with_its_own_schema() -> None:
    older = SchemaRef(
        "AVRO", '{"type":"record","name":"R","fields":[{"name":"n","type":"int"},{"name":"s","type":"long"}]}', 77
    )
    KNOWN.remember([older])
    out = io.BytesIO(b"\0\0\0\0\x4d")
    out.seek(PREFIX)
    fastavro.schemaless_writer(out, fastavro.parse_schema(json.loads(older.text)), {"n": 5, "s": 6})
    fields = [Field("S", STRING), Field("N", BIGINT), Field("NEW", DOUBLE)]
    decoder = row_decoder(fields, made("AVRO", fields), fields, is_key=False)
    assert decoder.decode(out.getvalue()) == ("6", 5, None)


MS = 1_704_164_645_678  # 2024-01-02 03:04:05.678
AVRO_TIMES: list[tuple[dict[str, Any], int, SqlType, int | str]] = [
    ({"type": "long", "logicalType": "timestamp-millis"}, MS, TIMESTAMP, MS),
    ({"type": "long", "logicalType": "timestamp-micros"}, MS * 1_000 + 999, TIMESTAMP, MS),
    ({"type": "long", "logicalType": "timestamp-micros"}, -1, TIMESTAMP, -1),
    ({"type": "long", "logicalType": "timestamp-micros"}, MS * 1_000, BIGINT, MS * 1_000),
    ({"type": "long", "logicalType": "timestamp-micros"}, 19_000, DATE, "its schema says that it is a TIMESTAMP"),
    ({"type": "long", "logicalType": "timestamp-nanos"}, MS * 1_000_000, TIMESTAMP, MS),
    ({"type": "long", "logicalType": "timestamp-millis"}, MS, MICROS, MS * 1_000),
    ({"type": "long", "logicalType": "timestamp-micros"}, MS * 1_000 + 999, MICROS, MS * 1_000 + 999),
    ({"type": "long", "logicalType": "timestamp-nanos"}, -1, MICROS, -1),
    ({"type": "long", "connect.name": "io.debezium.time.MicroTimestamp"}, MS * 1_000 + 1, MICROS, MS * 1_000 + 1),
    ({"type": "long"}, MS * 1_000, MICROS, MS * 1_000),
    ({"type": "int", "logicalType": "date"}, 19_000, MICROS, "its schema says that it is a DATE"),
    ({"type": "long", "logicalType": "local-timestamp-micros"}, MS * 1_000, TIMESTAMP, MS),
    ({"type": "long", "logicalType": "time-micros"}, 5_000_999, TIME, 5_000),
    ({"type": "int", "logicalType": "date"}, 19_000, DATE, 19_000),
    ({"type": "int", "logicalType": "date"}, 19_000, TIMESTAMP, "its schema says that it is a DATE"),
    ({"type": "long", "connect.name": "io.debezium.time.MicroTimestamp"}, MS * 1_000, TIMESTAMP, MS),
    ({"type": "long", "connect.name": "io.debezium.time.NanoTime"}, 5_000_000_000, TIME, 5_000),
    ({"type": "int", "logicalType": "timestamp-micros"}, 1_000, TIMESTAMP, 1_000),  # no type of Avro, which is ignored
]


@pytest.mark.parametrize("place", range(len(AVRO_TIMES)))
def test_dates_and_times_of_avro_are_read_in_the_unit_of_their_schema(place: int) -> None:
    """Microseconds were taken for milliseconds, without a word."""
    schema, number, column, expected = AVRO_TIMES[place]
    text = {"type": "record", "name": "R", "fields": [{"name": "t", "type": ["null", schema]}]}
    KNOWN.remember([SchemaRef("AVRO", json.dumps(text), 800 + place)])
    out = io.BytesIO()
    plain = {**text, "fields": [{"name": "t", "type": ["null", schema["type"]]}]}
    fastavro.schemaless_writer(out, fastavro.parse_schema(plain), {"t": number})
    fields = [Field("T", column)]
    decoder = row_decoder(fields, made("AVRO", fields), fields, is_key=False)
    record = b"\0" + (800 + place).to_bytes(4, "big") + out.getvalue()
    if isinstance(expected, str):
        with pytest.raises(BadRecord, match=expected):
            decoder.decode(record)
    else:
        assert decoder.decode(record) == (expected,)


def json_schema(**properties: dict[str, Any]) -> str:
    return json.dumps({"type": "object", "properties": properties})


def titled(name: str, kind: str = "integer", **more: Any) -> dict[str, Any]:
    """As Kafka Connect's converter writes it: NULL is one of two types."""
    return {"oneOf": [{"type": "null"}, {"type": kind, "title": name, "connect.version": 1, **more}]}


DEBEZIUM = "io.debezium.time."
JSON_TIMES: list[tuple[dict[str, Any] | None, str, SqlType, Any]] = [
    (titled(f"{DEBEZIUM}MicroTimestamp"), f"{MS * 1_000 + 999}", TIMESTAMP, MS),
    (titled(f"{DEBEZIUM}MicroTimestamp"), "-1", TIMESTAMP, -1),
    (titled(f"{DEBEZIUM}MicroTimestamp"), f"{MS * 1_000}", BIGINT, MS * 1_000),
    (titled(f"{DEBEZIUM}MicroTimestamp"), "19000", DATE, "t: its schema says that it is a TIMESTAMP"),
    (titled(f"{DEBEZIUM}NanoTimestamp"), f"{MS * 1_000_000}", TIMESTAMP, MS),
    (titled(f"{DEBEZIUM}MicroTimestamp"), f"{MS * 1_000 + 999}", MICROS, MS * 1_000 + 999),
    (titled("org.apache.kafka.connect.data.Timestamp"), f"{MS}", MICROS, MS * 1_000),
    ({"type": "integer"}, f"{MS * 1_000}", MICROS, MS * 1_000),
    (titled(f"{DEBEZIUM}MicroTime"), "5000999", TIME, 5_000),
    (titled(f"{DEBEZIUM}Date"), "19000", DATE, 19_000),
    (titled("org.apache.kafka.connect.data.Timestamp"), f"{MS}", TIMESTAMP, MS),
    ({"type": "array", "items": titled(f"{DEBEZIUM}MicroTimestamp")}, f"[null, {MS}000]", array(TIMESTAMP), [None, MS]),
    (
        {"type": "object", "properties": {"x": titled(f"{DEBEZIUM}MicroTime")}},
        '{"x": 7000}',
        struct(("X", TIME)),
        {"X": 7},
    ),
    (
        titled("org.apache.kafka.connect.data.Decimal", "string", **{"connect.parameters": {"scale": "2"}}),
        '"MDk="',
        decimal(9, 2),
        Decimal("123.45"),
    ),
    ({"type": "integer"}, f"{MS}", TIMESTAMP, MS),
    ({"anyOf": [{"type": "integer"}, {"type": "string"}]}, f"{MS}", TIMESTAMP, MS),
    (None, f"{MS}", TIMESTAMP, MS),  # a schema that is in no registry
    (None, f"{MS * 1_000}", TIMESTAMP, "before 1900 or after 2200.*register the schema"),
    (None, f"[{MS * 1_000}]", array(TIMESTAMP), "before 1900 or after 2200.*register the schema"),
]


def test_times_of_json_are_read_in_the_unit_of_their_schema() -> None:
    """Debezium's microseconds were taken for milliseconds, without a word."""
    for place, (schema, text, column, expected) in enumerate(JSON_TIMES):
        id_ = (900 + place).to_bytes(4, "big")
        if schema is not None:
            KNOWN.remember([SchemaRef("JSON", json_schema(t=schema, u={"type": "string"}), 900 + place)])
        fields = [Field("U", STRING), Field("T", column)]
        decoder = row_decoder(fields, made("JSON_SR", fields), fields, is_key=False)
        record = b"\0" + id_ + b'{"t": ' + text.encode() + b', "u": "x"}'
        if isinstance(expected, str):
            with pytest.raises(BadRecord, match=expected):
                decoder.decode(record)
        else:
            assert decoder.decode(record) == ("x", expected), (schema, text)
        assert decoder.decode(b"\0" + id_ + b'{"U": "y", "t": null}') == ("y", None)


def test_times_of_json_are_written_in_the_unit_of_the_schema_that_a_subject_has() -> None:
    micros, fields = titled(f"{DEBEZIUM}MicroTimestamp"), [Field("T", TIMESTAMP), Field("S", struct(("X", TIMESTAMP)))]
    text = json_schema(T=micros, S={"type": "object", "properties": {"X": micros}})
    fmt, row = Format("JSON_SR", schema=SchemaRef("JSON", text, 950)), (MS, {"X": MS + 1})
    data = row_encoder(fields, fmt, is_key=False).encode(row)
    assert data is not None
    assert json.loads(data[PREFIX:]) == {"T": MS * 1_000, "S": {"X": MS * 1_000 + 1_000}}
    assert row_decoder(fields, fmt, fields, is_key=False).decode(data) == row
    assert there_and_back(fmt, fields, (None, None)) == (None, None)
    bare = Format("JSON_SR", wrap=False, schema=SchemaRef("JSON", json.dumps(micros), 951))
    assert there_and_back(bare, fields[:1], (MS,)) == (MS,)
    assert row_encoder(fields[:1], bare, is_key=False).encode((MS,)) == b"\0\0\0\x03\xb7%d" % (MS * 1_000)
    dated = Format("JSON_SR", schema=SchemaRef("JSON", json_schema(T=titled(f"{DEBEZIUM}Date")), 952))
    with pytest.raises(BadRecord, match="T: the field is a DATE, the column a TIMESTAMP"):
        row_encoder(fields[:1], dated, is_key=False).encode((MS,))


def test_times_are_written_in_the_unit_of_the_schema_that_a_subject_has() -> None:
    micros, day = {"type": "long", "logicalType": "timestamp-micros"}, {"type": "int", "logicalType": "date"}
    text = {"type": "record", "name": "R", "fields": [{"name": "T", "type": ["null", micros]}]}
    fmt = Format("AVRO", schema=SchemaRef("AVRO", json.dumps(text), 850))
    assert there_and_back(fmt, [Field("T", TIMESTAMP)], (MS,)) == (MS,)
    data = row_encoder([Field("T", TIMESTAMP)], fmt, is_key=False).encode((MS,))
    assert data is not None
    read = fastavro.schemaless_reader(io.BytesIO(data[PREFIX:]), fastavro.parse_schema(text), None)
    assert read["T"].isoformat() == "2024-01-02T03:04:05.678000+00:00"
    finer = MS * 1_000 + 1
    assert there_and_back(fmt, [Field("T", MICROS)], (finer,)) == (finer,)
    millis = SchemaRef("AVRO", json.dumps(text).replace("timestamp-micros", "timestamp-millis"), 852)
    in_millis = row_encoder([Field("T", MICROS)], Format("AVRO", schema=millis), is_key=False)
    assert in_millis.encode((finer - 1,)) is not None
    with pytest.raises(BadRecord, match="the field has milliseconds, the value parts of one"):
        in_millis.encode((finer,))
    dated = Format("AVRO", schema=SchemaRef("AVRO", json.dumps(text).replace(json.dumps(micros), json.dumps(day)), 851))
    with pytest.raises(BadRecord, match="the field is a DATE, the column a TIMESTAMP"):
        row_encoder([Field("T", TIMESTAMP)], dated, is_key=False).encode((MS,))


@pytest.mark.parametrize("name", ["AVRO", "JSON_SR", "PROTOBUF"])
def test_what_is_no_record_of_the_format_is_a_bad_record(name: str) -> None:
    fields = [Field("A", INT), Field("S", STRING)]
    decoder = row_decoder(fields, made(name, fields), fields, is_key=False)
    for data in (b"", b"{}", b"\0\0\0", b"\1\0\0\0\1abc"):
        with pytest.raises(BadRecord):
            decoder.decode(data)
    encoded = row_encoder(fields, made(name, fields), is_key=False).encode((1, "x" * 200))
    assert encoded is not None
    with pytest.raises(BadRecord):
        decoder.decode(encoded[:9] + b"\xff" if name != "JSON_SR" else encoded[:9])


@pytest.mark.parametrize("name", ["AVRO", "PROTOBUF"])
def test_an_unknown_schema_is_a_bad_record(name: str) -> None:
    fields = [Field("A", INT), Field("S", STRING)]
    with pytest.raises(BadRecord, match="schema 123456 is not in the registry"):
        row_decoder(fields, made(name, fields), fields, is_key=False).decode(b"\0\0\x01\xe2\x40\0\2")


def test_single_values_and_keys() -> None:
    one = [Field("A", INT, "key")]
    avro = made("AVRO", one, wrap=False)
    data = row_encoder(one, avro, is_key=True).encode((5,))
    assert row_decoder(one, avro, one, is_key=True).decode(data) == (5,)
    assert row_encoder(one, avro, is_key=False).encode((None,)) is None
    wrapped = made("PROTOBUF", one, wrap=False)
    assert row_decoder(one, wrapped, one, is_key=True).decode(
        row_encoder(one, wrapped, is_key=True).encode((None,))
    ) == (0,)


def test_protobuf_names_the_message_inside_its_schema() -> None:
    text = 'syntax = "proto3"; message A { int32 x = 1; } message B { message C { string y = 1; } }'
    ref = SchemaRef("PROTOBUF", text, 9, message="B.C")
    fields = [Field("Y", STRING)]
    fmt = Format("PROTOBUF", schema=ref)
    data = row_encoder(fields, fmt, is_key=False).encode(("hi",))
    assert data == b"\0\0\0\0\x09" + bytes([4, 2, 0]) + b"\n\2hi"
    assert row_decoder(fields, fmt, fields, is_key=False).decode(data) == ("hi",)
    other = row_decoder([Field("X", INT)], fmt, [Field("X", INT)], is_key=False)
    assert other.decode(b"\0\0\0\0\x09\0\x08\x05") == (5,)


OWN_MESSAGE = SchemaRef("PROTOBUF", 'syntax = "proto3"; message A { int32 x = 1; }', 860)
MESSAGES = [
    ("message A { int32 x = 1; A next = 2; }", None),
    ("message A { int32 x = 1; B b = 2; map<string, A> m = 3; } message B { A a = 1; }", None),
    ("message A { int32 x = 1; Nothing n = 2; }", "couldn't resolve name"),
    ("message A { int32 x = 1; int32 y = 1; }", "duplicate field number"),
    ("message A {", "ends in the middle"),
    ("enum E { Z = 0; }", "no message at"),
]


@pytest.mark.parametrize("place", range(len(MESSAGES)))
def test_a_protobuf_schema_of_another_writer_does_not_fail_the_query(place: int) -> None:
    """A message that holds itself, and schemas that Google's library refuses, ended the query instead of making a dead letter."""
    text, expected = MESSAGES[place]
    KNOWN.remember([OWN_MESSAGE, SchemaRef("PROTOBUF", f'syntax = "proto3"; {text}', 861 + place)])
    fields = [Field("X", INT)]
    decoder = row_decoder(fields, Format("PROTOBUF", schema=OWN_MESSAGE), fields, is_key=False)
    record = b"\0" + (861 + place).to_bytes(4, "big") + b"\0\x08\x07"
    if expected is None:
        assert decoder.decode(record) == (7,)
        assert decoder.decode(record + b"\x12\x02\x08\x05") == (7,)
    else:
        with pytest.raises(BadRecord, match=expected):
            decoder.decode(record)


@pytest.mark.parametrize(
    ("column", "number", "message", "expected"),
    [
        (DATE, 2, b"\x08\xe8\x0f\x10\x02\x18\x1e", "2024-02-30 is not a valid DATE"),
        (DATE, 2, b"\x08\xe8\x0f", "2024-00-00 is not a valid DATE"),
        (
            decimal(9, 2),
            3,
            b"\x0a\x01\x01\x18\xff\xff\xff\xff\x07",
            "a decimal of scale 2147483647 is not a valid DECIMAL",
        ),
    ],
)
def test_a_protobuf_value_that_is_none_is_bad_for_those_who_read_it(
    column: SqlType, number: int, message: bytes, expected: str
) -> None:
    text = (
        'syntax = "proto3"; import "google/type/date.proto"; import "confluent/type/decimal.proto"; '
        "message A { int32 x = 1; google.type.Date d = 2; confluent.type.Decimal n = 3; }"
    )
    fmt = Format("PROTOBUF", schema=SchemaRef("PROTOBUF", text, 870))
    declared = [Field("X", INT), Field("D" if number == 2 else "N", column)]
    record = b"\0\0\0\x03\x66\0\x08\x07" + bytes([number << 3 | 2, len(message)]) + message
    with pytest.raises(BadRecord, match=expected):
        row_decoder(declared, fmt, declared, is_key=False).decode(record)
    assert row_decoder(declared[:1], fmt, declared, is_key=False).decode(record) == (7,)


def test_oneof_and_enum() -> None:
    text = (
        'syntax = "proto3"; enum E { NO = 0; YES = 1; } message A { oneof k { int32 i = 1; string s = 2; } E e = 3; }'
    )
    fields = [Field("K_0", struct(("I", INT), ("S", STRING))), Field("E", STRING)]
    fmt = Format("PROTOBUF", schema=SchemaRef("PROTOBUF", text, 10))
    for row in (({"I": None, "S": "x"}, "YES"), ({"I": 4, "S": None}, "NO"), (None, "NO")):
        assert there_and_back(fmt, fields, row) == row
    with pytest.raises(BadRecord, match="MAYBE"):
        there_and_back(fmt, fields, (None, "MAYBE"))


@pytest.mark.parametrize("name", ["AVRO", "PROTOBUF"])
def test_records_of_confluents_serializers(name: str) -> None:
    """A registry in memory of the client itself gives the ids."""
    pytest.importorskip("authlib", reason="the extra `registry` is not installed")
    url = f"mock://{name}"
    fields = [Field("A", INT), Field("S", STRING)]
    made_ref = schema_for(Format(name), fields, is_key=False)
    ref = SchemaRef(made_ref.kind, made_ref.text, 0, "t-value", registry=url)
    fmt = Format(name, schema=ref)
    data = row_encoder(fields, fmt, is_key=False).encode((3, "x"))
    assert data is not None
    registered = registry_at(url).latest("t-value")
    assert registered is not None
    assert (registered.text, registered.registry) == (ref.text, url)
    assert data[:PREFIX] == b"\0" + registered.id.to_bytes(4, "big")
    assert row_decoder(fields, fmt, fields, is_key=False).decode(data) == (3, "x")
    assert registry_at(url).by_id(99) is None


def test_a_registry_that_is_not_there_is_named() -> None:
    pytest.importorskip("authlib", reason="the extra `registry` is not installed")
    with pytest.raises(RegistryUnavailable, match=r"127\.0\.0\.1:9"):
        registry_at("http://127.0.0.1:9").latest("t-value")
