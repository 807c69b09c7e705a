"""Columns from registered schemas, and the schemas that sources and results are written with."""

from __future__ import annotations

import json

import pytest

from flowql.compiler.diagnostics.source import SourceText
from flowql.compiler.driver import Compiled, compile_project
from flowql.compiler.plan.codec import dumps, loads
from flowql.compiler.plan.logical import SchemaRef
from flowql.compiler.schemas.ref import content_id
from tests.compiler.sql import columns

RECORD = json.dumps({"type": "record", "name": "R", "fields": [{"name": "c1", "type": "int"}, {"name": "d", "type": {
    "type": "record", "name": "In", "fields": [{"name": "x", "type": ["null", "string"]}]}}]})  # fmt: skip
PROTO = 'syntax = "proto3"; message A { int32 a = 1; } message B { string b = 1; repeated int64 c = 2; }'


class Registry:
    """A registry with these schemas, numbered from 1."""

    def __init__(self, **subjects: tuple[str, str]) -> None:
        self._subjects = {
            s.replace("_", "-"): SchemaRef(kind, text, n, s.replace("_", "-"))
            for n, (s, (kind, text)) in enumerate(subjects.items(), 1)
        }

    def latest(self, subject: str) -> SchemaRef | None:
        return self._subjects.get(subject)

    def by_id(self, schema_id: int) -> SchemaRef | None:
        return next((s for s in self._subjects.values() if s.id == schema_id), None)


REGISTRY = Registry(t_key=("AVRO", '"long"'), t_value=("AVRO", RECORD), p_value=("PROTOBUF", PROTO))


def compiled(sql: str, **options: object) -> Compiled:
    return compile_project([SourceText("q.sql", sql)], registry=REGISTRY, **options)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("rest", "expected"),
    [
        ("WITH (kafka_topic='t', format='AVRO')", "ROWKEY BIGINT KEY, C1 INT, D STRUCT<X STRING>"),
        ("(k INT KEY) WITH (kafka_topic='t', value_format='AVRO')", "K INT KEY, C1 INT, D STRUCT<X STRING>"),
        ("WITH (kafka_topic='o', value_format='AVRO', value_schema_id=2)", "c1 INT, d STRUCT<x STRING>"),
        ("(v INT) WITH (kafka_topic='t', format='AVRO')", "ROWKEY BIGINT KEY, V INT"),
        ("WITH (kafka_topic='t', value_format='AVRO', wrap_single_value=false)", "ROWVAL STRUCT<C1 INT, D STRUCT<X STRING>>"),
        ("WITH (kafka_topic='p', value_format='PROTOBUF')", "A INT"),
        ("WITH (kafka_topic='p', value_format='PROTOBUF', value_schema_full_name='B')", "B STRING, C ARRAY<BIGINT>"),
    ],
)  # fmt: skip
def test_columns_are_taken_from_the_schema(rest: str, expected: str) -> None:
    made = compiled(f"CREATE STREAM s {rest};")
    assert made.ok, made.diagnostics
    assert columns(made.catalog.sources["S"].schema) == expected


def test_names_fold_as_the_dialect_folds() -> None:
    made = compiled("CREATE STREAM s WITH (KAFKA_TOPIC='t', FORMAT='AVRO');", dialect="standard")
    assert columns(made.catalog.sources["s"].schema) == "rowkey BIGINT KEY, c1 INT, d STRUCT<x STRING>"


@pytest.mark.parametrize(
    ("sql", "code", "said"),
    [
        ("CREATE STREAM s WITH (kafka_topic='new', value_format='AVRO');", "FQ2015", "topic 'new'"),
        ("CREATE STREAM s WITH (kafka_topic='t', value_format='PROTOBUF');", "FQ2015", "topic 't'"),
        ("CREATE STREAM s WITH (kafka_topic='t', value_format='AVRO', value_schema_id=9);", "FQ2015", "id 9"),
        ("CREATE STREAM s WITH (kafka_topic='p', value_format='PROTOBUF', value_schema_full_name='C');", "FQ2015", "C"),
        ("CREATE STREAM s WITH (kafka_topic='x', value_format='AVRO', value_schema_id=1);", "FQ2016", "BIGINT"),
        ("CREATE STREAM s WITH (kafka_topic='t', value_format='KAFKA', value_schema_id=2);", "FQ2011", "KAFKA"),
        ("CREATE STREAM s (a INT) WITH (kafka_topic='t', value_format='AVRO', value_schema_id=2);", "FQ2011", "both"),
        ("CREATE TABLE s WITH (kafka_topic='x', value_format='AVRO', value_schema_id=2);", "FQ2022", "PRIMARY KEY"),
        ("CREATE STREAM s (`a b` INT) WITH (kafka_topic='x', value_format='AVRO');", "FQ2013", "a b"),
        ("CREATE STREAM s (a ARRAY<ARRAY<INT>>) WITH (kafka_topic='x', value_format='PROTOBUF');", "FQ2013", "ARRAY"),
        ("CREATE STREAM s (a INT) WITH (kafka_topic='x', value_format='AVRO', value_schema_full_name='com.1x');", "FQ2011", "com.1x"),
        ("CREATE STREAM s (a INT) WITH (kafka_topic='x', value_format='AVRO', value_schema_full_name=' ');", "FQ2011", "empty"),
        ("CREATE STREAM s (a INT) WITH (kafka_topic='x', value_format='PROTOBUF', wrap_single_value=false);", "FQ2011", "PROTOBUF"),
        ("CREATE STREAM s (a INT) WITH (kafka_topic='x', value_format='JSON', value_protobuf_nullable_representation='OPTIONAL');", "FQ2011", "JSON"),
    ],
)  # fmt: skip
def test_mistakes_are_named(sql: str, code: str, said: str) -> None:
    (found,) = compiled(sql).diagnostics
    assert found.code == code
    assert said in found.title
    assert found.span.line == 1


def test_a_result_with_a_schema_id_has_its_columns() -> None:
    source = "CREATE STREAM s (k INT KEY, `c1` {}, `d` STRUCT<`x` STRING>) WITH (kafka_topic='x', value_format='JSON');"
    query = "CREATE STREAM o WITH (value_format='AVRO', value_schema_id=2) AS SELECT * FROM s;"
    made = compiled(source.format("INT") + query)
    assert made.ok, made.diagnostics
    written = made.catalog.sources["O"].value_format.schema
    assert written is not None
    assert (written.id, written.text, written.subject) == (2, RECORD, "O-value")
    (wrong,) = compiled(source.format("STRING") + query).diagnostics
    assert (wrong.code, "`c1` STRING" in wrong.title) == ("FQ2017", True)


def test_what_a_project_writes_is_known_to_its_later_sources_and_kept_in_plans() -> None:
    first = "CREATE STREAM s (a INT) WITH (kafka_topic='x', value_format='AVRO');"
    made = compiled(first + "CREATE STREAM again WITH (kafka_topic='x', value_format='AVRO');")
    ref = made.catalog.sources["S"].value_format.schema
    assert made.catalog.sources["AGAIN"].value_format.schema == ref
    assert ref is not None
    assert ref.id == content_id(ref)
    assert loads(dumps(made.plan)) == made.plan
    later = compiled("CREATE STREAM s (a INT, b INT) WITH (kafka_topic='x', value_format='AVRO');", previous=made.plan)
    assert ref in later.plan.schemas
    assert len(later.plan.schemas) == 2


def test_with_a_registry_the_registry_numbers() -> None:
    made = compiled(
        "CREATE STREAM s (a INT) WITH (kafka_topic='x', value_format='AVRO');",
        properties={"ksql.schema.registry.url": "http://127.0.0.1:8081"},
    )
    ref = made.catalog.sources["S"].value_format.schema
    assert ref is not None
    assert (ref.id, ref.registry, ref.subject, made.plan.schemas) == (0, "http://127.0.0.1:8081", "x-value", ())


def test_a_source_without_columns_waits_for_the_statement_that_gives_its_schema() -> None:
    made = compiled(
        """CREATE STREAM last WITH (kafka_topic='OUT', value_format='AVRO');
        CREATE STREAM out WITH (value_format='AVRO') AS SELECT a, b + 1 AS c FROM first;
        CREATE STREAM first WITH (kafka_topic='x', value_format='AVRO');
        CREATE STREAM s (a INT, b INT) WITH (kafka_topic='x', value_format='AVRO');"""
    )
    assert made.ok, made.diagnostics
    assert columns(made.catalog.sources["LAST"].schema) == "A INT, C INT"


@pytest.mark.parametrize(
    ("field", "code"),
    [
        ({"name": "other", "type": "int"}, "FQ2017"),
        ({"name": "other", "type": "int", "default": 3}, None),
        ({"name": "other", "type": ["null", "int"]}, None),
    ],
)
def test_a_schema_by_id_needs_a_column_for_each_field_without_a_default(field: object, code: str | None) -> None:
    text = json.dumps({"type": "record", "name": "R", "fields": [{"name": "A", "type": "int"}, field]})
    sql = "CREATE STREAM s (k INT KEY, a INT) WITH (kafka_topic='s', value_format='AVRO'); CREATE STREAM o WITH (value_schema_id=1) AS SELECT * FROM s;"
    made = compile_project([SourceText("q.sql", sql)], registry=Registry(o_value=("AVRO", text)))
    assert [d.code for d in made.diagnostics if d.severity == "error"] == ([code] if code else [])


def test_a_key_column_and_a_column_of_the_schema_have_two_names() -> None:
    made = compiled("CREATE STREAM s (c1 INT KEY) WITH (kafka_topic='t', value_format='AVRO');")
    assert [d.code for d in made.diagnostics] == ["FQ2004"]
