"""Rows that are here are restored from their position on: a process that had a task before reads what was written since."""

import logging

import pytest

from tests.sim import project
from tests.sim.checks import judge
from tests.sim.cluster import SimulatedCluster
from tests.sim.faults import CALM, DAY_MS
from tests.sim.groups import Violation
from tests.sim.plants import POSITION_PLANTS, planted
from tests.sim.test_scenarios import feed, running, tasks

ORDERS = 20


def moved_away_and_back(how, *, away_ms=0):
    """The world, and the process that has its tasks again. how: it went."""
    world = SimulatedCluster(1, CALM, orders=ORDERS)
    first, parts = running(world), len(world.input)
    feed(world, *range(parts // 4))
    first.instance.state.flush()
    feed(world, *range(parts // 4, parts // 2))  # a crash loses some of it from the disk
    second = world.start()
    world.run_until(lambda: tasks(second))
    if how == "kill":
        world.kill(first)
    else:
        world.leave(first)
    world.run_until(lambda: first not in world.processes and len(tasks(second)) == 10)
    feed(world, *range(parts // 2, parts))
    world.clock.set_wall(away_ms)
    third = world.start(first.name)
    world.run_until(lambda: tasks(third))
    world.kill(second)
    world.settle()
    return world, third


def in_changelogs(world):
    """Records that a restoration of everything would read."""
    topics = [t for t in world.broker.topics if t.endswith("-changelog")]
    return sum(sum(1 for _ in project.records_of(world.outside, t)) for t in topics)


@pytest.mark.parametrize("how", ["leave", "kill"])
def test_what_was_written_while_a_task_was_elsewhere_is_read_and_no_more(how, caplog):
    with caplog.at_level(logging.INFO):
        world, back = moved_away_and_back(how)
    assert judge(world) == []
    assert 0 < back.instance.restoration.records < in_changelogs(world)
    assert "from its beginning" not in caplog.text


def test_rows_from_long_ago_are_read_from_the_beginning(caplog):
    """Deletions of their keys may be gone."""
    with caplog.at_level(logging.INFO):
        world, back = moved_away_and_back("leave", away_ms=4 * DAY_MS)
    assert judge(world) == []
    restoration = back.instance.restoration
    assert restoration.records + restoration.standbys.records >= in_changelogs(world) / 2
    assert "deletions are kept" in caplog.text


@pytest.mark.parametrize("plant", POSITION_PLANTS)
def test_a_planted_bug_is_found(plant):
    with planted(plant):
        try:
            wrong = [w for how in ("leave", "kill") for w in judge(moved_away_and_back(how)[0])]
        except Violation as violation:
            wrong = [str(violation)]
    assert wrong
