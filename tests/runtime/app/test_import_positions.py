"""Positions of imports are renewed for brokers that delete what was not committed for a week."""

from __future__ import annotations

import pytest

from flowql.runtime.app.import_positions import LOOK_MS, ImportPositions
from flowql.runtime.commit.positions import RENEW_MS
from flowql.runtime.errors import LogDenied
from flowql.runtime.log.base import Position, Producer, TopicPartition
from flowql.runtime.log.memory import MemoryLog
from tests.runtime.app.test_swapping import LikeKafka

TP = TopicPartition("orders", 0)
GROUP = "orders-flowql-import-0123456789abcdef"


class Counted(LikeKafka):
    """Notes the transactional ids of its producers."""

    def __init__(self) -> None:
        super().__init__()
        self.ids: list[str] = []
        self.create_topic("orders", 1)

    def producer(self, transactional_id: str) -> Producer:
        self.ids.append(transactional_id)
        return super().producer(transactional_id)


def imported(log: MemoryLog, records: int) -> None:
    producer = log.producer(GROUP)
    producer.begin()
    producer.send_positions(GROUP, {TP: Position(records, '{"at": 1}')})
    producer.commit()
    producer.close()


def looked(log: Counted, steps: list[int], topics: tuple[str, ...] = ("orders",), *, needed: bool = True) -> list[int]:
    """Times of renewals, of looks at these times."""
    positions, found = ImportPositions(log, lambda: topics, needed=needed), list[int]()
    for now_ms in steps:
        log.ids.clear()
        positions.look(now_ms)
        found += [now_ms] * len(log.ids)
    return found


def test_a_position_that_rests_is_committed_again_every_day() -> None:
    log = Counted()
    imported(log, 7)
    day = RENEW_MS // LOOK_MS
    found = looked(log, [n * LOOK_MS for n in range(2 * day + 3)])
    assert found == [LOOK_MS, LOOK_MS + RENEW_MS, LOOK_MS + 2 * RENEW_MS]
    assert log.admin().stable_positions(GROUP, [TP]) == {TP: Position(7, '{"at": 1}')}


def test_an_import_that_is_under_way_is_left_alone() -> None:
    """A renewal takes over the transactional id: the import would fail."""
    log = Counted()
    positions = ImportPositions(log, lambda: ["orders"], needed=True)
    for n in range(5):
        imported(log, n)
        log.ids.clear()
        positions.look(n * LOOK_MS)
        assert log.ids == []


class Denied(Counted):
    def groups(self, prefix: str) -> list[str]:
        raise LogDenied("consumer groups cannot be listed")


def test_a_user_who_may_not_see_groups_is_told_once(caplog: pytest.LogCaptureFixture) -> None:
    assert looked(Denied(), [0, LOOK_MS, 2 * LOOK_MS]) == []
    assert [r.getMessage() for r in caplog.records].count(
        "positions of imports are not renewed: consumer groups cannot be listed"
    ) == 1


@pytest.mark.parametrize(("topics", "needed"), [(("payments",), True), ((), True), (("orders",), False)])
def test_other_topics_and_other_logs_are_not_asked(topics: tuple[str, ...], needed: bool) -> None:
    log = Counted()
    imported(log, 7)
    assert looked(log, [0, LOOK_MS, 2 * LOOK_MS], topics, needed=needed) == []
