"""Order, restarts with backoff of one query alone, giving up, circles: with a launcher that is no Spark."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any

import pytest

from flowql.compiler.plan.topology import Plan
from flowql.runtime.errors import LogUnavailable
from flowql.runtime.spark.engine.streams import BACKOFF_MS_MAX, STARTING_MS_MAX, RunningQuery
from flowql.runtime.spark.engine.supervisor import TRIES_MAX, Pace, Supervisor
from flowql.runtime.spark.log_offsets import Offsets
from tests.runtime.spark.test_engine_order import plan_of

CHAIN = """
CREATE STREAM S (K STRING KEY, V INT) WITH (KAFKA_TOPIC='s', PARTITIONS=1, VALUE_FORMAT='JSON');
CREATE STREAM A AS SELECT * FROM S WHERE V > 0;
CREATE STREAM B AS SELECT * FROM A WHERE V > 1;
CREATE STREAM OTHER AS SELECT * FROM S WHERE V < 0;
"""
CIRCLE = """
CREATE STREAM S (K STRING KEY, V INT) WITH (KAFKA_TOPIC='s', PARTITIONS=1, VALUE_FORMAT='JSON');
CREATE STREAM A AS SELECT * FROM S WHERE V > 0;
CREATE STREAM B AS SELECT K, V - 1 AS V FROM A;
INSERT INTO A SELECT * FROM B WHERE V > 0;
"""


@dataclass
class FakeStream:
    isActive: bool = True
    error: Exception | None = None
    status: dict[str, Any] = field(
        default_factory=lambda: {"message": "Initializing sources", "isDataAvailable": False}
    )

    def exception(self) -> Exception | None:
        return self.error

    def stop(self) -> None:
        self.isActive = False

    def end(self, error: Exception | None = None) -> None:
        self.isActive, self.error = False, error


@dataclass
class FakeLauncher:
    calls: list[tuple[str, str]] = field(default_factory=list)
    streams: dict[str, FakeStream] = field(default_factory=dict)
    epochs: dict[str, int] = field(default_factory=dict)
    left: dict[str, int] = field(default_factory=dict)
    unread: set[str] = field(default_factory=set)
    fails: Callable[[str], bool] = lambda name: False
    log_error: LogUnavailable | None = None

    def stream(self, query: RunningQuery, pace: Pace) -> FakeStream:
        self._called(query, pace)
        return self.streams.setdefault(query.plan.id, FakeStream()) if pace == "continuous" else self._new(query)

    def batch(self, query: RunningQuery) -> None:
        self._called(query, "batch")

    def epoch(self, query: RunningQuery) -> int:
        if self.log_error is not None:
            raise self.log_error
        return self.epochs.get(query.plan.id, -1)

    def behind(self, query: RunningQuery) -> int:
        return self.left.pop(query.plan.id, 0)

    def ends(self, query: RunningQuery) -> Offsets:
        if self.log_error is not None:
            raise self.log_error
        return {query.plan.id: {"0": 1}}

    def lacks(self, query: RunningQuery, ends: Offsets) -> bool:
        assert ends == {query.plan.id: {"0": 1}}, "ends are those of the query that is asked about"
        return query.plan.id in self.unread

    def _called(self, query: RunningQuery, how: str) -> None:
        self.calls.append((query.plan.id, how))
        if self.fails(query.plan.id):
            raise ValueError("no luck")

    def _new(self, query: RunningQuery) -> FakeStream:
        self.streams[query.plan.id] = FakeStream()
        return self.streams[query.plan.id]


def made(sql: str, at_once: int | None = None) -> tuple[FakeLauncher, Supervisor, Plan]:
    plan, launcher = plan_of(sql), FakeLauncher()
    supervisor = Supervisor(launcher, at_once)
    supervisor.queries = {q.id: RunningQuery(q) for q in plan.queries}
    return launcher, supervisor, plan


def test_what_is_read_is_ready_before_it_is_read() -> None:
    launcher, supervisor, plan = made(CHAIN)
    supervisor.run_once_over(plan, batch=False)
    supervisor.run_once(0)
    assert launcher.calls == [("CSAS_A", "available now"), ("CSAS_OTHER", "available now")]
    launcher.streams["CSAS_A"].end()
    supervisor.run_once(1)
    assert len(launcher.calls) == 2  # the other of the same level goes on
    launcher.streams["CSAS_OTHER"].end()
    supervisor.run_once(2)
    assert launcher.calls[2:] == [("CSAS_B", "available now")]
    assert not supervisor.finished
    launcher.streams["CSAS_B"].end()
    supervisor.run_once(3)
    assert supervisor.finished


def test_of_streams_that_end_only_so_many_run_at_once() -> None:
    """Eighteen that started together on two cores failed: their Python processes answered too late."""
    launcher, supervisor, plan = made(CHAIN, at_once=1)
    supervisor.run_once_over(plan, batch=False)
    for now, name in enumerate(["CSAS_A", "CSAS_OTHER", "CSAS_B"]):
        supervisor.run_once(now)
        assert [called for called, _ in launcher.calls[now:]] == [name]
        launcher.streams[name].end()
    supervisor.run_once(3)
    assert supervisor.finished


def test_of_streams_that_do_not_end_only_so_many_start_at_once() -> None:
    """One is through with its start when it waits for rows, another when it has had the time that Spark gives a process; then all run."""
    launcher, supervisor, _ = made(CHAIN, at_once=1)
    supervisor.run_continuously()
    for now, expected in [(0, 1), (100, 1)]:
        supervisor.run_once(now)
        assert len(launcher.calls) == expected
    launcher.streams["CSAS_A"].status["message"] = "Waiting for data to arrive"
    for now, expected in [(200, 2), (200 + STARTING_MS_MAX - 1, 2), (200 + STARTING_MS_MAX, 3)]:
        supervisor.run_once(now)
        assert len(launcher.calls) == expected
    assert all(q.state == "running" for q in supervisor.queries.values())
    launcher.streams["CSAS_OTHER"].end(ValueError("no process"))
    supervisor.run_once(300 + STARTING_MS_MAX)
    supervisor.run_once(300 + STARTING_MS_MAX + BACKOFF_MS_MAX)
    assert launcher.calls[3:] == [("CSAS_OTHER", "continuous")], "one that failed starts again, alone"


def test_batches_run_in_the_same_order_and_again_when_asked_again() -> None:
    launcher, supervisor, plan = made(CHAIN)
    for _ in range(2):
        supervisor.run_once_over(plan, batch=True)
        for now in range(5):
            supervisor.run_once(now)
        assert supervisor.finished
    once = [("CSAS_A", "batch"), ("CSAS_OTHER", "batch"), ("CSAS_B", "batch")]
    assert launcher.calls == [*once, *once]


def test_a_failing_query_comes_back_alone_later_each_time() -> None:
    launcher, supervisor, _ = made(CHAIN)
    launcher.fails = lambda name: name == "CSAS_A"
    supervisor.run_continuously()
    tries = []
    for now in range(0, 200_000, 50):
        before = len(launcher.calls)
        supervisor.run_once(now)
        tries += [now for name, _ in launcher.calls[before:] if name == "CSAS_A"]
    gaps = [b - a for a, b in pairwise(tries)]
    assert gaps[:7] == [500, 1000, 2000, 4000, 8000, 16_000, BACKOFF_MS_MAX]
    assert set(gaps[6:]) == {BACKOFF_MS_MAX}
    failing, fine = supervisor.queries["CSAS_A"], supervisor.queries["CSAS_B"]
    assert (failing.state, failing.last_error, failing.errors) == ("failed", "no luck", len(tries))
    assert (fine.state, fine.errors) == ("running", 0)
    assert [c for c in launcher.calls if c[0] != "CSAS_A"] == [("CSAS_B", "continuous"), ("CSAS_OTHER", "continuous")]


def test_brokers_that_do_not_answer_end_no_supervisor() -> None:
    """Queries fail with their log, and the question how far their results are fails as well: it ended the thread that restarts them."""
    launcher, supervisor, _ = made(CHAIN)
    supervisor.run_continuously()
    supervisor.run_once(0)
    launcher.log_error = LogUnavailable("brokers do not answer")
    launcher.streams["CSAS_OTHER"].end(ValueError("no luck"))
    supervisor.run_once(1_000)
    assert (supervisor.queries["CSAS_OTHER"].state, supervisor.queries["CSAS_A"].state) == ("failed", "running")
    launcher.log_error, launcher.streams["CSAS_OTHER"] = None, FakeStream()
    supervisor.run_once(2_000)
    assert supervisor.queries["CSAS_OTHER"].state == "running"


def test_backoff_begins_again_after_a_batch_that_went_through() -> None:
    launcher, supervisor, _ = made(CHAIN)
    supervisor.run_continuously()
    supervisor.run_once(0)
    running = supervisor.queries["CSAS_A"]
    for epoch in (-1, -1, 0):
        launcher.epochs["CSAS_A"] = epoch
        launcher.streams.pop("CSAS_A").end(ValueError("now and then"))
        supervisor.run_once(running.resume_at_ms + 1)
        assert running.state in ("failed", "running")
        at = running.resume_at_ms
        supervisor.run_once(at)
        assert running.state == "running"
    assert (running.errors, running.consecutive) == (3, 1)


def test_a_run_that_is_to_end_gives_up_a_query_and_does_the_rest() -> None:
    launcher, supervisor, plan = made(CHAIN)
    launcher.fails = lambda name: name == "CSAS_A"
    supervisor.run_once_over(plan, batch=True)
    now = 0
    while not supervisor.finished:
        supervisor.run_once(now)
        now += 100
    assert supervisor.queries["CSAS_A"].state == "error"
    assert [c[0] for c in launcher.calls].count("CSAS_A") == TRIES_MAX
    said = supervisor.queries["CSAS_B"]
    assert (said.state, said.last_error.startswith("RuntimeFailure: not computed, because CSAS_A failed")) == (
        "error",
        True,
    )
    assert "CSAS_B" not in {name for name, _ in launcher.calls}, "it would have computed its results from nothing"
    assert supervisor.queries["CSAS_OTHER"].state == "done"
    assert supervisor.queries["CSAS_OTHER"].state == "done"


@pytest.mark.parametrize("rounds", [0, 1, 3])
def test_a_circle_runs_until_nothing_is_new(rounds: int) -> None:
    launcher, supervisor, plan = made(CIRCLE)
    supervisor.run_once_over(plan, batch=False)
    passes = 0
    for now in range(100):
        supervisor.run_once(now)
        if supervisor.finished:
            break
        for name, stream in launcher.streams.items():
            if stream.isActive:
                stream.end()
                if name == "CSAS_B" and passes < rounds:
                    passes += 1
                    launcher.left["CSAS_B"] = 1
    assert supervisor.finished
    assert [c[0] for c in launcher.calls].count("CSAS_B") == 1 + rounds


def test_a_paused_query_is_not_started_and_nobody_waits_for_it() -> None:
    plan, launcher = plan_of(CHAIN), FakeLauncher()
    supervisor = Supervisor(launcher)
    supervisor.queries = {q.id: RunningQuery(q, paused=q.id == "CSAS_A") for q in plan.queries}
    supervisor.run_continuously()
    supervisor.run_once(0)
    assert sorted(name for name, _ in launcher.calls) == ["CSAS_B", "CSAS_OTHER"]
    supervisor.queries["CSAS_A"].paused = False
    supervisor.run_once(1)
    assert launcher.calls[-1] == ("CSAS_A", "continuous")
