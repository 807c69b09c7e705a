"""Draining: queries are held at one offset with nothing in transit, or go on as before."""

from __future__ import annotations

from collections.abc import Callable, Iterable

import pytest

from flowql.runtime.app.consistent_snapshot import StoppedInputs, TaskSet
from flowql.runtime.app.coroutines import Coroutine
from flowql.runtime.app.draining import at_rest, drained, task_set
from tests.runtime.app.harness import InstanceHarness
from tests.runtime.app.test_consistent_snapshot import BY_KEY, BY_VALUE, SOURCE, free, one_run_per_slice, rows, steps

NAMES = ["CTAS_A", "CTAS_C"]


class Late(Exception):
    """It takes too long."""


@pytest.fixture
def world() -> InstanceHarness:
    """In the middle of its input."""
    world = InstanceHarness(SOURCE.format(n=2) + BY_KEY + BY_VALUE, rows_per_run=10)
    one_run_per_slice(world)
    world.send("s", rows(0, 600))
    steps(world, 9)
    return world


def tasks(world: InstanceHarness) -> TaskSet:
    return task_set({n: list(world.instance.queries[n].built.tasks) for n in NAMES})


def held(world: InstanceHarness) -> set[bool]:
    return {world.instance.query_states.of(n).swapping for n in NAMES}


def run(world: InstanceHarness, coroutine: Coroutine, rounds: int) -> bool:
    """Whether it ends within so many rounds of the instance."""
    for _ in range(rounds):
        try:
            assert next(coroutine) is None
        except StopIteration:
            return True
        steps(world, 1)
    return False


def nothing() -> None:
    """It may go on."""


def test_queries_are_held_at_one_offset_with_nothing_between_their_tasks(world: InstanceHarness) -> None:
    looks = list[bool]()
    coroutine = drained(world.instance, NAMES, lambda: tasks(world), running=lambda: looks.append(True), held=nothing)
    assert run(world, coroutine, 200)
    assert (tasks(world).together, held(world), free(world)) == (True, {True}, True)
    read = {n: sum(i.position for t in world.instance.queries[n].built.tasks for i in t.logs.values()) for n in NAMES}
    assert len(set(read.values())) == 1
    assert 0 < read["CTAS_A"] < 600
    assert looks, "it is asked at each look whether to go on"
    world.instance.query_states.release_after_swap(NAMES)
    world.settle()
    assert sum(r[1] for r in world.table("A")) == sum(r[1] for r in world.table("C")) == 600


def test_a_look_that_moves_no_offset_wakes_no_thread(world: InstanceHarness) -> None:
    stopped, signals = StoppedInputs(), list[int]()
    with world.instance.state.epoch_lock:
        assert [stopped.move(tasks(world)) for _ in range(3)] == [True, False, False]
    stopped.lift()
    assert free(world)
    signal = world.instance.manager.signal
    world.instance.manager.signal = lambda: signals.append(1) or signal()  # type: ignore[method-assign,func-returns-value,assignment]
    world.instance.manager.hold("CTAS_C")  # so that it is waited for
    coroutine = drained(world.instance, NAMES, lambda: tasks(world), running=nothing, held=nothing)
    for _ in range(5):
        next(coroutine)
    assert len(signals) == 1
    coroutine.close()
    assert (len(signals), free(world)) == (2, True)


@pytest.mark.parametrize("moment", ["running", "held"])
def test_what_takes_too_long_goes_on_as_before(world: InstanceHarness, moment: str) -> None:
    def late() -> None:
        raise Late

    def never() -> Callable[[], None]:
        world.instance.manager.hold("CTAS_C")
        return late

    manager = world.instance.manager
    if moment == "held":  # a slice that does not end
        manager.at_work = lambda: ["CTAS_A"]  # type: ignore[method-assign]
        coroutine = drained(world.instance, NAMES, lambda: tasks(world), running=nothing, held=late)
    else:
        coroutine = drained(world.instance, NAMES, lambda: tasks(world), running=never(), held=nothing)
    with pytest.raises(Late):
        run(world, coroutine, 200)
    assert free(world)
    assert held(world) == {moment == "held"}, "the caller releases what is held"


def test_a_run_that_ends_beyond_the_offset_lets_them_go_on_to_the_next(
    world: InstanceHarness, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It was under way when they were held."""
    states, seen, together = world.instance.query_states, list[str](), iter([True, False])

    class Scripted(TaskSet):
        @property
        def together(self) -> bool:
            return next(together, None) or task_set(self.tasks).together

    def found() -> TaskSet:
        known = tasks(world)
        return Scripted(known.tasks, known.shared)

    hold, release = states.hold_for_swap, states.release_after_swap

    def held_now(names: Iterable[str]) -> None:
        seen.append("held")
        hold(names)

    def released(names: Iterable[str]) -> None:
        seen.append("released")
        release(names)

    monkeypatch.setattr(states, "hold_for_swap", held_now)
    monkeypatch.setattr(states, "release_after_swap", released)
    coroutine = drained(world.instance, NAMES, found, running=nothing, held=nothing)
    assert next(coroutine) is None
    assert (seen, held(world)) == (["held", "released"], {False})
    assert run(world, coroutine, 400)
    assert (seen[2:], held(world)) == (["held"], {True})


def test_who_is_at_work_is_waited_for(world: InstanceHarness) -> None:
    asked, working = list[int](), [["CTAS_A", "CTAS_B"], ["CTAS_B", "CTAS_C"], ["CTAS_B"]]
    world.instance.manager.at_work = lambda: working[min(len(asked), 2)]  # type: ignore[method-assign]
    assert run(world, at_rest(world.instance, NAMES, lambda: asked.append(1)), 5)
    assert len(asked) == 2
