"""A join of what other queries write reads them behind those, where records are there already: then rows meet the row of their time."""

from __future__ import annotations

from dataclasses import replace
from random import Random

import pytest

from flowql.runtime.app import upstream
from flowql.runtime.app.driver import Driver
from flowql.runtime.app.instance import Instance
from flowql.runtime.app.status import statuses
from flowql.runtime.clock import VirtualClock
from flowql.runtime.config import InstanceConfig
from flowql.runtime.log.base import TopicPartition
from flowql.runtime.log.memory import MemoryLog
from flowql.runtime.state.memory import MemoryPhysical
from flowql.runtime.topology.query import upsert_topics
from flowql.runtime.topology.upstream import merges, upstream_of
from tests.runtime.app.harness import InstanceHarness, Sent, plan_of

SOURCES = """
CREATE STREAM SALES (K BIGINT KEY, A BIGINT) WITH (KAFKA_TOPIC = 'sales', PARTITIONS = 2, VALUE_FORMAT = 'JSON');
CREATE STREAM NAMES (ID BIGINT KEY, K BIGINT, N BIGINT) WITH (KAFKA_TOPIC = 'names', PARTITIONS = 2, VALUE_FORMAT = 'JSON');
"""
LATEST = "CREATE TABLE LATEST AS SELECT K, LATEST_BY_OFFSET(N) AS N, COUNT(*) AS C FROM NAMES GROUP BY K;\n"
JOIN = "CREATE STREAM SOLD AS SELECT SALES.K, A, {what} AS N FROM SALES LEFT JOIN LATEST ON SALES.K = LATEST.K;\n"
SOLD = JOIN.format(what="N")
FAR = "CREATE STREAM MOVED AS SELECT ID, K, N FROM NAMES PARTITION BY ID;\n" + LATEST.replace(
    "FROM NAMES", "FROM MOVED"
)
KEYS, RECORDS = 4, 60


def feed(begin: int) -> tuple[list[Sent], list[Sent]]:
    """Sales and names of some keys, in turn. A name's id is its key, so that its partition is that of its sales."""
    names: list[Sent] = [(at % KEYS, {"K": at % KEYS, "N": at}, 10 * at) for at in range(begin, begin + RECORDS)]
    sales: list[Sent] = [(at % KEYS, {"A": at}, 10 * at + 5) for at in range(begin, begin + RECORDS)]
    return sales, names


def send(world: InstanceHarness, begin: int) -> None:
    sales, names = feed(begin)
    world.send("sales", sales)
    world.send("names", names)


def sold(world: InstanceHarness) -> list[tuple[int, int]]:
    return sorted((value["A"], value["N"]) for _, _, _, value, _ in world.records("SOLD"))


def expected(end: int) -> list[tuple[int, int]]:
    """Each sale follows the name that it meets."""
    return [(at, at) for at in range(end)]


def filled_log() -> MemoryLog:
    world = InstanceHarness(SOURCES)
    for topic in ("sales", "names"):
        world.log.admin().create_topic(topic, 2)
    send(world, 0)
    world.instance.close()
    return world.log


def restarted(world: InstanceHarness, physical: MemoryPhysical, seed: int) -> None:
    """With more records than before."""
    world.instance.close()
    world.producer = world.log.producer("feed")
    send(world, RECORDS)
    world.instance = Instance(world.log, physical, VirtualClock(2_000_000), InstanceConfig())
    world.driver = Driver(world.instance, seed=seed)
    world.instance.resume()


@pytest.mark.parametrize("seed", range(6))
def test_a_join_that_begins_with_what_is_there_meets_each_version(seed: int) -> None:
    """It had read its stream to the end before the first record of the table came, and met nothing, without a word."""
    world = InstanceHarness(SOURCES + LATEST + SOLD, log=filled_log(), seed=seed)
    world.settle()
    assert sold(world) == expected(RECORDS)


@pytest.mark.parametrize("seed", range(6))
def test_a_rebuild_leaves_the_results_as_they_were(seed: int) -> None:
    """All rows of the result had lost what they had met."""
    world = InstanceHarness(SOURCES + LATEST + SOLD, log=filled_log(), seed=seed)
    world.settle()
    world.deploy(SOURCES + LATEST.replace("COUNT(*)", "COUNT(N)") + SOLD)
    world.settle()
    assert world.instance.deployed.wanted is None
    assert sold(world) == expected(RECORDS)
    world.deploy(SOURCES + LATEST.replace("COUNT(*)", "COUNT(N)") + JOIN.format(what="N + 0"))
    world.settle()
    assert sold(world) == expected(RECORDS)


@pytest.mark.parametrize("seed", range(6))
def test_what_came_while_no_instance_ran_is_joined_as_of_its_time(seed: int) -> None:
    physical = MemoryPhysical()
    world = InstanceHarness(SOURCES + LATEST + SOLD, log=filled_log(), physical=physical, seed=seed)
    world.settle()
    restarted(world, physical, seed)
    world.settle()
    assert sold(world) == expected(2 * RECORDS)


def test_queries_far_upstream_come_first_each_behind_what_it_reads() -> None:
    for seed in range(4):
        world = InstanceHarness(SOURCES + FAR + SOLD, log=filled_log(), seed=seed)
        assert world.instance.query_states.of("CSAS_SOLD").waits_for == "CSAS_MOVED"
        world.settle()
        assert sold(world) == expected(RECORDS)


def test_a_query_upstream_that_has_read_everything_is_not_waited_for() -> None:
    """A new deployment over empty topics began with its joins held, so that they read what came first together with what came later."""
    world = InstanceHarness(SOURCES + FAR + SOLD)
    assert not world.instance.query_states.of("CSAS_SOLD").waits_for
    send(world, 0)
    world.settle()
    world.deploy(SOURCES + FAR + JOIN.format(what="N + 0"))
    world.settle()
    assert sold(world) == expected(RECORDS)


def test_it_is_told_what_a_query_waits_for() -> None:
    world = InstanceHarness(SOURCES + LATEST + SOLD, log=filled_log())
    told = {s["id"]: s["waits"] for s in statuses(world.instance)}
    assert told["CSAS_SOLD"] == {"for": "upstream", "whom": ["CTAS_LATEST"]}
    assert world.instance.trouble("CSAS_SOLD") == "it waits for CTAS_LATEST"
    world.settle()
    assert not world.instance.trouble("CSAS_SOLD")
    assert {s["id"]: s["waits"] for s in statuses(world.instance)}["CSAS_SOLD"] == {"for": "input", "whom": []}


def test_a_query_that_is_paused_is_not_waited_for() -> None:
    world = InstanceHarness(SOURCES + LATEST, log=filled_log())
    world.instance.deploy(replace(world.instance.plan, paused=("CTAS_LATEST",)))
    plan = plan_of(SOURCES + LATEST + SOLD, world.instance.plan)
    world.instance.deploy(replace(plan, paused=("CTAS_LATEST",)))
    world.settle()
    assert len(sold_rows(world)) == RECORDS


def sold_rows(world: InstanceHarness) -> list[object]:
    return [value for _, _, _, value, _ in world.records("SOLD")]


def test_a_query_that_failed_is_waited_for_by_one_that_has_read_nothing_alone() -> None:
    physical = MemoryPhysical()
    world = InstanceHarness(SOURCES + LATEST + SOLD, log=filled_log(), physical=physical)
    world.instance.query_states.fail("CTAS_LATEST", "of a function")
    for _ in range(200):
        world.driver.round()
    world.driver.commit()
    assert not sold_rows(world)
    assert isinstance(world.clock, VirtualClock)
    world.clock.advance(60_000)
    world.settle()
    assert sold(world) == expected(RECORDS)
    restarted(world, physical, 0)
    world.instance.query_states.fail("CTAS_LATEST", "of a function")
    for _ in range(200):
        world.driver.round()
    world.driver.commit()
    assert len(sold_rows(world)) == 2 * RECORDS, "it serves"


@pytest.mark.parametrize(
    ("query", "merged"),
    [
        (SOLD, True),
        ("CREATE TABLE SOLD AS SELECT K, COUNT(*) AS N FROM SALES GROUP BY K;", False),
        ("CREATE STREAM SOLD AS SELECT S.K, A, N FROM SALES S JOIN NAMES M WITHIN 1 DAY ON S.K = M.ID;", True),
        ("CREATE TABLE SOLD AS SELECT L.K, L.N, R.C FROM LATEST L JOIN LATEST2 R ON L.K = R.K;", False),
    ],
)
def test_order_matters_where_a_stream_is_joined(query: str, merged: bool) -> None:
    plan = plan_of(SOURCES + LATEST + LATEST.replace("LATEST AS", "LATEST2 AS") + query, None)
    assert merges(next(q for q in plan.queries if q.topic == "SOLD")) == merged


def test_queries_that_feed_each_other_do_not_wait_for_each_other() -> None:
    circle = (
        "CREATE STREAM A AS SELECT K, A FROM SALES;\n"
        "CREATE STREAM B AS SELECT A.K, A.A FROM A JOIN LATEST ON A.K = LATEST.K;\n"
        "INSERT INTO A SELECT A_K AS K, A FROM B WHERE A > 1000;\n"
    )
    plan = plan_of(SOURCES + LATEST + circle, None)
    (joined,) = (q for q in plan.queries if q.id == "CSAS_B")
    assert [q.id for q in upstream_of(joined, plan)] == ["CTAS_LATEST", "CSAS_A"]


def test_updates_are_merged_in_tables_whose_versions_nobody_needs() -> None:
    """Rule R13: a join with a stream met the last version of a run alone."""
    alone = plan_of(SOURCES + LATEST, None)
    assert upsert_topics(alone) == {"LATEST"}
    assert upsert_topics(plan_of(SOURCES + LATEST + SOLD, None)) == set()
    tables = "CREATE TABLE BOTH AS SELECT L.K, L.N, R.C FROM LATEST L JOIN LATEST2 R ON L.K = R.K;"
    assert upsert_topics(plan_of(SOURCES + LATEST + LATEST.replace("LATEST AS", "LATEST2 AS") + tables, None)) == {
        "LATEST",
        "LATEST2",
        "BOTH",
    }


def test_rows_that_are_always_on_their_way_do_not_hold_it_for_good(monkeypatch: pytest.MonkeyPatch) -> None:
    world = InstanceHarness(SOURCES + LATEST + SOLD, log=filled_log())
    monkeypatch.setattr("flowql.runtime.task.channels.ExchangeInput.has_rows", True)
    for ms in (0, upstream.ON_THEIR_WAY_MS - 1, 1):
        assert world.instance.query_states.of("CSAS_SOLD").waits_for
        assert isinstance(world.clock, VirtualClock)
        world.clock.advance(ms)
        for _ in range(20):
            world.instance.polling.run_once(world.clock.timer_ms())
            world.instance.reconciler.run_once(world.clock.timer_ms())
            for task in world.instance.queries["CTAS_LATEST"].built.tasks:
                for i in task.logs.values():
                    i.position = max(i.position, world.log.admin().end_offset(i.tp))
    world.instance.commit.run_once(world.clock.timer_ms())
    for _ in range(20):
        world.instance.reconciler.run_once(world.clock.timer_ms())
        world.instance.polling.run_once(world.clock.timer_ms())
    assert not world.instance.query_states.of("CSAS_SOLD").waits_for


@pytest.mark.parametrize("seed", range(8))
@pytest.mark.parametrize("made_by", [LATEST, FAR])
def test_it_goes_on_when_all_results_are_there_and_known_to_its_inputs(made_by: str, seed: int) -> None:
    """Those on their way through a repartition, or not committed yet, are none."""
    world = InstanceHarness(SOURCES + made_by + SOLD, log=filled_log(), seed=seed)
    rng, tps = Random(seed), [TopicPartition("LATEST", p) for p in range(2)]
    for _ in range(5_000):
        step = rng.choice(world.driver._steps)
        step.run_once(world.instance.clock.timer_ms())
        if not world.instance.query_states.of("CSAS_SOLD").waits_for:
            break
    ends = world.log.admin().end_offsets(tps)
    assert sum(ends.values()) == RECORDS
    inputs = [i for task in world.instance.queries["CSAS_SOLD"].built.tasks for i in task.logs.values()]
    assert {i.tp: i.end_offset for i in inputs if i.tp in tps} == ends
