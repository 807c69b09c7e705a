"""Redo and records of tasks that another version of FlowQL has written: named with their place, and done without."""

from __future__ import annotations

from pathlib import Path

import pytest

from flowql.runtime import formats
from flowql.runtime.app.driver import Driver
from flowql.runtime.app.instance import Instance
from flowql.runtime.clock import VirtualClock
from flowql.runtime.config import InstanceConfig
from flowql.runtime.errors import StateError
from flowql.runtime.log.base import TopicPartition
from flowql.runtime.log.embedded.log import EmbeddedLog
from flowql.runtime.state import frozen
from flowql.runtime.state.changelog import WrittenTasks
from flowql.runtime.state.memory import MemoryPhysical
from tests.runtime.app.harness import InstanceHarness

SQL = """
CREATE STREAM S (K BIGINT KEY, V BIGINT) WITH (KAFKA_TOPIC='s', KEY_FORMAT='KAFKA', VALUE_FORMAT='JSON', PARTITIONS=2);
CREATE TABLE R AS SELECT K, SUM(V) AS N FROM S GROUP BY K EMIT CHANGES;
"""
SUMS = [(k, sum(range(k, 40, 3))) for k in range(3)]


def left(log: EmbeddedLog, **config: bool) -> None:
    """What an instance leaves that was killed: nothing of its state is on disk."""
    world = InstanceHarness(SQL, log=log, **config)
    for first in (0, 20):
        world.send("s", [(n % 3, {"V": n}, n) for n in range(first, first + 20)])
        world.settle()
    log.close()


def started(folder: Path, **config: bool) -> InstanceHarness:
    world = InstanceHarness.__new__(InstanceHarness)
    world.log, world.clock, world.tick_ms = EmbeddedLog(folder), VirtualClock(1_000_000), 10
    world.instance = Instance(world.log, MemoryPhysical(), world.clock, InstanceConfig(**config))
    world.driver = Driver(world.instance, tick=world.tick)
    world.instance.resume()
    return world


@pytest.mark.parametrize("changelogs", [False, True])
def test_redo_of_another_format_is_named_and_done_without(changelogs, tmp_path, monkeypatch, caplog):
    """The start failed, each time."""
    with monkeypatch.context() as patch:
        patch.setattr(frozen, "REDO_FORMAT", 2)
        left(EmbeddedLog(tmp_path), changelogs=changelogs)
    world = started(tmp_path, changelogs=changelogs)
    said = "\n".join(r.getMessage() for r in caplog.records) if changelogs else world.instance.state_lost
    assert f"{tmp_path}/redo-000000000000.bin, byte 0" in said
    assert "has format 2, as another version of FlowQL writes it; this one reads 1" in said
    assert "let the version that wrote it run once more" in said
    world.settle()
    assert world.table("R") == SUMS
    names = {"CTAS_R"} if changelogs else {"CTAS_R@2"}
    assert set(world.instance.queries) == names, "restored, or made anew from its input"


def test_other_fields_of_another_format_are_no_damage():
    with pytest.raises(frozen.RedoUnreadable, match="has format 3"):
        frozen.read_redo(b"\x93\x03\xc0\xc0")
    with pytest.raises(frozen.RedoUnreadable, match="of commit 7 cannot be read"):
        frozen.read_redo(b"\x92\x01\xc0", 7)
    with pytest.raises(frozen.RedoUnreadable, match="cannot be read"):
        frozen.read_redo(b"")


def test_records_of_tasks_of_another_format_are_named_and_done_without(tmp_path, monkeypatch):
    """The start failed, each time, though the inputs were there."""
    with monkeypatch.context() as patch:
        patch.setattr(frozen, "REDO_FORMAT", 2)
        patch.setattr(formats, "READ", {**formats.READ, "task": (2, 2)})
        left(EmbeddedLog(tmp_path), changelogs=True)
    world = started(tmp_path, changelogs=True)
    assert "flowql-metadata-0, " in world.instance.state_lost
    assert (
        "the record has format 2, as another version of FlowQL writes it; this one reads 1" in world.instance.state_lost
    )
    world.settle()
    assert world.table("R") == SUMS
    assert set(world.instance.queries) == {"CTAS_R@2"}, "made anew from its input"
    world.log.close()


def test_a_record_of_a_task_of_another_format_is_named_at_each_look(tmp_path, monkeypatch):
    """The next look went on behind it, and the task had no state."""
    with monkeypatch.context() as patch:
        patch.setattr(formats, "READ", {**formats.READ, "task": (2, 2)})
        left(EmbeddedLog(tmp_path), changelogs=True)
    log = EmbeddedLog(tmp_path)
    begin = log.begin_offset(TopicPartition("flowql-metadata", 0))
    written = WrittenTasks(log, "flowql")
    for _ in range(2):
        with pytest.raises(StateError, match=f"flowql-metadata-0, offset {begin}: the record has format 2.* reads 1"):
            written.read_on()
