"""A join of a member of a group: what it takes for read, and when it goes on. Whole groups: `tests/sim/test_upstream.py`."""

from __future__ import annotations

from dataclasses import replace
from random import Random
from typing import Any

import pytest

from flowql.runtime.app.group import GroupStep
from flowql.runtime.app.upstream import STALLED_MS, CommittedProgress, UpstreamWaits
from flowql.runtime.clock import VirtualClock
from flowql.runtime.errors import LogUnavailable
from flowql.runtime.log.base import TopicPartition
from flowql.runtime.log.memory import MemoryLog
from flowql.runtime.state.changelog import WrittenTask
from flowql.runtime.state.values import encode_metadata
from tests.runtime.app.harness import InstanceHarness
from tests.runtime.app.test_swapping import MEMBER
from tests.runtime.app.test_upstream import FAR, JOIN, LATEST, RECORDS, SOLD, SOURCES, expected, feed, send, sold

LATEST_ID, SOLD_ID = "CTAS_LATEST", "CSAS_SOLD"
RESULTS = [TopicPartition("LATEST", p) for p in range(2)]


class SlowLog(MemoryLog):
    """late: topics of which something is written that is not to be seen yet. away: it says no positions."""

    late: frozenset[str] = frozenset()
    away = False

    def written_offset(self, tp: TopicPartition) -> int:
        return super().written_offset(tp) + (tp.topic in self.late)

    def stable_positions(self, *asked: Any) -> Any:
        if self.away:
            raise LogUnavailable("a transaction is open")
        return super().stable_positions(*asked)


def world_of(sql: str, seed: int | None = None, **config: Any) -> InstanceHarness:
    """A member over records that are there already."""
    world = InstanceHarness(SOURCES, log=SlowLog(), seed=seed, tick_ms=10, **{**MEMBER, **config})
    for topic in ("sales", "names"):
        world.log.create_topic(topic, 2)
    send(world, 0)
    world.deploy(sql)
    return world


def group(world: InstanceHarness) -> GroupStep:
    assert world.instance.group is not None
    return world.instance.group


def waits(world: InstanceHarness) -> UpstreamWaits:
    return group(world)._waits


def progress(world: InstanceHarness) -> CommittedProgress:
    found = waits(world)._progress
    assert isinstance(found, CommittedProgress)
    return found


def held(world: InstanceHarness) -> str:
    return world.instance.query_states.of(SOLD_ID).waits_for


def rounds(world: InstanceHarness, n: int) -> None:
    assert world.driver is not None
    for _ in range(n):
        world.driver.round()


@pytest.mark.parametrize("made_by", [LATEST, FAR])
@pytest.mark.parametrize("seed", range(3))
def test_a_member_waits_when_it_begins_and_in_a_rebuild(made_by: str, seed: int) -> None:
    world = world_of(SOURCES + made_by + SOLD, seed)
    world.settle()
    assert sold(world) == expected(RECORDS)
    world.deploy(SOURCES + made_by.replace("COUNT(*)", "COUNT(N)") + SOLD)
    world.settle()
    assert world.instance.deployed.wanted is None
    assert sold(world)[-RECORDS:] == expected(RECORDS)


def test_a_member_does_not_wait_for_what_has_read_everything() -> None:
    """Nor over empty topics, of which no task has a position yet."""
    world = InstanceHarness(SOURCES + FAR + SOLD, tick_ms=10, **MEMBER)
    assert {str(t.id) for q in world.instance.queries.values() for t in q.built.tasks}
    assert not waits(world)._waiting
    world.settle()
    send(world, 0)
    world.settle()
    world.deploy(SOURCES + FAR + JOIN.format(what="N + 0"))
    rounds(world, 20)
    assert not waits(world)._waiting


def test_a_member_goes_on_when_results_are_to_be_seen_and_known_to_its_inputs() -> None:
    for seed in range(6):
        world = world_of(SOURCES + LATEST + SOLD, seed)
        assert isinstance(world.log, SlowLog)
        assert world.driver is not None
        world.log.late = frozenset({"LATEST"})
        rng = Random(seed)
        rounds(world, 300)
        assert held(world) == LATEST_ID
        ends = world.log.end_offsets(RESULTS)
        assert sum(ends.values()) == RECORDS
        inputs = [i for t in world.instance.queries[SOLD_ID].built.tasks for i in t.logs.values() if i.tp in ends]
        for i in inputs:
            i.end_offset = 0  # as if it was not looked at since
        world.instance.polling._ends.clear()
        world.log.late = frozenset()
        steps = [s for s in world.driver._steps if s is not world.instance.polling]
        while held(world):
            world.tick()
            rng.choice([*steps, world.instance.polling]).run_once(world.clock.timer_ms())
        assert {i.tp: i.end_offset for i in inputs} == ends
        world.settle()
        assert sold(world) == expected(RECORDS)


def test_brokers_that_do_not_answer_mean_that_there_is_more() -> None:
    world = InstanceHarness(SOURCES + LATEST + SOLD, log=SlowLog(), tick_ms=10, **MEMBER)
    assert isinstance(world.log, SlowLog)
    world.settle()
    assert not held(world)
    world.log.away = True
    waits(world).begin(world.instance.queries[SOLD_ID].plan)
    rounds(world, 50)
    assert held(world) == LATEST_ID
    assert "a transaction is open" in group(world).trouble
    world.log.away = False
    rounds(world, 50)
    assert not held(world)


def test_a_record_of_a_task_tells_what_it_has_read_of_its_own_channels() -> None:
    world = world_of(SOURCES + LATEST + SOLD)
    world.settle()
    (topic,) = group(world).planned.writers
    tp = TopicPartition(topic, 0)
    end = world.log.written_offset(tp)
    keys = [key for p, key in raw(world, topic) if p == 0]
    (source,) = {int.from_bytes(key, "big") for key in keys}
    mine, other = f"{topic}#{source}", f"{topic}#{1 - source}"
    assert not progress(world)._finds(tp, {mine: end, other: 0}, end)
    assert progress(world)._finds(tp, {mine: end - 1, other: 0}, end)
    assert progress(world)._finds(tp, {mine: end, other: end}, end + 1), "of what is written and not to be seen"


def raw(world: InstanceHarness, topic: str) -> list[tuple[int, bytes]]:
    found = []
    for p in range(world.partitions(topic)):
        reader = world.log.reader(TopicPartition(topic, p), 0)
        while (batch := reader.read(1_000, 1 << 20)) is not None:
            found += [(p, r["key"]) for r in batch.records.to_pylist()]
    return found


def test_a_record_of_another_text_or_none_tells_nothing() -> None:
    world = world_of(SOURCES + LATEST + SOLD)
    world.settle()
    task = min(t for t in group(world).planned.reads if t.query == LATEST_ID)
    (tp,) = group(world).planned.reads[task]
    written = group(world)._read_written().tasks
    end = world.log.end_offset(tp)
    assert progress(world)._has_read(task, tp, end, written)
    assert not progress(world)._has_read(task, tp, end, {})
    there = written[str(task)]
    metadata = encode_metadata({**there.record.read(), "query": "of another text"})
    other = {str(task): WrittenTask(there.sequence, replace(there.record, metadata=metadata))}
    assert not progress(world)._has_read(task, tp, end, other)


def test_a_query_upstream_that_moves_is_waited_for_however_long() -> None:
    world = world_of(SOURCES + LATEST + SOLD)
    world.settle()
    world.instance.manager.hold(LATEST_ID)
    clock, driver = world.clock, world.driver
    assert isinstance(clock, VirtualClock)
    assert driver is not None
    _, names = feed(RECORDS)

    def look_after(ms: int) -> str:
        clock.advance(ms)
        world.instance.reconciler.run_once(clock.timer_ms())
        rounds(world, 3)
        return held(world)

    world.send("names", names[:-1])
    waits(world).begin(world.instance.queries[SOLD_ID].plan)
    assert look_after(1_000) == LATEST_ID
    assert look_after(STALLED_MS - 1_000) == LATEST_ID
    world.instance.manager.resume(LATEST_ID)
    rounds(world, 3)
    world.instance.manager.hold(LATEST_ID)
    assert look_after(STALLED_MS) == LATEST_ID
