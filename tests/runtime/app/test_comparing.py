"""Comparisons of members: how long each part of them waits, and what ends them."""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace
from typing import Any, cast

import pytest

from flowql.compiler.plan.deployed import groups_of
from flowql.runtime.app import comparing, group_swap, plan_writer
from flowql.runtime.app.comparing import TOGETHER_MS, ComparisonUnavailable, _await, _let_go, side_by_side
from flowql.runtime.app.plan_topic import read_deployed
from flowql.runtime.app.plan_writer import PlanWriter, write_after
from flowql.runtime.app.swapping import BUILT, begun
from flowql.runtime.clock import VirtualClock
from flowql.runtime.errors import LogUnavailable
from tests.runtime.app.test_rebuilding import CHAIN
from tests.runtime.app.test_shadow import Shadow, started


@pytest.fixture
def world() -> Shadow:
    """A member with a generation that is built and held back."""
    world = started(0, "member")
    world.shadow(CHAIN.format(over=10))
    world.settle()
    return world


def compared(world: Shadow, look: Any = lambda: None, wait: Any = None) -> int:
    assert world.instance.group is not None
    (group,) = groups_of(world.instance.deployed)
    return side_by_side(world.instance, world.instance.group.swap, group, look, wait or world.driver.round)


@pytest.mark.parametrize(("done_at_ms", "comes"), [(0, True), (100, True), (102, False)])
def test_it_waits_as_long_as_it_may_and_no_longer(done_at_ms: int, comes: bool) -> None:
    clock = VirtualClock(0)
    host = cast(Any, SimpleNamespace(clock=clock))
    begin = clock.timer_ms()

    def done() -> bool:
        return clock.timer_ms() - begin >= done_at_ms

    if comes:
        _await(host, done, "never", lambda: clock.advance(1), 100)
        assert clock.timer_ms() - begin == done_at_ms
    else:
        with pytest.raises(ComparisonUnavailable, match="never"):
            _await(host, done, "never", lambda: clock.advance(1), 100)
        assert clock.timer_ms() - begin == 101


def test_both_generations_stand_still_while_they_are_looked_at_and_go_on(world: Shadow) -> None:
    seen = list[Any]()

    def look() -> None:
        swap = world.instance.deployed.swap
        names = {t.id.query for q in world.instance.queries.values() for t in q.built.tasks}
        seen.append((swap is not None, names))

    assert compared(world, look) == 0
    assert seen == [(True, {"CTAS_OTHER"})]
    assert world.instance.deployed.swap is None
    world.settle()
    assert len({t.id.query for q in world.instance.queries.values() for t in q.built.tasks}) == 7


def test_writers_of_the_plan_are_closed(world: Shadow, monkeypatch: pytest.MonkeyPatch) -> None:
    opened, closed = list[PlanWriter](), list[PlanWriter]()

    class Writer(PlanWriter):
        def __init__(self, *of: Any) -> None:
            super().__init__(*of)
            opened.append(self)

        def close(self) -> None:
            super().close()
            closed.append(self)

    monkeypatch.setattr(plan_writer, "PlanWriter", Writer)
    compared(world)
    assert (len(opened), opened) == (2, closed), "it begins, and lets go"
    assert not write_after(world.instance, replace(world.instance.deployed, id=0), world.instance.deployed)
    assert not _let_go(world.instance, 99)
    assert (len(opened), opened) == (4, closed), "another record came first"
    with pytest.raises(ValueError, match="refused"):
        write_after(world.instance, world.instance.deployed, world.instance.deployed, prepare=refuse)
    assert (len(opened), opened) == (5, closed), "the write fails"


def refuse() -> None:
    raise ValueError("refused")


def test_a_look_that_fails_lets_both_go_on(world: Shadow) -> None:
    def look() -> None:
        raise ValueError("a bug of the caller")

    with pytest.raises(ValueError, match="a bug of the caller"):
        compared(world, look)
    stored = read_deployed(world.log, "flowql")
    assert stored is not None
    assert (stored.swap, world.instance.deployed.swap) == (None, None)


def test_what_is_not_held_back_is_not_compared(world: Shadow) -> None:
    (group,) = groups_of(world.instance.deployed)
    assert world.instance.group is not None
    world.instance.deployed = replace(world.instance.deployed, held=())
    with pytest.raises(ComparisonUnavailable, match="it is not held back"):
        side_by_side(world.instance, world.instance.group.swap, group, lambda: None, world.driver.round)


def test_what_is_not_built_is_not_compared_and_the_reason_is_told(world: Shadow) -> None:
    assert world.instance.group is not None
    why = world.instance.group.swap.why
    assert why == {"CSAS_BIG@2": BUILT}
    why["CSAS_BIG@2"] = "7 records behind"
    with pytest.raises(ComparisonUnavailable, match="7 records behind"):
        compared(world)
    assert world.instance.deployed.swaps == 0


def test_another_comparison_is_waited_for_until_the_leader_would_have_ended_it(world: Shadow) -> None:
    (group,) = groups_of(world.instance.deployed)
    world.instance.deployed = begun(world.instance.deployed, group)
    clock: Any = world.clock
    begin = clock.timer_ms()
    with pytest.raises(ComparisonUnavailable, match=comparing.BUSY):
        compared(world, wait=lambda: clock.advance(10))
    assert clock.timer_ms() - begin == group_swap.TOGETHER_MS + TOGETHER_MS + 10


def test_tasks_that_do_not_stop_end_it_and_go_on(world: Shadow, monkeypatch: pytest.MonkeyPatch) -> None:
    assert world.instance.group is not None
    monkeypatch.setattr(type(world.instance.group.swap), "_is_ready", lambda swap, task, now_ms: False)
    begin = world.clock.timer_ms()
    with pytest.raises(ComparisonUnavailable, match="tasks did not stop in time"):
        compared(world)
    assert TOGETHER_MS <= world.clock.timer_ms() - begin < 2 * TOGETHER_MS
    assert world.instance.deployed.swap is None


def test_another_deployment_ends_it(world: Shadow) -> None:
    """What was looked at may not be what is deployed now."""

    def look() -> None:
        before = world.instance.deployed
        assert before.swap is not None
        assert _let_go(world.instance, before.swap.id)

    with pytest.raises(ComparisonUnavailable, match="tasks went on before they had been looked at"):
        compared(world, look)


def test_letting_go_is_left_to_the_leader_where_brokers_are_away(
    world: Shadow, monkeypatch: pytest.MonkeyPatch
) -> None:
    def away(*_: object) -> None:
        raise LogUnavailable("no answer")

    assert not _let_go(world.instance, 5), "another swap, or none"
    monkeypatch.setattr(plan_writer, "PlanWriter", away)
    assert not _let_go(world.instance, 5)
