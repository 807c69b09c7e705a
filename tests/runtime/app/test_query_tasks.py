"""Which tasks a member has, and which positions it commits of them and of those that it cannot make."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any

import pytest

from flowql.runtime.app import suspension
from flowql.runtime.app.query_tasks import QueryTasks
from flowql.runtime.errors import LogUnavailable, TopicMissing
from flowql.runtime.log.base import TopicPartition
from flowql.runtime.state.changelog import WrittenTask
from flowql.runtime.state.layout import TaskRecord
from flowql.runtime.state.locks import NamedLock
from flowql.runtime.state.values import encode_metadata
from flowql.runtime.task.id import TaskId
from flowql.runtime.topology.log_facts import LogFacts
from flowql.runtime.topology.query import BuiltQuery
from tests.runtime.app.harness import InstanceHarness
from tests.runtime.app.test_isolation import COPY, GOOD, SOURCE, rows
from tests.runtime.app.test_swapping import MEMBER, LikeKafka

COPY_ID, GOOD_ID = "CSAS_COPY", "CTAS_GOOD"
S0, S1 = TopicPartition("s", 0), TopicPartition("s", 1)


@pytest.fixture
def world() -> InstanceHarness:
    """A member that has processed and committed some rows of two partitions."""
    world = InstanceHarness(SOURCE.format(n=2) + COPY + GOOD, log=LikeKafka(), tick_ms=10, **MEMBER)
    world.send("s", rows(0, 50))
    world.settle()
    return world


def mine(world: InstanceHarness) -> QueryTasks:
    return world.instance.tasks


def ends(world: InstanceHarness) -> dict[TopicPartition, int]:
    return {tp: world.log.end_offset(tp) for tp in (S0, S1)}


def positions(world: InstanceHarness) -> dict[TopicPartition, int]:
    with world.instance.state.epoch_lock:
        return {tp: p.offset for tp, p in mine(world).positions().items()}


def test_positions_are_those_of_tasks_that_are_here_or_leave_with_the_cut(world: InstanceHarness) -> None:
    tasks = mine(world)
    assert positions(world) == ends(world)
    leaving = [t for q in world.instance.queries.values() for t in q.built.tasks if t.id.partition == 1]
    assert len(leaving) == 2
    with world.instance.state.epoch_lock:
        tasks.leave(leaving, committed=True)
    assert {t.id.partition for q in world.instance.queries.values() for t in q.built.tasks} == {0}
    assert positions(world) == ends(world), "once more"
    assert positions(world) == {S0: ends(world)[S0]}


def test_of_tasks_that_leave_without_a_commit_nothing_is_committed(world: InstanceHarness) -> None:
    leaving = [t for q in world.instance.queries.values() for t in q.built.tasks if t.id.partition == 1]
    with world.instance.state.epoch_lock:
        mine(world).leave(leaving, committed=False)
    assert positions(world) == {S0: ends(world)[S0]}


def test_whether_positions_have_moved_since_the_last_cut_is_known(world: InstanceHarness) -> None:
    positions(world)
    assert not mine(world).moved()
    world.send("s", rows(50, 10))
    assert world.driver is not None
    world.driver.run_until_idle()
    assert mine(world).moved()
    positions(world)
    assert not mine(world).moved()


def test_partitions_of_the_last_cut_and_of_refused_queries_are_committed(world: InstanceHarness) -> None:
    tasks = mine(world)
    positions(world)
    assert (tasks.commits([S0]), tasks.commits([TopicPartition("t", 0)]), tasks.commits([])) == (True, False, False)
    tp = TopicPartition("t", 0)
    world.instance.queries[COPY_ID].restart_positions = {tp: 4}
    assert tasks.commits([tp])
    with world.instance.state.epoch_lock:
        tasks.forget_positions([S0])
    assert world.instance.queries[COPY_ID].restart_positions == {tp: 4}
    with world.instance.state.epoch_lock:
        tasks.forget_positions([tp], [world.instance.queries[GOOD_ID]])
        assert world.instance.queries[COPY_ID].restart_positions == {tp: 4}
        tasks.forget_positions([tp], [world.instance.queries[COPY_ID]])
    assert world.instance.queries[COPY_ID].restart_positions == {}


def test_partitions_of_tasks_that_are_not_made_stay_where_their_records_are(world: InstanceHarness) -> None:
    """The lowest of what is known of a partition, and its start where there is no record."""
    tasks, running = mine(world), world.instance.queries[COPY_ID]
    first, second = TaskId(COPY_ID, 0, 0), TaskId(COPY_ID, 0, 1)
    record = TaskRecord(0, (), encode_metadata({"positions": {"s": 7}}))
    held: Mapping[TaskId, Collection[TopicPartition]] = {first: [S0], second: [S1]}
    written: dict[str, Any] = {str(first): WrittenTask(1, record)}
    running.restart_positions = {S0: 9}
    tasks.keep_back(held, written)
    assert running.restart_positions == {S0: 7, S1: 0}
    running.restart_positions = {S0: 3}
    tasks.keep_back({first: [S0]}, written)
    assert running.restart_positions == {S0: 3}


def test_tasks_of_a_query_whose_topic_is_gone_are_none_and_it_stops(world: InstanceHarness) -> None:
    plan = world.instance.running.by_id.get(COPY_ID)
    assert plan is not None

    def tasks_now() -> list[TaskId]:
        return mine(world).tasks_of(plan, LogFacts(world.log, "flowql", [plan]), dict)

    assert [t.partition for t in tasks_now()] == [0, 1]
    world.log.delete_topic("s")
    assert tasks_now() == []
    assert "TopicMissing" in world.instance.query_states.of(COPY_ID).reason
    assert tasks_now() == [], "it is stopped"


def test_tasks_are_made_together_or_not_at_all(world: InstanceHarness, monkeypatch: pytest.MonkeyPatch) -> None:
    tasks, build = mine(world), suspension.build_query
    wanted = [t.id for q in world.instance.queries.values() for t in q.built.tasks]
    before = [t for q in world.instance.queries.values() for t in q.built.tasks]
    with world.instance.state.epoch_lock:
        tasks.leave(before, committed=False)
    for task in before:
        world.instance.state.close_task(str(task.id))

    def failing(query: Any, *others: Any) -> Any:
        if query.id == GOOD_ID:
            raise LogUnavailable("no answer")
        return build(query, *others)

    with monkeypatch.context() as patch:
        patch.setattr(suspension, "build_query", failing)
        with pytest.raises(LogUnavailable):
            tasks.build([COPY_ID, GOOD_ID], set(wanted).__contains__)
    assert not [t for q in world.instance.queries.values() for t in q.built.tasks]
    assert not set(map(str, wanted)) & set(world.instance.state.open_tasks())
    made = tasks.build([COPY_ID, GOOD_ID], set(wanted).__contains__)
    assert sorted(t.id for t in made) == sorted(wanted)
    assert [t.id for t in world.instance.queries[COPY_ID].built.tasks] == [TaskId(COPY_ID, 0, 0), TaskId(COPY_ID, 0, 1)]


def test_commits_get_through_between_two_queries_that_begin(
    world: InstanceHarness, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A start with hundreds of queries blocked commits until all of them had begun."""
    lock, entered, begun = NamedLock.__enter__, [0], list[int]()

    def enter(self: NamedLock) -> NamedLock:
        entered[0] += self is world.instance.state.epoch_lock
        return lock(self)

    def begin(built: BuiltQuery) -> None:
        assert world.instance.state.epoch_lock.held
        begun.append(entered[0])
        begin_one(built)

    with world.instance.state.epoch_lock:
        before = [t for q in world.instance.queries.values() for t in q.built.tasks]
        mine(world).leave(before, committed=False)
    for task in before:
        world.instance.state.close_task(str(task.id))
    begin_one = world.instance.begin
    monkeypatch.setattr(NamedLock, "__enter__", enter)
    monkeypatch.setattr(world.instance, "begin", begin)
    mine(world).build([COPY_ID, GOOD_ID])
    assert begun[1] > begun[0], "the lock is released between the two"


def test_a_query_that_cannot_be_made_keeps_no_other_from_being_made(
    world: InstanceHarness, monkeypatch: pytest.MonkeyPatch
) -> None:
    with world.instance.state.epoch_lock:
        mine(world).leave([t for q in world.instance.queries.values() for t in q.built.tasks], committed=False)
    for name in list(world.instance.state.open_tasks()):
        if "/" in name:
            world.instance.state.close_task(name)
    build = suspension.build_query

    def stopping(query: Any, *others: Any) -> Any:
        if query.id == GOOD_ID:
            raise TopicMissing("gone")
        return build(query, *others)

    monkeypatch.setattr(suspension, "build_query", stopping)
    made = mine(world).build([COPY_ID, GOOD_ID], {TaskId(GOOD_ID, 0, 0), TaskId(COPY_ID, 0, 1)}.__contains__)
    assert [t.id for t in made] == [TaskId(COPY_ID, 0, 1)]
    assert world.instance.queries[GOOD_ID].built.tasks == ()
