"""Schemas that no registry keeps: records stay readable over deployments and restarts."""

from __future__ import annotations

import pytest

from flowql.runtime.app.driver import Driver
from flowql.runtime.app.instance import Instance
from flowql.runtime.clock import VirtualClock
from flowql.runtime.config import InstanceConfig
from flowql.runtime.serde.registry import KNOWN
from flowql.runtime.state.memory import MemoryPhysical
from tests.runtime.app.harness import InstanceHarness, plan_of

SOURCE = "CREATE STREAM S (K BIGINT KEY, V BIGINT) WITH (KAFKA_TOPIC='s', VALUE_FORMAT='JSON', PARTITIONS=2);\n"
FIRST = "CREATE STREAM A WITH (KAFKA_TOPIC='a', VALUE_FORMAT='{}') AS SELECT K, V FROM S;\n"
SECOND = "CREATE STREAM A WITH (KAFKA_TOPIC='a', VALUE_FORMAT='{}') AS SELECT K, V * 2 AS TWICE, V FROM S;\n"
COPY = "CREATE STREAM B WITH (KAFKA_TOPIC='b', VALUE_FORMAT='JSON') AS SELECT * FROM A;\n"


def _forget() -> None:
    """As another process would begin."""
    KNOWN._by_id.clear()
    KNOWN._latest.clear()


def _both(fmt: str) -> list[dict[str, int | None]]:
    """What a new process reads of a topic that two versions of a query have written, one after the other."""
    physical = MemoryPhysical()
    with InstanceHarness(SOURCE + FIRST.format(fmt), physical=physical) as world:
        world.send("s", [(1, {"V": 5}, 0), (2, {"V": 6}, 1)])
        world.settle()
        world.deploy(SOURCE + SECOND.format(fmt))
        world.settle()
    world.instance.close()
    _forget()
    instance = Instance(world.log, physical, VirtualClock(2_000_000), InstanceConfig())
    driver = Driver(instance)
    instance.resume()
    instance.deploy(plan_of(SOURCE + SECOND.format(fmt) + COPY, instance.plan))
    driver.run_until_caught_up()
    world.instance = instance
    return sorted(world.values("b"), key=str)


@pytest.mark.parametrize("fmt", ["AVRO", "PROTOBUF", "JSON_SR"])
def test_a_rebuilt_result_is_read_after_a_restart_by_its_new_schema_alone(fmt: str) -> None:
    """The schema of the version before stays known; its records have been replaced."""
    newer: list[dict[str, int | None]] = [{"TWICE": 2 * v, "V": v} for v in (5, 6)]
    assert _both(fmt) == sorted(newer, key=str)
    assert len(KNOWN._by_id) >= 2
