"""What is given to a thread that waits ends its wait, and is there when the thread looks."""

from __future__ import annotations

import time
from collections.abc import Callable

import pytest

from flowql.runtime.app.coroutines import Coroutine
from flowql.runtime.log.base import TopicPartition
from flowql.runtime.log.memory import MemoryLog
from flowql.runtime.task.status import TaskStatus
from tests.runtime.app.harness import InstanceHarness
from tests.runtime.app.test_isolation import COPY, SOURCE
from tests.runtime.app.test_swapping import MEMBER
from tests.runtime.restoration.test_restoration import COUNTS, Life, no_redo

WAIT_S = 5.0


def test_work_for_the_polling_thread_wakes_it() -> None:
    world, done = InstanceHarness(SOURCE.format(n=1) + COPY), list[str]()
    polling = world.instance.polling
    polling.wake = lambda: done.append(f"woken, waits for {polling.run_once(world.clock.timer_ms())} ms")
    polling.command(lambda: done.append("worked"))
    assert done == ["worked", "woken, waits for 0 ms"]


def test_a_request_wakes_the_reconciler() -> None:
    world = InstanceHarness(SOURCE.format(n=1) + COPY)
    reconciler = world.instance.reconciler

    def begin() -> Coroutine:
        yield from ()
        return "answered"

    def wake() -> None:
        reconciler.run_once(world.clock.timer_ms())

    reconciler.wake = wake
    request = reconciler.ask(begin)
    assert (request.done.done(), reconciler.idle) == (True, True)
    assert request.done.result() == "answered"


def test_a_task_that_comes_or_goes_wakes_the_restoration_thread_and_so_does_what_is_read(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("flowql.runtime.app.restoration.CHUNK_RECORDS", 1)  # it takes many rounds
    life = Life(no_redo(), COUNTS)
    life.feed(0, 50)
    life.settle()
    life = life.again()
    restoration, (task, _) = life.instance.restoration, life.instance.queries["CTAS_C"].built.tasks
    step, woken = restoration.run_once, list[str]()
    restoration.wake = lambda: woken.append("left" if step(life.clock.timer_ms()) == 0 else "")
    removed = restoration.remove(task)
    assert (woken, removed.done(), restoration.owns(task)) == (["left"], True, False)
    restoration.wake = lambda: woken.append("came" if restoration.owns(task) else "")
    restoration.add(task, life.instance.state.restoring()[str(task.id)])
    assert woken == ["left", "came"]
    step(life.clock.timer_ms())  # asks for chunks
    restoration.wake = lambda: woken.append("read")
    life.instance.restore.loop.run_once(life.clock.timer_ms())
    assert woken[2:3] == ["read"]
    life.settle()
    assert task.status is TaskStatus.RUNNING


def test_a_member_that_is_given_up_or_waited_for_wakes_its_reconciler() -> None:
    log = MemoryLog()
    log.supports_redo = log.drops_with_commits = False
    world = InstanceHarness(SOURCE.format(n=1) + COPY, log=log, tick_ms=10, **MEMBER)
    group, woken = world.instance.group, list[str]()
    assert group is not None
    group.wake = lambda: woken.append("waited for")
    done = group.applied(world.log.end_offset(TopicPartition("flowql-plan", 0)))
    group.wake = lambda: woken.append("given up")
    group.lose()
    assert woken == ["waited for", "given up"]
    for _ in range(50):
        world.driver.round()  # type: ignore[union-attr]
    assert (done.done(), group.owned) == (True, 1)


WAKERS: dict[str, Callable[[InstanceHarness], None]] = {
    "consumer-main": lambda world: world.instance.main.wake(),
    "consumer-restore": lambda world: world.instance.restore.wake(),
    "restoration": lambda world: world.instance.restoration.wake(),
    "polling": lambda world: world.instance.polling.wake(),
    "polling, by what is fetched": lambda world: world.instance.main.loop.notify(),
    "polling, by what is read": lambda world: world.instance.restore.loop.notify(),
    "reconciler": lambda world: world.instance.reconciler.wake(),
    "commit": lambda world: world.instance.commit.wake(),
}


@pytest.mark.parametrize("thread", WAKERS)
def test_each_loop_wakes_the_thread_that_waits_for_it(thread: str) -> None:
    """Of the steps as threads have them; none is started here."""
    world = InstanceHarness(SOURCE.format(n=1) + COPY)
    (step,) = [s for s in world.instance.steps() if s.name == thread.partition(",")[0]]
    step.wait(0)
    WAKERS[thread](world)
    begun = time.monotonic()
    step.wait(WAIT_S)
    assert time.monotonic() - begun < WAIT_S / 2
    begun = time.monotonic()
    step.wait(0.05)
    assert time.monotonic() - begun >= 0.04, "once"


def test_what_an_operator_has_asked_outside_wakes_the_threads_that_process(monkeypatch: pytest.MonkeyPatch) -> None:
    world, woken = InstanceHarness(SOURCE.format(n=1) + COPY), list[str]()
    monkeypatch.setattr(world.instance.manager, "signal", lambda: woken.append("processing"))
    world.instance.publisher.wake()
    assert woken == ["processing"]
