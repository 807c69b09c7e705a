"""The commit step alone: rejections and losses that are counted, redo that is bounded, and when nothing waits for a commit."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future
from typing import Any

import pyarrow as pa
import pytest

from flowql.runtime.clock import VirtualClock
from flowql.runtime.commit.coordinator import RETRY_MS, CommitStep
from flowql.runtime.commit.positions import RENEW_MS, ReaderPosition
from flowql.runtime.config import COMMIT_INTERVAL_MS_MIN
from flowql.runtime.errors import Fenced, LogCorrupt, LogFull, RuntimeFailure, StaleMember, StateError
from flowql.runtime.log.base import TopicPartition
from flowql.runtime.log.memory import MemoryLog
from flowql.runtime.log.transaction import Transaction
from flowql.runtime.metrics import Metrics
from flowql.runtime.output.collector import RecordCollector
from flowql.runtime.state.frozen import FrozenEpoch
from flowql.runtime.state.manager import StateManager
from flowql.runtime.state.memory import MemoryPhysical
from flowql.runtime.state.positions import ChangelogPosition, StorePartition
from tests.runtime.log.records import batch
from tests.runtime.state.support import put, table

LARGE = "x" * ((8 << 20) - 1_000)  # redo of 16 MiB is kept without a flush


class TroubledLog(MemoryLog):
    """Does not take the next transaction (`full`, and `lost` without an answer), or does and does not say so (`silent`)."""

    full = silent = lost = False

    def commit(self, transactional_id: str, epoch: int, transaction: Transaction) -> int:
        lost, self.lost = self.lost, False
        if lost:
            raise RuntimeFailure("no answer")
        full, self.full = self.full, False
        if full:
            raise LogFull("no space left")
        sequence = super().commit(transactional_id, epoch, transaction)
        silent, self.silent = self.silent, False
        if silent:
            raise RuntimeFailure("no answer")
        return sequence


class Physical(MemoryPhysical):
    """Counts flushes and writes, and takes none while `fails` and `fails_to_flush`."""

    flushes = writes = 0
    fails = fails_to_flush = False

    def flush(self) -> None:
        self.flushes += 1
        if self.fails_to_flush:
            raise StateError("no space left for a flush")

    def write_batch(self, keys: Any, values: Any, ranges: Any = ()) -> None:
        self.writes += 1
        if self.fails:
            raise StateError("Input/output error")
        super().write_batch(keys, values, ranges)


class Site:
    """A commit step and all around it. With `member` it is one of a group, and moves a position of topic `t`."""

    def __init__(self, log: MemoryLog | None = None, *, member: bool = False) -> None:
        self.log = MemoryLog() if log is None else log
        self.log.create_topic("t", 1)
        self.physical, self.clock, self.fenced = Physical(), VirtualClock(), 0
        self.state, self.metrics = StateManager(self.physical, changelog=lambda _spec: True), Metrics()
        self.sequences: list[int] = []
        self.collector, self.idle_in_cut, self.idle_after = RecordCollector(), list[bool](), list[bool]()
        self.at: dict[TopicPartition, ReaderPosition] = {}
        self.readers: dict[str, frozenset[str]] = {}
        self.refused: list[tuple[frozenset[str], Exception]] = []
        self.cuts: list[str] = []
        self.meanwhile: Callable[[], object] = lambda: None  # what other threads do during a look
        self.failing: dict[str, Exception] = {}  # queries of which something cannot be cut
        self.changelog: list[tuple[TopicPartition, pa.RecordBatch]] = []
        self.back_to: dict[TopicPartition, int] = {}  # where queries that are refused begin again
        self.step = CommitStep(
            self.log,
            "app",
            self.state,
            self.collector,
            self.clock,
            self.metrics,
            positions=lambda: self.positions(member=member),
            ahead_of_cut=lambda: self.cuts.append("prepared"),
            before_cut=self.before_cut,
            interval_ms=lambda: 100,
            on_commit=lambda: self.idle_after.append(self.step.idle),
            on_refused=self.refuse,
            readers=lambda topic: self.readers.get(topic, frozenset()),
            alignment=self,
            changelog=self,
            transactional_id="m" if member else None,
        )
        self.step.on_lost = self.lost

    def is_ready(self, now_ms: int) -> bool:
        return True

    def wants_cut(self) -> bool:
        self.meanwhile()
        return False

    def at_cut(self) -> list[tuple[str, int]]:
        return []

    def let_go(self) -> None:
        pass

    def committed(self, finished: Sequence[tuple[str, int]]) -> None:
        assert not finished

    def positions(self, *, member: bool) -> dict[TopicPartition, ReaderPosition]:
        self.idle_in_cut.append(self.step.idle)
        return {TopicPartition("t", 0): ReaderPosition(0, "")} if member else self.at

    def refuse(self, queries: frozenset[str], error: Exception) -> dict[TopicPartition, int]:
        self.refused.append((queries, error))
        return self.back_to

    def records(self, frozen: FrozenEpoch, sequence: int, now_ms: int) -> list[tuple[TopicPartition, pa.RecordBatch]]:
        """Of changelogs."""
        self.sequences.append(sequence)
        return self.changelog

    def reached(
        self, frozen: FrozenEpoch, sequence: int, ends: Mapping[TopicPartition, int]
    ) -> dict[StorePartition, ChangelogPosition]:
        return {}

    def before_cut(self) -> dict[str, Exception]:
        self.cuts.append("cut")
        failing, self.failing = self.failing, {}
        return failing

    def lost(self) -> None:
        self.fenced += 1

    def run(self, times: int = 1) -> None:
        for _ in range(times):
            assert self.step.run_once(self.clock.timer_ms()) >= 0
            self.clock.advance(RETRY_MS)

    def start_over(self) -> None:
        done = self.step.start_over()
        self.run(2)
        assert done.done()

    def commit(self) -> int:
        done = self.step.request()
        self.run(2)
        return done.result(0)


def test_a_producer_that_was_made_anew_commits_nothing_before_the_membership_is_confirmed() -> None:
    """It has escaped the fence of the one before it, and others may have the partitions."""
    log = TroubledLog()
    site = Site(log, member=True)

    def given_up() -> None:
        raise StaleMember("given up")

    log.lost = True
    done = site.step.request()
    site.step.confirm = given_up
    site.run(5)
    assert "given up" in site.step.blocked
    assert not done.done()
    site.step.lose("given up")
    site.start_over()
    assert isinstance(done.exception(0), StaleMember)
    site.step.confirm = lambda: None
    assert site.commit() > 0


def test_a_member_that_is_fenced_again_and_again_ends_and_one_that_is_fenced_now_and_then_does_not() -> None:
    """Two instances on copies of one data directory fence each other for ever."""
    for pause_ms, ends in ((6_000, False), (1_000, True)):
        site = Site(member=True)
        for _ in range(10):
            done = fence(site)
            site.start_over()
            assert isinstance(done.exception(0), StaleMember)
            site.clock.advance(pause_ms)
        if ends:
            with pytest.raises(Fenced, match="copy of this data directory"):
                fence(site)
        else:
            fence(site)
            site.start_over()
            assert site.commit() == site.log.last_sequence("m")


def fence(site: Site) -> Future[int]:
    """The request whose commit finds that another producer has the id."""
    site.log.producer("m")
    done = site.step.request()
    site.run()
    assert site.step.blocked
    return done


@pytest.mark.parametrize("silent", [False, True])
def test_the_redo_that_a_start_replays_is_bounded(silent: bool) -> None:
    """Also that of a commit whose outcome was unknown."""
    log = TroubledLog()
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
    site = Site(TroubledLog(), member=True)
    site.log.lost = True  # type: ignore[attr-defined]
    site.step.dirty = True
    site.run()
    assert site.idle_in_cut == [False]
    assert not site.step.idle, "it is blocked"
    site.run()
    assert site.step.idle
    assert site.idle_after == [True], "as soon as it is told that it is committed"


def test_a_request_is_prepared_at_the_cut_and_answered_when_its_commit_is_applied() -> None:
    """What fails in it is told to its requester and keeps no other one waiting."""
    site, seen = Site(), []

    def note(what: str) -> None:
        seen.append((what, site.state.applied_sequence, site.step.next_sequence))
        site.clock.spend(3_000_000)

    def fail() -> None:
        raise ValueError("a mistake")

    woken: list[bool] = []
    site.step.wake = lambda: woken.append(True)
    good = site.step.request(lambda: note("prepare"), lambda: note("after"))
    assert woken == [True]
    unprepared, unfinished = site.step.request(fail), site.step.request(after=fail)
    taken_back = site.step.request(lambda: note("never"), withdrawable=True)
    assert not site.step.withdraw(good), "it was not said that it may be"
    assert site.step.withdraw(taken_back)
    site.run()
    assert seen == [("prepare", 0, 1), ("after", 1, 2)]
    assert (site.metrics.commits, site.metrics.cut_to_commit_ms) == (1, 3), "until it was applied"
    assert good.result(0) == 1
    for done in (unprepared, unfinished):
        assert isinstance(done.exception(0), ValueError)
    assert site.log.last_sequence("app") == 1
    assert site.commit() == 2
    assert site.sequences == [1, 2], "changelogs are told which commit their records are of"


def test_of_a_table_only_the_last_record_of_a_key_leaves_with_a_commit() -> None:
    site = Site()
    site.collector.upsert_topics.update({"t"})
    for batches in (2, 3):
        for n in range(batches):
            site.collector.add(TopicPartition("t", 0), batch([(n, b"k", b"%d" % n), (n, b"of %d" % n, b"")]))
        site.commit()
    kept = [r["value"] for r in records(site.log) if r["key"] == b"k"]
    assert kept == [b"1", b"2"]


def records(log: MemoryLog) -> list[dict[str, Any]]:
    found = log.reader(TopicPartition("t", 0)).read(100, 1 << 20)
    return [] if found is None else found.records.to_pylist()


def test_a_member_that_is_given_up_starts_over_when_what_the_log_has_is_in_its_state() -> None:
    log = TroubledLog()
    site = Site(log, member=True)
    done = site.step.request()
    log.silent = site.physical.fails = True
    site.run()
    site.step.lose("given up")
    restart = site.step.start_over()
    site.run()
    assert (site.physical.writes, restart.done()) == (1, False)
    site.physical.fails = False
    site.run(2)
    assert done.result(0) == 1, "it came through"
    assert restart.done()
    assert site.state.applied_sequence == 1


def test_a_member_whose_state_takes_no_more_writes_starts_over_and_does_not_try_again() -> None:
    site = Site(member=True)
    done = site.step.request()
    site.physical.fails = True
    site.run(2)
    assert (site.physical.writes, site.fenced) == (2, 0)
    site.run()
    assert (site.physical.writes, site.fenced) == (2, 1)
    site.physical.fails = False
    site.start_over()
    assert isinstance(done.exception(0), StaleMember)
    assert site.commit() == 2


@pytest.mark.parametrize("member", [False, True])
def test_positions_are_committed_once_a_day_though_nothing_is_published(member: bool) -> None:
    """Brokers delete them after a week without a commit, and the application could not start any more."""

    class LikeKafka(MemoryLog):
        supports_redo = False

    for log, renewed in ((MemoryLog(), False), (LikeKafka(), True)):
        site, writer = Site(log, member=member), "m" if member else "app"
        for now in (0, RENEW_MS):
            site.step.run_once(now)
        assert log.last_sequence(writer) == 0, "before the first commit there is nothing to renew"
        site.step.dirty = True
        site.step.run_once(RENEW_MS)
        for now in (1, RENEW_MS - 1):
            site.step.run_once(RENEW_MS + now)
        assert log.last_sequence(writer) == 1
        site.step.run_once(2 * RENEW_MS)
        site.step.run_once(2 * RENEW_MS + 1)
        assert log.last_sequence(writer) == 1 + renewed


def test_what_is_published_is_committed_when_the_interval_is_over_or_as_soon_as_it_may_be() -> None:
    site = Site()
    step = site.step
    assert step.run_once(0) == 100
    assert site.log.last_sequence("app") == 0, "nothing is published"
    step.dirty = True
    assert step.run_once(0) == 0
    step.dirty = True
    assert step.run_once(30) == 70
    assert step.run_once(99) == 1
    assert site.log.last_sequence("app") == 1
    assert step.run_once(100) == 0
    step.dirty = True
    assert step.run_once(101) == 99
    woken: list[bool] = []
    step.wake = lambda: woken.append(True)
    step.hurry()
    assert woken == [True]
    assert step.run_once(99 + COMMIT_INTERVAL_MS_MIN) == 1
    assert step.run_once(100 + COMMIT_INTERVAL_MS_MIN) == 0
    assert site.log.last_sequence("app") == 3


def test_what_is_published_during_a_look_is_committed() -> None:
    """A look for ticks waits for the lock under which a task publishes. It used to forget what was published then, until another row came."""
    site = Site()

    def publish() -> None:
        site.step.dirty = True

    site.commit()
    before = len(site.idle_in_cut)
    site.meanwhile = publish
    site.run()
    site.meanwhile = lambda: None
    site.run(3)
    assert len(site.idle_in_cut) == before + 1
    assert site.step.idle
