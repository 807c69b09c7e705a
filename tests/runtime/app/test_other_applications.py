"""What another application has written to the same log is not written once more."""

from __future__ import annotations

from contextlib import closing
from dataclasses import replace
from typing import Any

import pytest

from flowql.compiler.plan.topology import Plan
from flowql.runtime.app.driver import Driver
from flowql.runtime.app.instance import Instance
from flowql.runtime.app.plan_topic import write_deployed
from flowql.runtime.app.plan_writer import writer_id
from flowql.runtime.clock import VirtualClock
from flowql.runtime.config import InstanceConfig
from flowql.runtime.errors import OutsideRecords
from flowql.runtime.log.base import TopicPartition
from flowql.runtime.log.memory import MemoryLog
from flowql.runtime.state.memory import MemoryPhysical
from tests.runtime.app.harness import InstanceHarness, plan_of
from tests.runtime.app.test_rebuilding import CHAIN, OTHER, SOURCE, sent
from tests.runtime.app.test_swapping import ALONE, MEMBER, LikeKafka

ROW = "INSERT INTO S (K, V) VALUES (9, 1000);\n"
OWN = OTHER.replace("OTHER", "OWN")


class Brokers(LikeKafka):
    def writers(self, tp: TopicPartition) -> None:
        """They do not say who has written a record."""


LOGS: dict[str, tuple[type[MemoryLog], dict[str, Any]]] = {
    "embedded": (MemoryLog, {}),
    "kafka": (Brokers, ALONE),
    "member": (Brokers, MEMBER),
}


@pytest.mark.parametrize("kind", LOGS)
def test_a_new_result_is_not_written_behind_those_of_another_application(kind: str) -> None:
    """After the name of a project was changed each result had all rows twice, and what counts them counted each twice."""
    log, config = LOGS[kind]
    world = InstanceHarness(CHAIN.format(over=0) + ROW, log=log(), tick_ms=10, **config)
    world.send("s", sent(0, 40))
    world.settle()
    before = world.values("BIG"), world.values("s")
    _put_in_the_way(world)
    world.log.crash()
    clock, renamed = VirtualClock(2_000_000), InstanceConfig("renamed", **config)
    world.instance = Instance(world.log, MemoryPhysical(), clock, renamed)
    world.driver = Driver(world.instance, tick=lambda: clock.advance(10))
    with pytest.raises(OutsideRecords, match=r"BIG holds results of flowql.*name: flowql  in flowql\.yaml"):
        world.deploy(CHAIN.format(over=0))
    with pytest.raises(OutsideRecords, match=r"flowql has written a row of INSERT VALUES to s that renamed would"):
        world.deploy(SOURCE + OWN + ROW)
    assert (world.values("BIG"), world.values("s")) == before
    assert {c.action for c in world.deploy(SOURCE + OWN)} == {"add"}, "no application has written what is in its topic"
    world.settle()
    assert {c.action for c in world.deploy(SOURCE + OWN + ROW.replace("1000", "1"))} == {"none"}, "a row of its own"


@pytest.mark.parametrize("forgets", ["histories", "serving"])
def test_what_another_application_writes_is_known_by_either_part_of_its_record(forgets: str) -> None:
    """Records of versions before topics had histories, and of queries that were removed."""
    world = InstanceHarness(CHAIN.format(over=0), log=Brokers(), **ALONE)
    world.send("s", sent(0, 40))
    world.settle()
    left = replace(world.instance.deployed, **{forgets: () if forgets == "histories" else Plan()})
    world.log.crash()
    with closing(world.log.producer(writer_id("flowql"))) as producer:
        producer.begin()
        producer.send(*write_deployed(left, world.log.admin(), "flowql", 0))
        producer.commit()
    renamed = Instance(world.log, MemoryPhysical(), VirtualClock(2_000_000), InstanceConfig("renamed", **ALONE))
    Driver(renamed)
    with pytest.raises(OutsideRecords, match="BIG holds results of flowql"):
        renamed.deploy(plan_of(CHAIN.format(over=0)))


def _put_in_the_way(world: InstanceHarness) -> None:
    """Topics with names like those of plans, which hold something else, and one of a result to come with a record of another program."""
    admin = world.log.admin()
    admin.create_topic("OWN", 2)
    world.send("OWN", [(1, {"M": 7}, 0)])
    admin.create_topic("garden-plan", 3)
    admin.create_topic("house-plan", 1, {"cleanup.policy": "compact"})
    world.producer.begin()
    world.producer.send(TopicPartition("house-plan", 0), world.encode([(1, b"bricks", 0), (None, b"{}", 0)]))
    world.producer.commit()
