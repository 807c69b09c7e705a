"""When a query of more weight gets a thread beside those that others hold."""

from __future__ import annotations

import threading
import time

import pytest

from tests.runtime.scheduler.test_manager import fake, grant, weighted


def test_a_query_of_more_weight_gets_a_thread_of_its_own_when_all_are_held_by_less() -> None:
    m, tasks = weighted(low=1, lower=1, critical=64)
    tasks["critical"].buffered_rows = 0
    held = [grant(m, "a"), grant(m, "b")]
    assert m.acquire_preempting("preemption") is None, "no query of more weight has work"
    tasks["critical"].buffered_rows = 1
    came = m.acquire_preempting("preemption")
    assert came is not None
    assert came.task is tasks["critical"]
    assert m.acquire_preempting("preemption 2") is None, "there is one preemption worker for all queries"
    m.release(held[0], 1000)
    held[0] = grant(m, "a")
    assert m.acquire_preempting("preemption 2") is None, (
        "another has given its task back, and this one still has its own"
    )
    m.release(came, 1000)
    again = m.acquire_preempting("preemption")
    assert again is not None
    m.release(again, 1000)
    for slice_ in held:
        m.release(slice_, 1000)
    assert m.running() == {}


def test_none_preempts_while_another_thread_is_free_or_serves_as_much_weight() -> None:
    m, tasks = weighted(low=1, lower=1, critical=64, vital=1_024)
    tasks["critical"].buffered_rows = tasks["vital"].buffered_rows = 0
    grant(m, "a")
    tasks["critical"].buffered_rows = 1
    assert m.acquire_preempting("preemption") is None, "a thread is free"
    tasks["critical"].buffered_rows = 0
    grant(m, "b")
    tasks["critical"].buffered_rows = 1
    assert m.acquire_preempting("preemption") is not None
    tasks["vital"].buffered_rows = 1
    assert m.acquire_preempting("preemption 2") is None, "one preempts already, though of less weight"
    m, _ = weighted(low=1, critical=64, other=64)
    first = grant(m, "a")
    second = grant(m, "b")
    assert {first.task.id.query, second.task.id.query} & {"critical", "other"}
    assert m.acquire_preempting("preemption") is None


def test_a_query_that_preempts_has_its_turn_by_the_accounts() -> None:
    """A thread more is no more processor time: a query that is ahead of its share waits as it did before."""
    m, tasks = weighted(low=1, lower=1, critical=15)
    tasks["critical"].buffered_rows = 0
    held = [grant(m, "a"), grant(m, "b")]
    tasks["critical"].buffered_rows = 1
    came = m.acquire_preempting("preemption")
    assert came is not None
    m.release(came, 60_000_000_000)
    tasks["lowest"] = fake("lowest")
    m.set_query("lowest", 1)
    m.add(tasks["lowest"])
    assert m.acquire_preempting("preemption") is None
    assert len(held) == 2


def test_the_preemption_worker_does_not_sleep_through_new_input() -> None:
    m, tasks = weighted(low=1, lower=1, critical=64)
    tasks["critical"].buffered_rows = 0
    grant(m, "a"), grant(m, "b")
    woken = threading.Event()

    def wait() -> None:
        while m.acquire_preempting("preemption") is None:
            m.wait_preempting("preemption", 60)
        woken.set()

    thread = threading.Thread(target=wait, daemon=True)
    thread.start()
    tasks["critical"].buffered_rows = 1
    m.signal()
    assert woken.wait(30)
    thread.join()


def test_the_end_of_an_instance_does_not_wait_for_the_preemption_worker() -> None:
    m, _ = weighted(low=1)
    woken = threading.Event()

    def wait() -> None:
        m.wait_preempting("preemption", 600)
        woken.set()

    thread = threading.Thread(target=wait, daemon=True)
    thread.start()
    while not woken.wait(0.01):  # it may not wait yet
        m.signal_preempting()
    thread.join()


def test_the_preemption_worker_has_one_task_whoever_gives_one_back() -> None:
    m, tasks = weighted(low=1, lower=1, critical=64, vital=1_024)
    tasks["critical"].buffered_rows = tasks["vital"].buffered_rows = 0
    held = [grant(m, "a"), grant(m, "b")]
    tasks["critical"].buffered_rows = 1
    came = m.acquire_preempting("preemption")
    assert came is not None
    tasks["vital"].buffered_rows = 1
    m.release(held[0], 1000)
    assert m.acquire_preempting("preemption 2") is None


@pytest.mark.parametrize("waiting", [1, 64])
def test_the_preemption_worker_sleeps_while_nothing_of_more_weight_waits(waiting: int) -> None:
    """Else it would look for work without a pause while all threads are held."""
    m, tasks = weighted(critical=64, vital=64, waiting=waiting)
    tasks["waiting"].buffered_rows = 0
    grant(m, "a"), grant(m, "b")
    tasks["waiting"].buffered_rows = 1
    start = time.monotonic()
    m.wait_preempting("preemption", 0.2)
    assert time.monotonic() - start >= 0.2
