"""Members of two versions: one that cannot read the newest plan leaves its partitions to the others, and says so."""

from __future__ import annotations

import json

import pytest

from flowql.compiler.plan import codec
from flowql.runtime import formats
from flowql.runtime.log.base import EARLIEST, TopicPartition
from flowql.runtime.placement.heartbeats import Heartbeat
from flowql.runtime.state.changelog import metadata_topic
from flowql.runtime.state.values import decode_value
from flowql.runtime.task import repartition
from flowql.runtime.topology import program
from tests.sim import project
from tests.sim.checks import APP
from tests.sim.test_scenarios import ends_well, feed, running, tasks, world

pytestmark = pytest.mark.turns("long")

__all__ = ["world"]  # a fixture
USER = "a user"


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
        return key, value[:-1] + b',"zone":"a"}'

    first = running(world)
    monkeypatch.setattr(Heartbeat, "encode", says_more)
    second = world.start()
    world.run_until(lambda: len(tasks(first)) == len(tasks(second)) == 5)
    ends_well(world)


@pytest.fixture
def versions(world, monkeypatch):
    """Names of processes of the next version, and the kinds of records of which it reads and writes a second format."""
    newer, raised = set(), set()

    def read():
        is_newer = (world.stack[-1][0].name if world.stack else USER) in newer
        return {kind: (1, 2 if is_newer and kind in raised else 1) for kind in formats.READ}

    def check(plan):
        if not formats.reads("plan", plan.format):
            raise ValueError(
                f"plan format {plan.format} is newer than {formats.newest('plan')}, which this FlowQL reads"
            )

    def enclose(batch, source, number):
        world.enclosed.append(number)
        return repartition.enclose(batch, source, number)

    world.enclosed = []  # records of repartitions are deleted once they are processed
    monkeypatch.setattr(program, "enclose", enclose)
    monkeypatch.setattr(formats, "read", read)
    monkeypatch.setattr(codec, "_check_format", check)
    return newer, raised


def written(world, kind):
    """The formats in which records of a kind were written, in the order of their topics."""
    if kind == "heartbeat":
        return [json.loads(value)["format"] for value in values(world, f"{APP}-heartbeats")]
    if kind == "task":
        return [decode_value(value)[0] for value in values(world, metadata_topic(APP)) if value]
    if kind == "plan":
        return [codec._from_text(v).serving.format for v in values(world, f"{APP}-plan") if v and b"Deployed" in v]
    return world.enclosed


def upgraded(world, process, newer):
    world.run_until(lambda: process.dead)
    newer.add(process.name)
    again = world.start(process.name)
    world.run_until(lambda: len(tasks(again)) == 5)
    return again


def values(world, topic):
    reader = world.outside.reader(TopicPartition(topic, 0), EARLIEST)
    found = []
    while (batch := reader.read(100_000, 1 << 30)) is not None:
        found += batch.records.column("value").to_pylist()
    return found


@pytest.mark.parametrize("kind", sorted(formats.READ))
def test_members_write_a_format_once_all_of_them_read_it(world, versions, kind):
    newer, raised = versions
    raised.add(kind)
    first, second = running(world), world.start()
    world.run_until(lambda: len(tasks(first)) == len(tasks(second)) == 5)
    for process in (first, second):  # each is stopped, and starts as the next version
        feed(world, 0)
        world.run_until(lambda: written(world, kind))
        assert set(written(world, kind)) == {1}, "an older member is alive"
        world.leave(process)
        again = upgraded(world, process, newer)
    world.run_until(lambda: again.instance.placement.placement.formats == {kind: 2})
    newer.add(USER)
    world.later = world.watch.rereads = True
    world.deploy(again, project.later_plan())
    feed(world)
    ends_well(world)
    assert written(world, kind)[-1] == 2


def test_a_member_of_an_older_version_that_comes_later_runs_nothing_and_says_so(world, versions):
    newer, raised = versions
    newer.add("p0")
    raised.add("envelope")
    running(world)
    feed(world, 0, 1)
    older = world.start()
    world.run_until(lambda: older.group.plans.outdated)
    assert "envelope format 2; this version of FlowQL reads 1 to 1" in older.group.plans.outdated
    feed(world)
    assert not tasks(older)
    newer.add(older.name)  # it is upgraded
    world.run_until(lambda: tasks(older))
    ends_well(world)
