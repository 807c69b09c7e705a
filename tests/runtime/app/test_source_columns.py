"""A query depends on what it reads of a source, and on nothing else that the source declares: while it runs and when it is deployed."""

from __future__ import annotations

from typing import Any

import orjson
import pyarrow as pa
import pytest

from flowql.runtime.app.driver import Driver
from flowql.runtime.app.instance import Instance
from flowql.runtime.clock import VirtualClock
from flowql.runtime.config import InstanceConfig
from flowql.runtime.log.base import PRODUCE_SCHEMA, TopicPartition
from flowql.runtime.serde.registry import KNOWN
from flowql.runtime.state.memory import MemoryPhysical
from tests.runtime.app.harness import InstanceHarness

COLUMNS = "K BIGINT KEY, V BIGINT, U INT"
GOOD = "CREATE TABLE GOOD AS SELECT K, COUNT(*) AS N, SUM(V) AS S FROM S GROUP BY K;\n"
COPY = "CREATE STREAM COPY AS SELECT K, V + 1 AS W FROM S;\n"


def source(columns: str = COLUMNS, fmt: str = "JSON") -> str:
    return (
        f"CREATE STREAM S ({columns}) WITH (KAFKA_TOPIC='s', PARTITIONS=2, KEY_FORMAT='KAFKA', VALUE_FORMAT='{fmt}');\n"
    )


def rows(first: int, n: int, **more: Any) -> list[tuple[int, dict[str, Any], int]]:
    return [(i % 5, {"V": i, "U": 1} | more, i) for i in range(first, first + n)]


def sums(n: int) -> list[tuple[int, int, int]]:
    return [(k, len(range(k, n, 5)), sum(range(k, n, 5))) for k in range(5)]


def actions(world: InstanceHarness, sql: str) -> dict[str, str]:
    return {c.query: c.action for c in world.deploy(sql)}


@pytest.mark.parametrize("vector", [False, True])
@pytest.mark.parametrize(
    "columns",
    [
        COLUMNS + ", NEW INT",
        "NEW STRING, U INT, V BIGINT, K BIGINT KEY",
        COLUMNS.replace("U INT", "U ARRAY<INT>"),
        "K BIGINT KEY, V BIGINT",
    ],
)
def test_adding_a_column_that_nobody_uses_rebuilds_no_query(columns: str, vector: bool) -> None:
    """Nor does dropping one, another order or another type: what was counted stays, and what comes is counted once."""
    world = InstanceHarness(source() + GOOD + COPY, vector=vector)
    world.send("s", rows(0, 100))
    world.settle()
    tasks = {q: world.instance.queries[q].built.tasks for q in ("CTAS_GOOD", "CSAS_COPY")}
    assert actions(world, source(columns) + GOOD + COPY) == {"CTAS_GOOD": "none", "CSAS_COPY": "none"}
    world.send("s", rows(100, 100, NEW="many"))
    world.settle()
    assert world.table("GOOD") == sums(200)
    assert sorted(v["W"] for v in world.values("COPY")) == list(range(1, 201)), "no record lost or twice"
    assert {q: world.instance.queries[q].built.tasks for q in tasks} == tasks, "untouched"
    assert world.instance.metrics.query("CTAS_GOOD").records_in == 200
    assert world.dead_letters("CTAS_GOOD") == world.dead_letters("CSAS_COPY") == []


def test_a_column_that_a_query_uses_rebuilds_that_query_alone() -> None:
    both = GOOD + "CREATE STREAM USED AS SELECT K, U FROM S;\n"
    world = InstanceHarness(source() + both)
    world.send("s", rows(0, 100))
    world.settle()
    assert actions(world, source(COLUMNS.replace("U INT", "U STRING")) + both) == {
        "CTAS_GOOD": "none",
        "CSAS_USED": "change",
    }
    world.settle()
    assert world.table("GOOD") == sums(100)


def test_an_instance_that_comes_back_goes_on_with_a_source_of_more_columns() -> None:
    physical = MemoryPhysical()
    with InstanceHarness(source() + GOOD, physical=physical) as world:
        world.send("s", rows(0, 100))
        world.settle()
        assert actions(world, source(COLUMNS + ", NEW INT") + GOOD) == {"CTAS_GOOD": "none"}
        world.send("s", rows(100, 50))
        world.settle()
    world.instance.close()
    world.instance = Instance(world.log, physical, VirtualClock(2_000_000), InstanceConfig())
    world.driver = Driver(world.instance)
    world.instance.resume()
    assert actions(world, source(COLUMNS + ", NEW INT, MORE INT") + GOOD) == {"CTAS_GOOD": "none"}
    world.send("s", rows(150, 50))
    world.settle()
    assert world.table("GOOD") == sums(200)
    assert world.instance.metrics.query("CTAS_GOOD").records_in == 50, "nothing is read again"


@pytest.mark.parametrize("vector", [False, True])
def test_the_bad_column_of_one_query_is_no_matter_of_another(vector: bool) -> None:
    """They share the decoding of the topic; a record that one of them cannot read was a dead letter of all."""
    used = "CREATE STREAM USED AS SELECT K, U FROM S;\n"
    world = InstanceHarness(source() + GOOD + used, vector=vector)
    feed = rows(0, 100)
    feed[7] = (2, {"V": 7, "U": "many"}, 7)
    feed[8] = (3, b'{"V":8', 8)
    world.send("s", feed)
    world.settle()
    expected = sums(100)
    expected[3] = (3, expected[3][1] - 1, expected[3][2] - 8)
    assert world.table("GOOD") == expected
    assert [d["VALUE"] for d in world.dead_letters("CTAS_GOOD")] == [b'{"V":8']
    assert sorted(d["VALUE"] for d in world.dead_letters("CSAS_USED")) == [b'{"V":7,"U":"many"}', b'{"V":8']
    assert len(world.values("USED")) == 98
    assert world.instance.metrics.decoded["s"] == 100, "once for both"


def test_queries_planned_before_and_after_a_column_was_added_share_the_decoding() -> None:
    new = "CREATE STREAM MORE AS SELECT K, NEW FROM S;\n"
    world = InstanceHarness(source() + GOOD)
    world.settle()
    world.deploy(source(COLUMNS + ", NEW INT") + GOOD + new)
    world.settle()
    world.send("s", rows(0, 100, NEW=3))
    world.settle()
    assert world.table("GOOD") == sums(100)
    assert [v["NEW"] for v in world.values("MORE")] == [3] * 100
    assert world.instance.metrics.decoded["s"] == 100


def test_avro_records_of_the_schema_with_another_column_are_read_by_queries_planned_before() -> None:
    """Records name their schema; the one that the source was declared with when a query was planned is not asked."""
    insert = "INSERT INTO S (K, V, U) VALUES ({0}, {0}, 1);\n"
    first = insert.format(1) + insert.format(2)
    world = InstanceHarness(source(fmt="AVRO") + GOOD + first)
    world.settle()
    wide = source("U INT, NEW STRING, " + COLUMNS.replace(", U INT", ""), fmt="AVRO")
    assert actions(world, wide + GOOD + first + insert.format(3)) == {"CTAS_GOOD": "none"}
    world.settle()
    assert world.table("GOOD") == [(1, 1, 1), (2, 1, 2), (3, 1, 3)]
    old, new = (s for s in world.instance.plan.schemas if s.subject == "s-value")
    assert KNOWN.by_id(old.id) != KNOWN.by_id(new.id)


def test_all_columns_of_a_line_count() -> None:
    world = InstanceHarness(source(fmt="DELIMITED") + GOOD)
    assert actions(world, source(COLUMNS + ", NEW INT", fmt="DELIMITED") + GOOD) == {"CTAS_GOOD": "change"}


# -- keys of which a query uses a part, or nothing


def send(world: InstanceHarness, key: bytes, value: dict[str, Any]) -> None:
    world.producer.begin()
    record = {"timestamp": 1, "key": key, "value": orjson.dumps(value), "headers": None}
    world.producer.send(TopicPartition("s", 0), pa.RecordBatch.from_pylist([record], PRODUCE_SCHEMA))
    world.producer.commit()


@pytest.mark.parametrize(("fmt", "key"), [("JSON", b'{"K1":1,"K2":2}'), ("DELIMITED", b"1,2")])
def test_a_query_may_use_one_part_of_a_key_of_several(fmt: str, key: bytes) -> None:
    """The other parts were pruned, and every record was a dead letter: its key did not look like one column."""
    world = InstanceHarness(
        f"CREATE STREAM S (K1 INT KEY, K2 INT KEY, V INT) WITH (KAFKA_TOPIC='s', PARTITIONS=1, KEY_FORMAT='{fmt}', VALUE_FORMAT='JSON');"
        "CREATE STREAM O AS SELECT K1, V FROM S PARTITION BY K1;"
    )
    send(world, key, {"V": 3})
    world.settle()
    assert world.values("O") == [{"V": 3}]
    assert world.dead_letters("CSAS_O") == []


def test_the_timestamp_may_be_a_key_that_the_query_does_not_use() -> None:
    """The key was pruned, and the query stopped: its timestamp was no column any more."""
    world = InstanceHarness(
        "CREATE STREAM S (K BIGINT KEY, V BIGINT) WITH (KAFKA_TOPIC='s', PARTITIONS=1, KEY_FORMAT='KAFKA', VALUE_FORMAT='JSON', TIMESTAMP='K');"
        "CREATE TABLE O AS SELECT V, COUNT(*) AS N FROM S GROUP BY V;"
    )
    world.send("s", [(5, {"V": 1}, 7)])
    world.settle()
    assert world.table("O") == [(1, 1)]
    assert [r[4] for r in world.records("O")] == [5]


@pytest.mark.parametrize("vector", [False, True])
def test_a_query_that_reads_no_column_takes_every_record_with_the_right_structure(vector: bool) -> None:
    """A column was read in its place, the first, so that records were bad by it."""
    world = InstanceHarness(
        "CREATE STREAM S (A INT, B INT) WITH (KAFKA_TOPIC='s', PARTITIONS=1, VALUE_FORMAT='JSON');"
        "CREATE STREAM O AS SELECT ROWTIME AS T FROM S;",
        vector=vector,
    )
    world.send("s", [(None, {"A": 1}, 7), (None, {"A": "many"}, 8), (None, b"[]", 9)])
    world.settle()
    assert [v["T"] for v in world.values("O")] == [7, 8]
    assert [d["VALUE"] for d in world.dead_letters("CSAS_O")] == [b"[]"]
