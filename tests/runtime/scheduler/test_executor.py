"""The step of a processing thread: what it counts, what it tells the manager, and how it waits."""

from __future__ import annotations

from typing import Any, cast

import pytest

from flowql.compiler.plan.priorities import PRIORITY_WEIGHTS
from flowql.runtime.clock import VirtualClock
from flowql.runtime.functions.runs import gives_way
from flowql.runtime.metrics import Metrics
from flowql.runtime.scheduler.executor import IDLE_MS, ProcessingStep
from flowql.runtime.task.task import Begins
from tests.runtime.scheduler.test_manager import fake, grant, manager


@pytest.mark.parametrize(("weight", "gives"), [("batch", True), ("normal", False), ("critical", False)])
def test_functions_of_batch_queries_alone_give_way(weight: str, gives: bool) -> None:
    task, seen = fake("q"), list[bool]()
    task.process = lambda limit_ns, begins: seen.append(gives_way()) or 1
    m = manager(task, threads=1)
    m.set_query("q", PRIORITY_WEIGHTS[cast(Any, weight)])
    ProcessingStep("a", m, VirtualClock(), Metrics()).run_once(0)
    assert (seen, gives_way()) == ([gives], False)


def test_a_step_that_works_waits_as_shortly_as_at_first_when_it_is_idle_again() -> None:
    task = fake("q", rows=0)
    m = manager(task, threads=1)
    step = ProcessingStep("a", m, VirtualClock(), Metrics())
    assert step.run_once(0) < step.run_once(0) < step.run_once(0)
    task.process = lambda limit_ns, begins: setattr(task, "buffered_rows", 0) or 1
    task.buffered_rows = 1
    assert step.run_once(0) == 0
    assert step.run_once(0) == 2 * IDLE_MS


def test_a_step_counts_the_processor_time_of_its_thread() -> None:
    clock, metrics, task = VirtualClock(), Metrics(), fake("q")
    times = iter([5, 12, 20, 100])
    clock.cpu_ns = lambda: next(times)
    task.process = lambda limit_ns, begins: 1
    step = ProcessingStep("a", manager(task, threads=1), clock, metrics)
    assert [step.run_once(0), step.run_once(0)] == [0, 0]
    assert metrics.query("q").cpu_ns == 7 + 80


def test_a_slice_that_fails_says_nothing_of_how_long_slices_of_its_query_take() -> None:
    """It counts as one that has not finished a slice, and leaves a thread to the others."""
    failing, more = fake("q", 0), fake("q", 1)

    def process(limit_ns: int, begins: Begins) -> int:
        raise ValueError("no")

    failing.process = more.process = process
    m = manager(failing, more, fake("other", rows=0))
    step = ProcessingStep("a", m, VirtualClock(), Metrics())
    assert step.run_once(0) == 0
    m.resume("q")
    grant(m, "a")
    assert m.acquire("b") is None
