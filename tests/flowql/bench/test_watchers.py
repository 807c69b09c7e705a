"""The sums of the benchmark of watchers, and that what it measures is not made of unread records."""

from __future__ import annotations

import pytest

from flowql.bench.isolation import BATCH, BATCH_QUERIES, SOURCES, Saturation, plan_of
from flowql.bench.measuring import BenchFailed
from flowql.bench.nexmark_input import write_log
from flowql.bench.watchers import QUERIES, SQL, Outcome, Phase, report
from runtime.log.embedded.log import EmbeddedLog
from tests.runtime.app.world import World


def test_ratios_are_of_all_phases_and_the_spread_of_pairs() -> None:
    without = [Phase(1_000, 1.0, 1.0), Phase(3_000, 1.0, 2.0)]
    outcome = Outcome(without, [Phase(900, 1.0, 1.0), Phase(2_980, 1.0, 2.1)], 7, 5)
    assert outcome.ratio == pytest.approx(0.97)
    assert outcome.cpu_ratio == pytest.approx((3_880 / 3.1) / (4_000 / 3.0))
    assert outcome.spread == pytest.approx((0.9, 2_980 / 3_000))
    assert "being watched costs 3.0%" in report(outcome)


def test_the_queries_are_those_that_run() -> None:
    assert {q.id for q in plan_of(SQL).queries} == set(QUERIES)
    assert {q.id for q in plan_of(SOURCES.format(pulse="p") + BATCH).queries} > set(BATCH_QUERIES)


def test_the_records_of_nexmark_can_be_read(tmp_path) -> None:
    """Keys of the generator had become texts while the benchmark declared numbers: it measured dead letters."""
    write_log(tmp_path, 2_000, ["bid"])
    with World(SQL, live=True, log=EmbeddedLog(tmp_path / "log")) as world:
        world.settle()
        assert [world.instance.metrics.query(q).dead_letters for q in QUERIES] == [0, 0]
        assert [world.instance.metrics.query(q).records_in for q in QUERIES] == [2_000, 2_000]


def test_unread_records_fail_the_measurement() -> None:
    with pytest.raises(BenchFailed, match="cannot read"):
        Saturation(unread={"CTAS_SPENT": 5}).check()
