"""Members that died inside of micro-batches: one death is tried alone, the second one holds the query."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast

import pytest

from flowql.runtime.app import trials
from flowql.runtime.app.freeze import Frozen, note_death, read_frozen, write_frozen
from flowql.runtime.app.hung import LOOK_MS, HungQueries
from flowql.runtime.app.hung_topic import HungReader
from flowql.runtime.clock import VirtualClock
from flowql.runtime.config import InstanceConfig
from flowql.runtime.log.memory import MemoryLog
from flowql.runtime.state.layout import TaskRecord
from flowql.runtime.state.values import encode_metadata

WEIGHTS = {"A": 1, "B": 16, "C": 1}


class Member:
    """A member with the tasks of three queries of one topic. waiting: what it holds for a trial. held: by query, why."""

    def __init__(self, log: MemoryLog, name: str, folder: Any, *, shared: bool = True) -> None:
        self.log, self.admin = log, SimpleNamespace(end_offset=lambda _tp: 9)
        self.clock, self.name, self.data_dir = VirtualClock(1_000_000), name, folder / name
        self.data_dir.mkdir(exist_ok=True)
        self.config = InstanceConfig("app", shared=shared, changelogs=True, process_id=name, data_dir=self.data_dir)
        plans = {
            q: SimpleNamespace(id=q, definition=f"text of {q}", generation=1, weight=w) for q, w in WEIGHTS.items()
        }
        self.running = SimpleNamespace(queries=tuple(plans.values()), by_id=plans)
        tasks = {q: SimpleNamespace(built=SimpleNamespace(tasks=[SimpleNamespace(id=f"{q}/0_0")])) for q in WEIGHTS}
        self.queries, self.at = tasks, dict.fromkeys(WEIGHTS, 0)
        self.held: dict[str, str] = {}
        self.waiting: list[str] = []
        self.alone: list[str] = []
        self.manager = SimpleNamespace(run_alone=lambda queries: setattr(self, "alone", sorted(queries)))
        self.query_states = SimpleNamespace(set_hung=self._hold, set_awaiting_trial=self._wait)
        self.state = SimpleNamespace(local_record=self._record)
        self.hung = HungQueries(cast(Any, self))

    def _hold(self, held: dict[str, str]) -> None:
        self.held = held

    def _wait(self, waiting: list[str]) -> None:
        self.waiting = sorted(waiting)

    def _record(self, task: str) -> TaskRecord:
        return TaskRecord(0, (), encode_metadata({"positions": {"T": self.at[task[0]]}}))

    def died(self, *queries: str, at: int = 5, pid: int = 1) -> None:
        """What its watchdog process has written down; the next start is another member object."""
        for q in queries:
            where = (q, q, f"text of {q}", f"{q}/0_0", {"T-0": at})
            write_frozen(self.data_dir, Frozen(1, pid, "it died", "processing-0", *where, "", "", died=True))

    def look(self, after_ms: int = 0) -> None:
        self.clock.advance(after_ms)
        self.hung.look(self.clock.timer_ms())


@pytest.fixture
def log() -> MemoryLog:
    return MemoryLog()


def deaths(log: MemoryLog) -> dict[str, int]:
    reader = HungReader(log, "app")
    reader.read_to_end()
    return {f"{one.member}: {one.query}": one.deaths for one in reader.hung}


def test_suspected_queries_are_tried_one_at_a_time_the_most_urgent_first(log: MemoryLog, tmp_path: Any) -> None:
    Member(log, "first", tmp_path).died("A", "B")
    Member(log, "first", tmp_path).hung.learn()
    second = Member(log, "second", tmp_path)
    second.hung.learn()
    assert (second.waiting, second.held) == (["A", "B"], {}), "the first one may still be told of another death"
    second.look(trials.GRACE_MS)
    assert second.waiting == ["A"]
    second.at.update(A=100, B=8)
    second.look(LOOK_MS)
    assert second.waiting == ["A"], "the last record before the end is still to come"
    second.at["B"] = 9
    second.look(LOOK_MS)
    assert (second.waiting, deaths(log)) == ([], {"first: A": 1})
    second.look(LOOK_MS)
    assert deaths(log) == {}


def test_a_trial_that_does_not_get_on_keeps_the_next_one_for_a_while(log: MemoryLog, tmp_path: Any) -> None:
    Member(log, "first", tmp_path).died("A", "B", "C")
    Member(log, "first", tmp_path).hung.learn()
    second = Member(log, "second", tmp_path)
    second.hung.learn()
    second.look(trials.GRACE_MS)
    second.look(trials.TURN_MS - 1)
    assert second.waiting == ["A", "C"]
    second.look(1)
    assert second.waiting == ["C"]


@pytest.mark.parametrize("names", [("first", "second"), ("first", "first")])
def test_the_second_death_holds_the_query_on_every_member(
    log: MemoryLog, tmp_path: Any, names: tuple[str, str]
) -> None:
    for pid, name in enumerate(names):
        Member(log, name, tmp_path).died("A", *(("B",) if pid == 0 else ()), at=5 + pid, pid=pid)
        Member(log, name, tmp_path).hung.learn()
    third = Member(log, "third", tmp_path)
    third.hung.learn()
    assert list(third.held) == ["A"]
    assert f"the last one on member {names[1]}" in third.held["A"]
    assert "T-0 offset 6" in third.held["A"]
    assert third.waiting == ["B"]
    assert third.hung.release(["A"]) == ["A"]
    third.look(LOOK_MS)
    assert third.held == {}


def test_one_death_holds_nothing_once_the_place_is_passed(log: MemoryLog, tmp_path: Any) -> None:
    """Else two members that are killed with days between them would hold a query."""
    Member(log, "first", tmp_path).died("A")
    second = Member(log, "first", tmp_path)
    second.hung.learn()
    second.at["A"] = 9
    second.look(trials.GRACE_MS)
    second.look(LOOK_MS)
    assert deaths(log) == {}
    second.died("A", at=9)
    third = Member(log, "first", tmp_path)
    third.hung.learn()
    assert (third.held, deaths(log)) == ({}, {"first: A": 1})


def test_an_instance_alone_tries_at_once(log: MemoryLog, tmp_path: Any) -> None:
    Member(log, "", tmp_path, shared=False).died("A", "B")
    again = Member(log, "", tmp_path, shared=False)
    again.hung.learn()
    assert (again.waiting, again.alone) == (["A"], ["A", "B"])


def test_another_definition_or_a_task_of_another_member_waits_for_nothing(log: MemoryLog, tmp_path: Any) -> None:
    Member(log, "first", tmp_path).died("A", "B", "C")
    Member(log, "first", tmp_path).hung.learn()
    second = Member(log, "second", tmp_path)
    second.running.by_id["A"].definition = "another"
    second.queries["B"].built.tasks = []
    second.hung.learn()
    assert second.waiting == ["C"]


def test_a_directory_without_a_beat_file_tells_of_no_death(tmp_path: Any) -> None:
    assert note_death(tmp_path) == ""
    assert read_frozen(tmp_path) == []
