"""What one query does wrong is its own: the others lose no record and no commit."""

from __future__ import annotations

import threading
import time
from itertools import pairwise
from typing import Any

import pytest

from flowql.runtime.app import backoff
from flowql.runtime.app.progress import state_of
from flowql.runtime.clock import VirtualClock
from flowql.runtime.config import ROWS_PER_RUN_MIN
from flowql.runtime.task.dead_letters import topic_name
from tests.runtime.app.harness import InstanceHarness, fail, function

SOURCE = """
CREATE STREAM S (K BIGINT KEY, V BIGINT)
  WITH (KAFKA_TOPIC='s', PARTITIONS={n}, KEY_FORMAT='KAFKA', VALUE_FORMAT='JSON');
"""
GOOD = "CREATE TABLE GOOD AS SELECT K, COUNT(*) AS N, SUM(V) AS S FROM S GROUP BY K;\n"
COPY = "CREATE STREAM COPY AS SELECT K, V + 1 AS W FROM S;\n"


def rows(first: int, n: int) -> list[tuple[int, dict[str, Any], int]]:
    return [(i % 5, {"V": i}, i) for i in range(first, first + n)]


def sums(n: int) -> list[tuple[int, int, int]]:
    return [(k, len(range(k, n, 5)), sum(range(k, n, 5))) for k in range(5)]


@pytest.mark.parametrize("vector", [True, False])
def test_a_query_that_fails_on_every_record_fills_the_dead_letters_and_goes_on(vector: bool) -> None:
    bad = "CREATE STREAM BAD AS SELECT K, BROKEN(V) AS W FROM S;\n"

    def broken(value: Any) -> Any:
        raise ValueError(f"cannot take {value}")

    with function("BROKEN", broken):
        world = InstanceHarness(
            SOURCE.format(n=4) + GOOD + bad,
            vector=vector,
        )
        world.send("s", rows(0, 300))
        world.settle()
    letters = world.dead_letters("CSAS_BAD")
    assert len(letters) == 300
    assert {(x["TOPIC"], x["MESSAGE"].count("cannot take")) for x in letters} == {("s", 1)}
    assert sorted(int(x["VALUE"][5:-1]) for x in letters) == list(range(300)), "the raw record is kept"
    assert world.table("GOOD") == sums(300)
    m = world.instance.metrics.query("CSAS_BAD")
    assert (m.dead_letters, m.errors, m.records_in) == (300, 0, 300)
    assert state_of(world.instance, "CSAS_BAD") == "running"


def test_malformed_records_are_dead_letters_of_each_reader_and_lose_nothing_else() -> None:
    world = InstanceHarness(SOURCE.format(n=1) + GOOD + COPY)
    world.send("s", [(0, {"V": 0}, 0), (1, b"{nonsense", 1), (2, {"V": 2}, 2)])
    world.settle()
    assert [x["VALUE"] for q in ("CTAS_GOOD", "CSAS_COPY") for x in world.dead_letters(q)] == [b"{nonsense"] * 2
    assert world.table("GOOD") == [(0, 1, 0), (2, 1, 2)]
    assert [v["W"] for v in world.values("COPY")] == [1, 3]
    assert world.partitions(topic_name("flowql")) == 1


def test_a_query_that_raises_is_held_and_restarted_later_and_later_alone() -> None:
    calls: list[int] = []

    def body(value: Any) -> Any:
        calls.append(world.clock.timer_ms())
        return fail(value)

    with function("RAISES", body):
        world = InstanceHarness(SOURCE.format(n=1) + GOOD + "CREATE STREAM BAD AS SELECT K, RAISES(V) AS W FROM S;\n")
        assert isinstance(world.clock, VirtualClock)
        sent = 0
        for i in range(700):
            if i % 20 == 0:
                world.send("s", rows(sent, 50))
                sent += 50
            world.driver.round()
            world.clock.advance(100)
        world.rest()
    waits = [b - a for a, b in pairwise(calls)]
    assert waits[0] >= backoff.BACKOFF_MS_MIN
    assert len(waits) >= 5
    assert all(b >= 1.5 * a for a, b in pairwise(waits[:6])), waits
    assert world.table("GOOD") == sums(sent)
    assert world.instance.metrics.query("CTAS_GOOD").errors == 0
    m = world.instance.metrics.query("CSAS_BAD")
    assert m.errors == len(calls)
    assert "FQ4033: no to 0 (test_isolation.py:" in m.last_error
    assert "CSAS_BAD" in m.last_error
    assert not world.values("BAD")


def test_a_query_that_recovers_gives_every_record_once() -> None:
    """A run that failed left nothing behind: its records are processed once when it succeeds."""
    broken = True

    def body(value: Any) -> Any:
        return fail(value) if broken and value == 7 else value

    with function("SOMETIMES", body):
        world = InstanceHarness(
            SOURCE.format(n=1) + COPY + "CREATE STREAM BAD AS SELECT K, SOMETIMES(V) AS W FROM S;\n", rows_per_run=3
        )
        world.send("s", rows(0, 20))
        world.rest()
        assert state_of(world.instance, "CSAS_BAD") == "failed"
        assert len(world.values("COPY")) == 20
        assert [v["W"] for v in world.values("BAD")] == list(range(6)), "runs before the failing one are committed"
        broken = False
        world.clock.advance(backoff.BACKOFF_MS_MAX)  # type: ignore[attr-defined]
        world.driver.round()
        world.rest()
    assert [v["W"] for v in world.values("BAD")] == list(range(20))
    assert state_of(world.instance, "CSAS_BAD") == "running"


def test_failures_are_forgotten_after_a_long_healthy_time_and_with_the_query() -> None:
    def body(value: Any) -> Any:
        return fail(value) if value < 0 else value

    with function("PICKY", body):
        bad = "CREATE STREAM BAD AS SELECT K, PICKY(V) AS W FROM S;\n"
        world = InstanceHarness(SOURCE.format(n=1) + COPY + bad)
        world.send("s", [(0, {"V": -1}, 0)])
        for _ in range(400):
            world.driver.round()
            world.clock.advance(100)
        assert world.instance.query_states.of("CSAS_BAD").backoff.failures >= 5
        world.deploy(SOURCE.format(n=1) + COPY)
        assert world.instance.query_states.of("CSAS_BAD").backoff.failures == 0
        world.deploy(SOURCE.format(n=1) + COPY + bad)
        assert state_of(world.instance, "CSAS_BAD@2") == "running"


class Waiting(VirtualClock):
    """What a slice costs is time waited for, not the processor's."""

    def cpu_ns(self) -> int:
        return 0


def test_runs_of_a_function_that_waits_get_shorter() -> None:
    """It costs no processor time, and was given the longest runs there are: none of its rows was committed for minutes."""
    clock, calls = Waiting(1_000_000), 0

    def wait(value: Any) -> Any:
        nonlocal calls
        calls += 1
        clock.spend(10_000_000)
        return value

    with function("NAP", wait):
        world = InstanceHarness(SOURCE.format(n=1) + SLOW, clock=clock, threads=1)
        world.send("s", rows(0, 6000))
        runs = []
        while calls < 6000:
            before = calls
            world.driver.round()  # type: ignore[union-attr]
            runs += [calls - before] if calls > before else []
        world.settle()
    assert max(runs[1:]) <= ROWS_PER_RUN_MIN, runs
    assert len(world.values("SLOW")) == 6000


# -- with threads: functions that sleep or block

SLOW = "CREATE STREAM SLOW AS SELECT K, NAP(V) AS W FROM S;\n"


@pytest.mark.parametrize("nap_s", [0.02, 2.0])
def test_a_function_that_sleeps_delays_nobody(nap_s: float) -> None:
    """Four tasks of the sleeping query, two threads: one of the threads stays with the others."""
    asleep = threading.Event()

    def nap(value: Any) -> Any:
        asleep.set()
        time.sleep(nap_s)
        return value

    with (
        function("NAP", nap),
        InstanceHarness(SOURCE.format(n=4) + GOOD + COPY + SLOW, live=True, threads=2, rows_per_run=10) as world,
    ):
        world.send("s", rows(0, 50))
        assert asleep.wait(120)
        sent, slowest, commits = 50, 0.0, [world.instance.metrics.commits]
        for _ in range(8):
            world.send("s", rows(sent, 50))
            sent += 50
            start = time.monotonic()
            world.until(lambda: all(world.lag(q) == 0 for q in ("CTAS_GOOD", "CSAS_COPY")), "the others at the end")
            world.until(lambda: world.instance.metrics.commits > commits[-1], "committed")
            commits.append(world.instance.metrics.commits)
            slowest = max(slowest, time.monotonic() - start)
        assert world.lag("CSAS_SLOW") > 0, "it was asleep all the time"
        world.until(lambda: world.instance.commit.idle and world.table("GOOD") == sums(sent), "exact")
        assert sorted(v["W"] for v in world.values("COPY")) == list(range(1, sent + 1))
        if nap_s == 2.0:
            assert slowest < 5 * nap_s, "the others waited for a run of ten naps"
        nap_s = 0.0  # let it end


def test_a_function_that_hangs_for_good_holds_up_no_commit_and_no_end() -> None:
    release = threading.Event()

    def hang(value: Any) -> Any:
        release.wait(60)
        return value

    with function("NAP", hang), InstanceHarness(SOURCE.format(n=4) + GOOD + SLOW, live=True, threads=2) as world:
        world.send("s", rows(0, 100))
        world.until(lambda: bool(world.instance.manager.running()), "running")
        for i in range(1, 6):
            world.send("s", rows(100 * i, 100))
            world.until(lambda n=100 * (i + 1): world.table("GOOD") == sums(n), "committed")  # type: ignore[misc]
        assert world.instance.metrics.query("CSAS_SLOW").records_in == 0
        release.set()
        world.settle()
        assert sorted(v["W"] for v in world.values("SLOW")) == list(range(600))
        assert world.instance.metrics.query("CSAS_SLOW").slow_slices >= 1
