"""What an instance that is alone does next: suspended queries are taken apart and made anew, one by one, when their time has come."""

from __future__ import annotations

from typing import Any

import pytest

from flowql.runtime.app import suspension
from flowql.runtime.app.backoff import BACKOFF_MS_MIN
from flowql.runtime.app.coroutines import stopped
from flowql.runtime.app.query_state import STOPPED, SUSPENDED
from flowql.runtime.errors import LogUnavailable, TimesReplaced
from flowql.runtime.task.status import TaskStatus
from tests.runtime.app.harness import InstanceHarness
from tests.runtime.app.test_isolation import COPY, GOOD, SOURCE, rows, sums

COPY_ID, GOOD_ID = "CSAS_COPY", "CTAS_GOOD"


@pytest.fixture
def world() -> InstanceHarness:
    world = InstanceHarness(SOURCE.format(n=2) + COPY + GOOD)
    world.send("s", rows(0, 50))
    world.settle()
    return world


def rounds(world: InstanceHarness, n: int) -> None:
    for _ in range(n):
        world.driver.round()  # type: ignore[union-attr]


def statuses(world: InstanceHarness, query: str) -> set[TaskStatus]:
    return {t.status for t in world.instance.queries[query].built.tasks}


def test_a_suspended_query_has_no_tasks_at_work_and_its_lag_is_that_of_the_last_commit(world: InstanceHarness) -> None:
    world.send("s", rows(50, 50))
    world.instance.polling.refresh_ends()
    world.instance.query_states.suspend(GOOD_ID, ValueError("refused"))
    tasks = list(world.instance.queries[GOOD_ID].built.tasks)
    rounds(world, 20)
    assert statuses(world, GOOD_ID) == {TaskStatus.CLOSED}
    assert statuses(world, COPY_ID) == {TaskStatus.RUNNING}
    assert not any(world.instance.manager.has(t.id) for t in tasks)
    known = {id(i) for inputs in world.instance.polling._inputs.values() for i in inputs}
    assert not known & {id(i) for t in tasks for i in t.logs.values()}
    assert world.lag(GOOD_ID) == 50
    assert sum(i.position for t in tasks for i in t.logs.values()) == 50


def test_it_is_made_anew_when_its_time_has_come_and_goes_on(world: InstanceHarness) -> None:
    world.instance.query_states.suspend(GOOD_ID, ValueError("refused"))
    before = world.instance.queries[GOOD_ID].built
    world.instance.queries[GOOD_ID].restart_positions = {next(iter(before.tasks[0].logs.values())).tp: 3}
    rounds(world, 10)
    world.clock.advance(BACKOFF_MS_MIN - 1)  # type: ignore[attr-defined]
    rounds(world, 10)
    assert world.instance.queries[GOOD_ID].built is before
    world.clock.advance(1)  # type: ignore[attr-defined]
    rounds(world, 20)
    running = world.instance.queries[GOOD_ID]
    assert running.built is not before
    assert (statuses(world, GOOD_ID), running.restart_positions) == ({TaskStatus.RUNNING}, {})
    assert world.instance.query_states.of(GOOD_ID).may_run
    world.send("s", rows(50, 50))
    world.settle()
    assert world.table("GOOD") == sums(100)


def test_an_attempt_that_fails_puts_the_next_one_off(world: InstanceHarness, monkeypatch: pytest.MonkeyPatch) -> None:
    build, attempts = suspension.build_query, list[int]()

    def failing(*arguments: Any) -> Any:
        attempts.append(world.clock.timer_ms())
        if len(attempts) < 3:
            raise LogUnavailable("no answer")
        return build(*arguments)

    monkeypatch.setattr(suspension, "build_query", failing)
    world.instance.query_states.suspend(GOOD_ID, ValueError("refused"))
    world.tick_ms = 100
    for _ in range(300):
        rounds(world, 1)
        if len(attempts) == 3:
            break
    first, second, third = attempts
    assert second - first >= 2 * BACKOFF_MS_MIN
    assert third - second >= 4 * BACKOFF_MS_MIN
    world.tick_ms = 0
    world.settle()
    assert world.table("GOOD") == sums(50)


def test_what_cannot_be_made_now_waits_on(world: InstanceHarness, monkeypatch: pytest.MonkeyPatch) -> None:
    world.instance.query_states.suspend(GOOD_ID, ValueError("refused"))
    rounds(world, 5)

    def refused(*_: Any) -> None:
        raise TimesReplaced("its topic is gone")

    monkeypatch.setattr(suspension, "check_times", refused)
    world.clock.advance(BACKOFF_MS_MIN)  # type: ignore[attr-defined]
    rounds(world, 20)
    record = world.instance.query_states.of(GOOD_ID)
    assert (record.state, "its topic is gone" in record.reason, record.backoff.failures) == (SUSPENDED, True, 2)
    assert statuses(world, GOOD_ID) == {TaskStatus.CLOSED}


def test_a_query_whose_changelog_is_gone_for_good_stops() -> None:
    world = InstanceHarness(SOURCE.format(n=2) + COPY + GOOD, changelogs=True)
    world.send("s", rows(0, 50))
    world.settle()
    missing = "flowql-CTAS_GOOD-aggregate-1-changelog"
    world.log.admin().delete_topic(missing)
    world.instance.query_states.suspend(GOOD_ID, ValueError("refused"))
    rounds(world, 5)
    world.clock.advance(BACKOFF_MS_MIN)  # type: ignore[attr-defined]
    rounds(world, 5)
    record = world.instance.query_states.of(GOOD_ID)
    assert (record.state, f"there is no topic {missing}, which held rows of {GOOD_ID}" in record.reason) == (
        STOPPED,
        True,
    )


def test_tasks_are_stopped_once_whoever_has_them(world: InstanceHarness) -> None:
    tasks = [t for q in world.instance.queries.values() for t in q.built.tasks]
    tasks[0].become(TaskStatus.CLOSED)
    world.instance.manager.remove(tasks[1].id)
    rounds(world, 3)
    request = world.instance.reconciler.ask(lambda: stopped(world.instance, tasks))
    while not request.done.done():
        rounds(world, 1)
    request.done.result()
    assert {t.status for t in tasks} == {TaskStatus.CLOSED}
    assert not any(world.instance.manager.has(t.id) for t in tasks[1:])
    assert world.instance.polling._inputs == {}
