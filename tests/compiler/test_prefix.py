"""A target's prefix is put before the topics that FlowQL creates, and before no others."""

from __future__ import annotations

import pytest

from flowql import StreamsBuilder, col
from flowql.compiler.diagnostics.source import SourceText
from flowql.compiler.driver import DialectName, compile_project
from flowql.compiler.plan.generations import topics_read
from flowql.compiler.plan.topology import Plan
from tests.compiler.streams.plans import plan_of

S = "CREATE STREAM s (k STRING KEY, v INT) WITH (KAFKA_TOPIC = 's', VALUE_FORMAT = 'JSON'{});\n"
READ, MADE = S.format(""), S.format(", PARTITIONS = 2")


def plan(text: str, dialect: DialectName = "ksql") -> Plan:
    compiled = compile_project([SourceText("s.sql", text)], dialect=dialect, prefix="anna_")
    assert compiled.ok, compiled.diagnostics
    assert compiled.plan.prefix == "anna_"
    return compiled.plan


def topics(text: str, dialect: DialectName = "ksql") -> dict[str, str]:
    return {s.name: s.topic for s in plan(text, dialect).sources}


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        pytest.param(READ, {"S": "s"}, id="a topic that is only read belongs to others"),
        pytest.param(MADE, {"S": "anna_s"}, id="PARTITIONS creates it"),
        pytest.param(READ + "INSERT INTO s (k, v) VALUES ('a', 1);", {"S": "anna_s"}, id="rows of the project"),
        pytest.param(
            READ + "CREATE STREAM t AS SELECT * FROM s;", {"S": "s", "T": "anna_T"}, id="a result without a topic"
        ),
        pytest.param(
            READ + "CREATE STREAM t WITH (KAFKA_TOPIC = 'of_t') AS SELECT * FROM s;",
            {"S": "s", "T": "anna_of_t"},
            id="a result with a topic",
        ),
        pytest.param(
            READ
            + "CREATE STREAM u (k STRING KEY, v INT) WITH (KAFKA_TOPIC = 'T', VALUE_FORMAT = 'JSON');\n"
            + "CREATE STREAM t AS SELECT * FROM s;",
            {"S": "s", "U": "anna_T", "T": "anna_T"},
            id="a source over a result of the project",
        ),
        pytest.param(
            MADE + READ.replace("STREAM s ", "STREAM o ").replace("'s'", "'o'") + "INSERT INTO o SELECT * FROM s;",
            {"S": "anna_s", "O": "anna_o"},
            id="a source that a query writes",
        ),
        pytest.param(
            "SET 'ksql.output.topic.name.prefix' = 'out-';" + READ + "CREATE STREAM t AS SELECT * FROM s;",
            {"S": "s", "T": "anna_out-T"},
            id="before the prefix of ksqlDB",
        ),
    ],
)
def test_topics_of_streams(text: str, expected: dict[str, str]) -> None:
    assert topics(text) == expected


def test_topics_of_tables_and_views() -> None:
    text = "CREATE TABLE t (a INT PRIMARY KEY); CREATE MATERIALIZED VIEW v AS SELECT a FROM t; CREATE VIEW one AS SELECT 1 AS x;"
    found = plan(text, "standard")
    assert {s.name: s.topic for s in found.listed} == {"t": "anna_t", "v": "anna_v", "one": "anna_one"}
    read = {t for q in found.queries for t in topics_read(q)}
    assert read == {"anna_t", "anna___no_rows"}


def test_schemas_of_results_are_registered_under_the_name_of_their_topic() -> None:
    found = plan(READ + "CREATE STREAM t WITH (VALUE_FORMAT = 'AVRO') AS SELECT * FROM s;")
    schema = found.sources[-1].value_format.schema
    assert schema is not None
    assert schema.subject == "anna_T-value"


def test_assertions_mean_the_topics_of_the_project() -> None:
    text = MADE + "CREATE STREAM t AS SELECT * FROM s; ASSERT TOPIC T; ASSERT TOPIC s; ASSERT TOPIC other;"
    text += "ASSERT SCHEMA SUBJECT 'T-value';"
    found = compile_project([SourceText("s.sql", text)], prefix="anna_").assertions
    assert [getattr(a, "topic", "") or getattr(a, "subject", "") for a in found] == [
        "anna_T",
        "anna_s",
        "other",
        "anna_T-value",
    ]


def test_streams_in_python() -> None:
    """Topics that they write have the prefix once, also those of `through`."""
    streams = StreamsBuilder("MADE")
    read = streams.stream("READ", topic="outside", key={"k": str}, value={"v": int})
    read.filter(col("v") > 1).to("WRITTEN", topic="given", partitions=1)
    read.through("PASSED", partitions=1).to("LAST")
    streams.stream("SIZED", topic="sized", key={"k": str}, value={"v": int}, partitions=1)
    found = plan_of("", streams, sources="", prefix="anna_")
    assert {s.name: s.topic for s in found.sources} == {
        "READ": "outside",
        "SIZED": "anna_sized",
        "WRITTEN": "anna_given",
        "PASSED": "anna_PASSED",
        "LAST": "anna_LAST",
    }
