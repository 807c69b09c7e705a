"""Positions that a commit has of queries: the lowest of all tasks that read a partition, and where refused queries will begin."""

from __future__ import annotations

from dataclasses import replace

import pytest

from flowql.compiler.plan.deployed import groups_of
from flowql.runtime.app.query_state import STOPPED
from flowql.runtime.app.running import positions_of
from flowql.runtime.app.status import deployed_queries
from flowql.runtime.errors import TopicMissing
from flowql.runtime.log.base import TopicPartition
from flowql.runtime.topology.query import BuiltQuery
from tests.runtime.app.harness import InstanceHarness
from tests.runtime.app.test_isolation import COPY, GOOD, SOURCE, rows
from tests.runtime.app.test_rebuilding import CHAIN

COPY_ID, GOOD_ID = "CSAS_COPY", "CTAS_GOOD"
S0, S1 = TopicPartition("s", 0), TopicPartition("s", 1)


@pytest.fixture
def world() -> InstanceHarness:
    """One query has processed more than the other, and nothing of that is committed."""
    world = InstanceHarness(SOURCE.format(n=2) + COPY + GOOD)
    world.send("s", rows(0, 50))
    world.settle()
    world.instance.manager.hold(GOOD_ID)
    world.send("s", rows(50, 50))
    for _ in range(10):
        world.driver.round()  # type: ignore[union-attr]
    return world


def offsets(world: InstanceHarness) -> dict[TopicPartition, int]:
    return {tp: p.offset for tp, p in positions_of(world.instance.queries, world.instance.query_states).items()}


def of(world: InstanceHarness, query: str) -> dict[TopicPartition, int]:
    return {i.tp: i.position for t in world.instance.queries[query].built.tasks for i in t.logs.values()}


def test_the_position_of_a_partition_is_the_lowest_of_its_readers(world: InstanceHarness) -> None:
    ahead, behind = of(world, COPY_ID), of(world, GOOD_ID)
    assert all(ahead[tp] > behind[tp] > 0 for tp in (S0, S1))
    assert offsets(world) == behind
    world.instance.query_states.stop(GOOD_ID, TopicMissing("gone"))
    assert offsets(world) == ahead, "what has stopped keeps its own"
    world.instance.query_states.stop(COPY_ID, TopicMissing("gone"))
    assert offsets(world) == {}


def test_where_a_refused_query_will_begin_counts_too(world: InstanceHarness) -> None:
    running, other = world.instance.queries[GOOD_ID], TopicPartition("t", 0)
    running.restart_positions = {S0: 1, other: 5}
    assert offsets(world) == {**of(world, GOOD_ID), S0: 1, other: 5}
    assert running.staying({S0: 3, other: 4}) == {S0: 3}


def test_tasks_that_leave_with_a_cut_are_in_it_and_not_among_those_that_read(world: InstanceHarness) -> None:
    running = world.instance.queries[GOOD_ID]
    first, second = running.built.tasks
    before = positions_of(world.instance.queries, world.instance.query_states)
    running.built = BuiltQuery((first,))
    running.parting = [second]
    after = positions_of(world.instance.queries, world.instance.query_states)
    assert {tp: p.offset for tp, p in after.items()} == {tp: p.offset for tp, p in before.items()}
    (left,) = {i.tp for i in second.logs.values()}
    assert [tp for tp in before if before[tp].readers != after[tp].readers] == [left]
    assert {i.tp for i in first.logs.values()} != {left}


def test_committed_positions_are_those_of_the_last_commit_and_0_before_one(world: InstanceHarness) -> None:
    running = world.instance.queries[COPY_ID]
    ahead = of(world, COPY_ID)
    committed = running.committed_positions()
    assert committed.keys() == {S0, S1}
    assert all(0 < committed[tp] <= ahead[tp] for tp in committed)
    fresh = InstanceHarness(SOURCE.format(n=2) + COPY)
    for task in fresh.instance.queries[COPY_ID].built.tasks:
        task.state.metadata.clear()
    assert fresh.instance.queries[COPY_ID].committed_positions() == {S0: 0, S1: 0}


def test_queries_that_serve_come_before_those_that_are_built_and_have_no_tasks_between_two() -> None:
    world = InstanceHarness(CHAIN.format(over=0))
    world.deploy(CHAIN.format(over=15))
    instance = world.instance
    (group,) = groups_of(instance.deployed)
    found = deployed_queries(instance)
    serving = ["CSAS_BIG", "CTAS_COUNTS", "CTAS_SOME", "CTAS_OTHER"]
    assert list(found.queries) == [*serving, *(f"{q.id}@2" for q in group.queries)]
    assert found.queries["CSAS_BIG"] is instance.queries["CSAS_BIG"]
    del instance.queries["CSAS_BIG"]
    assert deployed_queries(instance).queries["CSAS_BIG"].built.tasks == ()
    instance.deployed = replace(instance.deployed, lost=(("CTAS_COUNTS", "records are gone"), ("CTAS_SOME", "")))
    names = list(deployed_queries(instance).queries)
    assert names[:3] == ["CTAS_COUNTS", "CSAS_BIG", "CTAS_OTHER"], (
        "what is rebuilt stands there with its new generation"
    )
    assert "CTAS_SOME" not in names
    assert instance.query_states.having(STOPPED) == []
