"""The commit step alone: rejections and losses that are counted, redo that is bounded, and when nothing waits for a commit."""

from __future__ import annotations

import pytest

from flowql.runtime.clock import VirtualClock
from flowql.runtime.commit.coordinator import LOSSES_MAX, LOSSES_MS, RETRY_MS, STALE_MAX, CommitStep
from flowql.runtime.commit.positions import Reading
from flowql.runtime.errors import Fenced, LogCorrupt, RuntimeFailure, StaleMember, StateError
from flowql.runtime.log.base import GroupMetadata, TopicPartition
from flowql.runtime.log.memory import MemoryLog
from flowql.runtime.log.transaction import Transaction
from flowql.runtime.metrics import Metrics
from flowql.runtime.output.collector import RecordCollector
from flowql.runtime.state.manager import StateManager
from flowql.runtime.state.memory import MemoryPhysical
from tests.runtime.state.support import put, table

LARGE = "x" * ((8 << 20) - 1_000)  # redo of 16 MiB is kept without a flush


class Physical(MemoryPhysical):
    """Counts flushes."""

    flushes = 0

    def flush(self) -> None:
        self.flushes += 1


class Site:
    """A commit step and all around it. With `member` it is one of a group, and moves a position of topic `t`."""

    def __init__(self, log: MemoryLog | None = None, *, member: bool = False) -> None:
        self.log = MemoryLog() if log is None else log
        self.log.create_topic("t", 1)
        self.physical, self.clock, self.fenced = Physical(), VirtualClock(), 0
        self.state = StateManager(self.physical)
        self.idle_in_cut: list[bool] = []
        self.step = CommitStep(
            self.log,
            "app",
            self.state,
            RecordCollector(),
            self.clock,
            Metrics(),
            positions=lambda: self.positions(member=member),
            ahead_of_cut=lambda: None,
            before_cut=dict,
            interval_ms=lambda: 100,
            on_commit=lambda: None,
            on_refused=lambda _queries, _error: {},
            readers=lambda _topic: frozenset(),
            transactional_id="m" if member else None,
        )
        self.step.on_fenced = self.lost

    def positions(self, *, member: bool) -> dict[TopicPartition, Reading]:
        self.idle_in_cut.append(self.step.idle)
        return {TopicPartition("t", 0): Reading(0, "")} if member else {}

    def lost(self) -> None:
        self.fenced += 1

    def run(self, times: int = 1) -> None:
        for _ in range(times):
            self.step.run_once(self.clock.timer_ms())
            self.clock.advance(RETRY_MS)

    def start_over(self) -> None:
        done = self.step.start_over()
        self.run(2)
        assert done.done()

    def commit(self) -> int:
        done = self.step.request()
        self.run(2)
        return done.result(0)


def test_a_member_whose_metadata_is_rejected_too_often_in_a_row_starts_over() -> None:
    """A commit that gets through in between ends the row: the group still knows the member."""
    site = Site(member=True)
    for _ in range(2):
        site.step.group_metadata = None
        done = site.step.request()
        site.run(STALE_MAX)
        assert "no member" in site.step.blocked
        site.step.group_metadata = GroupMetadata("app", "m")
        site.run()
        assert done.done()
        assert (site.step.blocked, site.fenced) == ("", 0)
    site.step.group_metadata = None
    done = site.step.request()
    site.run(STALE_MAX + 1)
    assert site.fenced == 1
    site.start_over()
    assert isinstance(done.exception(0), StaleMember)
    site.step.request()
    site.run(STALE_MAX)
    assert site.fenced == 1, "it is counted anew"


def test_a_member_that_is_fenced_again_and_again_ends_and_one_that_is_fenced_now_and_then_does_not() -> None:
    """Two instances on copies of one data directory fence each other for ever."""
    for pause_ms, ends in ((LOSSES_MS // LOSSES_MAX, False), (1_000, True)):
        site = Site(member=True)
        site.step.group_metadata = GroupMetadata("app", "m")
        for _ in range(LOSSES_MAX):
            fence(site)
            site.start_over()
            site.clock.advance(pause_ms)
        if ends:
            with pytest.raises(Fenced, match="copy of this data directory"):
                fence(site)
        else:
            fence(site)
            site.start_over()
            assert site.commit() == site.log.last_sequence("m")


def fence(site: Site) -> None:
    site.log.producer("m")
    site.step.request()
    site.run()
    assert site.step.blocked


class Uncertain(MemoryLog):
    """Commits the next transaction and does not say so, if it is to."""

    silent = False

    def commit(self, transactional_id: str, epoch: int, transaction: Transaction) -> int:
        sequence = super().commit(transactional_id, epoch, transaction)
        if self.silent:
            self.silent = False
            raise RuntimeFailure("no answer")
        return sequence


@pytest.mark.parametrize("silent", [False, True])
def test_the_redo_that_a_start_replays_is_bounded(silent: bool) -> None:
    """Also that of a commit whose outcome was unknown."""
    log = Uncertain()
    site = Site(log)
    task = site.state.open_task("q/0_0", 0, [table()])
    for key, flushes in ((LARGE, 0), (LARGE, 0), (LARGE, 1), (LARGE, 1), ("small", 1)):
        log.silent = silent
        put(site.state, task, "T", {(key,): (1,)})
        site.commit()
        assert site.physical.flushes == flushes
    assert [sequence for sequence, _ in log.redo_after("app", 3)] == [4, 5]
    with pytest.raises(LogCorrupt, match="trimmed up to 3"):
        log.redo_after("app", 2)


def test_a_state_that_another_thread_could_not_write_to_is_looked_at_though_nothing_is_committed() -> None:
    site = Site()
    site.step.look_at_state(RuntimeFailure("of something else"))
    site.run()
    assert site.physical.flushes == 0
    site.step.look_at_state(StateError("disk"))
    site.run()
    assert site.physical.flushes == 1
    site.run()
    assert site.physical.flushes == 1, "it works"


def test_nothing_is_idle_from_a_cut_until_its_commit_is_applied() -> None:
    site = Site(member=True)
    site.step.dirty = True
    site.run(3)
    assert site.idle_in_cut == [False]
    assert not site.step.idle, "it is blocked"
    site.step.group_metadata = GroupMetadata("app", "m")
    site.run()
    assert site.step.idle
