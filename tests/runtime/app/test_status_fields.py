"""Fields of `status`: how figures are rounded, what a built generation shows, and entries of the instance."""

from __future__ import annotations

import math

import pytest

from flowql.runtime.app.query_rates import QueryRates
from flowql.runtime.app.status import _classes, _rates, instance_metrics, statuses
from flowql.runtime.errors import LogUnavailable
from flowql.runtime.latency import OCTAVES, Latencies
from flowql.runtime.log.base import EARLIEST
from flowql.runtime.metrics import Metrics, QueryMetrics
from flowql.runtime.placement.heartbeats import Heartbeat, heartbeat_topic
from tests.runtime.app.harness import InstanceHarness
from tests.runtime.app.test_isolation import COPY, GOOD, SOURCE, rows
from tests.runtime.app.test_rebuilding import CHAIN, sent
from tests.runtime.app.test_swapping import MEMBER, LikeKafka


def test_figures_are_rounded_to_what_they_are_good_for() -> None:
    assert _rates(QueryRates(12.345, 6.789, 0.12345, 0.123456, 0.654321, 1.25, 9.876)) == {
        "rate_in": 12.3,
        "rate_out": 6.8,
        "latency_ms": {"p50": 1.2, "p99": 9.9},
        "cpu": 0.123,
        "share": 0.1235,
        "entitled": 0.6543,
    }
    nothing = _rates(QueryRates())
    assert (nothing["latency_ms"], nothing["share"], nothing["entitled"]) == (None, None, None)
    assert _rates(QueryRates(p50_ms=1.0))["latency_ms"] is None
    assert _rates(QueryRates(p99_ms=1.0))["latency_ms"] is None


def test_classes_of_latencies_end_without_an_upper_end() -> None:
    latencies = Latencies()
    latencies.add(3, 5)
    latencies.add(1 << 40, 2)
    found = _classes(latencies)
    assert found["sum_ms"] == 15 + (2 << 40)
    assert found["classes"][-1] == [None, 7]
    assert [n for ms, n in found["classes"] if ms is not None and ms >= 4] == [5] * (len(found["classes"]) - 3)
    assert len(found["classes"]) == OCTAVES + 2
    assert not any(ms is not None and math.isinf(ms) for ms, _ in found["classes"])


def test_an_entry_has_what_the_query_holds_and_with_detail_its_partitions() -> None:
    world = InstanceHarness(SOURCE.format(n=2) + COPY + GOOD)
    world.send("s", rows(0, 50))
    world.settle()
    world.instance.manager.hold("CTAS_GOOD")
    world.send("s", rows(50, 10))
    for _ in range(5):
        world.driver.round()  # type: ignore[union-attr]
    copy, good = statuses(world.instance, detail=True)
    assert (copy["id"], copy["generation"], copy["building"], copy["tasks"], copy["lag"]) == (
        "CSAS_COPY",
        1,
        None,
        2,
        10,  # processed and not committed
    )
    assert (good["tasks"], good["lag"], good["buffered_bytes"] > 0, good["waits"]["for"]) == (2, 10, True, "processor")
    assert copy["waits"] == {"for": "input", "whom": []}
    assert sum(p["lag"] for p in good["partitions"]) == 10
    assert {(p["topic"], p["partition"]) for p in good["partitions"]} == {("s", 0), ("s", 1)}
    assert sum(p["position"] for p in good["partitions"]) == 50
    assert good["latency"]["classes"][-1][1] > 0
    assert "partitions" not in statuses(world.instance)[0]


def test_a_built_generation_stands_in_the_entry_of_the_one_that_serves(monkeypatch: pytest.MonkeyPatch) -> None:
    world = InstanceHarness(CHAIN.format(over=0))
    world.send("s", sent(0, 40))
    world.settle()
    monkeypatch.setattr(type(world.instance.rebuilding), "next", lambda self, now_ms: None)
    world.deploy(CHAIN.format(over=15))
    world.instance.rebuilding.why["CSAS_BIG@2"] = "7 records behind"
    world.driver.run_until_idle()  # type: ignore[union-attr]
    found = {s["id"]: s for s in statuses(world.instance)}
    assert {i: s["generation"] for i, s in found.items()} == dict.fromkeys(found, 1)
    building = found["CSAS_BIG"]["building"]
    assert building == {
        "generation": 2, "state": "running", "lag": 0, "records_in": 40, "records_out": 24, "dead_letters": 0,
        "errors": 0, "last_error": None, "why": "7 records behind",
    }  # fmt: skip
    assert found["CTAS_OTHER"]["building"] is None


def test_entries_of_the_instance_tell_its_troubles() -> None:
    world = InstanceHarness(SOURCE.format(n=1) + COPY)
    world.send("s", rows(0, 10))
    world.settle()
    instance = world.instance
    found = instance_metrics(instance, detail=True)
    assert (found["blocked"], found["trouble"], found["stuck"], found["uncommitted_bytes"]) == (None, [], [], 0)
    assert found["topics"] == {"s": {"fetched": 10, "decoded": 10}}
    assert "group" not in found
    assert "topics" not in instance_metrics(instance)
    instance.commit.state_trouble = "no space for state"
    assert instance_metrics(instance)["blocked"] == "no space for state"
    instance.commit.blocked = "no space"
    assert instance_metrics(instance)["blocked"] == "no space"
    instance.polling.troubles.note(LogUnavailable("no answer"), world.clock.timer_ms())
    (trouble,) = instance_metrics(instance)["trouble"]
    assert (trouble["error"], trouble["times"], trouble["partition"]) == ("LogUnavailable: no answer", 1, None)


def test_a_member_tells_its_rack_and_how_many_partitions_it_has() -> None:
    world = InstanceHarness(SOURCE.format(n=3) + COPY, log=LikeKafka(), tick_ms=10, rack="eu-1", **MEMBER)
    world.settle()
    assert world.instance.group is not None
    whole = {"away": False, "partitions": 3, "of": 3, "rack": "eu-1", "trouble": None}
    assert instance_metrics(world.instance)["group"] == whole
    told = world.log.reader(heartbeat_topic(world.instance.config.application_id), EARLIEST).read(1, 1 << 20)
    assert told is not None
    assert Heartbeat.decode(told.records.column("value")[0].as_py()).rack == "eu-1"
    world.instance.group.trouble = "no answer"
    assert instance_metrics(world.instance)["group"]["trouble"] == "no answer"


class Lookups(dict[str, QueryMetrics]):
    """Notes who looks counters up without holding their lock, and makes what is missing, as a defaultdict does."""

    def __init__(self, metrics: Metrics) -> None:
        super().__init__()
        self._metrics, self.unlocked = metrics, list[str]()

    def __getitem__(self, query: str) -> QueryMetrics:
        if not self._metrics.lock.locked():
            self.unlocked.append(query)
        return super().__getitem__(query)

    def __missing__(self, query: str) -> QueryMetrics:
        return self.setdefault(query, QueryMetrics())


def test_counters_of_a_query_are_made_once_whichever_thread_is_first() -> None:
    """A micro-batch and the slice it ran in could each make them: `run --until-caught-up` printed "7 records in, 4 out" of 10 and 6."""
    world = InstanceHarness(SOURCE.format(n=2) + COPY)
    metrics = world.instance.metrics
    metrics.queries = lookups = Lookups(metrics)
    world.send("s", rows(0, 50))
    world.settle()
    assert lookups.unlocked == []
    assert metrics.query("CSAS_COPY").records_in == 50
