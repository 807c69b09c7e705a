"""Standby copies over a log whose partitions end with markers, and what the restoration step promises of them."""

from __future__ import annotations

from concurrent.futures import Future
from dataclasses import replace

import pytest

from flowql.runtime.app.standby import LOOK_MS, CopyPosition, StandbyCopies
from flowql.runtime.client.consumer import ConsumerFacade
from flowql.runtime.errors import LogUnavailable
from flowql.runtime.state.changelog import read_tasks
from flowql.runtime.state.manager import StateManager
from flowql.runtime.state.runs.reader import RunsReader
from tests.runtime.restoration.test_markers import Brokers
from tests.runtime.restoration.test_restoration import COUNTS, Life
from tests.runtime.state.support import manager_on


class Copies:
    """Copies of all tasks of a query, in another state. errors: what the step has told."""

    def __init__(self) -> None:
        self.log, self.errors = Brokers(), list[str]()
        self.life = Life(self.log, COUNTS)
        self.life.feed(0, 50)
        self.life.settle()
        self.log.marked = True
        self.state: StateManager = manager_on()
        self.client = ConsumerFacade(self.log, "standby", 1 << 20)
        self.standbys = StandbyCopies(
            self.client,
            self.log.admin(),
            self.state,
            "flowql",
            self.life.clock,
            lambda _, e: self.errors.append(str(e)),
        )
        self.records = {t: w.record for t, w in read_tasks(self.log, "flowql").items() if w.record.stores}
        self.state.rebuild(self.records)
        known = self.life.instance.state.committed_stores()
        for task, record in self.records.items():
            self.standbys.follow(task, record, [known[s].spec for s in record.stores if s in known])

    def rounds(self, number: int) -> None:
        for _ in range(number):
            self.standbys.serve_removals()
            self.standbys.run_once(self.life.clock.timer_ms())
            self.client.loop.run_once(self.life.clock.timer_ms())
            self.life.clock.advance(50)

    def lags(self) -> set[int | None]:
        return {self.standbys.lag(task) for task in self.records}


def test_a_marker_at_the_end_is_no_lag() -> None:
    copies = Copies()
    assert copies.lags() == {None}, "before the first look"
    copies.rounds(300)
    assert copies.lags() == {0}
    for task, record in copies.records.items():
        copies.standbys.stop_following(task)
        copies.rounds(1)
        assert copies.state.positions_of(record.stores, record.partition)
        copies.state.end_restore(task)
    with copies.state.snapshot() as copied, copies.life.instance.state.snapshot() as owned:
        for store in {s for record in copies.records.values() for s in record.stores}:
            assert dict(copied.scan(store)) == dict(owned.scan(store))


def test_brokers_that_are_away_are_asked_again() -> None:
    copies = Copies()
    describe, ends = copies.log.describe_topics, copies.log.ask_end_offsets
    away: Future[object] = Future()
    away.set_exception(LogUnavailable("brokers are away"))
    copies.log.describe_topics = copies.log.ask_end_offsets = lambda _: away  # type: ignore[method-assign,assignment,return-value]
    copies.rounds(30)
    assert "brokers are away" in copies.errors
    assert copies.lags() == {None}
    copies.log.describe_topics, copies.log.ask_end_offsets = describe, ends  # type: ignore[method-assign]
    copies.rounds(600)
    assert copies.lags() == {0}


def test_a_chunk_on_its_way_to_a_copy_that_ends_is_dropped() -> None:
    copies = Copies()
    while copies.standbys._chunk is None:
        copies.rounds(1)
    copy, _, _ = copies.standbys._chunk
    stopped, before = copies.standbys.stop_following(copy.task), copies.standbys.records
    copies.standbys.serve_removals()
    assert stopped.result()
    assert copies.standbys._chunk is None
    assert copies.standbys.records == before


def test_a_query_sees_copies_that_have_had_all_rows_with_their_positions() -> None:
    copies = Copies()
    stores = {(t, s) for t, record in copies.records.items() for s in record.stores}
    while copies.lags() != {0}:
        snapshot, positions = copies.standbys.snapshot()
        snapshot.close()
        assert all(p.behind == 0 for p in positions.values()), "those that are read from their beginning are left out"
        copies.rounds(1)
    snapshot, positions = copies.standbys.snapshot()
    with snapshot, copies.life.instance.state.snapshot() as owned:
        assert positions.keys() == stores
        for store in {s for _, s in stores}:
            assert dict(snapshot.scan(store)) == dict(owned.scan(store))
    assert all(p.behind == 0 and p.age_ms <= LOOK_MS + 100 for p in positions.values())
    copies.life.feed(50, 90)
    copies.life.settle()
    seen = list[CopyPosition]()
    for _ in range(60):
        copies.rounds(1)
        snapshot, positions = copies.standbys.snapshot()
        snapshot.close()
        assert positions.keys() == stores
        seen += positions.values()
    behind = [p for p in seen if p.behind]
    assert behind
    assert all(p.age_ms > 0 for p in behind), "it had all rows some time ago"
    assert [p.behind for p in positions.values()] == [0] * len(stores)
    assert str(replace(behind[0], offset=1_200, behind=3, age_ms=40)) == (
        "at changelog offset 1,200, at most 3 records and 40 ms behind"
    )


@pytest.mark.parametrize("how", ["ends", "begins anew"])
def test_a_query_does_not_see_a_copy_that_ends_as_its_rows_are_taken(how: str) -> None:
    """Its rows may be cleared by then, and would pass for those of its position."""
    copies = Copies()
    copies.rounds(300)
    (task, record), *others = copies.records.items()
    take = copies.state.checkpoint_snapshot

    def ended() -> tuple[RunsReader, dict[bytes, int]]:
        known = copies.state.committed_stores()
        copies.standbys.stop_following(task)
        copies.standbys.serve_removals()
        copies.state.rebuild({task: record})
        if how == "begins anew":
            copies.standbys.follow(task, record, [known[s].spec for s in record.stores])
        return take()

    copies.state.checkpoint_snapshot = ended  # type: ignore[method-assign]
    snapshot, positions = copies.standbys.snapshot()
    snapshot.close()
    assert {t for t, _ in positions} == {t for t, _ in others}
    copies.state.checkpoint_snapshot = take  # type: ignore[method-assign]
    copies.state._openings += 1
    snapshot, positions = copies.standbys.snapshot()
    snapshot.close()
    assert positions == {}, "rows may be lost"
