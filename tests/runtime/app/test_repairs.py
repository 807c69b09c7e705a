"""Repairs of records: rebuilt results have them, and so has everything that is made anew later."""

from __future__ import annotations

from flowql.runtime.log.base import TopicPartition
from flowql.runtime.log.repairs import CONFIG, Repair, encode, topic_name
from flowql.runtime.state.memory import MemoryPhysical
from tests.runtime.app.harness import InstanceHarness

SQL = """
CREATE STREAM S (K BIGINT KEY, V INT) WITH (KAFKA_TOPIC='s', PARTITIONS=1, KEY_FORMAT='KAFKA', VALUE_FORMAT='JSON');
CREATE TABLE T AS SELECT K, SUM(V) AS TOTAL FROM S GROUP BY K;
CREATE TABLE U AS SELECT K, TOTAL FROM T WHERE TOTAL > 2;
"""


def damaged() -> tuple[InstanceHarness, dict[tuple[TopicPartition, int], Repair]]:
    """An instance that has met a bad record, and the repair of it."""
    world = InstanceHarness(SQL)
    world.send("s", [(1, {"V": 1}, 1), (1, b"bad", 2), (2, {"V": 5}, 3)])
    world.settle()
    assert world.table("T") == [(1, 1), (2, 5)]
    raw = world.log.reader(TopicPartition("s", 0), 1).read(1, 1 << 20)
    assert raw is not None
    return world, {(raw.tp, 1): Repair(raw.records.column("key")[0].as_py(), b'{"V": 7}', 2)}


def repair(world: InstanceHarness, repairs: dict[tuple[TopicPartition, int], Repair]) -> None:
    world.log.create_topic(topic_name("flowql"), 1, CONFIG)
    producer = world.log.producer("dlq")
    producer.begin()
    producer.send(TopicPartition(topic_name("flowql"), 0), encode(dict(repairs), 1))
    producer.commit()


def test_a_rebuilt_query_has_the_repaired_record_in_its_place() -> None:
    world, repairs = damaged()
    repair(world, repairs)
    world.instance.deploy(world.instance.plan, refresh=("CTAS_T",))
    world.settle()
    assert world.table("T") == [(1, 8), (2, 5)]
    assert world.table("U") == [(1, 8), (2, 5)]


def test_without_a_rebuild_results_stay_as_they_are_until_they_are_made_anew() -> None:
    world, repairs = damaged()
    repair(world, repairs)  # and a crash: nobody has deployed
    world.instance.close()
    lost = InstanceHarness(SQL, log=world.log, physical=MemoryPhysical())
    lost.instance.resume()
    lost.settle()
    assert lost.table("T") == [(1, 8), (2, 5)], "lost state is made anew from inputs, with their repairs"


def test_repairs_survive_an_instance() -> None:
    world, repairs = damaged()
    repair(world, repairs)
    world.instance.deploy(world.instance.plan, refresh=("CTAS_T",))
    world.settle()
    world.instance.close()
    again = InstanceHarness(SQL, log=world.log, physical=MemoryPhysical())
    again.instance.resume()
    again.settle()
    assert again.table("T") == [(1, 8), (2, 5)]
