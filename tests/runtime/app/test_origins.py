"""Dead letters behind a repartition name the source record if the row was made from exactly one, and never a wrong one."""

from __future__ import annotations

import pytest

from flowql.runtime.log.memory import MemoryLog
from flowql.runtime.state.memory import MemoryPhysical
from tests.runtime.app.harness import InstanceHarness, function
from tests.runtime.app.narrow_log import NarrowLog

SOURCES = """
CREATE STREAM S (K BIGINT KEY, V BIGINT) WITH (KAFKA_TOPIC='s', KEY_FORMAT='KAFKA', VALUE_FORMAT='JSON', PARTITIONS=3);
CREATE STREAM U (K BIGINT KEY, V BIGINT) WITH (KAFKA_TOPIC='u', KEY_FORMAT='KAFKA', VALUE_FORMAT='JSON', PARTITIONS=3);
CREATE TABLE T (K BIGINT PRIMARY KEY, V BIGINT) WITH (KAFKA_TOPIC='t', KEY_FORMAT='KAFKA', VALUE_FORMAT='JSON', PARTITIONS=3);
"""
# The sum of the group is multiplied behind the repartition.
SUMS = "CREATE TABLE R AS SELECT V % 2 AS M, PICKY(MAX(V)) AS N FROM {} GROUP BY V % 2 EMIT CHANGES;"
BAD = 901


def picky(value):
    if value == BAD:
        raise ValueError("not this one")
    return value


@pytest.fixture(autouse=True)
def picky_function():
    with function("PICKY", picky):
        yield


def place_of(world, topic, key):
    """Partition and offset of the first bad record of a topic with this key."""
    return next((p, o) for p, o, k, v, _ in world.records(topic) if v == {"V": BAD} and k == key.to_bytes(8, "big"))


def letters(world, query="CTAS_R"):
    return [(x["TOPIC"], x["PARTITION"], x["OFFSET"]) for x in world.dead_letters(query)]


def rows(n):
    return [(k, {"V": 2 * k}, k) for k in range(n)]


@pytest.mark.parametrize("rows_per_run", [None, 1, 7])
def test_the_source_record_is_named(rows_per_run):
    world = InstanceHarness(SOURCES + SUMS.format("S"), rows_per_run=rows_per_run)
    world.send("s", [*rows(50), (77, {"V": BAD}, 60), *rows(50)])
    world.settle()
    assert letters(world) == [("s", *place_of(world, "s", 77))]
    assert "cannot be replayed" not in world.dead_letters("CTAS_R")[0]["MESSAGE"]


def test_after_a_restart_of_what_waited_in_the_repartition():
    log, physical = MemoryLog(), MemoryPhysical()
    world = InstanceHarness(SOURCES + SUMS.format("S"), log=log, physical=physical)
    world.settle()
    sub = [t for t in world.instance.queries["CTAS_R"].built.tasks if t.id.subtopology == 1]
    for task in sub:  # its rows wait in the channels, and are committed there
        world.instance.manager.remove(task.id)
    world.send("s", [*rows(50), (77, {"V": BAD}, 60), *rows(50)])
    for _ in range(30):
        world.driver.round()
    world.driver.commit()
    assert any(x.has_rows for task in sub for x in task.exchanges.values())
    log.crash()
    world = InstanceHarness(SOURCES + SUMS.format("S"), log=log, physical=physical)
    world.settle()
    assert letters(world) == [("s", *place_of(world, "s", 77))]


def test_behind_a_repartition_that_is_a_topic():
    world = InstanceHarness(SOURCES + SUMS.format("S"), shared=True, process_id="one", changelogs=True, tick_ms=10)
    world.send("s", [*rows(50), (77, {"V": BAD}, 60), *rows(50)])
    for _ in range(50):
        world.driver.round()
    world.settle()
    assert letters(world) == [("s", *place_of(world, "s", 77))]


def test_a_new_row_of_a_table_is_named_and_what_leaves_is_not():
    """A value that leaves was made by an older record than the one that makes it leave."""
    total = SUMS.format("T").replace("MAX(V)", "SUM(V)")
    world = InstanceHarness(SOURCES + total)
    world.send("t", [(1, {"V": BAD}, 1)])
    world.settle()
    assert letters(world) == [("t", *place_of(world, "t", 1))]
    world.send("t", [(2, {"V": 1}, 2)])
    world.settle()
    world.send("t", [(2, {"V": 2}, 3)])  # 1 leaves the group of odd numbers, which is bad again
    world.settle()
    later = letters(world)[1:]
    assert later == [(None, None, None)]
    assert "cannot be replayed" in world.dead_letters("CTAS_R")[-1]["MESSAGE"]


def test_rows_of_several_records_name_none():
    sql = "CREATE TABLE R AS SELECT S.V + T.V AS M, PICKY(MAX(S.V)) AS N FROM S JOIN T ON S.K = T.K GROUP BY S.V + T.V EMIT CHANGES;"
    world = InstanceHarness(SOURCES + sql)
    world.send("t", [(1, {"V": 1}, 1)])
    world.settle()
    world.send("s", [(1, {"V": BAD}, 2)])
    world.settle()
    assert letters(world) == [(None, None, None)]


def test_a_row_that_no_changelog_takes_names_its_record():
    log = NarrowLog()
    log.bytes_max = {"flowql-CTAS_R-aggregate-1-changelog": 1_000}
    sql = "CREATE TABLE R AS SELECT V % 2 AS M, COLLECT_LIST(LPAD('x', CAST(V AS INT), 'x')) AS L FROM S GROUP BY V % 2 EMIT CHANGES;"
    world = InstanceHarness(SOURCES + sql, log=log, changelogs=True)
    world.send("s", [(1, {"V": 3}, 1), (2, {"V": 5_000}, 2), (3, {"V": 4}, 3)])
    world.settle()
    ((partition, offset),) = [(p, o) for p, o, _, v, _ in world.records("s") if v == {"V": 5_000}]
    assert letters(world) == [("s", partition, offset)]
