"""A member whose step does not end leaves its group, others go on, and it comes back (rule R15)."""

from __future__ import annotations

import pytest

from flowql.runtime.app import watchdog
from tests.sim.__main__ import live
from tests.sim.test_scenarios import ends_well, feed, running, tasks, world

pytestmark = pytest.mark.turns("long")

__all__ = ["world"]  # a fixture


@pytest.fixture
def impatient(monkeypatch):
    for name, ms in (("LOOK_MS", 50), ("STUCK_MS", 200), ("LEAVE_MS", 400)):
        monkeypatch.setattr(watchdog, name, ms)


def hanging(world, process, ms):
    """A function of the next run of a process hangs for so long; what is seen then, just before it ends."""
    seen = {}
    dog = process.instance.watchdog

    def look():
        seen["tasks"] = {p.name: tasks(p) for p in world.processes if p is not process}
        seen["stuck"], seen["away"] = dog.stuck(world.now), dog.is_away

    def work():
        process.link.work = lambda: None
        world.at(world.now + ms - 100, look)
        assert world.interlude(process, ms, freeze=False)

    process.link.work = work
    return seen


@pytest.mark.parametrize("alone", [False, True])
def test_others_take_over_from_a_member_whose_function_hangs(world, impatient, alone):
    first = running(world)
    second = None if alone else world.start()
    if second is not None:
        world.run_until(lambda: len(tasks(second)) == len(tasks(first)) == 5)
    seen = hanging(world, first, 3_000)
    feed(world)
    (stuck,) = seen["stuck"]
    assert stuck.step.startswith("processing")
    assert stuck.task in tasks(first) or not tasks(first)
    assert seen["away"]
    if second is not None:
        assert len(seen["tasks"][second.name]) == 10
    ends_well(world)
    assert not first.instance.watchdog.is_away
    assert tasks(first), "it came back"


def test_without_the_watchdog_nobody_takes_over(world, monkeypatch):
    """What the test above shows is the watchdog's doing: heartbeats go on, whatever a step does."""
    first = running(world)
    second = world.start()
    world.run_until(lambda: len(tasks(second)) == 5)
    seen = hanging(world, first, 3_000)
    feed(world)
    assert len(seen["tasks"][second.name]) == 5
    ends_well(world)


@pytest.mark.turns("worlds")
def test_members_that_leave_for_every_pause_lose_nothing(impatient, monkeypatch):
    """Slow runs and stalls are longer than the watchdog's patience here."""
    monkeypatch.setattr(watchdog, "LEAVE_MS", 250)
    for seed in range(8):
        found, wrong = live(seed, disk=True)
        assert not wrong, f"seed {seed}\n" + "\n".join([*found.trace, *wrong])
