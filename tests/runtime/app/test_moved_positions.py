"""A reset of the group's positions by Kafka's tools is said at the next start: it was ignored without a word."""

from __future__ import annotations

from flowql.runtime.app.status import instance_metrics
from flowql.runtime.log.base import Position, TopicPartition
from tests.runtime.app.harness import InstanceHarness
from tests.runtime.app.test_rebuilding import CHAIN, sent
from tests.runtime.app.test_swapping import ALONE, LikeKafka


def test_positions_that_another_program_has_moved_are_told() -> None:
    log = LikeKafka()
    world = InstanceHarness(CHAIN.format(over=0), log=log, tick_ms=10, **ALONE)
    world.send("s", sent(0, 40))
    world.settle()
    world.instance.close()
    for moved in (False, True):
        if moved:
            producer = log.producer("kafka-consumer-groups")
            producer.begin()
            producer.send_positions("flowql", {TopicPartition("s", 1): Position(0)})
            producer.commit()
        again = InstanceHarness("", log=log, tick_ms=10, **ALONE)
        again.instance.resume()
        notes = instance_metrics(again.instance).get("notes", [])
        assert len(notes) == moved
        again.instance.close()
    assert "s-1 to 0" in notes[0]
    assert "flowql deploy --full-refresh C" in notes[0]
