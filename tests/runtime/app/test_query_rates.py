"""What an instance says of its queries: latencies against a virtual clock, shares, sizes, and who waits for what."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest

from flowql.compiler.plan.topology import Plan
from flowql.runtime.app.driver import Driver
from flowql.runtime.app.instance import Instance
from flowql.runtime.app.query_rates import RATE_MS, SAMPLE_MS, Sample
from flowql.runtime.app.status import instance_metrics, statuses, wait_of
from flowql.runtime.clock import VirtualClock
from flowql.runtime.task.task import Task
from tests.runtime.app.harness import InstanceHarness, plan_of

SOURCES = """
CREATE STREAM S (ID BIGINT KEY, V BIGINT)
  WITH (KAFKA_TOPIC='s', PARTITIONS=2, KEY_FORMAT='KAFKA', VALUE_FORMAT='JSON');
"""
BY_KEY = "CREATE TABLE A WITH (PRIORITY='high') AS SELECT ID, COUNT(*) AS N FROM S GROUP BY ID;\n"
BY_VALUE = "CREATE TABLE B AS SELECT V, COUNT(*) AS N FROM S GROUP BY V;\n"  # through a repartition


def of(world: InstanceHarness, query: str, *, detail: bool = False) -> dict[str, Any]:
    return next(s for s in statuses(world.instance, detail=detail) if s["id"] == query)


def advance(world: InstanceHarness, ms: int) -> None:
    assert isinstance(world.clock, VirtualClock)
    world.clock.advance(ms)


def rows(n: int) -> list[tuple[int, dict[str, Any], int]]:
    return [(i, {"V": i % 3}, 1_000 + i) for i in range(n)]


@pytest.mark.parametrize(("sql", "query"), [(BY_KEY, "CTAS_A"), (BY_VALUE, "CTAS_B")])
def test_latency_is_from_when_a_record_is_known_to_the_commit_of_what_follows(sql: str, query: str) -> None:
    world = InstanceHarness(SOURCES + sql)
    world.settle()
    world.instance.rates.run_once(world.clock.timer_ms())
    world.send("s", rows(20))
    assert world.driver is not None
    world.instance.polling.run_once(world.clock.timer_ms())
    world.instance.polling.refresh_ends()  # now it knows
    advance(world, 400)  # waits in the log
    for _ in range(20):
        for step in (world.instance.main.loop, world.instance.polling, *world.instance.processing):
            step.run_once(world.clock.timer_ms())
    advance(world, 100)  # processed, and not committed
    assert of(world, query)["latency_ms"] is None
    world.driver.commit()
    found = of(world, query, detail=True)
    assert found["latency_ms"]["p50"] == found["latency_ms"]["p99"] == pytest.approx(500, rel=0.2)
    classes = found["latency"]["classes"]
    assert classes[-1] == [None, 20], "each record counts once, also one that goes through a repartition"
    assert found["latency"]["sum_ms"] == 20 * 500
    assert [n for ms, n in classes if ms in (256.0, 512.0)] == [0, 20]


def test_a_query_that_comes_later_is_not_blamed_for_what_was_there_before() -> None:
    world = InstanceHarness(SOURCES + BY_KEY)
    world.send("s", rows(10))
    world.settle()
    advance(world, 3_600_000)
    world.instance.deploy(plan_of(SOURCES + BY_KEY + BY_VALUE, world.instance.plan))
    advance(world, 200)
    world.settle()
    sums = {s["id"]: s["latency"]["sum_ms"] for s in statuses(world.instance, detail=True)}
    assert sums["CTAS_B"] <= 10 * 300


def test_rates_and_percentiles_are_of_the_last_seconds() -> None:
    world = InstanceHarness(SOURCES + BY_KEY)
    world.instance.rates.run_once(world.clock.timer_ms())
    for _ in range(4):
        world.send("s", rows(50))
        world.settle()
        advance(world, SAMPLE_MS)
        world.instance.rates.run_once(world.clock.timer_ms())
    assert of(world, "CTAS_A")["rate_in"] == pytest.approx(50.0)
    for _ in range(40):
        advance(world, SAMPLE_MS)
        world.instance.rates.run_once(world.clock.timer_ms())
    found = of(world, "CTAS_A")
    assert found["rate_in"] == 0.0
    assert found["latency_ms"] is None
    assert found["records_in"] == 200
    assert RATE_MS > SAMPLE_MS


def test_what_a_query_did_before_its_first_sample_counts() -> None:
    """All of a small topic may be processed within a second of the deployment: it was in no figure."""
    world = InstanceHarness(SOURCES)
    world.instance.rates.run_once(world.clock.timer_ms())
    world.send("s", rows(30))
    advance(world, 1_000)
    world.deploy(SOURCES + BY_KEY)
    world.settle()
    found = of(world, "CTAS_A")
    assert found["rate_in"] == pytest.approx(30.0)
    assert found["latency_ms"] is not None


def test_entitled_shares_follow_the_weights_of_those_that_have_work() -> None:
    """A busy processor, by hand: both have work for 20 slices, then only one of them."""
    world = InstanceHarness(SOURCES + BY_KEY + BY_VALUE)
    accounts = world.instance.manager.accounts
    accounts.set_backlogged({"CTAS_A", "CTAS_B"})
    for _ in range(20):
        accounts.end("CTAS_A", accounts.start("CTAS_A"), 1_000_000)
    entitled = world.instance.manager.entitled_ns()
    assert entitled == pytest.approx({"CTAS_A": 20e6 * 16 / 20, "CTAS_B": 20e6 * 4 / 20})
    accounts.set_backlogged({"CTAS_B"})
    accounts.end("CTAS_B", accounts.start("CTAS_B"), 5_000_000)
    assert world.instance.manager.entitled_ns()["CTAS_B"] == pytest.approx(20e6 * 4 / 20 + 5e6)


def test_what_a_query_waits_for() -> None:
    world = InstanceHarness(SOURCES + BY_KEY + BY_VALUE)
    world.settle()
    assert of(world, "CTAS_A")["waits"] == {"for": "input", "whom": []}
    world.send("s", rows(10))
    for step in (world.instance.main.loop, world.instance.polling) * 3:
        step.run_once(world.clock.timer_ms())
    world.instance.polling.refresh_ends()
    grant = world.instance.manager.acquire("another thread")
    assert grant is not None
    holder, other = grant.task.id.query, {"CTAS_A": "CTAS_B", "CTAS_B": "CTAS_A"}[grant.task.id.query]
    assert of(world, holder)["waits"] is None
    assert of(world, other)["waits"] == {"for": "processor", "whom": [holder]}
    world.instance.manager.release(grant, 1)
    world.settle()
    world.instance.deploy(paused(world, "CTAS_A"))
    assert of(world, "CTAS_A")["waits"] == {"for": "resume", "whom": []}


def test_a_paused_query_stops_alone_and_goes_on_where_it_was() -> None:
    world = InstanceHarness(SOURCES + BY_KEY + BY_VALUE)
    world.send("s", rows(10))
    world.settle()
    world.instance.deploy(paused(world, "CTAS_A"))
    world.send("s", rows(10))
    world.settle()  # the paused one does not count
    assert (of(world, "CTAS_A")["state"], of(world, "CTAS_A")["lag"], of(world, "CTAS_B")["lag"]) == ("paused", 10, 0)
    world.instance.deploy(paused(world))
    world.settle()
    assert of(world, "CTAS_A")["state"] == "running"
    assert world.table("A") == [(i, 2) for i in range(10)]
    assert of(world, "CTAS_A")["records_in"] == 20


def test_a_paused_query_is_paused_after_a_restart() -> None:
    world = InstanceHarness(SOURCES + BY_KEY + BY_VALUE)
    world.instance.deploy(paused(world, "CTAS_B"))
    world.send("s", rows(10))
    physical = world.instance.state._physical
    world.instance.close()
    world.log.crash()
    world.instance = Instance(world.log, physical, world.clock, world.instance.config)
    world.driver = Driver(world.instance)
    world.instance.resume()
    world.settle()
    assert of(world, "CTAS_B")["state"] == "paused"
    assert (of(world, "CTAS_A")["records_in"], of(world, "CTAS_B")["records_in"]) == (10, 0)


def test_partitions_and_topics_are_in_the_details() -> None:
    world = InstanceHarness(SOURCES + BY_KEY)
    world.send("s", rows(40))
    world.settle()
    found = of(world, "CTAS_A", detail=True)
    assert {(p["topic"], p["partition"]) for p in found["partitions"]} == {("s", 0), ("s", 1)}
    assert sum(p["position"] for p in found["partitions"]) == 40
    assert instance_metrics(world.instance, detail=True)["topics"]["s"]["fetched"] == 40
    assert "partitions" not in of(world, "CTAS_A")


def paused(world: InstanceHarness, *queries: str) -> Plan:
    return replace(world.instance.plan, paused=queries)


def test_a_query_that_goes_while_status_is_made_is_as_it_was(monkeypatch: pytest.MonkeyPatch) -> None:
    """A generation is dropped at any moment; `deploy`, which looks at status, ended with an internal error."""
    world = InstanceHarness(SOURCES + BY_KEY + BY_VALUE)

    def vanishing(instance: Instance, query: str, state: str, tasks: Sequence[Task]) -> Any:
        if "CTAS_A" in instance.queries:
            world.deploy(SOURCES + BY_VALUE)
        return wait_of(instance, query, state, tasks)

    monkeypatch.setattr("flowql.runtime.app.status.wait_of", vanishing)
    assert [s["id"] for s in statuses(world.instance)] == ["CTAS_A", "CTAS_B"]
    assert [s["id"] for s in statuses(world.instance)] == ["CTAS_B"]


@pytest.mark.parametrize("sampled", [False, True])
def test_in_the_moment_of_the_first_sample_nothing_is_known_of_rates(sampled: bool) -> None:
    world = InstanceHarness(SOURCES + BY_KEY)
    world.send("s", rows(20))
    world.settle()
    rates = world.instance.rates
    rates._samples.clear()
    if sampled:
        rates._samples.append(rates._sample())
    found = rates.read()["CTAS_A"]
    assert (found.rate_in, found.rate_out, found.cpu) == (0.0, 0.0, 0.0)
    assert (found.share, found.entitled) == (None, None)
    advance(world, SAMPLE_MS)
    rates._samples.appendleft(Sample(world.clock.timer_ms() - 2_000, {}))
    found = rates.read()["CTAS_A"]
    assert (found.rate_in, found.rate_out) == (10.0, 10.0)
