"""What an instance decides by itself: whether its changelogs are whole, how often it commits, and what becomes of a restored task."""

from __future__ import annotations

from typing import Any

import pytest

from flowql.runtime.app.query_state import STOPPED
from flowql.runtime.errors import TopicMissing
from flowql.runtime.log.base import TopicPartition
from flowql.runtime.log.memory import MemoryLog
from flowql.runtime.state.changelog import CHANGELOG, COMPACTED, metadata_topic, records_of
from flowql.runtime.state.task_state import ManagedTask
from flowql.runtime.state.values import encode_value
from flowql.runtime.task.status import TaskStatus
from tests.runtime.app.harness import InstanceHarness
from tests.runtime.app.test_isolation import COPY, GOOD, SOURCE, rows
from tests.runtime.app.test_swapping import MEMBER, LikeKafka
from tests.runtime.restoration.test_restoration import COUNTS, Life, no_redo

COPY_ID = "CSAS_COPY"
OWN = {"flowql-metadata", "flowql-__exchange-changelog"}


def ran() -> Life:
    life = Life(no_redo(), COUNTS)
    life.feed(0, 50)
    life.settle()
    return life


def is_whole(world: InstanceHarness) -> bool:
    """What it would say of its changelogs, if it began now."""
    writer = world.instance._changelog_writer()
    assert writer is not None
    return writer._complete


def test_without_changelogs_none_are_written() -> None:
    world = InstanceHarness(SOURCE.format(n=1) + COPY)
    assert world.instance._changelog_writer() is None
    assert not OWN & set(world.log.topics())


def test_topics_of_changelogs_are_compacted_and_have_one_partition_where_all_tasks_share_them() -> None:
    world = InstanceHarness(SOURCE.format(n=2) + COPY, log=no_redo(), changelogs=True)
    made = {n: (t.partitions, t.config) for n, t in world.log.topics().items() if n in OWN}
    assert made == {n: (1, CHANGELOG if n.endswith("-changelog") else COMPACTED) for n in OWN}
    member = InstanceHarness(SOURCE.format(n=2) + COPY, log=LikeKafka(), tick_ms=10, **MEMBER)
    made = {n: (t.partitions, t.config) for n, t in member.log.topics().items() if n in OWN}
    assert made == {"flowql-metadata": (1, COMPACTED)}, "what waits between tasks of members is in repartitions"
    assert is_whole(member)


def test_changelogs_are_whole_from_the_first_commit_on() -> None:
    life = ran()
    assert is_whole(life)
    later = InstanceHarness(SOURCE.format(n=1) + COPY)
    later.send("s", rows(0, 5))
    later.settle()
    later.instance.close()
    with_them = Life(later.log, physical=later.instance.state._physical)
    assert not is_whole(with_them), "some commits were made without"


@pytest.mark.parametrize("damage", ["rows", "record"])
def test_changelogs_that_have_lost_something_are_not_whole(damage: str) -> None:
    life = ran()
    if damage == "rows":
        life.log.drop_before(TopicPartition("flowql-CTAS_C-aggregate-1-changelog", 0), 1)
        assert "lost its records before offset 1" in life.instance._lost_records()
    else:  # of another version
        producer = life.log.producer("test")
        producer.begin()
        unreadable = records_of([b"@flowql"], [encode_value((99, 1))], 0)
        producer.send(TopicPartition(metadata_topic("flowql"), 0), unreadable)
        producer.commit()
        assert life.instance._lost_records() == ""
    assert not is_whole(life)


def test_commits_are_as_often_as_the_most_urgent_query_wants() -> None:
    world = InstanceHarness(SOURCE.format(n=1) + COPY)
    instance = world.instance
    assert instance._commit_interval_ms() == 100
    instance.commit.cpu_ns = 30_000_000
    assert instance._commit_interval_ms() == 240, "an eighth of a processor"
    urgent = GOOD.replace("CREATE TABLE GOOD AS", "CREATE TABLE GOOD WITH (PRIORITY='high') AS")
    assert urgent != GOOD
    world.deploy(SOURCE.format(n=1) + COPY + urgent)
    instance.commit.cpu_ns = 30_000_000
    assert instance._commit_interval_ms() == 100, "somebody waits for the results"
    target = COPY.replace("STREAM COPY AS", "STREAM COPY WITH (LATENCY_TARGET='60 MILLISECONDS') AS")
    world.deploy(SOURCE.format(n=1) + target + urgent)
    assert instance._commit_interval_ms() == 30, "half of the target"
    other = InstanceHarness(SOURCE.format(n=1) + COPY, latency_target_ms=500)
    assert other.instance._commit_interval_ms() == 250


def test_a_query_that_is_gone_has_no_weight() -> None:
    instance = InstanceHarness(SOURCE.format(n=1) + COPY).instance
    assert instance._weight_of(COPY_ID) == instance.queries[COPY_ID].plan.weight > 0
    assert instance._weight_of("CSAS_GONE") == 0


@pytest.mark.parametrize("stopped", [False, True])
def test_a_restored_task_runs_unless_its_query_has_stopped(stopped: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    instance = InstanceHarness(SOURCE.format(n=1) + COPY).instance
    (task,) = instance.queries[COPY_ID].built.tasks
    task.status = TaskStatus.RESTORING
    added, managed = list[Any](), list[Any]()
    monkeypatch.setattr(instance.polling, "add_inputs", added.extend)
    monkeypatch.setattr(instance.manager, "add", managed.append)
    if stopped:
        instance.query_states.stop(COPY_ID, TopicMissing("gone"))
        assert instance.query_states.of(COPY_ID).state is STOPPED
    instance._adopt(task)
    assert (task.status, managed) == (TaskStatus.RUNNING, [task])
    assert added == ([] if stopped else list(task.logs.values()))


def test_positions_of_new_tasks_are_in_the_next_commit() -> None:
    world = InstanceHarness(SOURCE.format(n=1) + COPY)
    world.send("s", rows(0, 5))
    world.settle()
    built = world.instance.queries[COPY_ID].built
    (task,) = built.tasks
    before = dict(task.state.metadata)
    world.instance.commit.dirty = False
    world.instance.begin(built)
    assert (task.state.metadata, world.instance.commit.dirty) == (before, False), "it has some"
    assert isinstance(task.state, ManagedTask)
    with world.instance.state.epoch_lock.join():
        task.state.publish({})
    world.instance.begin(built)
    assert world.instance.commit.dirty
    assert task.state.metadata == {**task.progress, "stream_times": {}}
    assert task.state.metadata["positions"] == {"s": 5}


def test_a_log_is_held_by_one_instance() -> None:
    world = InstanceHarness(SOURCE.format(n=1) + COPY)
    assert isinstance(world.log, MemoryLog)
    assert world.log._held_by == world.instance.config.transactional_id
    world.instance.close()
    assert world.log._held_by is None
