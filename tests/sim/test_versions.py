"""Members of two versions: one that cannot read the newest plan leaves its partitions to the others, and says so."""

from __future__ import annotations

import pytest

from flowql.compiler.plan import codec
from flowql.runtime.placement.heartbeats import Heartbeat
from tests.sim import project
from tests.sim.test_scenarios import ends_well, feed, running, tasks, world

pytestmark = pytest.mark.turns("long")

__all__ = ["world"]  # a fixture


@pytest.fixture
def older(world, monkeypatch):
    """The names of processes that read no plan with a later deployment's queries."""
    names = set()
    read = codec.loads_deployed

    def loads_deployed(text):
        found = read(text)
        if world.stack and world.stack[-1][0].name in names and "CTAS_CITIES" in found.plan.by_id:
            raise ValueError("plan format 2 is newer than 1, which this FlowQL reads")
        return found

    monkeypatch.setattr(codec, "loads_deployed", loads_deployed)
    return names


def test_a_member_that_cannot_read_a_newer_plan_leaves_its_tasks_to_those_that_can(world, older):
    first = running(world)
    second = world.start()
    world.run_until(lambda: len(tasks(first)) == len(tasks(second)) == 5)
    feed(world, 0, 1)
    older.add(first.name)
    world.later = world.watch.rereads = True
    world.deploy(second, project.later_plan())
    world.run_until(lambda: not tasks(first) and len(tasks(second)) > 10)
    assert "plan format 2 is newer" in first.group.plans.outdated
    assert not first.dead
    feed(world)
    older.clear()  # it is upgraded
    world.run_until(lambda: tasks(first))
    assert not first.group.plans.outdated
    ends_well(world)


def test_members_whose_heartbeats_say_more_than_this_version_knows_are_not_taken_for_dead(world, monkeypatch):
    encode = Heartbeat.encode

    def says_more(heartbeat):
        key, value = encode(heartbeat)
        return key, value[:-1] + b',"formats":{"plan":[1,2]}}'

    first = running(world)
    monkeypatch.setattr(Heartbeat, "encode", says_more)
    second = world.start()
    world.run_until(lambda: len(tasks(first)) == len(tasks(second)) == 5)
    ends_well(world)
