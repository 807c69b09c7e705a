"""Parts of an instance: waiting for its steps, its end, which plan serves as of a commit, and why a query is stalled."""

from __future__ import annotations

import time
from concurrent.futures import Future
from typing import Any

import pytest

from flowql.compiler.plan.deployed import Deployed
from flowql.compiler.plan.topology import Plan
from flowql.runtime.app import instance as instance_module
from flowql.runtime.app.instance import SERVING_KEPT, Instance
from flowql.runtime.clock import SystemClock
from flowql.runtime.config import InstanceConfig
from flowql.runtime.errors import LogFull, RuntimeFailure, StateError, TopicMissing
from flowql.runtime.log.base import TopicPartition
from flowql.runtime.log.memory import MemoryLog
from flowql.runtime.state.memory import MemoryPhysical
from flowql.runtime.task.status import TaskStatus
from tests.runtime.app.harness import InstanceHarness
from tests.runtime.app.test_isolation import COPY, GOOD, SOURCE, rows
from tests.runtime.app.test_swapping import MEMBER, LikeKafka

COPY_ID, GOOD_ID = "CSAS_COPY", "CTAS_GOOD"


def made(log: MemoryLog | None = None) -> Instance:
    """One without steps that run."""
    return Instance(log or MemoryLog(), MemoryPhysical(), SystemClock(), InstanceConfig())


def test_a_result_of_the_steps_is_waited_for_until_it_comes_the_time_is_over_or_a_thread_has_died() -> None:
    instance, done, never = made(), Future[int](), Future[int]()
    done.set_result(7)
    assert instance.wait(done) == 7
    begun = time.monotonic()
    with pytest.raises(TimeoutError, match="not done within 1 s"):
        instance.wait(never, 1.0)
    assert 0.5 < time.monotonic() - begun < 10
    instance.fatal = StateError("a bug")
    with pytest.raises(RuntimeFailure, match="the instance is broken: a bug"):
        instance.wait(never)
    assert instance.wait(done) == 7, "what is done is done"
    stepped = list[int]()

    def step() -> None:
        stepped.append(1)
        if len(stepped) == 3:
            never.set_result(9)

    instance.await_step = step
    assert (instance.wait(never), len(stepped)) == (9, 3)


def test_a_look_ends_when_what_it_is_for_is_done() -> None:
    instance, done = made(), Future[int]()
    done.set_result(7)
    begun = time.monotonic()
    instance.look(10.0, done)
    assert time.monotonic() - begun < 5
    instance.look(0.05)
    assert time.monotonic() - begun >= 0.04


@pytest.mark.parametrize("failing", ["main.loop", "restore.loop", "commit", "restoration", "state", "log"])
def test_everything_is_closed_whatever_fails(failing: str, monkeypatch: pytest.MonkeyPatch) -> None:
    instance, closed = made(), list[str]()
    parts: dict[str, Any] = {
        "main.loop": instance.main.loop,
        "restore.loop": instance.restore.loop,
        "commit": instance.commit,
        "restoration": instance.restoration,
        "state": instance.state,
        "log": instance.log,
    }

    def closing(name: str) -> Any:
        def close() -> None:
            closed.append(name)
            if name == failing:
                raise LogFull("no space left on device")

        return close

    for name, part in parts.items():
        monkeypatch.setattr(part, "close", closing(name))
    with pytest.raises(LogFull):
        instance.close()
    assert closed == list(parts), "clients before what they read from, and the log last"


@pytest.mark.parametrize("broken", [True, False])
def test_state_is_made_durable_at_the_end_of_an_instance_that_is_whole(
    broken: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    instance, flushed = made(), list[bool]()

    def flush() -> None:
        flushed.append(True)
        raise StateError("no space left on device")  # the log keeps the redo

    monkeypatch.setattr(instance.commit, "flush", flush)
    instance.fatal = StateError("a bug") if broken else None
    instance.close()
    assert flushed == ([] if broken else [True])


def test_the_last_commit_is_not_waited_for_where_it_cannot_come(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(instance_module, "STOP_S", 1.0)
    instance, begun = made(), time.monotonic()
    instance._last_commit()
    assert 0.5 < time.monotonic() - begun < 10, "nobody makes it here"
    instance.commit.blocked, begun = "no space", time.monotonic()
    instance._last_commit()
    instance.commit.blocked, instance.fatal = "", StateError("a bug")
    instance._last_commit()
    assert time.monotonic() - begun < 0.5


def test_the_plan_of_a_snapshot_is_that_of_its_commit() -> None:
    instance = made()
    plans = [Plan(paused=(str(n),)) for n in range(SERVING_KEPT + 2)]
    for n, plan in enumerate(plans, 1):
        instance.serve(Deployed(plan), 10 * n)
    last = 10 * len(plans)
    assert instance.plan is plans[-1]
    assert [instance.plan_at(n) for n in (last + 5, last, last - 1, last - 10)] == [plans[-1]] * 2 + [plans[-2]] * 2
    oldest = instance._serving[0]
    assert (len(instance._serving), instance.plan_at(0)) == (SERVING_KEPT + 1, oldest[1])


def test_a_task_without_a_position_begins_where_the_serving_generation_does() -> None:
    log, tp = MemoryLog(), TopicPartition("s", 0)
    world = InstanceHarness(SOURCE.format(n=1), log=log)
    log.create_topic("s", 1)
    world.send("s", rows(0, 20))
    log.drop_before(tp, 5)
    instance = world.instance
    assert instance.position(tp, {}, instance.admin.begin_offset) == 5
    instance.serve(Deployed(begins=(("s", (12,)),)), 1)
    assert (
        instance.position(tp, {}, instance.admin.begin_offset),
        instance.position(tp, {"s": 2}, instance.admin.begin_offset),
    ) == (12, 2)
    log.drop_before(tp, 15)
    assert instance.position(tp, {}, instance.admin.begin_offset) == 15


def test_why_a_query_is_stalled_is_the_first_reason_that_holds() -> None:
    instance, found = InstanceHarness(SOURCE.format(n=1) + COPY).instance, list[str]()
    states, (task,) = instance.query_states, instance.queries[COPY_ID].built.tasks

    def look() -> None:
        found.append(instance.trouble(COPY_ID))

    look()
    states.fail(COPY_ID, "a mistake")
    look()
    states.set_paused([COPY_ID])
    look()
    states.suspend(COPY_ID, ValueError("refused"))
    look()  # a pause does not bring withdrawn results back
    assert instance.is_refused(COPY_ID)
    states.set_paused([])
    look()
    states.hold_for_swap([COPY_ID])
    look()
    states.set_hung({COPY_ID: "its function"})
    look()
    task.status = TaskStatus.RESTORING
    look()
    states.stop(COPY_ID, TopicMissing("gone"))
    look()
    assert found == [
        "",
        "failed",
        "paused",
        "refused by the log",
        "refused by the log",
        "a new generation of it takes over",
        "hung",
        "restoring",
        "paused",
    ]
    assert instance.trouble("CSAS_UNKNOWN") == "paused"


def test_rows_of_a_key_are_merged_only_where_all_readers_see_a_table() -> None:
    table = "CREATE TABLE SOME AS SELECT K, N FROM GOOD WHERE N > 1;\n"
    world = InstanceHarness(SOURCE.format(n=1) + COPY + GOOD + table)

    def merged() -> dict[str, set[bool]]:
        return {n: {t.program.coalesce for t in q.built.tasks} for n, q in world.instance.queries.items()}

    assert merged() == {COPY_ID: {False}, GOOD_ID: {True}, "CTAS_SOME": {True}}
    assert world.instance.collector.upsert_topics == {"GOOD", "SOME"}
    single = InstanceHarness(SOURCE.format(n=1) + GOOD, coalesce=False)
    assert single.instance.collector.upsert_topics == set()
    assert {t.program.coalesce for t in single.instance.queries[GOOD_ID].built.tasks} == {False}


def test_an_error_of_a_restoration_is_counted_with_its_query_and_looked_at_by_the_commit() -> None:
    world, looked = InstanceHarness(SOURCE.format(n=1) + COPY), list[Exception]()
    error = StateError("Input/output error")
    world.instance.commit.look_at_state = looked.append  # type: ignore[method-assign]
    world.instance._restore_failed(COPY_ID, error)
    m = world.instance.metrics.query(COPY_ID)
    assert (looked, m.errors, m.last_error) == ([error], 1, "StateError: Input/output error (restoration)")


def test_a_thread_that_dies_breaks_the_instance_with_its_error_and_commits_with_that_of_their_own() -> None:
    instance, failed = made(), list[BaseException]()
    instance.commit.fail = failed.append  # type: ignore[method-assign]
    first, second = StateError("the first"), StateError("the second")
    instance._thread_died("polling", first)
    assert (instance.fatal, failed) == (first, [])
    instance._thread_died("commit", second)
    assert (instance.fatal, failed) == (first, [second])


def test_after_a_commit_careful_queries_are_looked_at_but_for_those_that_are_suspended() -> None:
    """Their tasks are those of before the commit that was refused."""
    instance, looked, signals = InstanceHarness(SOURCE.format(n=1) + COPY + GOOD).instance, list[Any](), list[int]()
    instance.careful.look = looked.append  # type: ignore[method-assign]
    instance.manager.signal = lambda: signals.append(1)  # type: ignore[method-assign]
    instance._committed()
    instance.query_states.suspend(GOOD_ID, ValueError("refused"))
    instance._committed()
    tasks = {n: q.built.tasks for n, q in instance.queries.items()}
    assert looked == [tasks, {COPY_ID: tasks[COPY_ID]}]
    assert len(signals) >= 2, "there is room again"


@pytest.mark.parametrize("config", [{}, MEMBER], ids=["alone", "member"])
def test_a_member_that_stops_commits_and_acknowledges_nothing_from_then_on(config: dict[str, Any]) -> None:
    """Its reconciler has ended, and the group must not wait for it."""
    world = InstanceHarness(SOURCE.format(n=1) + COPY, log=LikeKafka(), live=True, **config)
    lost = list[str]()
    world.instance.commit.lose = lost.append  # type: ignore[method-assign]
    assert world.instance.stop() == []
    assert lost == (["the instance stops"] if config else [])
