"""What a commit leaves out when the log refuses it, and what of the epoch is committed all the same (rule R1)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest

from flowql.compiler.plan.schema import Field, Schema
from flowql.compiler.plan.types import STRING
from flowql.runtime.commit.coordinator import RETRY_MS
from flowql.runtime.commit.positions import ReaderPosition
from flowql.runtime.errors import LogDenied, LogError, LogFull, RecordRefused, StateError, TopicMissing
from flowql.runtime.log.base import TopicPartition
from flowql.runtime.log.memory import MemoryLog
from flowql.runtime.log.transaction import Transaction
from flowql.runtime.state.changelog import changelog_topic
from tests.runtime.commit.test_coordinator import Site
from tests.runtime.log.records import batch, read_all
from tests.runtime.state.support import put, table

T, U, IN, OTHER = (TopicPartition(topic, 0) for topic in ("t", "u", "in", "other"))
LIMIT = 1_000  # the log takes no larger record


class Refusing(MemoryLog):
    """Fails the next commits, in order."""

    def __init__(self) -> None:
        super().__init__()
        self.errors: list[Exception] = []
        for topic in ("u", "in", "other"):
            self.create_topic(topic, 1)

    def commit(self, transactional_id: str, epoch: int, transaction: Transaction) -> int:
        if self.errors:
            raise self.errors.pop(0)
        return super().commit(transactional_id, epoch, transaction)

    def record_bytes_max(self, topic: str) -> int | None:
        return None if topic == "u" else LIMIT


def refusing(error: LogError, tp: TopicPartition) -> tuple[Site, Refusing]:
    log = Refusing()
    error.partition = tuple(tp)
    log.errors.append(error)
    return Site(log), log


def add(site: Site, query: str, tp: TopicPartition, *sizes: int) -> None:
    """Records of these sizes, with the sample of their latency."""
    site.collector.add(tp, batch([(1, b"k", b"x" * (size - 1)) for size in sizes]), query)
    site.step.latency_samples.append((query, 0, len(sizes)))


def values(site: Site, tp: TopicPartition) -> list[int]:
    return [len(value) + 1 for _, _, _, value in read_all(site.log, tp)]


def measured(site: Site) -> dict[str, bool]:
    """Whether latency of a query was measured."""
    return {query: sum(site.metrics.query(query).latency.counts) > 0 for query in ("a", "b", "c")}


@pytest.mark.parametrize(
    ("error", "tp", "withdrawn"),
    [
        (RecordRefused("too large"), T, {"a"}),  # of several writers the one of the largest record
        (RecordRefused("too large"), U, {"c"}),
        (LogDenied("may not be written"), T, {"a", "b"}),
        (TopicMissing("is gone"), T, {"a", "b"}),
    ],
)
def test_queries_that_wrote_what_is_refused_leave_the_epoch_and_the_others_are_committed(
    error: LogError, tp: TopicPartition, withdrawn: set[str]
) -> None:
    site, _ = refusing(error, tp)
    for query, to, sizes in (("a", T, (20, 900)), ("b", T, (30,)), ("c", U, (40,)), ("", OTHER, (50,))):
        add(site, query, to, *sizes)
    site.at = {IN: ReaderPosition(7, ""), OTHER: ReaderPosition(3, "")}
    site.back_to = {IN: 2, T: 9}
    assert site.commit() == 1
    assert site.refused == [(frozenset(withdrawn), error)]
    wanted = [n for query, n in (("a", 20), ("a", 900), ("b", 30)) if query not in withdrawn]
    assert values(site, T) == wanted
    assert values(site, U) == ([] if "c" in withdrawn else [40])
    assert values(site, OTHER) == [50], "what the instance itself writes is never withdrawn"
    assert measured(site) == {query: query not in withdrawn for query in ("a", "b", "c")}
    positions = {tp: p.offset for tp, p in site.log.stable_positions("app", [IN, OTHER, T]).items()}
    assert positions == {IN: 2, OTHER: 3, T: 9}, "never further than a query that begins again"


def test_what_a_withdrawn_query_has_published_since_the_cut_is_dropped_too() -> None:
    site, log = refusing(LogDenied("may not be written"), T)
    log.errors.insert(0, LogFull("no space left"))
    add(site, "a", T, 20)
    add(site, "b", U, 40)
    done = site.step.request()
    site.run()
    add(site, "a", U, 60)
    add(site, "b", U, 70)
    site.run(2)
    assert done.done()
    assert site.commit() == 2
    assert (values(site, T), values(site, U)) == ([], [40, 70])
    assert (measured(site)["a"], measured(site)["b"]) == (False, True)


@pytest.mark.parametrize(
    ("sizes", "tp", "limit"),
    [((10, LIMIT), T, None), ((10, LIMIT + 1), T, LIMIT), ((10, 5 * LIMIT), U, None)],
)
def test_a_record_counts_as_too_large_only_if_it_is(
    sizes: Sequence[int], tp: TopicPartition, limit: int | None
) -> None:
    """Brokers refuse many small records that come in one batch, too: then no record can be left out for it."""
    error = RecordRefused("too large")
    site, _ = refusing(error, tp)
    add(site, "a", tp, *sizes)
    site.commit()
    assert error.bytes_max == limit


@pytest.mark.parametrize(
    ("key", "value", "limit"),
    [(LIMIT - 100, 1, None), (LIMIT + 100, 1, LIMIT), (1, LIMIT + 100, LIMIT), (600, 600, LIMIT)],
)
def test_a_row_of_state_that_its_changelog_refuses_is_measured_and_its_query_withdrawn(
    key: int, value: int, limit: int | None
) -> None:
    error, tp = RecordRefused("too large"), TopicPartition(changelog_topic("app", "Q-T"), 0)
    site, _ = refusing(error, tp)
    for query, sizes in (("Q", (key, value)), ("R", (1, 1))):
        spec = table(f"{query}-T", value=Schema((Field("V", STRING),)))
        task = site.state.open_task(f"{query}/0_0", 0, [spec])
        put(site.state, task, spec.name, {("k" * sizes[0],): ("v" * sizes[1],)})
    assert site.commit() == 1
    assert (site.refused[0][0], error.bytes_max) == (frozenset({"Q"}), limit)
    with site.state.snapshot() as snapshot:
        assert [len(list(snapshot.scan(f"{query}-T"))) for query in ("Q", "R")] == [0, 1]


def test_positions_of_a_topic_that_may_not_be_read_any_more_stay_where_they_are() -> None:
    site, _ = refusing(LogDenied("may not be read"), IN)
    site.readers = {"in": frozenset({"a"})}
    site.at = {IN: ReaderPosition(7, ""), OTHER: ReaderPosition(3, "")}
    site.back_to = {IN: 2}
    add(site, "a", T, 20)
    add(site, "b", T, 30)
    assert site.commit() == 1
    assert site.refused[0][0] == {"a"}
    assert {tp: p.offset for tp, p in site.log.stable_positions("app", [IN, OTHER]).items()} == {OTHER: 3}
    assert values(site, T) == [30]


def test_positions_of_a_topic_that_is_gone_are_left_out_of_the_next_attempt() -> None:
    log = Refusing()
    site = Site(log)
    site.at = {TopicPartition("gone", 0): ReaderPosition(7, ""), OTHER: ReaderPosition(3, "")}
    done = site.step.request()
    site.run()
    assert "no topic gone" in site.step.held_up
    site.run()
    assert done.result(0) == 1
    assert (site.refused, site.step.held_up) == ([], "")
    assert {tp: p.offset for tp, p in log.stable_positions("app", [OTHER]).items()} == {OTHER: 3}


def test_a_commit_whose_state_could_not_be_written_at_first_ends_as_any_other() -> None:
    site = Site()
    site.physical.fails = True
    done = site.step.request()
    assert site.step.run_once(0) == RETRY_MS
    assert ("Input/output error" in site.step.held_up, site.step.idle, done.done()) == (True, False, False)
    assert site.log.last_sequence("app") == 1, "the log has it: nothing else may be committed first"
    site.physical.fails = False
    assert site.step.run_once(RETRY_MS) == 0
    assert (site.step.held_up, site.step.idle, done.result(0), site.state.applied_sequence) == ("", True, 1, 1)


def test_a_state_that_takes_no_more_writes_is_opened_again_and_takes_the_commit_in_the_same_step() -> None:
    site, opened = Site(), list[int]()
    reopen = site.physical.reopen

    def mended(roll_forward: Any) -> None:
        opened.append(1)
        site.physical.fails = False
        reopen(roll_forward)

    site.physical.reopen = mended
    site.physical.fails = True
    done = site.step.request()
    site.run(2)
    assert (opened, done.done()) == ([], False), "the first failures may be over by themselves"
    site.run()
    assert (opened, done.result(0)) == ([1], 1)


def test_a_member_that_starts_over_goes_on_at_once_unless_its_state_cannot_be_opened() -> None:
    site, fails = Site(member=True), [True]
    reopen = site.physical.reopen

    def broken(roll_forward: Any) -> None:
        if fails[0]:
            raise StateError("Input/output error at opening")
        reopen(roll_forward)

    site.physical.reopen = broken
    site.step.lose("given up")
    assert site.step.run_once(0) == RETRY_MS, "tasks still run"
    site.step.start_over()
    assert site.step.run_once(0) == 0
    site.step._reopening.is_behind = True
    site.step.lose("the state takes no more writes")
    done = site.step.start_over()
    assert site.step.run_once(0) == RETRY_MS
    assert ("at opening" in site.step.blocked, done.done()) == (True, False)
    fails[0] = False
    assert site.step.run_once(RETRY_MS) == 0
    assert (site.step.blocked, done.done()) == ("", True)
