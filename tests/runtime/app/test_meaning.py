"""Event time on a whole instance: order of arrival within grace, skew between partitions and cuts into runs change nothing."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from flowql.runtime.app.progress import query_status
from flowql.runtime.log.base import TopicPartition
from tests.runtime.app.harness import InstanceHarness, Row

pytestmark = pytest.mark.turns("long")

HOUR, MINUTE = 3_600_000, 60_000
START = 1_357_000_200_000  # no multiple of an hour
PROJECT = Path(__file__).resolve().parents[3] / "pipelines" / "quickstart"
TABLES = ("DELAYS_BY_CARRIER", "DEPARTURES_BY_AIRPORT", "DISRUPTIONS_BY_AIRPORT")
Flight = tuple[int | None, dict[str, Any], int]


def quickstart(partitions: int) -> str:
    """The windowed queries of the quickstart over their stream, keyed here by a number."""
    sources = (PROJECT / "sources.sql").read_text()
    flights = sources[sources.index("CREATE STREAM FLIGHTS") : sources.index("-- Weather at an airport")]
    flights = flights.replace("CARRIER STRING KEY", "CARRIER BIGINT KEY").replace(
        "PARTITIONS = 2", f"PARTITIONS = {partitions}"
    )
    return flights + "".join((PROJECT / f"{f}.sql").read_text() for f in ("delays", "departures", "disruptions"))


def flights(n: int, seed: int) -> list[Flight]:
    """In order of time. Few airports, carriers of very different size: partitions are skewed."""
    rnd = random.Random(seed)
    at, out = START, []
    for i in range(n):
        at += rnd.choice([0, 1, 3, 8, 25]) * MINUTE
        carrier = min(rnd.randrange(12), rnd.randrange(12), rnd.randrange(12))
        delay = None if rnd.random() < 0.05 else rnd.randrange(-20, 200)
        value = {"FLIGHT": i, "ORIGIN": rnd.choice(["EWR", "JFK", "LGA"]), "SCHED_DEP_TIME": at, "DEP_DELAY": delay}
        out.append((carrier, value, at))
    return out


def shuffled(rows: list[Flight], within_ms: int, seed: int) -> list[Flight]:
    """No row more than `within_ms` behind the latest before it."""
    rnd = random.Random(seed)
    return sorted(rows, key=lambda row: row[2] + rnd.randrange(within_ms + 1))


def results(world: InstanceHarness) -> dict[str, list[Row]]:
    return {name: world.table(name) for name in TABLES}


def ordered_results(rows: list[Flight]) -> dict[str, list[Row]]:
    world = InstanceHarness(quickstart(1), rows_per_run=50)
    world.send("flights", rows)
    world.settle()
    assert all(query_status(world.instance, q)["late_records"] == 0 for q in world.instance.queries)
    return results(world)


@pytest.mark.parametrize("seed", range(3))
def test_input_shuffled_within_grace_gives_the_ordered_results(seed: int) -> None:
    print("seed", seed)
    rows = flights(1500, seed)
    want = ordered_results(rows)
    assert all(len(v) > 20 for v in want.values())
    with InstanceHarness(quickstart(4), live=True, threads=2) as world:
        mixed = shuffled(rows, 2 * HOUR, seed)
        assert mixed != rows
        for start in range(0, len(mixed), 250):
            world.send("flights", mixed[start : start + 250])
        world.settle()
        assert all(query_status(world.instance, q)["late_records"] == 0 for q in world.instance.queries)
        assert results(world) == want


def test_rows_later_than_grace_are_counted_and_named_and_change_nothing() -> None:
    """Per query: the window of a row is what is late, not the row."""
    rows = flights(400, 5)
    want = ordered_results(rows)
    end = rows[-1][2]
    late = [
        (0, {"FLIGHT": 9000 + i, "ORIGIN": "EWR", "SCHED_DEP_TIME": start, "DEP_DELAY": 100}, start)
        for i, start in enumerate(end - h * HOUR for h in (5, 6, 9))
    ]
    world = InstanceHarness(quickstart(1), rows_per_run=7)
    world.send("flights", rows)
    world.settle()
    world.send("flights", late)
    world.settle()
    assert results(world) == want
    counted = {q: query_status(world.instance, q)["late_records"] for q in world.instance.queries}
    assert counted["CTAS_DELAYS_BY_CARRIER"] == 3
    assert counted["CTAS_DISRUPTIONS_BY_AIRPORT"] == 3
    assert counted["CTAS_DEPARTURES_BY_AIRPORT"] == 3 * 4, "of each of the four hops a row falls into"


@pytest.mark.parametrize("seed", range(4))
def test_skewed_partitions_lose_nothing_in_a_repartition(seed: int) -> None:
    """One partition has weeks of backlog, the others hours: channels are merged by time, so that no row gets late."""
    rows = flights(900, seed)
    want = ordered_results(rows)
    world = InstanceHarness(quickstart(4), seed=seed, rows_per_run=11)
    by_partition: dict[int, list[Flight]] = {}
    for row in rows:
        by_partition.setdefault(world.partition("flights", row[0]), []).append(row)
    for partition in sorted(by_partition, key=lambda p: -len(by_partition[p])):
        world.send("flights", by_partition[partition])  # one partition after the other, whole
    world.settle()
    assert all(query_status(world.instance, q)["late_records"] == 0 for q in world.instance.queries)
    assert results(world) == want


# -- emission: any split into runs gives the same rows (rule R5)

SPLITS = """
CREATE STREAM A (K BIGINT KEY, V BIGINT) WITH (KAFKA_TOPIC='a', PARTITIONS=1, KEY_FORMAT='KAFKA', VALUE_FORMAT='JSON');
CREATE STREAM B (K BIGINT KEY, W BIGINT) WITH (KAFKA_TOPIC='b', PARTITIONS=1, KEY_FORMAT='KAFKA', VALUE_FORMAT='JSON');
CREATE TABLE D (K BIGINT PRIMARY KEY, NAME STRING) WITH (KAFKA_TOPIC='d', PARTITIONS=1, KEY_FORMAT='KAFKA', VALUE_FORMAT='JSON');
CREATE TABLE WINDOWS AS SELECT K, COUNT(*) AS N, SUM(V) AS S FROM A
  WINDOW TUMBLING (SIZE 10 SECONDS, GRACE PERIOD 5 SECONDS) GROUP BY K;
CREATE TABLE SESSIONS AS SELECT K, COUNT(*) AS N FROM A WINDOW SESSION (3 SECONDS, GRACE PERIOD 5 SECONDS) GROUP BY K;
CREATE TABLE SUMS AS SELECT K, SUM(V) AS S, LATEST_BY_OFFSET(V) AS L FROM A WHERE V <> 3 GROUP BY K HAVING COUNT(*) > 1;
CREATE STREAM LOOKED_UP AS SELECT A.K, V, NAME FROM A LEFT JOIN D ON A.K = D.K;
CREATE STREAM PAIRS AS SELECT A.K, V, W FROM A LEFT JOIN B WITHIN 4 SECONDS GRACE PERIOD 2 SECONDS ON A.K = B.K;
"""
OUTPUTS = ("WINDOWS", "SESSIONS", "SUMS", "LOOKED_UP", "PAIRS")
Event = tuple[str, int, int, int]  # topic, key, value, time in s


def emitted(events: list[Event], *, rows_per_run: int, seed: int | None, vector: bool | None) -> dict[str, Any]:
    world = InstanceHarness(SPLITS, rows_per_run=rows_per_run, seed=seed, vector=vector, coalesce=False)
    columns = {"a": "V", "b": "W", "d": "NAME"}
    producer = world.producer
    producer.begin()
    for topic, column in columns.items():
        rows = [(k, {column: f"n{v}" if topic == "d" else v}, 1000 * t) for x, k, v, t in events if x == topic]
        if rows:
            producer.send(TopicPartition(topic, 0), world.encode(rows))
    producer.commit()
    world.settle()
    return {name: [r[2:] for r in world.records(name)] for name in OUTPUTS}


events = st.lists(
    st.tuples(st.sampled_from("aaabbd"), st.integers(0, 2), st.integers(0, 5), st.integers(0, 60)),
    min_size=1,
    max_size=40,
)


@settings(max_examples=15, deadline=None)
@given(events, st.integers(1, 9), st.integers(0, 1000), st.sampled_from([None, False, True]))
def test_any_split_into_runs_in_any_order_of_steps_emits_the_same_rows(
    given_events: list[Event], rows_per_run: int, seed: int, vector: bool | None
) -> None:
    want = emitted(given_events, rows_per_run=1, seed=None, vector=False)
    assert emitted(given_events, rows_per_run=rows_per_run, seed=seed, vector=vector) == want
    assert emitted(given_events, rows_per_run=1000, seed=seed, vector=vector) == want
