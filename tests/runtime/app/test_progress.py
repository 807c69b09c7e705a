"""What status says of a query, from the facts of its tasks."""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest

from flowql.cli.status import stands_still
from flowql.runtime.app.progress import (
    AHEAD_MS_MIN,
    ahead_of_clock,
    caught_up,
    held_moment,
    query_status,
    source_ends,
    state_of,
    waiting_of,
)
from flowql.runtime.app.query_state import STOPPED, SUSPENDED
from flowql.runtime.errors import LogUnavailable, TopicMissing
from flowql.runtime.log.base import TopicPartition
from flowql.runtime.operators.base import HELD, AsyncFacts
from flowql.runtime.task.remaining import Remaining, held_in, remaining
from flowql.runtime.task.status import TaskStatus
from flowql.runtime.topology.query import BuiltQuery
from tests.runtime.app.harness import InstanceHarness
from tests.runtime.app.test_isolation import COPY, GOOD, SOURCE, rows

QUERY = "CSAS_COPY"


def task(partition: int, **times: int) -> Any:
    return SimpleNamespace(
        id=SimpleNamespace(partition=partition), state=SimpleNamespace(metadata={"stream_times": times})
    )


def test_stream_times_that_are_far_ahead_of_the_clock_are_told_by_partition() -> None:
    now, far = 10_000_000, 10_000_000 + AHEAD_MS_MIN + 1
    tasks = [task(1, a=far, b=5), task(0, a=far - 1), task(1, c=far + 7), task(2, a=1, **{"b#due": far}), task(3)]
    assert ahead_of_clock(tasks, now) == [
        {"partition": 1, "stream_time": far + 7, "ahead_ms": AHEAD_MS_MIN + 8},
    ]
    assert [f["partition"] for f in ahead_of_clock(tasks, now - 1)] == [0, 1]
    assert (
        ahead_of_clock([SimpleNamespace(id=SimpleNamespace(partition=0), state=SimpleNamespace(metadata={}))], 0) == []
    )


def test_a_moment_that_the_clock_has_to_reach_again_is_told() -> None:
    def of(**timers: Any) -> Any:
        return SimpleNamespace(state=SimpleNamespace(metadata={"timers": timers}))

    tasks = [
        of(a=5),
        of(filter=9_000_000, processor={"runs": 10**15}),
        SimpleNamespace(state=SimpleNamespace(metadata={})),
    ]
    assert held_moment(tasks, 9_000_000 - AHEAD_MS_MIN) == {}
    assert held_moment(tasks, 9_000_000 - AHEAD_MS_MIN - 1) == {"moment_ms": 9_000_000, "ahead_ms": AHEAD_MS_MIN + 1}
    assert held_moment([], 0) == {}
    said = stands_still({"moment_ms": 4_102_444_800_000, "ahead_ms": 7_200_000})
    assert said.startswith(
        "the clock was set back: NOW() stays at 2100-01-01T00:00:00.000Z, 2.0 h ahead of it, and no row appears or expires"
    )


def test_rows_that_wait_for_calls_are_added_up_over_all_tasks() -> None:
    def of(*facts: tuple[int, int, int, int | None], **held: int) -> Any:
        known = [AsyncFacts(rows=r, parked=p, in_flight=f, oldest_ms=o) for r, p, f, o in facts]
        state = SimpleNamespace(metadata={HELD: held} if held else {})
        program = SimpleNamespace(waiting=known)
        return SimpleNamespace(
            program=program,
            state=state,
            logs={},
            exchanges={},
            channels=SimpleNamespace(rows=0),
            must_start=False,
            status=TaskStatus.RUNNING,
        )

    def waits(*tasks: Any) -> dict[str, Any]:
        return waiting_of(remaining(tasks, {}).calls, held_in(task.state.metadata for task in tasks))

    assert waits(of(), of()) == {}
    assert waits(of((3, 1, 2, 70), a=4), of((4, 0, 1, None), (5, 5, 0, 60), a=1, b=2)) == {
        "calls": 12, "windows": 7, "parked": 6, "in_flight": 3, "oldest_ms": 60,
    }  # fmt: skip
    assert waits(of((0, 0, 0, None)))["oldest_ms"] is None
    assert waits(of(a=0), of(b=3)) == {"calls": 0, "windows": 3}
    assert remaining([of(b=3)], {}).is_nothing, "rows that wait for a time are no work"
    assert not remaining([of((1, 0, 0, None))], {}).is_nothing


@pytest.fixture
def world() -> InstanceHarness:
    """Ten records are processed, and seven more there."""
    world = InstanceHarness(SOURCE.format(n=1) + COPY + GOOD)
    world.send("s", rows(0, 10))
    world.settle()
    world.send("s", rows(10, 7))
    return world


def test_the_state_of_a_query_is_the_worst_that_holds_of_it(world: InstanceHarness) -> None:
    instance, found = world.instance, list[str]()
    states, (only,) = instance.query_states, instance.queries[QUERY].built.tasks

    def look() -> None:
        found.append(state_of(instance, QUERY))

    look()
    instance.commit.blocked = "no space"
    look()
    instance.commit.blocked = ""
    states.suspend(QUERY, ValueError("refused"))
    look()
    only.status = TaskStatus.RESTORING
    look()
    states.set_hung({QUERY: "its function"})
    look()
    states.set_paused([QUERY])
    look()
    states.stop(QUERY, TopicMissing("gone"))
    look()
    assert found == ["running", "blocked", "failed", "restoring", "hung", "paused", "error"]
    assert state_of(instance, "CTAS_GOOD") == "running", "each of its own"
    instance.fatal = ValueError("a bug")
    assert state_of(instance, "CTAS_GOOD") == "error"


def test_a_query_is_restoring_while_its_tasks_are_made(world: InstanceHarness) -> None:
    running = world.instance.queries[QUERY]
    running.built = BuiltQuery()
    assert state_of(world.instance, QUERY) == "restoring"
    world.instance.query_states.forget("CTAS_GOOD")
    assert state_of(world.instance, "CTAS_GOOD") == "restoring"


def test_the_lag_is_what_has_not_been_processed_of_what_is_there(world: InstanceHarness) -> None:
    tasks = world.instance.queries[QUERY].built.tasks
    assert world.lag(QUERY) == 7
    assert remaining(tasks, {TopicPartition("s", 0): 12}) == Remaining(records=2)
    assert remaining(tasks, {}) == Remaining()
    status = query_status(world.instance, QUERY)
    assert (status["lag"], status["records_in"], status["records_out"], status["errors"]) == (7, 10, 10, 0)
    assert (status["ahead"], status["last_error"], status["engine"]) == ([], None, "runtime")
    assert "waiting" not in status
    assert "restored" not in status


def test_the_error_of_the_instance_comes_before_that_of_its_commit_and_that_of_the_query(
    world: InstanceHarness,
) -> None:
    instance, found = world.instance, list[Any]()
    instance.query_states.suspend(QUERY, ValueError("refused"))
    found.append(query_status(instance, QUERY)["last_error"])
    instance.query_states.set_hung({QUERY: "its function"})
    found.append(query_status(instance, QUERY)["last_error"])
    instance.commit.state_trouble = "no space for state"
    found.append(query_status(instance, QUERY)["last_error"])
    instance.commit.blocked = "no space"
    found.append(query_status(instance, QUERY)["last_error"])
    instance.fatal = ValueError("a bug")
    found.append(query_status(instance, QUERY)["last_error"])
    assert found == ["ValueError: refused", "its function", "no space for state", "no space", "ValueError: a bug"]


def test_all_is_processed_when_it_is_committed_and_nothing_is_to_be_made_again(world: InstanceHarness) -> None:
    instance, ends = world.instance, {TopicPartition("s", 0): 17}
    assert world.driver is not None
    assert not caught_up(instance, ends)
    world.driver.run_until_idle()
    assert not caught_up(instance, ends), "it is not committed"
    world.driver.commit()
    assert caught_up(instance, ends)
    assert not caught_up(instance, {TopicPartition("s", 0): 18})
    instance.query_states.suspend(QUERY, ValueError("refused"))
    assert not caught_up(instance, ends)
    instance.query_states.set_paused([QUERY])
    assert (instance.query_states.of(QUERY).state, caught_up(instance, ends)) == (SUSPENDED, True)


def test_whether_all_is_processed_is_not_known_without_brokers(
    world: InstanceHarness, monkeypatch: pytest.MonkeyPatch
) -> None:
    world.settle()
    ends = {TopicPartition("s", 0): 17}

    def away(_tps: object) -> None:
        raise LogUnavailable("no answer")

    monkeypatch.setattr(world.log, "end_offsets", away)
    assert not caught_up(world.instance, ends)
    world.instance.query_states.stop(QUERY, TopicMissing("gone"))
    assert world.instance.query_states.of(QUERY).state is STOPPED
    assert world.lag("CTAS_GOOD") == 0, "as it was when it was last seen"


def test_what_is_processed_is_committed_at_once_for_one_who_waits_for_it(world: InstanceHarness) -> None:
    instance = world.instance
    instance.config = replace(instance.config, latency_target_ms=60_000)  # a commit would come after a second
    world.driver.run_until_idle()
    world.driver.commit()
    world.send("s", rows(17, 1))
    ends = source_ends(instance)
    world.driver.run_until_idle()
    world.tick_ms = 10
    for _ in range(10):
        if caught_up(instance, ends):
            return
        world.tick()
        world.driver.round()
    pytest.fail("not within 100 ms")
