"""A query is compared by what it reads: which changes of a source leave it as it was, and which do not."""

from __future__ import annotations

import hashlib
import json
from dataclasses import replace

import pytest

from flowql.compiler.driver import Compiled
from flowql.compiler.physical.definition import MARK, definition_of, normal_form
from flowql.compiler.plan.codec import to_data
from flowql.compiler.plan.diff import diff_plans
from flowql.compiler.plan.logical import Node, Scan, walk_nodes
from flowql.compiler.plan.topology import Plan
from flowql.compiler.plan.visit import map_nodes
from tests.compiler.sql import compiled

WITH = "KAFKA_TOPIC='s', PARTITIONS=1, KEY_FORMAT='KAFKA', VALUE_FORMAT='JSON'"
OTHER = "CREATE STREAM T (K INT KEY, X INT, Z INT) WITH (KAFKA_TOPIC='t', PARTITIONS=1, VALUE_FORMAT='JSON');\n"
COLUMNS = "K INT KEY, A INT, B STRING, C STRUCT<X INT, Y INT>, D BIGINT, U INT"
SUM = "CREATE TABLE O AS SELECT K, SUM(A) AS N FROM S GROUP BY K;"


def source(columns: str = COLUMNS, properties: str = WITH, kind: str = "STREAM") -> str:
    return f"CREATE {kind} S ({columns}) WITH ({properties});\n"


def made(text: str, previous: Plan | None = None) -> Compiled:
    return compiled(text, prelude=OTHER, previous=previous)  # type: ignore[arg-type]


def action(before: str, after: str) -> str:
    """What a deployment of the text `after` does to the one query that runs as in `before`."""
    old = made(before).plan
    new = made(after, old).plan
    (change,) = diff_plans(old, new)
    fresh = made(after).plan.queries[0]
    assert (change.action == "none") == (old.queries[0].definition == fresh.definition), "whatever ran before"
    if change.action == "none":
        assert new.queries[0].subtopologies == old.queries[0].subtopologies
    return change.action


QUERIES = {
    "where": "CREATE STREAM O AS SELECT K, B FROM S WHERE A > 1;",
    "aggregate": SUM,
    "field": "CREATE STREAM O AS SELECT K, C->X AS X FROM S;",
    "join": "CREATE STREAM O AS SELECT S.B AS B, T.X AS X FROM S JOIN T WITHIN 1 HOUR GRACE PERIOD 1 HOUR ON S.A = T.X;",
    "join of a key": "CREATE STREAM O AS SELECT T.K AS K, B FROM T JOIN S WITHIN 1 HOUR GRACE PERIOD 1 HOUR ON S.K = T.K;",
    "window": "CREATE TABLE O AS SELECT B, COUNT(*) AS N FROM S WINDOW TUMBLING (SIZE 1 HOUR) GROUP BY B;",
    "rekey": "CREATE STREAM O AS SELECT B, A FROM S PARTITION BY B;",
    "explode": "CREATE STREAM O AS SELECT K, EXPLODE(ARRAY[A, 2]) AS E FROM S;",
    "nothing": "CREATE TABLE O AS SELECT 1 AS ONE, COUNT(*) AS N FROM S GROUP BY 1;",
}
UNUSED = {
    "added behind": COLUMNS + ", NEW INT",
    "added in front": "NEW INT, " + COLUMNS,
    "dropped": COLUMNS.replace(", U INT", ""),
    "retyped": COLUMNS.replace("U INT", "U ARRAY<STRING>"),
    "reordered": "U INT, D BIGINT, C STRUCT<X INT, Y INT>, B STRING, A INT, K INT KEY",
}


@pytest.mark.parametrize("change", UNUSED)
@pytest.mark.parametrize("query", QUERIES)
def test_columns_that_a_query_does_not_use_change_nothing(query: str, change: str) -> None:
    """Adding a column that nobody uses to a source rebuilt every query that reads the source."""
    assert action(source() + QUERIES[query], source(UNUSED[change]) + QUERIES[query]) == "none"


@pytest.mark.parametrize(
    ("query", "expected"),
    [
        ("where", {"K", "A", "B"}),
        ("aggregate", {"K", "A"}),
        ("field", {"K", "C"}),
        ("join", {"A", "B"}),
        ("join of a key", {"K", "B"}),
        ("window", {"B"}),
        ("rekey", {"A", "B"}),
        ("explode", {"K", "A"}),
        ("nothing", {"ROWPARTITION"}),
    ],
)
def test_a_column_is_used_wherever_it_stands(query: str, expected: set[str]) -> None:
    """Also only in WHERE, only in the condition of a join, or only through one of its fields."""
    result = made(source() + QUERIES[query])
    (plan,) = result.plan.queries
    form = normal_form(result.trace[plan.id].unoptimised, {s.name: s for s in result.plan.sources})
    scans = [n for n in walk_nodes(form) if isinstance(n.spec, Scan) and n.spec.source == "S"]
    assert [set(n.schema.names) for n in scans] == [expected]
    assert [n.spec.declared.names for n in scans] == [("K",)]


@pytest.mark.parametrize(
    ("query", "columns"),
    [
        ("where", COLUMNS.replace("A INT", "A BIGINT")),
        ("aggregate", COLUMNS.replace("A INT", "A BIGINT")),
        ("field", COLUMNS.replace("Y INT>", "Y INT, Z INT>")),
        ("field", COLUMNS.replace("X INT", "X BIGINT")),
        ("window", COLUMNS.replace("B STRING", "B INT")),
        ("rekey", COLUMNS.replace("B STRING", "B INT")),
        ("aggregate", COLUMNS.replace("K INT KEY", "K BIGINT KEY")),
        ("where", COLUMNS.replace("K INT KEY", "K BIGINT KEY")),
        ("window", COLUMNS.replace("K INT KEY", "K BIGINT KEY")),
        ("nothing", COLUMNS.replace("K INT KEY", "J INT KEY")),
    ],
)
def test_columns_that_a_query_uses_and_the_key_count(query: str, columns: str) -> None:
    assert action(source() + QUERIES[query], source(columns) + QUERIES[query]) == "change"


@pytest.mark.parametrize(
    "properties",
    [
        WITH.replace("'s'", "'other'"),
        WITH.replace("KEY_FORMAT='KAFKA'", "KEY_FORMAT='JSON'"),
        WITH.replace("VALUE_FORMAT='JSON'", "VALUE_FORMAT='AVRO'"),
        WITH + ", TIMESTAMP='D'",
        WITH + ", TIMESTAMP='B', TIMESTAMP_FORMAT='yyyy-MM-dd'",
        WITH + ", WINDOW_TYPE='SESSION'",
        WITH + ", WINDOW_TYPE='TUMBLING', WINDOW_SIZE='1 HOUR'",
    ],
)
def test_how_records_are_read_counts(properties: str) -> None:
    assert action(source() + QUERIES["where"], source(properties=properties) + QUERIES["where"]) == "change"


@pytest.mark.parametrize(
    ("columns", "other", "expected"),
    [
        ("K INT KEY, A INT, B STRING, D BIGINT", "TIMESTAMP='D'", "none"),
        ("K INT KEY, A INT, B STRING, D TIMESTAMP, U INT", "TIMESTAMP='D'", "change"),
        ("K INT KEY, A INT, B STRING, D STRING, U INT", "TIMESTAMP='D', TIMESTAMP_FORMAT='yyyy'", "change"),
        ("K INT KEY, A INT, B STRING, D BIGINT, U BIGINT", "TIMESTAMP='U'", "change"),
    ],
)
def test_the_timestamp_counts_though_the_query_does_not_name_it(columns: str, other: str, expected: str) -> None:
    before = source("K INT KEY, A INT, B STRING, D BIGINT, U INT", WITH + ", TIMESTAMP='D'")
    assert action(before + SUM, source(columns, f"{WITH}, {other}") + SUM) == expected


@pytest.mark.parametrize("change", ["added", "dropped", "reordered", "retyped"])
def test_all_columns_of_a_positional_format_count(change: str) -> None:
    columns = "K INT KEY, A INT, U INT, V INT"
    after = {
        "added": columns + ", W INT",
        "dropped": "K INT KEY, A INT, U INT",
        "reordered": "K INT KEY, A INT, V INT, U INT",
        "retyped": columns.replace("V INT", "V STRING"),
    }
    csv = WITH.replace("VALUE_FORMAT='JSON'", "VALUE_FORMAT='DELIMITED'")
    assert action(source(columns, csv) + SUM, source(after[change], csv) + SUM) == "change"


def test_a_bare_value_that_becomes_an_object_is_read_differently() -> None:
    bare = source("K INT KEY, A INT", WITH + ", WRAP_SINGLE_VALUE=false")
    assert action(bare + SUM, source("K INT KEY, A INT, U INT") + SUM) == "change"
    assert action(source("K INT KEY, A INT") + SUM, source("K INT KEY, A INT, U INT") + SUM) == "none"
    assert action(source("K INT KEY, A INT, U INT") + SUM, source("K INT KEY, A INT") + SUM) == "none"


def test_a_kafka_value_that_nobody_reads_is_read_all_the_same() -> None:
    count = "CREATE STREAM O AS SELECT K, ROWTIME AS R FROM S;"
    kafka = WITH.replace("VALUE_FORMAT='JSON'", "VALUE_FORMAT='KAFKA'")
    assert action(source("K INT KEY, A INT", kafka) + count, source("K INT KEY, A BIGINT", kafka) + count) == "change"


@pytest.mark.parametrize(
    ("fmt", "expected"), [("AVRO", "none"), ("JSON_SR", "none"), ("PROTOBUF", "none"), ("PROTOBUF_NOSR", "change")]
)
def test_records_that_name_their_schema_do_not_depend_on_the_one_of_the_source(fmt: str, expected: str) -> None:
    properties = WITH.replace("VALUE_FORMAT='JSON'", f"VALUE_FORMAT='{fmt}'")
    before, after = source("K INT KEY, A INT", properties), source("K INT KEY, U INT, A INT", properties)
    assert action(before + SUM, after + SUM) == expected


@pytest.mark.parametrize("change", UNUSED)
def test_select_star_uses_every_column_in_its_order(change: str) -> None:
    star = "CREATE STREAM O AS SELECT * FROM S;"
    assert action(source() + star, source(UNUSED[change]) + star) == "change"


def test_a_table_is_compared_like_a_stream() -> None:
    columns = "K INT PRIMARY KEY, A INT, B STRING, U INT"
    query = "CREATE TABLE O AS SELECT B, SUM(A) AS N FROM S GROUP BY B;"
    before = source(columns, kind="TABLE") + query
    assert action(before, source(columns + ", NEW INT", kind="TABLE") + query) == "none"
    assert action(before, source(columns.replace("A INT", "A BIGINT"), kind="TABLE") + query) == "change"


def test_every_header_is_a_column_of_its_own() -> None:
    columns = "K INT KEY, A INT, H BYTES HEADER('h')"
    query = "CREATE STREAM O AS SELECT K, H FROM S;"
    assert action(source(columns) + query, source(columns.replace("A INT", "A STRING")) + query) == "none"
    assert action(source(columns) + query, source(columns.replace("'h'", "'i'")) + query) == "change"


def test_a_nested_query_hides_what_is_not_used_of_it() -> None:
    query = "CREATE STREAM o AS SELECT j, b FROM (SELECT k AS j, a, b, u FROM s) AS n WHERE a > 1;"

    def definition(columns: str) -> str:
        (found,) = compiled(source(columns) + query, prelude="", dialect="standard").plan.queries  # type: ignore[arg-type]
        return found.definition

    assert definition(COLUMNS) == definition(COLUMNS.replace("U INT", "U BIGINT")) == definition("Z INT, " + COLUMNS)
    assert definition(COLUMNS) != definition(COLUMNS.replace("A INT", "A BIGINT"))


def test_what_a_query_computes_still_counts() -> None:
    assert action(source() + SUM, source() + SUM.replace("SUM(A)", "SUM(A + 1)")) == "change"
    assert action(source() + SUM, source(COLUMNS + ", NEW INT") + SUM.replace("SUM(A)", "SUM(NEW)")) == "change"
    swapped = "CREATE STREAM O AS SELECT K, {} FROM S;"
    assert action(source() + swapped.format("A, B"), source() + swapped.format("B, A")) == "change"


# -- plans of versions before


def hash_of_the_whole(node: Node) -> str:
    """The definition as it was."""
    text = json.dumps(to_data(node), sort_keys=True, ensure_ascii=False, separators=(",", ":"))
    return hashlib.sha256(text.encode()).hexdigest()


def made_before(text: str) -> Plan:
    """The plan of a text with a definition as versions before wrote it."""
    result = made(text)
    (query,) = result.plan.queries
    return replace(
        result.plan,
        queries=(replace(query, definition=hash_of_the_whole(result.trace[query.id].unoptimised)),),
    )


@pytest.mark.parametrize(
    ("after", "expected"),
    [
        (source() + SUM, "none"),
        (source(UNUSED["added in front"]) + SUM, "none"),
        (source(UNUSED["reordered"]) + SUM, "none"),
        (source() + SUM.replace("SUM(A)", "MAX(A)"), "change"),
        (source(COLUMNS.replace("A INT", "A BIGINT")) + SUM, "change"),
        (source(COLUMNS.replace("K INT KEY", "K BIGINT KEY")) + SUM, "change"),
        (source(properties=WITH + ", TIMESTAMP='D'") + SUM, "change"),
    ],
)
def test_a_query_of_an_older_plan_goes_on_as_long_as_it_is_the_same(after: str, expected: str) -> None:
    old = made_before(source() + SUM)
    new = made(after, old).plan
    assert [c.action for c in diff_plans(old, new)] == [expected]
    kept = new.queries[0].definition == old.queries[0].definition
    assert kept == (expected == "none"), "what compares definitions sees no change in it"
    again = made(after, new).plan
    assert [c.action for c in diff_plans(new, again)] == ["none"]
    if expected == "change":
        assert new.queries[0].definition.startswith(MARK)


def test_the_key_of_an_older_plan_counts_though_nobody_reads_it() -> None:
    old = made_before(source() + QUERIES["window"])
    new = made(source(COLUMNS.replace("K INT KEY", "J STRING KEY")) + QUERIES["window"], old).plan
    assert [c.action for c in diff_plans(old, new)] == ["change"]


def test_an_older_query_whose_optimised_plan_would_be_another_now_is_the_same() -> None:
    """Its definition says so, though what a newer optimiser makes of it differs."""
    old = made_before(source() + QUERIES["nothing"])
    (query,) = old.queries
    scan = query.logical
    while scan.inputs:
        (scan,) = scan.inputs
    odd = replace(old, queries=(replace(query, logical=scan),))
    assert [c.action for c in diff_plans(odd, made(source() + QUERIES["nothing"], odd).plan)] == ["none"]


def test_definitions_stay_from_version_to_version() -> None:
    """A release that changes them makes every deployment rebuild all state: then `MARK` must change, and older plans be compared."""
    result = made(source() + SUM)
    (query,) = result.plan.queries
    sources = {s.name: s for s in result.plan.sources}
    assert query.definition == definition_of(result.trace[query.id].unoptimised, sources)
    assert query.definition == "read:011a97ba3ccda74a62011179177df78c88d3596b31a0f5ffd1eb851bd2d463b4"


def test_queries_of_versions_that_wrapped_numbers_in_json_are_the_same() -> None:
    """Sources of standard SQL read numbers exactly now. What was deployed before goes on as it was until it is made anew."""
    text = "CREATE STREAM s (k BIGINT KEY, a INT) WITH (KAFKA_TOPIC='s', KEY_FORMAT='JSON', VALUE_FORMAT='JSON');\nCREATE VIEW v AS SELECT a, count(*) AS n FROM s GROUP BY a;"
    new = compiled(text, dialect="standard").plan
    assert [s.value_format.standard for s in new.sources if s.name == "s"] == [True]

    def older(node: Node) -> Node:
        if not isinstance(node.spec, Scan):
            return node
        keys, values = (replace(f, standard=False) for f in (node.spec.key_format, node.spec.value_format))
        return replace(node, spec=replace(node.spec, key_format=keys, value_format=values))

    (query,) = new.queries
    old = replace(new, queries=(replace(query, logical=map_nodes(query.logical, older)),))
    again = compiled(text, dialect="standard", previous=old).plan
    assert [c.action for c in diff_plans(old, again)] == ["none"]
    assert again.queries[0].logical == old.queries[0].logical
