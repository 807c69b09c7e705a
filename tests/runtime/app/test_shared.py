"""Twenty queries on one instance: one store, one fetch and one decode of each topic; the same results however they are run."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import duckdb
import pytest

from flowql.runtime.state.rocks import open_rocks
from tests.runtime.app.harness import InstanceHarness, Row

pytestmark = pytest.mark.turns("long")

HOUR = 3_600_000
KEYS = 37


def sources(partitions: int) -> str:
    return f"""
    CREATE STREAM CLICKS (CUSTOMER BIGINT KEY, PAGE STRING, MS BIGINT, SHOP BIGINT)
      WITH (KAFKA_TOPIC='clicks', PARTITIONS={partitions}, KEY_FORMAT='KAFKA', VALUE_FORMAT='JSON');
    CREATE STREAM ORDERS (CUSTOMER BIGINT KEY, AMOUNT BIGINT, ITEM STRING)
      WITH (KAFKA_TOPIC='orders', PARTITIONS={partitions}, KEY_FORMAT='KAFKA', VALUE_FORMAT='JSON');
    """


# Of each kind: the query over CLICKS or ORDERS, and the same in DuckDB over the records. {i} is its number.
KINDS: list[tuple[str, str]] = [
    (
        "SELECT CUSTOMER, COUNT(*) AS N, SUM(MS) AS S FROM CLICKS WHERE MS % 7 <> {i} GROUP BY CUSTOMER",
        "SELECT k, count(*), sum(ms)::BIGINT FROM clicks WHERE ms % 7 <> {i} GROUP BY k",
    ),
    (
        "SELECT SHOP, COUNT(*) AS N, MAX(MS + {i}) AS S FROM CLICKS GROUP BY SHOP",  # by another key: a repartition
        "SELECT shop, count(*), max(ms + {i}) FROM clicks GROUP BY shop",
    ),
    (
        "SELECT CUSTOMER, COUNT(*) AS N, MIN(AMOUNT * {i}) AS S FROM ORDERS"
        " WINDOW TUMBLING (SIZE 1 HOUR) GROUP BY CUSTOMER",
        f"SELECT k, ts // {HOUR} * {HOUR}, ts // {HOUR} * {HOUR} + {HOUR}, count(*), min(amount * {{i}})"
        " FROM orders GROUP BY ALL",
    ),
    (
        "SELECT CUSTOMER, COUNT(*) AS N, SUM(LEN(ITEM) + {i}) AS S FROM ORDERS GROUP BY CUSTOMER HAVING COUNT(*) > {i}",
        "SELECT k, count(*), sum(length(item) + {i})::BIGINT FROM orders GROUP BY k HAVING count(*) > {i}",
    ),
]


def query(i: int) -> str:
    return f"CREATE TABLE T{i} AS {KINDS[i % 4][0].format(i=i // 4)};\n"


def records(n: int, seed: int = 7) -> dict[str, list[tuple[int, dict[str, Any], int]]]:
    rnd = random.Random(seed)
    clicks = [
        (
            rnd.randrange(KEYS),
            {"PAGE": f"p{rnd.randrange(9)}", "MS": rnd.randrange(1000), "SHOP": rnd.randrange(5)},
            i * 5000,
        )
        for i in range(n)
    ]
    orders = [
        (rnd.randrange(KEYS), {"AMOUNT": rnd.randrange(-50, 500), "ITEM": "x" * rnd.randrange(6)}, i * 9000)
        for i in range(n)
    ]
    return {"clicks": clicks, "orders": orders}


def oracle(data: dict[str, list[tuple[int, dict[str, Any], int]]], queries: int) -> dict[str, list[Row]]:
    out = {}
    with duckdb.connect() as connection:
        connection.execute("CREATE TABLE clicks (k BIGINT, page VARCHAR, ms BIGINT, shop BIGINT, ts BIGINT)")
        connection.execute("CREATE TABLE orders (k BIGINT, amount BIGINT, item VARCHAR, ts BIGINT)")
        for topic, rows in data.items():
            marks = ", ".join("?" * (len(rows[0][1]) + 2))
            connection.executemany(f"INSERT INTO {topic} VALUES ({marks})", [(k, *v.values(), t) for k, v, t in rows])
        for i in range(queries):
            out[f"T{i}"] = sorted(connection.execute(KINDS[i % 4][1].format(i=i // 4)).fetchall())
    return out


def feed(world: InstanceHarness, data: dict[str, list[tuple[int, dict[str, Any], int]]], cuts: int = 3) -> None:
    for topic, rows in data.items():
        size = -(-len(rows) // cuts)
        for start in range(0, len(rows), size):
            world.send(topic, rows[start : start + size])


def tables(world: InstanceHarness, queries: int) -> dict[str, list[Row]]:
    return {f"T{i}": world.table(f"T{i}") for i in range(queries)}


@pytest.mark.parametrize("threads", [1, 2])
def test_twenty_queries_share_store_fetch_decode_and_clients(tmp_path: Path, threads: int) -> None:
    data = records(600)
    physical = open_rocks(tmp_path / "state")
    sql = sources(4) + "".join(query(i) for i in range(20))
    with InstanceHarness(sql, live=True, threads=threads, physical=physical) as world:
        instance = world.instance
        stores = [s for q in instance.plan.queries for t in q.subtopologies for o in t.operators for s in o.stores]
        assert len(stores) == 40
        feed(world, data)
        world.settle()
        assert tables(world, 20) == oracle(data, 20)
        # each record once, whatever the number of readers: what a single query costs
        for topic, rows in data.items():
            assert instance.metrics.fetched[topic] == len(rows)
            assert instance.metrics.decoded[topic] == len(rows)
        clients = instance.clients
        assert (clients.consumers, clients.producers, clients.admins) == (2, 2, 1)  # one of the producers is the source
        assert [p.name for p in (tmp_path / "state").parent.iterdir()] == ["state"]
        assert len(list((tmp_path / "state").rglob("CURRENT"))) == 1


def test_one_query_alone_costs_the_same_fetches_and_decodes() -> None:
    data = records(300)
    counted = []
    for queries in (4, 20):
        world = InstanceHarness(sources(4) + "".join(query(i) for i in range(queries)))
        feed(world, data)
        world.settle()
        counted.append((dict(world.instance.metrics.fetched), dict(world.instance.metrics.decoded)))
    alone = InstanceHarness(sources(4) + query(0))
    feed(alone, {"clicks": data["clicks"]})
    alone.settle()
    assert counted[0] == counted[1]
    for counter in counted[0]:
        assert counter == {"clicks": 300, "orders": 300}
    assert alone.instance.metrics.fetched["clicks"] == alone.instance.metrics.decoded["clicks"] == 300


DATA = records(150)
WANT = oracle(DATA, 8)


@pytest.mark.turns("cases")
@pytest.mark.parametrize("partitions", [1, 4])
@pytest.mark.parametrize("vector", [True, False])
@pytest.mark.parametrize("rows_per_run", [1, 7, 1000, None])
def test_results_do_not_depend_on_run_size_kernel_or_partitions(
    partitions: int, vector: bool, rows_per_run: int | None
) -> None:
    data, queries = (DATA, 8) if rows_per_run != 1 else (records(40), 4)  # a statement per row is slow
    sql = sources(partitions) + "".join(query(i) for i in range(queries))
    world = InstanceHarness(sql, rows_per_run=rows_per_run, vector=vector, seed=3)
    feed(world, data)
    world.settle()
    assert tables(world, queries) == (WANT if data is DATA else oracle(data, queries))
    assert dict(world.instance.metrics.decoded) == {topic: len(rows) for topic, rows in data.items()}


@pytest.mark.parametrize("threads", [1, 2, 4])
def test_results_do_not_depend_on_threads(threads: int) -> None:
    with InstanceHarness(sources(4) + "".join(query(i) for i in range(8)), live=True, threads=threads) as world:
        feed(world, DATA, cuts=10)
        world.settle()
        assert tables(world, 8) == WANT
