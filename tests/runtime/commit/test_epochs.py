"""What an epoch takes into its transaction, and what becomes of it when it is dropped, fails, or cannot be made durable."""

from __future__ import annotations

import logging
from typing import Any, cast

import pytest

from flowql.runtime.commit.coordinator import RETRY_MS, CommitStep
from flowql.runtime.commit.positions import ReaderPosition, readers_in
from flowql.runtime.commit.replacement import PartitionChange, Replacement
from flowql.runtime.errors import LogUnavailable, RuntimeFailure, StateError
from flowql.runtime.log.base import TopicPartition
from flowql.runtime.log.memory import MemoryLog
from flowql.runtime.state.frozen import UnwritableState
from tests.runtime.commit.test_coordinator import Site, TroubledLog
from tests.runtime.commit.test_withdrawing import values
from tests.runtime.log.records import batch, read_all
from tests.runtime.state.support import put, table

T = TopicPartition("t", 0)


def member(log: MemoryLog | None = None) -> Site:
    site = Site(log, member=True)
    return site


def said(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [cast(Any, r).flowql_event["event"] for r in caplog.records]


def test_whatever_is_asked_of_the_commit_thread_wakes_it() -> None:
    site, woken = member(), list[str]()
    asked = "request"
    site.step.wake = lambda: woken.append(asked)
    site.step.request()
    asked = "look at the state"
    site.step.look_at_state(StateError("disk"))
    asked = "lose"
    site.step.lose("given up")
    asked = "start over"
    site.step.start_over()
    assert woken == ["request", "look at the state", "lose", "start over"]


def test_a_cut_is_prepared_before_it_and_costs_are_those_of_the_commit() -> None:
    site, times = Site(), iter([5, 12, 20, 100])
    site.clock.cpu_ns = lambda: next(times)
    assert (site.step.cpu_ns, site.step.is_busy) == (0, False)
    site.commit()
    assert (site.cuts, site.step.cpu_ns) == (["prepared", "cut"], 7)
    site.commit()
    assert (site.cuts, site.step.cpu_ns) == (["prepared", "cut"] * 2, 80)
    assert sum(site.metrics.commit_latency.counts) == 2


def test_offsets_tell_the_commit_that_they_are_of_and_whose_they_are() -> None:
    site = Site()
    site.at = {T: ReaderPosition(0, "2.00c0ffee")}
    for sequence in (1, 2):
        assert site.commit() == sequence
        at = site.log.stable_positions("app", [T])[T]
        assert (at.commit, readers_in(at.metadata)) == (("app", sequence), "2.00c0ffee")


def test_changelogs_replacements_and_other_partitions_are_of_the_same_transaction() -> None:
    site = Site()
    for topic in ("changelog", "replaced", "parted"):
        site.log.create_topic(topic, 1)
    site.changelog = [(TopicPartition("changelog", 0), batch([(1, b"k", b"state")]))]
    site.step.replacements = [Replacement(TopicPartition("replaced", 0), 0, True, (batch([(1, b"k", b"new")]),))]
    site.step.reshapes = [PartitionChange("parted", 3, 10)]
    site.at = {TopicPartition("parted", 0): ReaderPosition(4, ""), T: ReaderPosition(0, "")}
    assert site.commit() == 1
    assert [v for t in ("changelog", "replaced") for *_, v in read_all(site.log, TopicPartition(t, 0))] == [
        b"state",
        b"new",
    ]
    assert site.log.partition_counts(["parted"]) == {"parted": 3}
    parted = [TopicPartition("parted", p) for p in range(4)]
    assert site.log.stable_positions("app", parted) == {}, "positions of the old partitions mean nothing in the new"
    site.changelog = []
    site.at = {tp: ReaderPosition(10, "") for tp in parted}
    assert site.commit() == 2
    positions = site.log.stable_positions("app", parted)
    assert {tp: p.offset for tp, p in positions.items()} == dict.fromkeys(parted[:3], 10), (
        "the fourth is of a task that is gone"
    )
    assert len(read_all(site.log, TopicPartition("replaced", 0))) == 1


def test_a_query_of_which_something_cannot_be_cut_is_left_out() -> None:
    site, error = Site(), ValueError("a row that cannot be encoded")
    site.failing = {"a": error}
    site.collector.add(T, batch([(1, b"k", b"of a")]), "a")
    site.collector.add(T, batch([(1, b"k", b"of b")]), "b")
    assert site.commit() == 1
    assert site.refused == [(frozenset({"a"}), error)]
    assert [v for *_, v in read_all(site.log, T)] == [b"of b"]


def test_a_query_whose_state_cannot_be_encoded_is_left_out_and_the_others_state_is_kept() -> None:
    site = Site()
    for query, value in (("Q", object()), ("R", 1)):
        task = site.state.open_task(f"{query}/0_0", 0, [table(f"{query}-T")])
        put(site.state, task, f"{query}-T", {("k",): (value,)})
    assert site.commit() == 1
    ((queries, error),) = site.refused
    assert (queries, type(error)) == ({"Q"}, UnwritableState)
    with site.state.snapshot() as snapshot:
        assert [len(list(snapshot.scan(f"{query}-T"))) for query in ("Q", "R")] == [0, 1]


def test_a_state_that_cannot_be_made_durable_is_said_once_and_tried_again_a_little_later(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """Commits go on meanwhile: the log keeps their redo."""
    site = Site()
    site.physical.fails_to_flush = True
    site.step.look_at_state(StateError("disk"))
    with caplog.at_level(logging.INFO, "flowql"):
        site.step.run_once(RETRY_MS)
        assert said(caplog) == ["state.trouble"]
        for now_ms in (RETRY_MS + 1, 2 * RETRY_MS - 1, 2 * RETRY_MS):
            site.step.run_once(now_ms)
    assert (site.physical.flushes, said(caplog).count("state.trouble")) == (2, 1)
    assert "no space left for a flush" in site.step.state_trouble
    assert site.step.held_up == "", "commits get through"
    done = site.step.request()
    assert (site.step.run_once(2 * RETRY_MS + 1), done.done()) == (0, True)
    site.physical.fails_to_flush = False
    site.step.run_once(4 * RETRY_MS)
    assert site.step.state_trouble == ""
    flushes = site.physical.flushes
    site.step.run_once(6 * RETRY_MS)
    assert site.physical.flushes == flushes, "it works"


def test_a_state_that_cannot_be_made_durable_again_and_again_is_opened_anew() -> None:
    site, opened = Site(), list[int]()
    reopen = site.physical.reopen

    def noted(roll_forward: Any) -> None:
        opened.append(1)
        site.physical.fails_to_flush = False
        reopen(roll_forward)

    site.physical.reopen = noted
    site.physical.fails_to_flush = True
    site.step.look_at_state(StateError("disk"))
    site.run(2)
    assert (opened, site.step.state_trouble) == ([1], "")


def test_why_commits_do_not_get_through_is_said_when_it_changes(caplog: pytest.LogCaptureFixture) -> None:
    log = TroubledLog()
    site = Site(log, member=True)
    log.lost = True
    done = site.step.request()
    with caplog.at_level(logging.INFO, "flowql"):
        site.run()
        assert said(caplog) == ["commit.blocked"]
        assert site.step.is_busy
        site.run()
    assert (said(caplog), done.done(), site.step.is_busy) == (["commit.blocked", "commit.unblocked"], True, False)


def test_when_there_will_be_no_commit_all_that_wait_for_one_are_told() -> None:
    log = TroubledLog()
    site = Site(log, member=True)
    log.lost = True
    cut = site.step.request()
    site.run()
    waiting = site.step.request()
    site.step.fail(ValueError("a mistake"))
    for done in (cut, waiting):
        assert isinstance(done.exception(0), RuntimeFailure)
        assert "there are no more commits: a mistake" in str(done.exception(0))


def test_a_member_that_starts_over_drops_what_it_has_not_committed() -> None:
    site = member()
    site.collector.add(T, batch([(1, b"k", b"lost")]), "a")
    site.step.latency_samples.append(("a", 0, 1))
    site.step.dirty = True
    site.step.lose("given up")
    site.start_over()
    assert (site.step.idle, site.collector.size_bytes) == (True, 0)
    site.commit()
    assert (values(site, T), sum(site.metrics.query("a").latency.counts)) == ([], 0)


def test_a_member_finds_out_once_whether_its_last_transaction_was_committed() -> None:
    """While brokers are away it asks again; what they have is applied, and the request is answered."""
    log = TroubledLog()
    site = member(log)
    asked, away, last = list[int](), [True], log.last_sequence

    def last_sequence(transactional_id: str) -> int:
        asked.append(1)
        if away[0]:
            raise LogUnavailable("brokers are away")
        return last(transactional_id)

    site.collector.add(T, batch([(1, b"k", b"v")]), "a")
    log.silent = True
    done = site.step.request()
    site.run()
    log.last_sequence = last_sequence
    site.step.lose("given up")
    for _ in range(2):
        assert site.step.run_once(0) == RETRY_MS
        assert ("brokers are away" in site.step.blocked, done.done()) == (True, False)
    away[0] = False
    asked.clear()
    for _ in range(3):
        assert site.step.run_once(0) == RETRY_MS, "tasks still run"
    assert (done.result(0), len(asked)) == (1, 1)
    site.start_over()
    assert (site.step.idle, site.step.blocked, len(asked)) == (True, "", 1)
    assert site.commit() == 2
    assert values(site, T) == [2]


def test_a_producer_that_is_of_no_more_use_is_closed() -> None:
    closed = list[str]()

    class Counting(TroubledLog):
        def producer(self, transactional_id: str) -> Any:
            made = super().producer(transactional_id)
            close = made.close

            def noted() -> None:
                closed.append(transactional_id)
                close()

            made.close = noted
            return made

    log = Counting()
    site = Site(log)
    log.silent = True
    site.commit()
    assert closed == ["app"]
    site.commit()
    assert closed == ["app"], "the new one is good"
    site.step.close()
    assert closed == ["app", "app"]
    assert isinstance(site.step, CommitStep)
