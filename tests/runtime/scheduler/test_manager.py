"""Task locks and waits: the kinds of bug that Kafka Streams' processing threads had, as scenarios."""

from __future__ import annotations

import logging
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any, cast

import pytest

from flowql.runtime.clock import SystemClock, VirtualClock
from flowql.runtime.config import SLICE_NS_DEFAULT
from flowql.runtime.metrics import Metrics
from flowql.runtime.scheduler.executor import IDLE_MS, QUIET_MS_MAX, ProcessingStep
from flowql.runtime.scheduler.manager import ALONE_NS, LATELY_NS, SLOW_NS, Slice, TaskManager
from flowql.runtime.task.channels import Known
from flowql.runtime.task.id import TaskId
from flowql.runtime.task.task import Begins, Task


class FakeTask:
    """Rows to process, one per slice."""

    def __init__(self, query: str, partition: int = 0, rows: int = 1_000_000) -> None:
        self.id = TaskId(query, 0, partition)
        self.wake: Callable[[], object] = lambda: None
        self.buffered_rows, self.rows_ahead = rows, 0
        self.joins, self.logs = False, dict[str, object]()
        self.asked = 0

    @property
    def buffered_rows(self) -> int:
        return self._rows

    @buffered_rows.setter
    def buffered_rows(self, rows: int) -> None:
        self._rows = rows
        self.wake()

    @property
    def runnable(self) -> bool:
        return self.runnable_with(Known())

    @property
    def sleeps(self) -> bool:
        return not self.buffered_rows

    def on_rows(self, wake: Callable[[], object]) -> None:
        self.wake = wake

    def runnable_with(self, _known: Known) -> bool:
        self.asked += 1
        return self.buffered_rows > 0


def fake(query: str, partition: int = 0, rows: int = 1_000_000) -> Any:
    return cast(Task, FakeTask(query, partition, rows))


def manager(*tasks: Any, threads: int = 2, clock: Any = None) -> TaskManager:
    m = TaskManager(clock or VirtualClock(), threads=threads)
    for query in sorted({t.id.query for t in tasks}):
        m.set_query(query, 4)
    for t in tasks:
        m.add(t)
    return m


def grant(m: TaskManager, owner: str = "a") -> Slice:
    got = m.acquire(owner)
    assert got is not None
    return got


def prove(m: TaskManager, cost_ns: int = 1000) -> None:
    """One finished slice for everybody that is runnable."""
    for _ in m.tasks():
        m.release(grant(m), cost_ns)


TRANSITIONS: dict[str, Callable[[TaskManager], object]] = {
    "new input": lambda m: m.signal(),
    "added": lambda m: m.add(fake("q", 7)),
    "resumed": lambda m: m.resume("held"),
    "account": lambda m: m.set_query("q", 16),
}


@pytest.mark.parametrize("transition", TRANSITIONS.values(), ids=TRANSITIONS.keys())
def test_whoever_looked_before_a_transition_to_processable_does_not_sleep_through_it(
    transition: Callable[[TaskManager], object],
) -> None:
    m = manager(fake("q", rows=0), fake("held", rows=0))
    m.hold("held")
    assert m.acquire("a") is None
    transition(m)  # between the look and the wait
    start = time.monotonic()
    m.wait("a", 30)
    assert time.monotonic() - start < 20


def test_a_released_task_wakes_the_others() -> None:
    m = manager(fake("q"), threads=1)
    held = grant(m)
    assert m.acquire("b") is None
    m.release(held, 1)
    m.wait("b", 30)
    assert grant(m, "b").task is held.task


def test_a_task_is_held_by_one_thread_and_released_by_the_same() -> None:
    m = manager(fake("q"), threads=1)
    held = grant(m)
    assert m.acquire("b") is None
    with pytest.raises(AssertionError, match="held by a"):
        m.release(Slice(held.task, "b", 1, 1, 1), 1)
    with pytest.raises(AssertionError, match="already here"):
        m.add(held.task)


def test_removal_of_a_running_task_completes_when_it_is_released_and_grants_it_no_more() -> None:
    m = manager(fake("q"), threads=1)
    held = grant(m)
    removal = m.remove(held.task.id)
    assert not removal.done()
    m.release(held, 1)
    assert removal.result(0) is held.task
    assert m.acquire("b") is None
    assert m.tasks() == []


def test_removal_of_a_running_task_that_fails_completes_too() -> None:
    m = manager(fake("q"), threads=1)
    held = grant(m)
    removal = m.remove(held.task.id)
    m.release(held, 1, ValueError("no"))
    assert removal.result(0) is held.task
    assert [str(f.error) for f in m.drain_failures()] == ["no"]


def test_removal_of_an_idle_task_completes_at_once() -> None:
    m = manager(fake("q", rows=0))
    assert m.remove(TaskId("q", 0, 0)).done()


def test_a_failed_task_is_not_granted_again_before_its_query_is_resumed() -> None:
    m = manager(fake("q"), threads=1)
    m.release(grant(m), 1, ValueError("no"))
    assert m.acquire("a") is None
    m.signal()
    assert m.acquire("a") is None
    assert len(m.drain_failures()) == 1
    assert m.drain_failures() == []
    m.resume("q")
    assert grant(m).task.id.query == "q"


def test_a_failure_of_a_query_that_is_gone_is_forgotten() -> None:
    """A new query of the same name would be held for it."""
    m = manager(fake("q"), threads=1)
    m.release(grant(m), 1, ValueError("no"))
    m.remove(TaskId("q", 0, 0))
    m.forget_query("q")
    assert m.drain_failures() == []


def test_holding_a_query_takes_effect_at_the_next_grant() -> None:
    m = manager(fake("q"), threads=1)
    held = grant(m)
    m.hold("q")
    m.release(held, 1)
    assert m.acquire("a") is None


# -- functions that block


def test_a_query_that_never_finished_a_slice_holds_one_thread_while_there_are_others() -> None:
    m = manager(fake("new", 0), fake("new", 1), fake("other", rows=0))
    assert grant(m, "a").task.id.query == "new"
    assert m.acquire("b") is None


def test_a_query_alone_may_have_all_threads() -> None:
    m = manager(fake("new", 0), fake("new", 1))
    assert {grant(m, "a").task.id.partition, grant(m, "b").task.id.partition} == {0, 1}


def test_a_new_query_runs_beside_one_that_blocks() -> None:
    clock = VirtualClock()
    m = manager(fake("blocks", 0), fake("blocks", 1), clock=clock)
    m.release(grant(m, "a"), 1000)
    grant(m, "a")
    clock.spend(2 * SLOW_NS)
    m.set_query("new", 4)
    m.add(fake("new"))
    assert grant(m, "b").task.id.query == "new", "and not the second task of the one that blocks"


def test_a_query_whose_slices_are_far_too_long_leaves_a_thread_to_the_others() -> None:
    prompt = fake("prompt")
    m = manager(fake("slow", 0), fake("slow", 1), prompt)
    for _ in range(2):
        g = grant(m)
        m.release(g, 1000 if g.task.id.query == "prompt" else 2 * SLOW_NS)
    prompt.buffered_rows = 0
    assert grant(m, "a").task.id.query == "slow"
    assert m.acquire("b") is None, "it is kept for the other, which has nothing to do now"
    prompt.buffered_rows = 1
    assert grant(m, "b").task is prompt


def test_two_slow_queries_have_a_thread_each() -> None:
    """One that hangs for good must not hold up the other, which was slow for being on a busy machine."""
    clock = VirtualClock()
    m = manager(fake("hangs", 0), fake("hangs", 1), fake("slow", 0), clock=clock)
    m.release(grant(m), 2 * SLOW_NS)
    m.release(grant(m), 2 * SLOW_NS)
    first = grant(m, "a").task.id.query
    clock.spend(2 * SLOW_NS)
    assert grant(m, "b").task.id.query != first


def test_a_slice_without_rows_proves_nothing() -> None:
    m = manager(fake("new", 0), fake("new", 1), fake("other", rows=0))
    m.release(grant(m, "a"), 1000, rows=0)
    grant(m, "a")
    assert m.acquire("b") is None


def test_one_thread_runs_everything() -> None:
    m = manager(fake("slow"), fake("new"), threads=1)
    m.release(grant(m), 2 * SLOW_NS)
    m.release(grant(m), 2 * SLOW_NS)
    assert m.acquire("a") is not None


def test_a_slice_of_ten_times_its_budget_is_not_far_too_long_and_a_longer_one_is() -> None:
    assert SLOW_NS == 10 * SLICE_NS_DEFAULT, "rule R18"
    for cost_ns, granted in ((SLOW_NS, True), (SLOW_NS + 1, False)):
        m = manager(fake("q", 0), fake("q", 1), fake("idle", rows=0))
        m.release(grant(m), cost_ns)
        grant(m, "a")
        assert (m.acquire("b") is not None) == granted


def test_a_prompt_query_in_a_slice_that_is_far_too_long_gets_no_other_thread() -> None:
    clock = VirtualClock()
    m = manager(fake("q", 0), fake("q", 1), fake("idle", rows=0), clock=clock)
    m.release(grant(m), 1000)
    grant(m, "a")
    clock.spend(SLOW_NS)
    held = grant(m, "b")
    m.release(held, 1000)
    clock.spend(1)
    assert m.acquire("b") is None


def test_nothing_is_kept_of_a_query_that_is_forgotten() -> None:
    """Its name may come again: for a new query, which is unknown, has used nothing, and is not held."""
    tasks = [fake("q", 0), fake("q", 1), fake("idle", rows=0)]
    m = manager(*tasks)
    m.release(grant(m), 1000)
    m.hold("q")
    assert m.entitled_ns()["q"] > 0
    for task in tasks[:2]:
        m.remove(task.id)
    m.forget_query("q")
    assert "q" not in m.entitled_ns()
    assert [m.has(t.id) for t in tasks] == [False, False, True]
    m.set_query("q", 4)
    for task in tasks[:2]:
        m.add(task)
    assert grant(m, "a").task.id.query == "q"
    assert m.acquire("b") is None, "it has never finished a slice"
    assert (m.at_work(), m.running()) == (["q"], {str(tasks[1].id): "a"})


def test_who_had_nothing_to_do_is_owed_no_more_than_a_slice() -> None:
    late = fake("late", rows=0)
    m = manager(fake("busy"), late, threads=1)
    for _ in range(50):
        m.release(grant(m), SLICE_NS_DEFAULT)
    assert m.entitled_ns() == {"busy": 50 * SLICE_NS_DEFAULT}, "time without work entitles to nothing"
    assert_is_owed_a_slice_at_most(m, late)


def test_a_query_whose_work_has_ended_is_owed_no_more_than_a_slice() -> None:
    late = fake("late")
    m = manager(fake("busy"), late, threads=1)
    for _ in range(2):
        m.release(grant(m), SLICE_NS_DEFAULT)
    late.buffered_rows = 0
    before = m.entitled_ns()
    for _ in range(50):
        m.release(grant(m), SLICE_NS_DEFAULT)
    assert m.entitled_ns() == before | {"busy": before["busy"] + 50 * SLICE_NS_DEFAULT}
    assert_is_owed_a_slice_at_most(m, late)


def assert_is_owed_a_slice_at_most(m: TaskManager, late: Any) -> None:
    late.buffered_rows = 1_000
    turns = []
    for _ in range(8):
        held = grant(m)
        turns.append(held.task.id.query)
        m.release(held, SLICE_NS_DEFAULT)
    assert turns.count("late") in (4, 5)


def test_a_query_alone_has_longer_slices_and_one_beside_others_does_not() -> None:
    other = fake("other", rows=0)
    m = manager(fake("q", 0), fake("q", 1), other, threads=1)
    alone = grant(m)
    assert (alone.budget_ns, alone.limit_ns) == (SLICE_NS_DEFAULT, ALONE_NS)
    m.release(alone, 1000)
    other.buffered_rows = 1
    for _ in range(2):
        held = grant(m)
        assert (held.budget_ns, held.limit_ns) == (SLICE_NS_DEFAULT, SLICE_NS_DEFAULT)
        m.release(held, 1000)


def test_nothing_runs_where_there_is_no_room_and_a_slower_budget_stays_its_own() -> None:
    room = [True]
    m = TaskManager(VirtualClock(), threads=1, may_run=lambda: bool(room))
    m.set_query("q", 4, 2 * ALONE_NS)
    m.add(fake("q"))
    room.clear()
    assert m.acquire("a") is None
    assert not m.quiet, "it could run if there was room"
    assert m.awaits_commit("q")
    room.append(True)
    assert not m.awaits_commit("q")
    assert grant(m).limit_ns == 2 * ALONE_NS


def test_quiet_is_known_at_the_last_look() -> None:
    m = manager(fake("q"), fake("idle", rows=0), threads=1)
    assert not m.quiet, "nobody has looked"
    held = grant(m)
    assert not m.quiet
    m.acquire("b")
    assert not m.quiet, "somebody is at work"
    cast(Any, held.task).buffered_rows = 0
    m.release(held, 1)
    assert m.acquire("b") is None
    assert m.quiet


def test_a_step_counts_its_slices_and_says_which_are_far_too_long(caplog: pytest.LogCaptureFixture) -> None:
    """The first, the second, the fourth ... are said, with the total."""
    clock, metrics, costs = VirtualClock(), Metrics(), [1_000, SLOW_NS, SLOW_NS + 1, 3 * SLOW_NS, 2 * SLOW_NS]
    task = fake("q")

    def process(limit_ns: int, begins: Begins) -> int:
        clock.spend(costs[metrics.query("q").slices])
        return 1

    task.process = process
    step = ProcessingStep("a", manager(task, threads=1), clock, metrics)
    with caplog.at_level(logging.WARNING, "flowql"):
        assert [step.run_once(0) for _ in costs] == [0] * len(costs)
    said = [cast(Any, r).flowql_event for r in caplog.records]
    assert [(e["event"], e["query"], e["took_ms"], e["total"]) for e in said] == [
        ("slice.slow", "q", 50, 1),
        ("slice.slow", "q", 150, 2),
    ]
    m = metrics.query("q")
    assert (m.slices, m.slow_slices, m.slowest_slice_ns, m.turn_ns) == (5, 3, 3 * SLOW_NS, sum(costs))


def test_an_error_of_a_task_is_kept_with_it_and_the_step_goes_on() -> None:
    task = fake("q")

    def process(limit_ns: int, begins: Begins) -> int:
        raise ValueError("no")

    task.process = process
    m = manager(task, threads=1)
    step = ProcessingStep("a", m, VirtualClock(), Metrics())
    assert [step.run_once(0), step.run_once(0)] == [0, 2 * IDLE_MS]
    assert [(f.task_id, str(f.error)) for f in m.drain_failures()] == [(task.id, "no")]


# -- under real threads


def test_locks_hold_under_threads_that_switch_all_the_time() -> None:
    """Every row is taken once, no task is held twice, removals end (rule R16: a switch interval of 1 us)."""
    tasks = [fake(q, p, rows=300) for q in ("a", "b", "c") for p in range(3)]
    m = manager(*tasks, clock=SystemClock(), threads=4)
    holders: Counter[str] = Counter()
    taken: Counter[str] = Counter()
    wrong: list[str] = []
    stop = threading.Event()

    def work(owner: str) -> None:
        while not stop.is_set():
            g = m.acquire(owner)
            if g is None:
                m.wait(owner, 0.05)
                continue
            name = str(g.task.id)
            holders[name] += 1
            if holders[name] != 1:
                wrong.append(name)
            cast(Any, g.task).buffered_rows -= 1
            taken[name] += 1
            holders[name] -= 1
            m.release(g, 100)

    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    threads = [threading.Thread(target=work, args=(f"t{i}",)) for i in range(4)]
    try:
        for t in threads:
            t.start()
        removed = m.remove(TaskId("c", 0, 2)).result(120)
        left = cast(Any, removed).buffered_rows
        limit = time.monotonic() + 120
        while any(t.buffered_rows for t in m.tasks()) and time.monotonic() < limit:
            m.hold("a")
            m.resume("a")
            m.signal()
            time.sleep(0.001)
    finally:
        stop.set()
        m.signal()
        for t in threads:
            t.join(120)
        sys.setswitchinterval(before)
    assert not wrong
    assert all(not t.is_alive() for t in threads)
    assert sum(taken.values()) == 9 * 300 - left


def weighted(**weights: int) -> tuple[TaskManager, dict[str, Any]]:
    """All have had a slice, none lately."""
    tasks, clock = {name: fake(name) for name in weights}, VirtualClock()
    m = manager(*tasks.values(), clock=clock)
    for name, weight in weights.items():
        m.set_query(name, weight)
    prove(m)
    clock.spend(LATELY_NS)
    return m, tasks


def test_work_of_far_more_weight_is_known_while_it_waits_or_runs() -> None:
    m, tasks = weighted(low=1, critical=64)
    assert m.has_work_of_far_more(4)
    assert not m.has_work_of_far_more(16)
    held = grant(m)
    assert held.task is tasks["critical"]
    tasks["critical"].buffered_rows = 0
    assert m.has_work_of_far_more(4), "it runs"
    m.release(held, 1_000)
    assert not m.has_work_of_far_more(4)
    tasks["critical"].buffered_rows = 1
    m.hold("critical")
    assert not m.has_work_of_far_more(4), "it is paused"
    m.resume("critical")
    assert m.has_work_of_far_more(0), "of a query that nobody waits for, too"


def test_queries_of_far_less_weight_leave_a_thread_to_one_that_had_work_lately() -> None:
    clock, critical = VirtualClock(), fake("critical")
    m = manager(fake("one"), fake("two"), critical, clock=clock)
    for name, weight in {"one": 1, "two": 1, "critical": 16}.items():
        m.set_query(name, weight)
    prove(m)
    critical.buffered_rows = 0
    light = grant(m, "a")
    assert light.task.id.query in ("one", "two")
    assert m.acquire("b") is None, "they leave it together, each of them has fewer than all threads"
    critical.buffered_rows = 1
    came = grant(m, "b")
    assert came.task is critical
    m.release(came, 1000)
    critical.buffered_rows = 0
    clock.spend(LATELY_NS)
    assert {light.task.id.query, grant(m, "b").task.id.query} == {"one", "two"}, "nothing has come for long"


@pytest.mark.parametrize(("threads", "light"), [(2, 0), (3, 1), (4, 2)])
def test_a_commit_is_one_of_the_threads_of_queries_of_far_less_weight(threads: int, light: int) -> None:
    commits, critical = [True], fake("critical")
    m = TaskManager(VirtualClock(), threads=threads, is_committing=lambda: bool(commits))
    for name, weight in {"one": 1, "two": 1, "three": 1, "critical": 16}.items():
        m.set_query(name, weight)
        m.add(critical if name == "critical" else fake(name))
    commits.clear()
    prove(m)
    commits.append(True)
    critical.buffered_rows = 0
    granted = [m.acquire(f"t{n}") for n in range(threads)]
    assert sum(g is not None for g in granted) == light
    commits.clear()
    assert m.acquire("last") is not None, "it has ended"


def test_queries_of_far_less_weight_do_not_take_the_last_room_for_what_is_not_committed() -> None:
    """All queries waited for the next commit when one that rebuilds had filled it."""
    clock, critical, reserve = VirtualClock(), fake("critical"), [True]
    m = TaskManager(clock, threads=1, has_reserve=lambda: bool(reserve))
    for name, weight in {"batch": 1, "critical": 16}.items():
        m.set_query(name, weight)
    m.add(fake("batch"))
    m.add(critical)
    prove(m)
    reserve.clear()
    for _ in range(20):
        came = grant(m)
        assert came.task is critical
        m.release(came, 1_000_000)
    critical.buffered_rows = 0
    assert m.acquire("a") is None
    assert m.awaits_commit("batch")
    assert not m.awaits_commit("critical")
    clock.spend(LATELY_NS)
    assert grant(m).task.id.query == "batch", "nobody needs it"


def test_queries_of_less_weight_that_is_not_far_less_have_all_threads() -> None:
    m = manager(fake("one"), fake("two"), quiet := fake("high"))
    for name, weight in {"one": 1, "two": 1, "high": 15}.items():
        m.set_query(name, weight)
    prove(m)
    quiet.buffered_rows = 0
    assert {grant(m, "a").task.id.query, grant(m, "b").task.id.query} == {"one", "two"}


def test_none_of_those_that_feed_a_merge_is_left_behind() -> None:
    """Others whose inputs were filled up again had a few rows more, each time: all they made waited for the one that stood still."""
    feeders = [fake("q", partition, rows=100_000 + 5_000 * partition) for partition in range(3)]
    m = manager(*feeders)
    turns: Counter[int] = Counter()
    for _ in range(60):
        granted = grant(m)
        turns[granted.task.id.partition] += 1
        cast(Any, granted.task).rows_ahead += 10_000  # those after them cannot go on without all three
        m.release(granted, 1000)
    assert min(turns.values()) > 15


def test_a_thread_looks_less_often_while_nothing_can_run_and_nobody_works() -> None:
    m = manager(fake("q", rows=0), fake("r", rows=0))
    step = ProcessingStep("a", m, VirtualClock(), Metrics())
    waits = [step.run_once(0) for _ in range(6)]
    assert waits == sorted(waits)
    assert waits[-1] == QUIET_MS_MAX > IDLE_MS
    cast(Any, m.tasks()[0]).buffered_rows = 1
    held = grant(m, "b")
    assert step.run_once(0) == IDLE_MS, "somebody works: what comes of it may be this thread's"
    m.release(held, 1)


def test_a_grant_has_no_more_tasks_than_one_joint_micro_batch_of_the_same_share_of_partitions() -> None:
    tasks = [fake("q", n, rows=100 - n) for n in range(8)]
    for task in tasks:
        task.joins, task.sizer = True, SimpleNamespace(tasks=3)
    m = manager(*tasks)
    first = grant(m, "a")
    assert [t.id.partition for t in (first.task, *first.others)] == [0, 2, 4]
    m.release(first, 1000)
    m.run_alone(["q"])
    alone = grant(m, "a")
    assert alone.others == ()
    m.release(alone, 1000)
    m.run_alone([])
    assert [t.id.partition for t in grant(m, "a").others] == [2, 4]
    assert [t.id.partition for t in tasks if t.joins and m.remove(t.id).done()] == [1, 3, 5, 6, 7]
