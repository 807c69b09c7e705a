"""What a member decides alone: which tasks are wanted, which state is rebuilt, who is answered, and what it commits now and then."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from flowql.runtime.app import group
from flowql.runtime.app.coroutines import Coroutine
from flowql.runtime.app.group import GroupStep
from flowql.runtime.app.progress import caught_up, source_ends
from flowql.runtime.app.query_state import SUSPENDED
from flowql.runtime.errors import LogUnavailable, TopicMissing
from flowql.runtime.log.base import TopicPartition
from flowql.runtime.placement.record import PlacementChange, PlacementEvent
from flowql.runtime.state.changelog import WrittenTask
from flowql.runtime.state.layout import TaskRecord
from flowql.runtime.state.values import encode_metadata
from flowql.runtime.task.id import TaskId
from flowql.runtime.task.status import TaskStatus
from flowql.runtime.task.task import Task
from tests.runtime.app.harness import InstanceHarness
from tests.runtime.app.test_isolation import COPY, GOOD, SOURCE, rows
from tests.runtime.app.test_swapping import MEMBER, LikeKafka

COPY_ID, GOOD_ID = "CSAS_COPY", "CTAS_GOOD"
S0, S1 = TopicPartition("s", 0), TopicPartition("s", 1)
PLAN = TopicPartition("flowql-plan", 0)


@pytest.fixture
def world() -> InstanceHarness:
    """A member with two queries over two partitions, of which all is committed."""
    world = InstanceHarness(SOURCE.format(n=2) + COPY + GOOD, log=LikeKafka(), tick_ms=10, **MEMBER)
    world.send("s", rows(0, 50))
    world.settle()
    return world


def step(world: InstanceHarness) -> GroupStep:
    assert world.instance.group is not None
    return world.instance.group


def rounds(world: InstanceHarness, n: int) -> None:
    for _ in range(n):
        world.driver.round()  # type: ignore[union-attr]


def tasks(world: InstanceHarness) -> set[str]:
    return {str(t.id) for q in world.instance.queries.values() for t in q.built.tasks}


def event(change: PlacementChange, *tps: TopicPartition) -> PlacementEvent:
    return PlacementEvent(change, tps)


def test_tasks_are_wanted_where_all_they_read_is_owned_and_stays(world: InstanceHarness) -> None:
    of = step(world)
    all_of = {TaskId(q, 0, p) for q in (COPY_ID, GOOD_ID) for p in (0, 1)}
    assert (of._wanted(), of.owned) == (all_of, 2)
    of._take(event(PlacementChange.REVOKE, S1))
    assert (of._wanted(), of._revoking, of.owned) == ({t for t in all_of if t.partition == 0}, True, 2)
    world.instance.query_states.stop(COPY_ID, TopicMissing("gone"))
    assert of._wanted() == {TaskId(GOOD_ID, 0, 0)}
    of._take(event(PlacementChange.LOST))
    assert (of._wanted(), of._leaving, of._revoking, of._lost, of.owned) == (set(), set(), False, True, 0)
    of._take(event(PlacementChange.ASSIGN, S1))
    assert of._wanted() == {TaskId(GOOD_ID, 0, 1)}


def test_nobody_is_answered_while_tasks_of_the_plan_are_to_begin(world: InstanceHarness) -> None:
    """A deployment would be said to run that does not yet."""
    of = step(world)
    of._take(event(PlacementChange.REVOKE, S1))
    rounds(world, 20)
    assert of.owned == 1
    of._take(event(PlacementChange.ASSIGN, S1))
    waiting = of.applied(0)
    coroutine = of.next(world.clock.timer_ms())
    assert coroutine is not None
    assert not waiting.done()
    coroutine.close()
    rounds(world, 20)
    assert waiting.done()
    assert {str(t) for t in of._begun} == tasks(world)


def test_a_member_is_not_caught_up_while_it_restores(world: InstanceHarness) -> None:
    """Positions say that all is processed, and a query would be answered from half of its rows."""
    ends = source_ends(world.instance)
    assert caught_up(world.instance, ends)
    (task, *_) = world.instance.queries[GOOD_ID].built.tasks
    task.status = TaskStatus.RESTORING
    assert not caught_up(world.instance, ends)


def test_who_waits_for_a_record_is_answered_when_it_runs_here(world: InstanceHarness) -> None:
    of, end = step(world), world.log.end_offset(PLAN)
    waiters = [of.applied(at) for at in (end, end + 1, 0)]
    rounds(world, 3)
    assert [w.done() for w in waiters] == [True, False, True]
    world.deploy(SOURCE.format(n=2) + COPY)
    rounds(world, 40)
    assert waiters[1].done()
    assert tasks(world) == {f"{COPY_ID}/0_0", f"{COPY_ID}/0_1"}


def test_what_every_member_has_of_a_task_decides_what_is_rebuilt(world: InstanceHarness) -> None:
    of = step(world)
    written = of._read_written().tasks
    first, second = TaskId(GOOD_ID, 0, 0), TaskId(GOOD_ID, 0, 1)
    assert of._compare([first, second], written) == ({}, []), "it is here as it is in the log"
    data = written[str(first)].record.read()
    newer = WrittenTask(9, TaskRecord(0, written[str(first)].record.stores, encode_metadata({**data, "more": 1})))
    assert of._compare([first], {**written, str(first): newer}) == ({str(first): newer.record}, [])
    edited = TaskRecord(0, (), encode_metadata({**data, "query": "another text"}))
    assert of._compare([first], {str(first): WrittenTask(9, edited)}) == ({str(first): edited}, [str(first)])
    assert of._compare([second], {}) == ({str(second): None}, []), "others have dropped it"


def test_a_task_begins_when_the_last_commit_of_its_partitions_is_to_be_seen(world: InstanceHarness) -> None:
    of = step(world)
    wanted = [TaskId(GOOD_ID, 0, 0)]
    known = of._read_written()
    assert of._last_written(wanted) == known.tasks
    (writer,) = known.sequences
    known.sequences[writer] -= 1
    with pytest.raises(LogUnavailable, match=r"commit \d+ of flowql-one is not to be seen yet"):
        of._last_written(wanted)
    del known.sequences[writer]
    with pytest.raises(LogUnavailable):
        of._last_written(wanted)


def test_suspended_queries_that_read_wanted_partitions_hold_them_back(world: InstanceHarness) -> None:
    of = step(world)
    assert of._held_with([TaskId(GOOD_ID, 0, 0)]) == {}
    world.instance.query_states.suspend(COPY_ID, ValueError("refused"))
    assert of._held_with([TaskId(GOOD_ID, 0, 0)]) == {TaskId(COPY_ID, 0, 0): {S0}}
    assert of._held_with([]) == {}


def test_positions_that_have_moved_without_a_commit_are_committed_now_and_then(world: InstanceHarness) -> None:
    commit = world.instance.commit
    rounds(world, group.STALE_MS // 10 + 2)
    commits = world.instance.metrics.commits
    rounds(world, group.STALE_MS // 10 + 2)
    assert world.instance.metrics.commits == commits, "nothing has moved"
    step(world).mine._cut = {}
    rounds(world, group.STALE_MS // 10 + 2)
    commit.request()
    rounds(world, 3)
    assert world.instance.metrics.commits > commits


def test_brokers_that_are_away_are_a_trouble_until_a_step_succeeds(
    world: InstanceHarness, monkeypatch: pytest.MonkeyPatch
) -> None:
    of = step(world)

    def away(*, arrived: bool = False) -> None:
        raise LogUnavailable("no answer")

    with monkeypatch.context() as patch:
        patch.setattr(of.plans, "newer", away)
        rounds(world, 40)
        assert of.trouble == "no answer"
        assert tasks(world), "what runs goes on"
    of.lose()
    rounds(world, 40)
    assert of.trouble == ""
    assert len(tasks(world)) == 4


def test_a_query_that_was_suspended_is_tried_again_when_its_time_has_come(world: InstanceHarness) -> None:
    states = world.instance.query_states
    states.suspend(COPY_ID, ValueError("refused"))
    rounds(world, 5)
    assert tasks(world) == {f"{GOOD_ID}/0_0", f"{GOOD_ID}/0_1"}
    world.send("s", rows(50, 10))
    rounds(world, 30)
    assert states.of(COPY_ID).state is SUSPENDED
    rounds(world, 300)
    assert states.of(COPY_ID).may_run
    assert len(tasks(world)) == 4
    world.settle()
    assert sorted(v["W"] for v in world.values("COPY")) == list(range(1, 61))


def test_a_partition_that_leaves_is_acknowledged_once_what_was_made_of_it_is_committed(world: InstanceHarness) -> None:
    of, acknowledged = step(world), list[int]()
    world.instance.placement.acknowledge = lambda: acknowledged.append(world.instance.metrics.commits)  # type: ignore[method-assign]
    world.send("s", rows(50, 50))
    rounds(world, 2)
    commits = world.instance.metrics.commits
    of._take(event(PlacementChange.REVOKE, S1))
    rounds(world, 10)
    assert len(acknowledged) == 1
    assert acknowledged[0] > commits
    assert tasks(world) == {f"{COPY_ID}/0_0", f"{GOOD_ID}/0_0"}
    assert (of._owned, of._leaving, of._revoking) == ({S0}, set(), False)
    committed = world.log.committed("flowql")
    of._take(event(PlacementChange.ASSIGN, S1))
    rounds(world, 40)
    world.settle()
    assert world.log.committed("flowql")[S1].offset >= committed[S1].offset
    assert sorted(v["W"] for v in world.values("COPY")) == list(range(1, 101))


def test_what_leaves_for_another_reason_is_not_acknowledged(world: InstanceHarness) -> None:
    """The group has not asked for it."""
    acknowledged = list[int]()
    world.instance.placement.acknowledge = lambda: acknowledged.append(1)  # type: ignore[method-assign]
    world.instance.query_states.suspend(COPY_ID, ValueError("refused"))
    rounds(world, 10)
    assert tasks(world) == {f"{GOOD_ID}/0_0", f"{GOOD_ID}/0_1"}
    world.deploy(SOURCE.format(n=2) + COPY)
    rounds(world, 60)
    assert acknowledged == []
    assert step(world).owned == 2


def test_partitions_that_leave_meanwhile_are_acknowledged_with_the_others(world: InstanceHarness) -> None:
    of, acknowledged = step(world), list[set[TopicPartition]]()
    world.instance.placement.acknowledge = lambda: acknowledged.append(set(of._owned))  # type: ignore[method-assign]
    of._take(event(PlacementChange.REVOKE, S1))
    stop, also = of._stop, [S0]

    def stopping(leaving: Sequence[Task]) -> Coroutine:
        yield from stop(leaving)
        if also:
            of._take(event(PlacementChange.REVOKE, also.pop()))

    of._stop = stopping  # type: ignore[method-assign]
    rounds(world, 20)
    assert acknowledged == [set()]
    assert (tasks(world), of._leaving, of._revoking) == (set(), set(), False)
