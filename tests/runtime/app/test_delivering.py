"""Records given to a query once more: with their marks in one commit, or not at all."""

from __future__ import annotations

from dataclasses import replace

import pytest

from flowql.runtime.app.delivering import _prepared, _shares, deliver
from flowql.runtime.app.instance import Instance
from flowql.runtime.errors import RuntimeFailure
from flowql.runtime.log.appending import Redelivery, redelivery_of
from flowql.runtime.log.base import TopicPartition
from flowql.runtime.log.repairs import Repair
from flowql.runtime.state.memory import MemoryPhysical
from tests.runtime.app.engine import resume
from tests.runtime.app.harness import InstanceHarness

SQL = """
CREATE STREAM S (K BIGINT KEY, V INT) WITH (KAFKA_TOPIC='s', PARTITIONS=1, KEY_FORMAT='KAFKA', VALUE_FORMAT='JSON');
CREATE TABLE T WITH (KAFKA_TOPIC='t') AS SELECT V, COUNT(*) AS N FROM S GROUP BY V;
"""  # through a repartition
S0 = TopicPartition("s", 0)


def given(instance: Instance) -> Redelivery:
    return Redelivery(S0, 1, Repair(b"\0" * 8, b'{"V":1}', 2), ("CTAS_T",), True)


def push(instance: Instance) -> None:
    for share in _shares(instance, [given(instance)]):
        if share.records:
            task, delivery, _ = _prepared(instance, share)
            task.deliver(delivery)


def test_what_was_not_committed_was_not_delivered_and_is_delivered_once_after_a_crash() -> None:
    physical = MemoryPhysical()
    world = InstanceHarness(SQL, physical=physical)
    world.instance.admin.create_topic("flowql-repairs", 1, {"cleanup.policy": "compact"})
    world.send("s", [(1, {"V": 1}, 1), (1, {"V": "x"}, 2), (1, {"V": 1}, 3)])
    world.driver.run_until_caught_up()
    push(world.instance)
    for _ in range(20):
        world.driver.round()  # no time goes by, so that nothing is committed
    for n in (1, 2, 3):
        world.log.crash()
        instance, driver = resume(world.log, physical)
        repairs = instance.repaired.repairs
        assert repairs.is_delivered(S0, 1, "CTAS_T") == (n > 1), "the crash came before the commit, once"
        push(instance)
        for _ in range(40):
            driver.round()
        repairs.read_on()
        assert repairs.is_delivered(S0, 1, "CTAS_T")
        assert repairs.get(S0, 1) == given(instance).repair
        assert world.values("t")[-1]["N"] == 3


def test_a_delivery_that_is_published_in_part_is_never_committed() -> None:
    physical = MemoryPhysical()
    world = InstanceHarness(SQL, physical=physical)
    world.instance.admin.create_topic("flowql-repairs", 1, {"cleanup.policy": "compact"})
    world.send("s", [(1, {"V": 1}, 1), (1, {"V": "x"}, 2), (1, {"V": 1}, 3)])
    world.driver.run_until_caught_up()

    def broken() -> None:
        raise KeyError("a mistake")

    (share,) = [share for share in _shares(world.instance, [given(world.instance)]) if share.records]
    task, delivery, _ = _prepared(world.instance, share)
    task.deliver(failing := replace(delivery, mark=broken))
    world.driver.commit()
    assert "could not be published" in str(failing.done.exception())
    assert world.instance.fatal is None
    world.log.crash()
    instance, driver = resume(world.log, physical)
    assert not instance.repaired.repairs.is_delivered(S0, 1, "CTAS_T")
    push(instance)
    for _ in range(40):
        driver.round()
    assert world.values("t")[-1]["N"] == 3


def test_what_was_delivered_once_is_not_delivered_by_another_call() -> None:
    with InstanceHarness(SQL, live=True) as world:
        world.send("s", [(1, {"V": 1}, 1), (1, {"V": "x"}, 2), (1, {"V": 1}, 3)])
        world.settle()
        wanted = [given(world.instance)]
        assert deliver(world.instance, wanted) == {"CTAS_T": {"rows": 1, "late": 0, "older": 0, "table": False}}
        assert deliver(world.instance, wanted) == {}
        world.settle()
        assert world.values("t")[-1]["N"] == 3


def test_nothing_is_delivered_while_a_query_takes_what_it_was_given() -> None:
    """A request that ran into its time limit may be published all the same."""
    world = InstanceHarness(SQL)
    world.instance.admin.create_topic("flowql-repairs", 1, {"cleanup.policy": "compact"})
    world.send("s", [(1, {"V": 1}, 1), (1, {"V": "x"}, 2), (1, {"V": 1}, 3)])
    world.driver.run_until_caught_up()
    refused: list[str] = []

    def mark() -> None:
        with pytest.raises(RuntimeFailure) as failure:
            deliver(world.instance, [given(world.instance)])
        refused.append(str(failure.value))

    (share,) = _shares(world.instance, [given(world.instance)])
    task, delivery, _ = _prepared(world.instance, share)
    task.deliver(replace(delivery, mark=mark))
    world.driver.commit()
    assert refused == ["a query is taking what it was given before: ask again when it is done"]


def test_what_is_asked_for_travels_as_json() -> None:
    for value in (None, b"\xff\0", b"{}"):
        asked = Redelivery(S0, 7, Repair(None, value, -1), ("A", "B"), False)
        assert redelivery_of(asked.to_data()) == asked


def test_a_record_that_a_query_has_not_come_to_is_not_given_to_it() -> None:
    """It would be processed twice."""
    world = InstanceHarness(SQL)
    world.instance.admin.create_topic("flowql-repairs", 1, {"cleanup.policy": "compact"})
    world.send("s", [(1, {"V": 1}, 1), (1, {"V": "x"}, 2), (1, {"V": 1}, 3)])
    world.driver.run_until_caught_up()
    world.instance.manager.hold("CTAS_T")
    world.send("s", [(1, {"V": 1}, 4)])
    for offset, refused in ((2, False), (3, True), (4, True)):
        (share,) = _shares(world.instance, [replace(given(world.instance), offset=offset)])
        if refused:
            with pytest.raises(RuntimeFailure, match=f"CTAS_T has not come to s-0@{offset} yet: it will read it there"):
                _prepared(world.instance, share)
        else:
            _prepared(world.instance, share)


def test_a_record_is_given_to_queries_that_there_are_alone() -> None:
    world = InstanceHarness(SQL)
    with pytest.raises(RuntimeFailure, match="there is no query CTAS_U"):
        _shares(world.instance, [replace(given(world.instance), queries=("CTAS_U",))])
