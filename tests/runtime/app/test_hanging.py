"""A transaction that does not end is named in status with its partition, its offset and the command that ends it."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from concurrent.futures import Future

import pytest

from flowql.runtime.app.hanging import HANGING_MS, LOOK_MS, HangingTransactions
from flowql.runtime.app.status import instance_metrics
from flowql.runtime.log.base import TopicPartition
from flowql.runtime.log.memory import MemoryLog
from tests.runtime.app.engine import DOUBLED, IN, make, produce

OTHER = TopicPartition("other", 1)


class Partitions:
    """Ends as brokers tell them. asked: of which partitions, each time."""

    def __init__(self) -> None:
        self.stable, self.written = dict[TopicPartition, int](), dict[TopicPartition, int]()
        self.asked = list[list[TopicPartition]]()

    def ask_end_offsets(self, tps: Sequence[TopicPartition]) -> Future[dict[TopicPartition, int]]:
        self.asked.append(list(tps))
        return _done({tp: self.stable[tp] for tp in tps})

    def ask_written_offsets(self, tps: Sequence[TopicPartition]) -> Future[dict[TopicPartition, int]]:
        return _done({tp: self.written[tp] for tp in tps})


def _done(answer: dict[TopicPartition, int]) -> Future[dict[TopicPartition, int]]:
    future: Future[dict[TopicPartition, int]] = Future()
    future.set_result(answer)
    return future


class World:
    def __init__(self) -> None:
        self.admin, self.places, self.now_ms = Partitions(), {IN: 5, OTHER: 7}, 1_000_000
        self.admin.stable, self.admin.written = {IN: 5, OTHER: 7}, {IN: 5, OTHER: 7}
        self.hanging = HangingTransactions(self.admin, lambda: self.places)  # type: ignore[arg-type]

    def after(self, ms: int) -> list[TopicPartition | None]:
        """The partitions that are in trouble then."""
        for _ in range(ms // 1_000):
            self.now_ms += 1_000
            self.hanging.look(self.now_ms)
        return [t.partition for t in self.hanging.current(self.now_ms)]


def test_a_transaction_that_stays_open_is_told_after_a_minute_and_no_longer_than_it_is_open() -> None:
    world = World()
    assert world.after(3 * LOOK_MS) == []
    world.admin.written[IN] = 9
    assert world.after(HANGING_MS - 1_000) == []
    assert world.after(2 * LOOK_MS) == [IN]
    (told,) = world.hanging.current(world.now_ms)
    assert "from offset 5 on" in told.error
    assert "abort --topic input --partition 0 --start-offset 5" in told.error
    assert told.to_data(world.now_ms)["for_ms"] >= HANGING_MS
    world.admin.stable[IN] = 9
    assert world.after(2 * LOOK_MS) == []


def test_transactions_that_end_and_new_ones_that_begin_are_no_trouble() -> None:
    world = World()
    for n in range(20):
        world.admin.stable[IN], world.admin.written[IN] = 6 + n, 9 + n  # it moves, though it is not read: paused
        assert world.after(LOOK_MS) == []


def test_nothing_is_asked_of_partitions_that_are_read_on() -> None:
    world = World()
    for n in range(5):
        world.places = {IN: 10 + n, OTHER: 20 + n}
        world.after(LOOK_MS)
    assert world.admin.asked == []
    world.places = {IN: 14, OTHER: 30}
    world.after(LOOK_MS)
    assert world.admin.asked == [[IN]]


class Behind(MemoryLog):
    """Of the input a transaction with three records is open."""

    def ask_written_offsets(self, tps: Sequence[TopicPartition]) -> Future[dict[TopicPartition, int]]:
        return _done({tp: end + 3 * (tp == IN) for tp, end in self.end_offsets(tps).items()})


def test_status_and_the_log_tell_of_it(caplog: pytest.LogCaptureFixture) -> None:
    log = Behind()
    instance, driver = make(log, DOUBLED)
    produce(log, "input", 1, 2)
    with caplog.at_level(logging.WARNING, "flowql"):
        for _ in range((LOOK_MS * 4 + HANGING_MS) // 10):
            driver.round()
    (trouble,) = instance_metrics(instance)["trouble"]
    assert trouble["partition"] == str(IN)
    assert "hides all records from offset 2 on" in trouble["error"]
    assert [r.getMessage() for r in caplog.records].count(trouble["error"].partition(": ")[2]) == 1


@pytest.mark.parametrize("topic", ["flowql-metadata", "flowql-plan"])
def test_topics_of_the_application_itself_are_watched(topic: str) -> None:
    """A member that starts waits for what these topics hide, and nothing said why."""
    hidden = TopicPartition(topic, 0)

    class Hidden(MemoryLog):
        def ask_written_offsets(self, tps: Sequence[TopicPartition]) -> Future[dict[TopicPartition, int]]:
            return _done({tp: end + 2 * (tp == hidden) for tp, end in self.end_offsets(tps).items()})

    log = Hidden()
    instance, _ = make(log, DOUBLED, changelogs=True)
    assert hidden.topic in log.topics()
    for now_ms in range(LOOK_MS, LOOK_MS * 4 + HANGING_MS, 1_000):
        instance.polling.transactions.look(now_ms)
    assert [t["partition"] for t in instance_metrics(instance)["trouble"]] == [str(hidden)]
