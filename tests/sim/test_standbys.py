"""Copies of tasks that another process runs follow its changelogs, and are what its successor begins with."""

import pytest

from flowql.runtime.app.kept_rows import kept_rows
from flowql.runtime.app.standby import SHARE
from flowql.runtime.state.changelog import read_tasks
from tests.sim.checks import APP, judge
from tests.sim.cluster import SimulatedCluster
from tests.sim.faults import CALM
from tests.sim.test_positions import in_changelogs
from tests.sim.test_scenarios import feed, running, tasks


def follow(world, process, owner):
    """As the owner of a placement with standbys does it: copies of all tasks of another process."""
    written = read_tasks(world.outside, APP)
    state, restoration = process.instance.state, process.instance.restoration
    records = {t: written[t].record for t in tasks(owner) if t in written and written[t].record.stores}
    sequences = {owner.instance.config.transactional_id: 1 << 30}
    options = {"sequences": sequences, "now_ms": world.clock.wall_ms()}
    state.rebuild(records, kept_rows(process.instance.admin, state, APP, records, **options))
    for task, record in records.items():
        known = owner.instance.state.committed_stores()
        specs = [known[s].spec for s in record.stores if s in known]
        restoration.standbys.follow(task, record.partition, specs)
    return list(records)


def lags(process, followed):
    return [process.instance.restoration.standbys.lag(t) for t in followed]


@pytest.fixture
def world():
    return SimulatedCluster(1, CALM, orders=20)


def two(world):
    """Two processes, of which one follows all tasks of the other."""
    first = running(world)
    parts = len(world.input)
    second = world.start()
    world.run_until(lambda: tasks(second) and len(tasks(first)) + len(tasks(second)) == 10)
    feed(world, *range(parts // 2))
    followed = follow(world, second, first)
    assert followed
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


def test_a_copy_that_is_given_up_is_written_to_no_more(world):
    _first, second, followed, rest = two(world)
    stopped = [second.instance.restoration.standbys.stop_following(t) for t in followed]
    world.run_until(lambda: all(s.done() for s in stopped))
    assert all(s.result() for s in stopped)
    assert not second.instance.restoration.standbys.stop_following(followed[0]).result()
    records = second.instance.restoration.standbys.records
    feed(world, *rest)
    world.run_for(3_000)
    assert second.instance.restoration.standbys.records == records
    world.settle()
    assert judge(world) == []


def test_copies_end_when_the_state_is_opened_again(world):
    """Rows of theirs may be lost, and what says that they are not whole."""
    _first, second, followed, rest = two(world)
    world.run_until(lambda: lags(second, followed) == [0] * len(followed))
    second.instance.state._openings += 1
    feed(world, *rest)
    world.run_until(lambda: lags(second, followed) == [None] * len(followed))
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
