"""Members of a group whose joins read what queries of other members write: results are those of DuckDB's ASOF JOIN over the same records."""

from __future__ import annotations

import json
from collections import Counter
from dataclasses import replace
from typing import Any

import duckdb
import pyarrow as pa
import pytest

from flowql.runtime.app import upstream
from flowql.runtime.log.base import PRODUCE_SCHEMA, TopicPartition
from flowql.runtime.log.murmur2 import partition_for
from tests.runtime.app.harness import plan_of
from tests.sim.cluster import Process, SimulatedCluster
from tests.sim.faults import CALM
from tests.sim.project import Part, records_of

pytestmark = pytest.mark.turns("long")

PARTITIONS, KEYS, RECORDS = 2, 5, 60
WITH = f"PARTITIONS = {PARTITIONS}, KEY_FORMAT = 'KAFKA', VALUE_FORMAT = 'JSON'"
SOURCES = f"""
CREATE STREAM SALES (K STRING KEY, A BIGINT) WITH (KAFKA_TOPIC = 'sales', {WITH});
CREATE STREAM NAMES (ID STRING KEY, K STRING, N BIGINT) WITH (KAFKA_TOPIC = 'names', {WITH});
"""
# Of a repartition, behind another query, and of the partition of the stream that it is joined with.
MADE_BY = {
    "repartitioned": "CREATE TABLE LATEST AS SELECT K, LATEST_BY_OFFSET(N) AS N, {count} AS C FROM NAMES GROUP BY K;",
    "far": """CREATE STREAM MOVED AS SELECT ID, K, N FROM NAMES PARTITION BY ID;
CREATE TABLE LATEST AS SELECT K, LATEST_BY_OFFSET(N) AS N, {count} AS C FROM MOVED GROUP BY K;""",
    "of the same topic": "CREATE TABLE LATEST AS SELECT K, LATEST_BY_OFFSET(A) AS N, {count} AS C FROM SALES WHERE A % 2 = 0 GROUP BY K;",
}
SOLD = (
    "\nCREATE STREAM SOLD AS SELECT SALES.K AS K, A, LATEST.N AS N FROM SALES LEFT JOIN LATEST ON SALES.K = LATEST.K;"
)
ORACLE = """SELECT s.a, t.n FROM sales s ASOF LEFT JOIN {of} t ON s.k = t.k AND s.ts >= t.ts WHERE s.a % 2 = 1"""


def parts(begin: int) -> list[Part]:
    """A name of a key, then a sale of it; two sales of a key follow each other."""
    rows: dict[TopicPartition, list[dict[str, Any]]] = {}
    for at in range(begin, begin + RECORDS):
        key = f"k{at // 2 % KEYS}"
        for topic, value, ms in (("names", {"K": key, "N": at}, 10 * at), ("sales", {"A": at}, 10 * at + 5)):
            record = {"timestamp": ms, "key": key.encode(), "value": json.dumps(value).encode(), "headers": None}
            rows.setdefault(TopicPartition(topic, partition_for(key.encode(), PARTITIONS)), []).append(record)
    return [(tp, pa.RecordBatch.from_pylist(part, PRODUCE_SCHEMA)) for tp, part in sorted(rows.items())]


def sql(made_by: str, count: str = "COUNT(*)") -> str:
    return SOURCES + MADE_BY[made_by].format(count=count) + SOLD


def wrong_rows(world: SimulatedCluster, made_by: str, records: int) -> list[tuple[int, int | None]]:
    """Sales that met another name than DuckDB finds, of those that do not have the time of a name; or that are missing."""
    at = [(n // 2 % KEYS, n) for n in range(records)]
    sales = pa.table({"k": [k for k, _ in at], "a": [n for _, n in at], "ts": [10 * n + 5 for _, n in at]})
    names = pa.table({"k": [k for k, _ in at], "n": [n for _, n in at], "ts": [10 * n for _, n in at]})
    db = duckdb.connect(config={"threads": 1})
    db.register("sales", sales)
    db.register("names", names)
    of = "(SELECT k, a AS n, ts FROM sales WHERE a % 2 = 0)" if made_by == "of the same topic" else "names"
    expected = Counter(db.execute(ORACLE.format(of=of)).fetchall())
    sold = [json.loads(value) for _, _, value in records_of(world.outside, "SOLD") if value is not None]
    found = Counter((row["A"], row["N"]) for row in sold if row["A"] % 2 == 1)
    return sorted((expected - found) + (found - expected), key=str)


class World:
    """A group of two over records that are there already."""

    def __init__(self, seed: int, made_by: str, **faults: Any) -> None:
        self.made_by, self.records = made_by, 0
        self.cluster = SimulatedCluster(seed, replace(CALM, **faults), orders=1)
        for topic in ("sales", "names"):
            self.cluster.outside.create_topic(topic, PARTITIONS)
        self.feed()
        self.plan = plan_of(sql(made_by))
        first = self.start()
        self.cluster.calm = not faults
        self.cluster.deploy(first, self.plan)
        self.start()

    def start(self, name: str | None = None) -> Process:
        process = self.cluster.start(name)
        assert process is not None
        return process

    def feed(self) -> None:
        self.cluster.append(parts(self.records), f"feed {self.records}")
        self.records += RECORDS

    def deploy(self, count: str) -> None:
        self.plan = plan_of(sql(self.made_by, count), self.plan)
        self.cluster.watch.rereads = True
        self.cluster.deploy(self.cluster.processes[0], self.plan)
        self.cluster.run_until(lambda: all(p.instance.deployed.wanted is None for p in self.cluster.processes))

    def wrong(self) -> list[tuple[int, int | None]]:
        self.cluster.settle()
        return wrong_rows(self.cluster, self.made_by, self.records)


@pytest.mark.turns("cases")
@pytest.mark.parametrize("made_by", MADE_BY)
@pytest.mark.parametrize("seed", range(4))
def test_joins_of_a_group_meet_the_versions_that_were_there_before(seed: int, made_by: str) -> None:
    """They had read their stream to the end before the table was made, by this member or by another."""
    world = World(seed, made_by, late_markers=0.3 if seed % 2 else 0.0)
    assert world.wrong() == []
    world.deploy("COUNT(K)")
    assert world.wrong() == []


@pytest.mark.turns("cases")
@pytest.mark.parametrize("made_by", MADE_BY)
def test_a_group_that_was_away_joins_what_came_as_of_its_time(made_by: str) -> None:
    for seed in range(3):
        world = World(seed, made_by)
        assert world.wrong() == []
        processes = list(world.cluster.processes)
        for process in processes:
            world.cluster.leave(process)
        world.cluster.run_until(lambda world=world: not world.cluster.processes)
        world.feed()
        for process in processes:
            world.start(process.name)
        assert world.wrong() == []


def held(process: Process) -> str:
    return process.instance.query_states.of("CSAS_SOLD").waits_for


def test_a_join_waits_for_a_query_whose_tasks_are_elsewhere() -> None:
    """What it waits for is known from the log: the member that has them is away for a while."""
    world = World(1, "repartitioned")
    cluster = world.cluster
    cluster.run_until(lambda: len(cluster.processes) == 2 and all(p.group._tasks for p in cluster.processes))
    here, away = cluster.processes
    cluster.run_until(lambda: held(here) == "CTAS_LATEST")
    cluster.freeze(away, 300)
    assert any(t.query == "CTAS_LATEST" for t in away.group._tasks)
    cluster.run_for(250)
    assert held(here) == "CTAS_LATEST"
    assert world.wrong() == []
    assert not held(here)


def test_a_join_that_served_before_goes_on_when_nothing_upstream_moves(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(upstream, "STALLED_MS", 2_000)
    world = World(2, "repartitioned")
    assert world.wrong() == []
    for process in list(world.cluster.processes)[1:]:
        world.cluster.kill(process)
    (last,) = world.cluster.processes
    world.cluster.run_until(lambda: last.group._tasks.keys() == last.group.planned.reads.keys())
    last.instance.manager.hold("CTAS_LATEST")  # as a member that has its tasks and does nothing
    world.feed()
    last.group._waits.begin(last.instance.queries["CSAS_SOLD"].plan)
    world.cluster.run_for(1_500)
    assert held(last) == "CTAS_LATEST"
    world.cluster.run_for(1_500)
    assert not held(last)
