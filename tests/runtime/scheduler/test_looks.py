"""Which tasks a look for work asks."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, cast

import pytest
from hypothesis import given
from hypothesis import strategies as st

from flowql.runtime.scheduler.manager import TaskManager
from flowql.runtime.scheduler.policy import QueryFacts, TaskFacts, weighted_fair
from tests.runtime.scheduler.test_manager import fake, grant, manager


def test_a_task_without_rows_is_not_asked_again_before_it_gets_some() -> None:
    idle = [fake("idle", n, rows=0) for n in range(50)]
    m = manager(fake("busy"), *idle)
    for _ in range(20):
        m.release(grant(m), 1000)
    assert all(cast(Any, t).asked == 1 for t in idle)
    idle[7].buffered_rows = 1
    m.signal()
    granted = {str(grant(m, owner).task.id) for owner in ("a", "b")}
    assert str(idle[7].id) in granted


def asked_of(m: TaskManager, query: str) -> int:
    return sum(cast(Any, t).asked for t in m.tasks() if t.id.query == query)


def test_a_query_with_rows_is_weighed_by_one_task_of_each_other_query() -> None:
    m = manager(*(fake(q, n) for q in ("a", "b", "c") for n in range(8)))
    granted = grant(m).task
    asked = {q: asked_of(m, q) for q in ("a", "b", "c")}
    assert asked.pop(granted.id.query) == 2, "one weighs the query, the first in order is granted"
    assert set(asked.values()) == {1}


@pytest.mark.parametrize("partitions", [4, 32, 256])
def test_a_grant_asks_as_few_tasks_of_many_partitions_as_of_few(partitions: int) -> None:
    """To ask whether a task can run takes long: it asks its channels and all tasks upstream."""
    m = manager(*(fake("q", n, rows=100 + n) for n in range(partitions)))
    for _ in range(10):
        m.release(grant(m), 1000)
    assert asked_of(m, "q") == 20


def test_tasks_that_wait_for_others_are_asked_after_those_that_run() -> None:
    tasks = [fake("q", n) for n in range(40)]
    for waiting in tasks[:20]:
        waiting.runnable_with = refusing(waiting)
        waiting.buffered_rows = 1
    m = manager(*tasks)
    for _ in range(10):
        m.release(grant(m), 1000)
    assert sum(cast(Any, t).asked for t in tasks[:20]) <= 20


def refusing(task: Any) -> Callable[[object], bool]:
    def runnable_with(_known: object) -> bool:
        task.asked += 1
        return False

    return runnable_with


@given(st.lists(st.tuples(st.integers(0, 3), st.integers(0, 2), st.booleans()), min_size=1, max_size=12))
def test_the_task_granted_is_the_one_that_the_policy_chooses_of_all(found: list[tuple[int, int, bool]]) -> None:
    """Also when others cannot run. found: of each task its rows, those ahead, and whether it can run."""
    tasks = [fake("q", n, rows=rows) for n, (rows, _, _) in enumerate(found)]
    for task, (_, ahead, can_run) in zip(tasks, found, strict=True):
        task.rows_ahead = ahead
        if not can_run:
            task.runnable_with = refusing(task)
    m = manager(*tasks)
    could = [t for t, (rows, _, can_run) in zip(tasks, found, strict=True) if rows and can_run]
    facts = [TaskFacts(str(t.id), "q", t.buffered_rows, t.rows_ahead) for t in could]
    expected = weighted_fair(facts, {"q": QueryFacts(4, 1)}, 0.0)
    for _ in range(2):  # a look changes the order in which the next one asks
        got = m.acquire("a")
        assert (None if got is None else str(got.task.id)) == (None if expected is None else expected.task)
        if got is not None:
            m.release(got, 1)


def test_a_task_that_another_thread_stops_during_the_look_is_granted() -> None:
    stopped = fake("q")
    m = manager(stopped)
    answers = iter([True, False])
    stopped.runnable_with = lambda _known: next(answers)
    got = grant(m)
    assert got.task is stopped
    m.release(got, 1000, rows=0)
