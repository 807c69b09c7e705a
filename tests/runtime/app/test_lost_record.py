"""The record of a deployment that is damaged and left out: whether it was the newest, and what takes its place; topics that no record names."""

from __future__ import annotations

from collections.abc import Collection

import pytest

from flowql.compiler.plan.deployed import Deployed, TopicHistory
from flowql.runtime.app.lost_record import forget_deployed
from flowql.runtime.app.plan_topic import read_deployed
from flowql.runtime.app.unrecorded import MADE_BY, made_by, unrecorded
from flowql.runtime.log.base import TopicPartition
from flowql.runtime.log.memory import MemoryLog
from tests.runtime.app.test_plan_topic import of, put
from tests.runtime.app.test_replacing import put as put_records


def left() -> MemoryLog:
    """Records of three deployments, the last at offset 5 with its entry at 4, and results of the application and of another one."""
    log = MemoryLog()
    for number in (1, 2, 3):
        put(log, Deployed(id=number, wanted=Deployed().serving), 0, entry=of(number) if number == 3 else None)
    assert log.end_offset(TopicPartition("app-plan", 0)) == 6
    for topic in ("mine", "theirs", "empty"):
        log.create_topic(topic, 2)
    producer = log.producer("app")
    producer.begin()
    producer.send(TopicPartition("mine", 1), _row())
    producer.commit()
    put_records(log, TopicPartition("theirs", 0), ("k", "v", 0))
    return log


def _row() -> object:
    log = MemoryLog()
    log.create_topic("x", 1)
    put_records(log, TopicPartition("x", 0), ("k", "v", 0))
    batch = log.reader(TopicPartition("x", 0)).read(1, 1)
    assert batch is not None
    return batch.records.select(["timestamp", "key", "value", "headers"])


@pytest.mark.parametrize(("left_out", "lost"), [((), False), ((1, 5), False), ((6,), True), ((2, 7), True)])
def test_only_what_was_behind_the_newest_record_that_can_be_read_is_lost(left_out: Collection[int], lost: bool) -> None:
    log = left()
    newest = 5
    assert forget_deployed(log, "app", left_out, 70) == lost == (max(left_out, default=0) > newest)
    found = read_deployed(log, "app")
    assert found is not None
    if lost:
        assert (found.forgotten, found.id, found.histories) == (True, 6, (TopicHistory("mine", 6),))
        assert found.serving.queries == ()
    else:
        assert (found.forgotten, found.id) == (False, 3)


def test_where_no_record_can_be_read_all_is_lost() -> None:
    log = MemoryLog()
    log.create_topic("app-plan", 1, {"cleanup.policy": "compact"})
    put_records(log, TopicPartition("app-plan", 0), ("deployment-1", "{}", 0))
    assert forget_deployed(log, "app", (1,), 0)
    assert (found := read_deployed(log, "app")) is not None
    assert (found.id, found.forgotten) == (1, True)


def test_empty_topics_of_later_deployments_of_the_application_are_of_no_record() -> None:
    log, now = MemoryLog(), Deployed(id=7)
    assert made_by("app", now) == {MADE_BY: "app/7"}
    for name, option in {
        "earlier": "app/6",
        "now": "app/7",
        "later": "app/8",
        "written": "app/8",
        "of another": "my/app/8",
        "of nobody": "",
    }.items():
        log.create_topic(name, 2, {MADE_BY: option} if option else {})
    put_records(log, TopicPartition("written", 1), ("k", "v", 0))
    assert unrecorded(log, "app", now) == ["later"]
    assert unrecorded(log, "my/app", now) == ["of another"]
    assert unrecorded(log, "app", Deployed(id=8)) == []
