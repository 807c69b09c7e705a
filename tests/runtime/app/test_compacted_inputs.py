"""State is lost, and compaction has removed records that it was computed from."""

from __future__ import annotations

from flowql.runtime.app.driver import Driver
from flowql.runtime.app.instance import Instance
from flowql.runtime.app.progress import query_status
from flowql.runtime.clock import VirtualClock
from flowql.runtime.config import InstanceConfig
from flowql.runtime.log.embedded.log import EmbeddedLog
from flowql.runtime.state.memory import MemoryPhysical
from tests.runtime.app.harness import InstanceHarness
from tests.simulated_disk import SimulatedDisk

SQL = """
CREATE STREAM UPDATES (K BIGINT KEY, B BIGINT) WITH (KAFKA_TOPIC = 't', PARTITIONS = 1, VALUE_FORMAT = 'JSON');
CREATE TABLE T (K BIGINT PRIMARY KEY, B BIGINT) WITH (KAFKA_TOPIC = 't', PARTITIONS = 1, VALUE_FORMAT = 'JSON');
CREATE TABLE COUNTED AS SELECT K, COUNT(*) AS N FROM UPDATES GROUP BY K;
CREATE TABLE SUMS AS SELECT B, COUNT(*) AS N FROM T GROUP BY B;
"""
COMPACT = {"cleanup.policy": "compact", "segment.bytes": "1", "min.cleanable.dirty.ratio": "0"}


def test_a_count_of_updates_is_not_made_anew_from_those_that_are_left() -> None:
    """It was, and began again from one without a word."""
    disk = SimulatedDisk()
    log = EmbeddedLog("/log", disk)
    log.create_topic("t", 1, COMPACT | {"cleanup.policy": "delete"})
    world = InstanceHarness(SQL, log=log)
    for at in range(4):
        world.send("t", [(1, b'{"B": %d}' % at, at)])
    world.settle()
    assert world.table("COUNTED") == [(1, 4)]
    world.instance.commit.flush()
    world.instance.close()
    world.log = EmbeddedLog("/log", disk)
    world.log.alter_topic("t", COMPACT)
    world.log.maintain(1_000_000)
    world.instance = Instance(world.log, MemoryPhysical(), VirtualClock(2_000_000), InstanceConfig())
    world.driver = Driver(world.instance)
    world.instance.resume()
    world.settle()
    states = {name: query_status(world.instance, name)["state"] for name in world.instance.queries}
    assert states == {"CTAS_COUNTED": "error", "CTAS_SUMS@2": "running"}
    said = query_status(world.instance, "CTAS_COUNTED")["last_error"]
    assert "records of t-0 that it has read are gone (compaction)" in said
    assert "flowql deploy --select CTAS_COUNTED --prune" in said
