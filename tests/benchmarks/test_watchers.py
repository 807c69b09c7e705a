"""The sums of the benchmark of watchers, and that what it measures is not made of unread records."""

from __future__ import annotations

import math
import re
import threading

import pytest

from benchmarks.crowd import Clock, Seen
from benchmarks.isolation import BATCH, BATCH_QUERIES, SOURCES, Saturation, plan_of
from benchmarks.watchers import QUERIES, SQL, Phase, PhasePairs, check, report, write_bids
from flowql.bench.measuring import BenchFailed
from flowql.runtime.log.embedded.log import EmbeddedLog
from tests.runtime.app.harness import InstanceHarness


def test_the_cost_is_the_mean_of_the_pairs() -> None:
    without = [Phase(1_000, 1.0, 1.0), Phase(3_000, 1.0, 2.0)]
    outcome = PhasePairs(
        without, [Phase(900, 1.0, 1.0), Phase(3_000, 1.0, 2.5)], Seen(7, 0.5, {"the first rows": [3.0, 5.0, 4.0]})
    )
    assert outcome.wall.share == pytest.approx(1 - math.sqrt(0.9))
    assert outcome.cpu.share == pytest.approx(1 - math.sqrt(0.9 * 0.8))
    assert outcome.wall.error == pytest.approx(-math.log(0.9) / 2)
    shown = report(outcome)
    assert "being watched costs 5.1% \u00b1 5.3% of the throughput" in shown
    assert re.search(r"the first rows +3 +4.0 +5.0", shown)


def test_the_queries_are_those_that_run() -> None:
    assert {q.id for q in plan_of(SQL).queries} == set(QUERIES)
    assert {q.id for q in plan_of(SOURCES.format(pulse="p") + BATCH).queries} > set(BATCH_QUERIES)


def test_the_records_of_nexmark_can_be_read(tmp_path) -> None:
    """Keys of the generator had become texts while the benchmark declared numbers: it measured dead letters."""
    write_bids(tmp_path, 2_000)
    with InstanceHarness(SQL, live=True, log=EmbeddedLog(tmp_path / "log")) as world:
        world.settle()
        assert [world.instance.metrics.query(q).dead_letters for q in QUERIES] == [0, 0]
        assert [world.instance.metrics.query(q).records_in for q in QUERIES] == [2_000, 2_000]


def test_unread_records_fail_the_measurement() -> None:
    with pytest.raises(BenchFailed, match="cannot read"):
        Saturation(unread={"CTAS_SPENT": 5}).check()


def test_watchers_time_stands_still_between_phases() -> None:
    """Ten short phases ask as often as one long one."""
    clock, reached = Clock(), []

    def wait() -> None:
        reached.append(clock.wait(0.05))

    waiting = threading.Thread(target=wait)
    waiting.start()
    while waiting.is_alive():
        clock.begin()
        waiting.join(0.01)
        clock.end()
        before = clock.now_s
        waiting.join(0.02)
        assert clock.now_s == before
    assert len(reached) == 1
    assert reached[0] >= 0.05
    assert clock.now_s < 1.0 + reached[0]


def test_a_crowd_that_does_not_ask_fails_the_measurement() -> None:
    phases = [Phase(1_000, 3.0, 1.0)] * 4
    check(PhasePairs(phases, phases, Seen(looks=8, answers_ms={"a row by its key": [1.0] * 12})), rate=1.0)
    with pytest.raises(BenchFailed, match="the monitoring did not run as intended: 8 refreshes, 2 answers of 13"):
        check(PhasePairs(phases, phases, Seen(looks=8, answers_ms={"a row by its key": [1.0] * 2})), rate=1.0)
