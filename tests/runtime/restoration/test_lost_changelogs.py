"""Changelogs that were deleted, emptied or replaced: a query does not go on as if the state had been empty."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from flowql.runtime.app.driver import Driver
from flowql.runtime.app.instance import Instance
from flowql.runtime.app.query_state import STOPPED
from flowql.runtime.clock import SystemClock, VirtualClock
from flowql.runtime.config import InstanceConfig
from flowql.runtime.errors import StateError, StateLost
from flowql.runtime.log.base import Log, TopicPartition
from flowql.runtime.log.memory import MemoryLog
from flowql.runtime.state.changelog import last_written
from flowql.runtime.state.memory import MemoryPhysical
from tests.runtime.app.engine import COUNTS as ONE_GROUP
from tests.runtime.app.engine import OTHERS, plan, produce, read
from tests.runtime.restoration.test_restoration import COUNTS, Life, no_redo, undisturbed

CHANGELOG = "flowql-CTAS_C-aggregate-1-changelog"
METADATA = "flowql-metadata"


def deleted(log: Log, topic: str) -> None:
    log.admin().delete_topic(topic)


def emptied(log: Log, topic: str) -> None:
    """As a retention of time or size does."""
    admin = log.admin()
    for p in range(admin.topics()[topic].partitions):
        admin.drop_before(TopicPartition(topic, p), admin.end_offset(TopicPartition(topic, p)) - 1)


def replaced(log: Log, topic: str) -> None:
    """As brokers do that make topics at the first record: with their own policy."""
    partitions = log.admin().topics()[topic].partitions
    log.admin().delete_topic(topic)
    log.admin().create_topic(topic, partitions, {"cleanup.policy": "delete"})


def altered(log: Log, topic: str) -> None:
    """Whatever is left of it, the rest goes with time."""
    log.admin().alter_topic(topic, {"cleanup.policy": "delete"})


DAMAGE = pytest.mark.parametrize("damage", [deleted, emptied, replaced, altered])


def ran(parts: int = 1) -> Life:
    life = Life(no_redo(), COUNTS)
    for n in range(parts):
        life.feed(50 * n, 50 * n + 50)
        life.settle()
    return life


@DAMAGE
@pytest.mark.parametrize("topic", [CHANGELOG, METADATA])
def test_state_that_nobody_has_is_made_anew_from_the_inputs(damage: Callable[[Log, str], None], topic: str) -> None:
    life = ran(2)
    damage(life.log, topic)
    again = life.again()
    again.feed(100, 120)
    again.settle()
    assert again.table("C") == undisturbed(COUNTS, (0, 50), (50, 100), (100, 120)).table("C")
    assert again.instance.state_lost


@DAMAGE
def test_a_restoration_that_goes_on_looks_again(damage: Callable[[Log, str], None], monkeypatch) -> None:
    monkeypatch.setattr("flowql.runtime.app.restoration.CHUNK_RECORDS", 1)
    life, disk = ran(), MemoryPhysical()
    half = life.again(physical=disk)
    half.round()
    assert half.instance.state.restoring()
    damage(life.log, CHANGELOG)
    again = half.again(physical=disk)
    again.settle()
    assert CHANGELOG in again.instance.state_lost
    assert again.table("C") == undisturbed(COUNTS, (0, 50)).table("C")


@DAMAGE
def test_changelogs_are_not_trusted_after_one_was_lost(damage: Callable[[Log, str], None], caplog) -> None:
    """The state is here, and goes on: but what the changelog gets from now on is not all of it."""
    disk = MemoryPhysical()
    life = Life(no_redo(), COUNTS, physical=disk)
    life.feed(0, 50)
    life.settle()
    damage(life.log, CHANGELOG)
    life = life.again(physical=disk)
    assert CHANGELOG in caplog.text
    assert not life.instance.state_lost
    life.feed(50, 60)
    life.settle()
    again = life.again()
    again.settle()
    assert "since the first" in again.instance.state_lost
    assert again.table("C") == undisturbed(COUNTS, (0, 50), (50, 60)).table("C")


def member(log: Log, physical: MemoryPhysical | None = None) -> tuple[Instance, Driver]:
    clock = VirtualClock()
    config = InstanceConfig(threads=1, changelogs=True, shared=True, process_id="one")
    instance = Instance(log, physical or MemoryPhysical(), clock, config)
    driver = Driver(instance, tick=lambda: clock.advance(10))
    instance.resume()
    return instance, driver


def rounds(driver: Driver) -> None:
    for _ in range(200):
        driver.round()


def left_by_a_member(records: int) -> MemoryLog:
    """The log of a member that has counted so many records, each with a commit of its own, and ended."""
    log = MemoryLog()
    for topic in ("input", "other"):
        log.create_topic(topic, 1)
    first, driver = member(log)
    first.deploy(plan(ONE_GROUP))
    for _ in range(records):
        produce(log, "input", 1)
        rounds(driver)
    first.close()
    return log


@DAMAGE
def test_a_member_computes_the_query_again_whose_rows_are_gone(damage: Callable[[Log, str], None]) -> None:
    log, changelog = left_by_a_member(records=2), "flowql-CTAS_COUNTS-aggregate-1-changelog"
    damage(log, changelog)
    before = dict(log.topics())
    second, driver = member(log)
    second.deploy(plan(ONE_GROUP, OTHERS))  # which makes topics for what is new, and none for what is gone
    assert (changelog in log.topics()) == (changelog in before)
    produce(log, "input", 1)
    produce(log, "other", 1)
    rounds(driver)
    assert not second.query_states.having(STOPPED)
    assert [q.generation for q in second.plan.queries] == [2, 1]
    assert read(log, "counts")[-1] == {"N": 3}
    assert read(log, "others") == [{"V": 2}]
    assert dict(second.deployed.last)["CTAS_COUNTS"] == 2, "one new generation, however often a member looks"


def test_a_member_that_starts_during_the_recomputation_goes_on_with_it() -> None:
    """It misses the same rows, and the generation that takes the old one's place is on record."""
    log = left_by_a_member(records=2)
    deleted(log, "flowql-CTAS_COUNTS-aggregate-1-changelog")
    second, driver = member(log)
    while second.deployed.wanted is None:
        driver.round()
    second.close()
    third, driver = member(log)
    rounds(driver)
    assert third.deployed.wanted is None
    assert dict(third.deployed.last)["CTAS_COUNTS"] == 2
    assert read(log, "counts")[-1] == {"N": 2}


def test_a_member_that_misses_rows_goes_on_beside_a_query_whose_input_is_gone() -> None:
    log = left_by_a_member(records=2)
    first, driver = member(log)
    first.deploy(plan(ONE_GROUP, OTHERS))
    produce(log, "other", 1)
    rounds(driver)
    first.close()
    deleted(log, "flowql-CTAS_COUNTS-aggregate-1-changelog")
    deleted(log, "other")
    second, driver = member(log)
    rounds(driver)
    assert second.query_states.of("CTAS_COUNTS").state is STOPPED, "nothing can be deployed without the topic"
    assert read(log, "counts")[-1] == {"N": 2}


@DAMAGE
def test_a_member_stops_the_query_whose_rows_and_inputs_are_gone(damage: Callable[[Log, str], None]) -> None:
    log, changelog = left_by_a_member(records=2), "flowql-CTAS_COUNTS-aggregate-1-changelog"
    damage(log, changelog)
    log.admin().drop_before(TopicPartition("input", 0), 1)
    second, driver = member(log)
    second.deploy(plan(ONE_GROUP, OTHERS))
    produce(log, "input", 1)
    produce(log, "other", 1)
    rounds(driver)
    assert second.query_states.of("CTAS_COUNTS").state is STOPPED
    reason = second.query_states.of("CTAS_COUNTS").reason
    assert "records of input-0 before offset 1 are gone (retention)" in reason
    assert "--full-refresh CTAS_COUNTS" in reason
    assert read(log, "counts")[-1] == {"N": 2}
    assert read(log, "others") == [{"V": 2}]
    second.deploy(plan(ONE_GROUP, OTHERS), refresh=["CTAS_COUNTS"])
    rounds(driver)
    assert not second.query_states.having(STOPPED)
    assert read(log, "counts")[-1] == {"N": 2}, "of the records that are left"


@pytest.mark.parametrize("damage", [emptied, replaced, altered])
def test_a_member_does_not_begin_without_records_of_its_tasks(damage: Callable[[Log, str], None]) -> None:
    log = left_by_a_member(records=1)
    damage(log, METADATA)
    with pytest.raises(StateLost, match=METADATA):
        member(log)


@pytest.mark.parametrize("kept", [True, False])
def test_state_is_not_continued_by_texts_that_may_be_others(kept: bool) -> None:
    """The record of the deployment says which text the state is of: without it an edited query went on with that of the one before."""
    disk = MemoryPhysical()
    life = Life(no_redo(), COUNTS, physical=disk)
    life.feed(0, 50)
    life.settle()
    life.log.delete_topic("flowql-plan")
    with pytest.raises(StateLost, match="what was deployed as flowql is unknown"):
        life.again(COUNTS.replace("COUNT(*)", "COUNT(*) + 100"), physical=disk if kept else None)


def test_a_member_does_not_begin_without_the_record_of_its_deployment() -> None:
    log = left_by_a_member(records=1)
    log.delete_topic("flowql-plan")
    with pytest.raises(StateLost, match="what was deployed as flowql is unknown"):
        member(log)


def test_commits_that_the_log_does_not_count_are_not_made_again(monkeypatch: pytest.MonkeyPatch) -> None:
    life = ran()
    assert life.log.last_sequence("flowql") > 1
    monkeypatch.setattr(life.log, "last_sequence", lambda _: 0)
    with pytest.raises(StateError, match="the committed positions of flowql are gone"):
        life.again()


def test_a_crash_in_the_first_commit_may_leave_it_uncounted(monkeypatch: pytest.MonkeyPatch) -> None:
    """At least once, its record is written before it is counted."""
    log = no_redo()
    config = InstanceConfig("flowql", changelogs=True)
    first = Instance(log, MemoryPhysical(), SystemClock(), config)
    first.start()
    assert first.stop() == []
    assert last_written(log, "flowql") == (1, True)
    monkeypatch.setattr(log, "last_sequence", lambda _: 0)
    Instance(log, MemoryPhysical(), SystemClock(), config).close()


def test_an_instance_that_ended_before_its_first_deployment_can_be_deployed_to() -> None:
    log = no_redo()
    first = Instance(log, MemoryPhysical(), SystemClock(), InstanceConfig("flowql", changelogs=True))
    first.start()
    assert first.stop() == []
    assert log.last_sequence("flowql") == 1, "the last thing that it does is a commit"
    life = Life(log, COUNTS)
    life.feed(0, 50)
    life.settle()
    assert life.table("C") == undisturbed(COUNTS, (0, 50)).table("C")
