"""Parts of a rebuild: the order in which queries come to rest, which positions are outside, and what is damaged or gone."""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest

from flowql.compiler.plan.deployed import SwapGroup, groups_of
from flowql.runtime.app import rebuilding
from flowql.runtime.app.comparing import ComparisonUnavailable
from flowql.runtime.app.coroutines import Coroutine
from flowql.runtime.app.rebuilding import _levels, _moved
from flowql.runtime.log.base import TopicPartition
from tests.runtime.app.harness import InstanceHarness, plan_of
from tests.runtime.app.test_rebuilding import CHAIN, COUNTS, SOURCE, sent

S0 = TopicPartition("s", 0)


def ids(queries: Any) -> list[str]:
    return [q.id for q in queries]


def built(monkeypatch: pytest.MonkeyPatch) -> tuple[InstanceHarness, SwapGroup]:
    """A generation that is built, and does not take over by itself."""
    monkeypatch.setattr(rebuilding.Rebuilding, "next", lambda self, now_ms: None)
    world = InstanceHarness(CHAIN.format(over=0))
    world.send("s", sent(0, 40))
    world.settle()
    world.deploy(CHAIN.format(over=15))
    assert world.driver is not None
    world.driver.run_until_idle()
    world.driver.commit()
    world.driver.run_until_idle()
    world.driver.commit()
    world.driver.run_until_idle()
    (group,) = groups_of(world.instance.deployed)
    return world, group


def test_queries_come_after_those_whose_results_they_read(monkeypatch: pytest.MonkeyPatch) -> None:
    _, group = built(monkeypatch)
    assert [ids(level) for level in _levels(group)] == [["CSAS_BIG"], ["CTAS_COUNTS"], ["CTAS_SOME"]]
    turned = replace(group, queries=tuple(reversed(group.queries)))
    assert [ids(level) for level in _levels(turned)] == [["CSAS_BIG"], ["CTAS_COUNTS"], ["CTAS_SOME"]]
    assert _levels(replace(group, queries=())) == []


def test_queries_in_a_circle_come_together_and_writers_of_one_topic_before_its_readers() -> None:
    two = plan_of(
        SOURCE
        + "CREATE STREAM A AS SELECT K, V FROM S WHERE V > 1;\n"
        + "INSERT INTO A SELECT K, V FROM S WHERE V < 0;\n"
        + COUNTS.replace("FROM BIG", "FROM A")
    )
    group = SwapGroup(two.queries, {}, {}, (), "A")
    levels = [ids(level) for level in _levels(group)]
    assert (len(levels), levels[-1], len(levels[0])) == (2, ["CTAS_COUNTS"], 2)


def test_positions_in_staging_topics_become_those_in_the_topics() -> None:
    staging, topic = TopicPartition("BIG@2", 1), TopicPartition("BIG", 1)
    read = SimpleNamespace(tp=staging, name="BIG@2", name_in=lambda name: f"now {name}")
    other = SimpleNamespace(tp=S0, name="s", name_in=lambda name: name)
    metadata = {"positions": {"BIG@2": 7, "s": 3}, "stream_times": {"x": 1}}
    task: Any = SimpleNamespace(state=SimpleNamespace(metadata=metadata), logs={"a": read, "b": other})
    assert _moved(task, {staging: (topic, 70)}) == {
        "positions": {"now BIG": 70, "s": 3},
        "stream_times": {"x": 1},
    }
    assert metadata["positions"] == {"BIG@2": 7, "s": 3}, "of the last commit"


@pytest.mark.parametrize(("late_ms", "raises"), [(0, False), (1, True)])
def test_time_is_over_when_the_limit_has_passed(late_ms: int, raises: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    world, _ = built(monkeypatch)
    limit = world.clock.timer_ms() - late_ms
    if raises:
        with pytest.raises(ComparisonUnavailable, match="a slice takes too long"):
            world.instance.rebuilding._check_time(limit, "a slice takes too long")
    else:
        world.instance.rebuilding._check_time(limit, "a slice takes too long")
        world.instance.rebuilding._check(["CSAS_BIG@2"], limit)
    world.instance.query_states.suspend("CSAS_BIG@2", ValueError("refused"))
    with pytest.raises(ComparisonUnavailable, match="CSAS_BIG@2: refused by the log"):
        world.instance.rebuilding._check(["CTAS_COUNTS@2", "CSAS_BIG@2"], limit + late_ms)


def test_a_rebuild_is_not_compared_while_it_waits_for_something(monkeypatch: pytest.MonkeyPatch) -> None:
    world, group = built(monkeypatch)
    world.instance.query_states.set_paused(["CSAS_BIG@2"])

    def look() -> None:
        raise AssertionError("it is not looked at")

    coroutine: Coroutine = world.instance.rebuilding.side_by_side(group, look)
    with pytest.raises(ComparisonUnavailable, match="CSAS_BIG@2: paused"):
        next(coroutine)
