"""Changelogs as brokers have them: they end with the marker of a transaction, and an open transaction hides what is behind its first record."""

from __future__ import annotations

import pytest

from flowql.runtime.log.base import TopicPartition
from flowql.runtime.log.memory import MemoryLog
from flowql.runtime.task.status import TaskStatus
from tests.runtime.restoration.test_restoration import COUNTS, Life, undisturbed

CHANGELOG = "flowql-CTAS_C-aggregate-1-changelog"


class Brokers(MemoryLog):
    """marked: each partition of the changelog ends with a marker, which no reader is given. open_from: of an open transaction."""

    supports_redo = False
    marked = False
    open_from: int | None = None

    def bounds(self, tp: TopicPartition) -> tuple[int, int]:
        begin, end = super().bounds(tp)
        hides = self.open_from is not None and tp.topic == CHANGELOG
        return begin, min(end, self.open_from or 0) if hides else end

    def end_offset(self, tp: TopicPartition) -> int:
        return super().end_offset(tp) + (self._markers(tp) if self.open_from is None else 0)

    def written_offset(self, tp: TopicPartition) -> int:
        return super().bounds(tp)[1] + self._markers(tp)

    def _markers(self, tp: TopicPartition) -> int:
        return int(self.marked and tp.topic == CHANGELOG)


@pytest.fixture
def left() -> Brokers:
    """The log of an instance that has ended, with a marker at the end of its changelog."""
    log = Brokers()
    life = Life(log, COUNTS)
    life.feed(0, 50)
    life.settle()
    life.instance.close()
    log.marked = True
    return log


def test_a_changelog_that_ends_with_a_marker_is_read_to_its_end(left: Brokers) -> None:
    again = Life(left)
    assert again.statuses("CTAS_C") == {TaskStatus.RESTORING}
    for _ in range(50):
        again.round()
    assert again.statuses("CTAS_C") == {TaskStatus.RUNNING}
    assert again.table("C") == undisturbed(COUNTS, (0, 50)).table("C")


@pytest.mark.parametrize("open_from", [0, 3])
def test_records_behind_an_open_transaction_are_waited_for(left: Brokers, open_from: int) -> None:
    """Nothing arrives there either, and that is not the end."""
    left.open_from = open_from
    again = Life(left)
    for _ in range(50):
        again.round()
    assert again.statuses("CTAS_C") == {TaskStatus.RESTORING}
    left.open_from = None
    for _ in range(50):
        again.round()
    assert again.statuses("CTAS_C") == {TaskStatus.RUNNING}
    assert again.table("C") == undisturbed(COUNTS, (0, 50)).table("C")
