"""Which tasks a look for work asks."""

from __future__ import annotations

from typing import Any, cast

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


def test_a_query_with_rows_is_weighed_by_one_task_of_each_other_query() -> None:
    m = manager(*(fake(q, n) for q in ("a", "b", "c") for n in range(8)))
    granted = grant(m).task
    asked = {q: sum(cast(Any, t).asked for t in m.tasks() if t.id.query == q) for q in ("a", "b", "c")}
    assert asked.pop(granted.id.query) == 9
    assert set(asked.values()) == {1}


def test_a_task_that_another_thread_stops_during_the_look_is_granted() -> None:
    stopped = fake("q")
    m = manager(stopped)
    answers = iter([True, False])
    stopped.runnable_with = lambda _known: next(answers)
    got = grant(m)
    assert got.task is stopped
    m.release(got, 1000, rows=0)
