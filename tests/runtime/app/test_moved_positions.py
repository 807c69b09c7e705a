"""A reset of the group's positions by Kafka's tools is said at the next start: it was ignored without a word."""

from __future__ import annotations

from functools import partial
from typing import Any

import pytest

from flowql.runtime.app.driver import Driver
from flowql.runtime.app.instance import Instance
from flowql.runtime.app.status import instance_metrics
from flowql.runtime.clock import VirtualClock
from flowql.runtime.config import InstanceConfig
from flowql.runtime.log.base import Position, TopicPartition
from flowql.runtime.state.memory import MemoryPhysical
from tests.runtime.app.harness import InstanceHarness
from tests.runtime.app.test_rebuilding import CHAIN, sent
from tests.runtime.app.test_swapping import ALONE, MEMBER, LikeKafka


@pytest.mark.parametrize("config", [ALONE, MEMBER], ids=["alone", "member"])
def test_positions_that_another_program_has_moved_are_told(config: dict[str, Any]) -> None:
    log = LikeKafka()
    world = InstanceHarness(CHAIN.format(over=0), log=log, tick_ms=10, **config)
    world.send("s", sent(0, 40))
    world.settle()
    world.instance.close()
    for moved in (False, True):
        if moved:
            producer = log.producer("kafka-consumer-groups")
            producer.begin()
            producer.send_positions("flowql", {TopicPartition("s", 1): Position(0)})
            producer.commit()
        clock = VirtualClock(1_000_000)
        instance = Instance(log, MemoryPhysical(), clock, InstanceConfig(**config))
        Driver(instance, tick=partial(clock.advance, 10))
        instance.resume()
        notes = instance_metrics(instance).get("notes", [])
        assert len(notes) == moved
        instance.close()
    assert "s-1 to 0" in notes[0]
    assert "flowql deploy --full-refresh C" in notes[0]
