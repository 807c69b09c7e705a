"""The polling step alone: where the shared head of a partition starts, how ends are learned, and what cannot be read."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from flowql.runtime.app import polling
from flowql.runtime.app.polling import END_UNKNOWN, PollingStep
from flowql.runtime.app.troubles import STALLED_MS
from flowql.runtime.client.events import ClientFailed
from flowql.runtime.errors import LogCorrupt, LogDenied, LogError, LogUnavailable, TopicMissing
from flowql.runtime.log.base import TopicPartition
from flowql.runtime.log.memory import MemoryLog
from flowql.runtime.task.arrivals import Arrivals
from flowql.runtime.task.input_buffer import LogInput
from tests.runtime.app.harness import InstanceHarness
from tests.runtime.app.test_isolation import COPY, SOURCE, rows

S = TopicPartition("s", 0)
T = TopicPartition("t", 0)


class Ends(MemoryLog):
    """Fails when it is asked for ends, with `error`."""

    error: LogError | None = None

    def end_offsets(self, tps: Sequence[TopicPartition]) -> dict[TopicPartition, int]:
        if self.error is not None:
            raise self.error
        return super().end_offsets(tps)


class Site:
    """The step of an instance without queries, over two topics with 100 and 7 records. unreadable: what it reports."""

    def __init__(self) -> None:
        self.log = Ends()
        self.log.create_topic("t", 1)
        self.world = InstanceHarness(SOURCE.format(n=1), log=self.log)
        self.log.create_topic("s", 1)
        self.world.send("s", rows(0, 100))
        self.world.send("t", rows(0, 7))
        self.unreadable: list[tuple[TopicPartition, str]] = []
        self.step: PollingStep = self.world.instance.polling
        self.step._on_unreadable = lambda tp, error: self.unreadable.append((tp, f"{type(error).__name__}: {error}"))

    def add(self, *positions: int, tp: TopicPartition = S) -> list[LogInput]:
        inputs = [LogInput(f"scan {n}", tp, position) for n, position in enumerate(positions)]
        self.step.add_inputs(inputs)
        return inputs

    def round(self, now_ms: int = 0) -> None:
        for step in (self.world.instance.main.loop, self.world.instance.restore.loop, self.step):
            step.run_once(now_ms)


@pytest.fixture
def site() -> Site:
    return Site()


def test_the_head_starts_at_the_lowest_of_those_that_are_near_the_front(
    site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(polling, "HEAD_GAP", 10)
    far, beyond, near, front = inputs = site.add(0, 79, 80, 90)
    assert [i.attached for i in inputs] == [False, False, True, True]
    assert site.step._heads == {S: 80}
    site.round()
    site.round()
    assert ([i.next_fetch for i in (near, front)], front.rows, near.rows) == ([100, 100], 10, 20)
    for _ in range(5):
        site.round()
    assert [i.attached for i in inputs] == [True] * 4
    assert [(far.next_fetch, far.rows), (beyond.next_fetch, beyond.rows)] == [(100, 100), (100, 21)]


def test_the_head_moves_on_when_those_that_needed_it_are_gone(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(polling, "HEAD_GAP", 10)
    far, near, front = site.add(0, 80, 90)
    seeks = list[tuple[TopicPartition, int]]()
    monkeypatch.setattr(site.step._main, "seek", lambda tp, offset: seeks.append((tp, offset)))
    site.step.remove_inputs([near])
    assert (site.step._heads, seeks) == ({S: 90}, [(S, 90)])
    site.step.remove_inputs([front])
    assert (site.step._heads, seeks, far.attached) == ({S: 0}, [(S, 90), (S, 0)], True)
    site.step.remove_inputs([far])
    assert (site.step._heads, site.step._inputs, site.step._arrivals) == ({}, {}, {})


def test_the_consumer_is_told_of_partitions_that_come_and_go_alone(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    told = list[dict[TopicPartition, int]]()
    monkeypatch.setattr(site.step._main, "assign", lambda heads: told.append(dict(heads)))
    (first,) = site.add(5)
    (second,) = site.add(50)
    site.add(3, tp=T)
    site.step.remove_inputs([second])
    site.step.remove_inputs([first])
    assert told == [{S: 5}, {S: 5, T: 3}, {T: 3}]


def test_memory_is_divided_among_the_inputs_with_a_least_share_for_each(site: Site) -> None:
    site.step._input_bytes_max = 8 << 20
    for more, share in ((1, 8 << 20), (1, 4 << 20), (6, 1 << 20), (12, 1 << 20)):
        inputs = site.add(*[0] * more)
        assert site.step._bytes_per_input == share
    inputs[0].size_bytes = 1 << 20
    assert (site.step._full(inputs[0]), site.step._full(inputs[1])) == (True, False)
    inputs[1].rows = polling.ROWS_HIGH
    assert site.step._full(inputs[1])


def test_a_new_input_does_not_look_idle_before_its_end_is_known(site: Site) -> None:
    site.log.error = LogUnavailable("no answer")
    (first,) = site.add(100)
    assert (first.end_offset, first.idle) == (END_UNKNOWN, False)
    assert [t.error for t in site.step.troubles.current(0)] == ["LogUnavailable: no answer"]
    site.log.error = None
    site.step.refresh_ends()
    assert (first.end_offset, first.idle) == (100, True)
    assert site.step.troubles.current(0) == []


def test_what_may_not_be_read_is_reported_and_the_rest_is_asked_for_again(site: Site) -> None:
    first, (other,) = site.add(0)[0], site.add(0, tp=T)
    site.log.error = LogDenied("not allowed")
    site.log.error.partition = T
    site.step.refresh_ends()
    assert site.unreadable == [(T, "LogDenied: not allowed")]
    assert (first.end_offset, other.end_offset) == (100, 7), "as they were known"


def test_nothing_is_done_for_a_partition_that_is_read_to_an_end_that_has_not_moved(
    site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With many partitions most have nothing new when their ends are asked for."""
    site.add(100)
    (other,) = site.add(0, tp=T)
    site.step.refresh_ends()
    reached: list[int] = []
    monkeypatch.setattr(Arrivals, "reach", lambda _arrivals, end, _now_ms: reached.append(end))
    site.step.refresh_ends()
    assert reached == [7], "of the other partition records are to be fetched"
    (new,) = site.add(100)
    assert (new.end_offset, reached) == (100, [7, 100]), "the end of a new input is not known yet"
    reached.clear()
    site.step.refresh_ends()
    assert reached == [7]
    site.world.send("s", rows(0, 3))
    site.step.refresh_ends()
    assert reached == [7, 103, 7]
    (new,) = site.add(100)
    assert (new.end_offset, other.end_offset) == (103, 7)


def test_a_partition_that_is_gone_is_reported_and_others_learn_their_ends(site: Site) -> None:
    (gone,), (other,) = site.add(0), site.add(0, tp=T)
    site.log.delete_topic("s")
    site.world.send("t", rows(7, 2))
    site.step.refresh_ends()
    assert site.unreadable == [(S, "TopicMissing: there is no topic partition s-0")]
    assert (gone.end_offset, other.end_offset) == (100, 9)


def test_an_error_that_does_not_pass_ends_the_thread(site: Site) -> None:
    site.add(0)
    site.log.error = LogCorrupt("damaged")
    with pytest.raises(LogCorrupt):
        site.step.refresh_ends()


@pytest.mark.parametrize(
    ("error", "partition", "expected"),
    [
        (LogCorrupt("damaged"), S, [(S, "LogCorrupt: damaged")]),
        (TopicMissing("gone"), None, []),
        (LogUnavailable("no answer"), S, []),
        (ValueError("a bug"), S, []),
    ],
)
def test_what_the_consumers_report_stops_readers_only_where_it_does_not_pass(
    site: Site, error: Exception, partition: TopicPartition | None, expected: list[tuple[TopicPartition, str]]
) -> None:
    site.add(0)
    if isinstance(error, LogError):
        error.partition = partition
    site.world.instance.main._replies.append(ClientFailed(error))
    site.step._main_events()
    assert site.unreadable == expected
    assert [t.error for t in site.step.troubles.current(0)] == [f"{type(error).__name__}: {error}"]


def test_a_fetch_that_brings_nothing_is_begun_anew_and_said(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    (waits,) = site.add(40)
    seeks = list[tuple[TopicPartition, int]]()
    monkeypatch.setattr(site.step._main, "seek", lambda tp, offset: seeks.append((tp, offset)))
    for now_ms in (0, STALLED_MS - 1, STALLED_MS):
        site.step._now_ms = now_ms
        site.step.refresh_ends()
        assert seeks == ([(S, 40)] if now_ms == STALLED_MS else [])
    (said,) = site.step.troubles.current(STALLED_MS)
    assert said.partition == S
    assert "s-0: nothing arrives from offset 40 on, though the log ends at 100; it is read again" in said.error
    arrived = site.log.reader(S, 40).read(5, 1 << 20)
    assert arrived is not None
    waits.add(arrived)
    for now_ms in (2 * STALLED_MS, 3 * STALLED_MS):
        site.step._now_ms = now_ms
        site.step.refresh_ends()
    assert len(seeks) == 1, "it has rows, so that nothing has to arrive"


def test_a_query_that_is_set_back_reads_on_where_it_is(site: Site) -> None:
    world = InstanceHarness(SOURCE.format(n=2) + COPY)
    world.send("s", rows(0, 20))
    world.settle()
    step = world.instance.polling
    inputs = [i for task in world.instance.queries["CSAS_COPY"].built.tasks for i in task.logs.values()]
    step.set_back("CSAS_COPY", "LogDenied: not allowed", inputs[:1])
    step.set_back("CSAS_COPY", "LogDenied: not allowed", inputs)
    assert ([i.attached for i in inputs], step._inputs) == ([False, False], {})
    assert list(map(id, step._unread["CSAS_COPY"])) == list(map(id, inputs))
    world.send("s", rows(20, 20))
    world.clock.advance(60_000)  # type: ignore[attr-defined]
    world.settle()
    assert step._unread == {}
    assert sorted(v["W"] for v in world.values("COPY")) == list(range(1, 41))


def test_a_query_that_is_set_back_does_not_come_back_with_inputs_that_have_gone(site: Site) -> None:
    """Its tasks have left meanwhile: what reads for them would be read for ever."""
    first, second, third = site.add(0, 0, 0)
    site.step.set_back("Q", "not allowed", [first, second])
    site.step.set_back("OTHER", "not allowed", [third])
    assert S not in site.step._inputs
    site.step.remove_inputs([second, third])
    assert site.step._unread == {"Q": [first]}
    site.step.remove_inputs([first])
    assert site.step._unread == {}
