"""SQL types as registered schemas and back."""

from __future__ import annotations

import json
from typing import Any

import hypothesis.strategies as st
import pytest
from hypothesis import given, settings

from flowql.compiler.plan import types as t
from flowql.compiler.plan.types import Kind, SqlType
from flowql.compiler.schemas import avro, json_schema, protobuf
from flowql.compiler.schemas.proto_text import parse_proto

SCALARS = st.sampled_from(
    [t.BOOLEAN, t.INT, t.BIGINT, t.DOUBLE, t.STRING, t.BYTES, t.DATE, t.TIME, t.TIMESTAMP, t.decimal(10, 3)]
)
NAMES = st.lists(st.sampled_from(["A", "b", "C1", "long_name", "TS"]), min_size=1, max_size=4, unique=True)


def _containers(inner: st.SearchStrategy[SqlType]) -> st.SearchStrategy[SqlType]:
    return st.one_of(inner.map(t.array), inner.map(lambda v: t.map_of(t.STRING, v)), structs(inner))


def structs(inner: st.SearchStrategy[SqlType]) -> st.SearchStrategy[SqlType]:
    return NAMES.flatmap(lambda names: st.tuples(*(inner for _ in names)).map(lambda f: _struct(names, f)))


def _struct(names: list[str], fields: tuple[SqlType, ...]) -> SqlType:
    return t.struct(*zip(names, fields, strict=True))


ANY = st.recursive(SCALARS, _containers, max_leaves=6)


@settings(deadline=None)
@given(structs(ANY))
def test_columns_come_back_from_avro_and_json_schema(columns: SqlType) -> None:
    assert avro.type_of(avro.schema_text(columns, wrapped=True)) == columns
    assert json_schema.type_of(json_schema.schema_text(columns, wrapped=True)) == columns


@settings(deadline=None)
@given(ANY)
def test_a_single_value_comes_back(value: SqlType) -> None:
    columns = t.struct(("V", value))
    assert avro.type_of(avro.schema_text(columns, wrapped=False)) == value
    assert json_schema.type_of(json_schema.schema_text(columns, wrapped=False)) == value


def _in_protobuf(type_: SqlType) -> bool:
    many = (Kind.ARRAY, Kind.MAP)
    inner = [*type_.args, *(f for _, f in type_.fields)]
    return all(map(_in_protobuf, inner)) and not (type_.kind in many and type_.element.kind in many)


@settings(deadline=None)
@given(structs(ANY).filter(_in_protobuf), st.sampled_from(["", "OPTIONAL", "WRAPPER"]))
def test_columns_come_back_from_protobuf(columns: SqlType, nullable: str) -> None:
    assert protobuf.type_of(protobuf.schema_text(columns, nullable=nullable, name="com.example.Row")) == columns


def test_avro_of_others() -> None:
    schema = {
        "type": "record", "name": "R", "namespace": "n", "fields": [
            {"name": "suit", "type": {"type": "enum", "name": "S", "symbols": ["A"]}},
            {"name": "f", "type": "float"},
            {"name": "again", "type": ["null", "n.S"]},
            {"name": "either", "type": ["null", "int", {"type": "record", "name": "In", "fields": [{"name": "x", "type": "int"}]}]},
            {"name": "micros", "type": {"type": "long", "logicalType": "timestamp-micros"}},
            {"name": "m", "type": {"type": "array", "items": {
                "type": "record", "name": "E", "connect.internal.type": "MapEntry",
                "fields": [{"name": "key", "type": "int"}, {"name": "value", "type": "string"}]}}},
        ],
    }  # fmt: skip
    assert str(avro.type_of(json.dumps(schema))) == (
        "STRUCT<suit STRING, f DOUBLE, again STRING, either STRUCT<int INT, In STRUCT<x INT>>, micros BIGINT, "
        "m MAP<INT, STRING>>"
    )
    assert avro.type_of("int") == avro.type_of('"int"') == avro.type_of('{"type": "int"}') == t.INT
    with pytest.raises(ValueError, match="null"):
        avro.type_of('"null"')


def test_json_schema_of_others() -> None:
    schema: dict[str, Any] = {
        "type": "object",
        "properties": {
            "id": {"type": "integer"},
            "ratio": {"type": ["null", "number"]},
            "tag": {"enum": ["a", "b"]},
            "inner": {"$ref": "#/definitions/inner"},
            "m": {"type": "object", "additionalProperties": {"type": "boolean"}},
            "odd": {"type": "string", "connect.type": "int32"},
        },
        "definitions": {"inner": {"type": "object", "properties": {"x": {"type": "string"}}}},
    }
    assert str(json_schema.type_of(json.dumps(schema))) == (
        "STRUCT<id BIGINT, ratio DOUBLE, tag STRING, inner STRUCT<x STRING>, m MAP<STRING, BOOLEAN>, odd STRING>"
    )
    with pytest.raises(ValueError, match="refers to itself"):
        json_schema.type_of('{"$ref": "#"}')
    with pytest.raises(ValueError, match="contains itself"):
        json_schema.type_of('{"type": "object", "properties": {"next": {"$ref": "#"}}}')


PROTO = """
syntax = "proto3";  // a comment
package shop;
import "google/protobuf/timestamp.proto";
import public "other.proto";
option java_package = "x";
/* message Not {} */
enum Colour { option allow_alias = true; RED = 0; BLUE = 1 [deprecated = true]; reserved 7; }
message Order {
  reserved 2, 15 to 20;
  option (some.option) = { a: 1 };
  int64 id = 1 [json_name = "ID"];
  optional string note = 3;
  repeated Line lines = 4;
  map<string, Line> by_name = 5;
  oneof paid { string cash = 6; Card card = 7; }
  google.protobuf.Timestamp at = 8;
  Colour colour = 9;
  Other other = 0x0A;
  message Line { uint32 n = 1; .shop.Order.Card card = 2; }
  message Card { bytes data = 1; }
}
service Shop { rpc Buy (Order) returns (Order) {} }
"""
OTHER = 'syntax = "proto3"; package shop; message Other { sint32 x = 1; }'


def test_protobuf_of_others() -> None:
    assert str(protobuf.type_of(PROTO, (("other.proto", OTHER),))) == (
        "STRUCT<id BIGINT, note STRING, lines ARRAY<STRUCT<n BIGINT, card STRUCT<data BYTES>>>, "
        "by_name MAP<STRING, STRUCT<n BIGINT, card STRUCT<data BYTES>>>, paid_0 STRUCT<cash STRING, card STRUCT<data BYTES>>, "
        "at TIMESTAMP, colour STRING, other STRUCT<x INT>>"
    )
    assert str(protobuf.type_of(PROTO, message="Order.Card")) == "STRUCT<data BYTES>"
    with pytest.raises(LookupError, match="Nobody"):
        protobuf.type_of(PROTO, message="Nobody")


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("message A { int32 x = ; }", "expected a number"),
        ("message A {\n int32 x 1; }", "line 2"),
        ("message A {", "ends in the middle"),
        ("message A { group B = 1 {} }", "groups"),
    ],
)
def test_a_broken_proto_says_where(text: str, said: str) -> None:
    with pytest.raises(ValueError, match=said):
        parse_proto(text)


def test_a_message_that_contains_itself_has_no_type() -> None:
    with pytest.raises(ValueError, match="contains itself"):
        protobuf.type_of('syntax = "proto3"; message A { A inner = 1; }')
