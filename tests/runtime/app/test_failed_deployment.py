"""A deployment of which a request to the log fails: what was deployed goes on, nothing is left behind, and the next attempt succeeds."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any

import pytest

from flowql.compiler.plan.deployed import running_plan
from flowql.runtime.app.driver import Driver
from flowql.runtime.app.instance import Instance
from flowql.runtime.config import InstanceConfig
from flowql.runtime.errors import LogUnavailable
from flowql.runtime.log.base import TopicInfo, TopicPartition
from flowql.runtime.log.memory import MemoryLog
from flowql.runtime.state.memory import MemoryPhysical
from flowql.runtime.task.status import TaskStatus
from tests.runtime.app.harness import InstanceHarness, plan_of
from tests.runtime.app.test_rebuilding import BIG, COUNTS, OTHER, SOME, SOURCE, as_from_the_beginning, folded, sent
from tests.runtime.app.test_swapping import leftovers

pytestmark = pytest.mark.turns("instances")

BEFORE = SOURCE + BIG.format(over=0) + COUNTS + SOME + OTHER
NEWER = "CREATE TABLE NEWER AS SELECT K, COUNT(*) AS N FROM S WHERE V > 5 GROUP BY K;\n"
AFTER = {
    "rebuilt": BEFORE.replace("V > 0", "V > 15"),
    "removed and added": SOURCE + BIG.format(over=0) + COUNTS + OTHER + NEWER,
    "forward": BEFORE.replace("V > 0", "V > 15"),
}
TABLES = ("COUNTS", "SOME", "OTHER", "NEWER")


class Failing(MemoryLog):
    """Brokers do not answer the n-th request that a deployment makes, and all others."""

    fail_at: int | None = None
    requests = 0

    def _request(self) -> None:
        self.requests += 1
        if self.requests == self.fail_at:
            raise LogUnavailable("no answer")

    def create_topic(self, name: str, partitions: int, config: Mapping[str, str] | None = None) -> TopicInfo:
        self._request()
        return super().create_topic(name, partitions, config)

    def delete_topic(self, name: str) -> None:
        self._request()
        super().delete_topic(name)

    def topics(self) -> dict[str, TopicInfo]:
        self._request()
        return super().topics()

    def begin_offset(self, tp: TopicPartition) -> int:
        self._request()
        return super().begin_offset(tp)

    def end_offset(self, tp: TopicPartition) -> int:
        self._request()
        return super().end_offset(tp)

    def writers(self, tp: TopicPartition) -> frozenset[str]:
        self._request()
        return super().writers(tp)


class FailingBrokers(Failing):
    supports_redo = False
    drops_with_commits = False


LOGS: dict[str, tuple[type[Failing], dict[str, Any]]] = {
    "embedded": (Failing, {}),
    "brokers": (FailingBrokers, {"changelogs": True}),
}


def attempt(how: str, kind: str, fail_at: int) -> tuple[InstanceHarness, bool, int]:
    """A deployment whose n-th request fails; whether that was raised, and how many requests it made."""
    log, config = LOGS[kind]
    world = InstanceHarness(BEFORE, log=(made := log()), tick_ms=10, **config)
    world.send("s", sent(0, 40))
    world.settle()
    made.requests, made.fail_at = 0, fail_at
    forward = ["CSAS_BIG"] if how == "forward" else []
    try:
        world.instance.deploy(plan_of(AFTER[how], world.instance.plan), forward=forward)
    except LogUnavailable:
        return world, True, made.requests
    finally:
        made.fail_at = None
    return world, False, made.requests


def check_goes_on(world: InstanceHarness, sql: str, sent_before: int) -> None:
    """All queries of the newest record run, and their results are those of one run."""
    instance = world.instance
    world.send("s", sent(sent_before, 20))
    world.settle()
    assert set(instance.queries) == {q.id for q in running_plan(instance.deployed).queries}
    assert all(instance.query_states.of(name).may_run for name in instance.queries)
    tasks = [task for q in instance.queries.values() for task in q.built.tasks]
    assert {task.status for task in tasks} == {TaskStatus.RUNNING}
    assert {str(task.id) for task in tasks} == {t for t in instance.state.committed_tasks() if "/" in t}
    if sql:
        fresh = as_from_the_beginning(sql, sent_before + 20)
        for table in (t for t in TABLES if f"TABLE {t} " in sql):
            assert (folded(world, table), world.table(table)) == (folded(fresh, table), fresh.table(table)), table


STRIDE = int(os.environ.get("FLOWQL_EVERY_MOMENT", "5"))  # 1: each of them


@pytest.mark.parametrize("kind", LOGS)
@pytest.mark.parametrize("how", AFTER)
def test_whichever_request_of_a_deployment_fails_what_ran_goes_on(how: str, kind: str) -> None:
    failed = 0
    for n in range(1, 300, STRIDE):
        world, raised, requests = attempt(how, kind, n)
        recorded = world.instance.deployed.id > 1
        assert recorded or raised
        failed += raised
        texts_differ = how == "forward" and recorded
        check_goes_on(world, "" if texts_differ else AFTER[how] if recorded else BEFORE, 40)
        if how != "forward":
            world.deploy(AFTER[how])
            check_goes_on(world, AFTER[how], 60)
            assert not leftovers(world), n
        if requests < n:
            break
    else:
        raise AssertionError("it never ends")
    assert failed >= 3


def test_a_start_that_has_lost_its_state_begins_no_query_without_it_where_it_fails() -> None:
    """Their results are in their topics already: what began with nothing would make them once more."""
    failed, names = 0, {q.id for q in plan_of(BEFORE).queries}
    for n in range(1, 300, STRIDE):
        log = Failing()
        world = InstanceHarness(BEFORE, log=log, tick_ms=10)
        world.send("s", sent(0, 40))
        world.settle()
        world.instance.commit.flush()
        before, raised = world.values("BIG"), False
        restart(world)
        assert world.instance.state_lost
        log.requests, log.fail_at = 0, n
        try:
            world.instance.resume()
        except LogUnavailable:
            raised = True
        log.fail_at, requests = None, log.requests
        failed += raised
        assert world.driver is not None
        for _ in range(20):
            world.driver.round()
        begun = {task.id.query for q in world.instance.queries.values() for task in q.built.tasks}
        assert not begun & names, n
        assert world.values("BIG") == before or not raised, n
        if raised:
            restart(world)
            world.instance.resume()
        check_goes_on(world, BEFORE, 40)
        if requests < n:
            break
    else:
        raise AssertionError("it never ends")
    assert failed >= 3


def restart(world: InstanceHarness) -> None:
    """Another process on the log, without the disk of the one before."""
    world.log.crash()
    world.instance = Instance(world.log, MemoryPhysical(), world.clock, InstanceConfig())
    world.driver = Driver(world.instance, tick=world.tick)
    world.producer = world.log.producer("feed")
