"""Copies of tasks that another process runs follow its changelogs, and are what its successor begins with."""

from dataclasses import replace

import pytest

from flowql.runtime.app.standby import SHARE
from tests.sim.checks import APP, judge
from tests.sim.cluster import SimulatedCluster
from tests.sim.faults import CALM
from tests.sim.test_positions import in_changelogs
from tests.sim.test_scenarios import feed, running, tasks


def lags(process, followed):
    return [process.instance.restoration.standbys.lag(t) for t in followed]


@pytest.fixture
def world():
    made = SimulatedCluster(1, CALM, orders=20)
    made.standbys = 1
    return made


def two(world):
    """Two processes, of which one follows all tasks of the other."""
    first = running(world)
    parts = len(world.input)
    second = world.start()
    world.run_until(lambda: tasks(second) and len(tasks(first)) + len(tasks(second)) == 10)
    feed(world, *range(parts // 2))
    standbys = second.instance.restoration.standbys
    world.run_until(lambda: {t for t in tasks(first) if t.startswith("CTAS_TOTALS")} <= standbys.followed)
    followed = sorted(standbys.followed)
    return first, second, followed, range(parts // 2, parts)


def test_a_copy_comes_near_the_end_and_goes_on(world):
    _first, second, followed, rest = two(world)
    world.run_until(lambda: lags(second, followed) == [0] * len(followed))
    before = second.instance.restoration.standbys.records
    feed(world, *rest)
    world.run_for(3_000)
    world.run_until(lambda: lags(second, followed) == [0] * len(followed))
    assert second.instance.restoration.standbys.records > before
    with second.instance.state.snapshot() as seen:
        assert not set(followed) & set(seen.tasks()), "no query sees a copy"
    world.settle()
    assert judge(world) == []


def test_who_takes_a_task_over_begins_with_its_copy(world):
    first, second, followed, rest = two(world)
    feed(world, *rest)
    world.run_for(3_000)
    world.run_until(lambda: lags(second, followed) == [0] * len(followed))
    copied = second.instance.restoration.standbys.records
    read = second.instance.restoration.records
    world.kill(first)
    world.run_until(lambda: len(tasks(second)) == 10)
    world.settle()
    assert judge(world) == []
    assert lags(second, followed) == [None] * len(followed), "they are followed no more"
    assert second.instance.restoration.records - read < copied
    assert copied + read <= in_changelogs(world)


def test_copies_end_when_the_state_is_opened_again(world):
    """Rows of theirs may be lost, and what says that they are not whole."""
    _first, second, followed, rest = two(world)
    world.run_until(lambda: lags(second, followed) == [0] * len(followed))
    second.instance.state._openings += 1
    world.run_until(lambda: None in lags(second, followed))
    feed(world, *rest)
    world.run_until(lambda: lags(second, followed) == [0] * len(followed))  # begun anew
    world.settle()
    assert judge(world) == []


def test_a_copy_takes_its_share_of_a_processor(world):
    _first, second, _followed, rest = two(world)
    standbys = second.instance.restoration.standbys
    spent = []
    apply = standbys._apply

    def slow(*args):
        apply(*args)
        world.clock.spend(100_000_000)
        spent.append(world.now)

    standbys._apply = slow
    begin = world.now
    feed(world, *rest)
    world.run_for(5_000)
    assert 0 < len(spent) * 100 <= (world.now - begin) * SHARE + 100


def test_warm_ups_and_copies_begin_with_a_checkpoint():
    """A member that joins reads of changelogs only what came after it, for tasks that it takes over and for those that it follows."""
    world = SimulatedCluster(1, replace(CALM, remote=1.0), orders=20)
    world.standbys = 1
    first = running(world)
    feed(world, *range(len(world.input)))
    world.run_for(6_000)
    begun = len(world.objects.requests)
    second = world.start()
    world.run_until(lambda: tasks(second) and len(tasks(first)) + len(tasks(second)) == 10)
    standbys = second.instance.restoration.standbys
    world.run_until(lambda: {t for t in tasks(first) if t.startswith("CTAS_TOTALS")} <= standbys.followed)
    followed = sorted(standbys.followed)
    world.run_until(lambda: lags(second, followed) == [0] * len(followed))
    read = {name.split("/manifests/")[0] for request, name in world.objects.requests[begun:] if "/manifests/" in name}
    assert {f"{APP}/tasks/{task}" for task in followed} <= read
    assert standbys.records + second.instance.restoration.records < in_changelogs(world) / 2
    world.settle()
    assert judge(world) == []
