"""Stores of every kind of operator, read in SQL."""

from __future__ import annotations

from datetime import datetime
from pathlib import Path

from tests.flowql.projects_with_modules import made, running, until

ORDERS = """
CREATE STREAM ORDERS (CUSTOMER STRING KEY, AMOUNT BIGINT)
  WITH (KAFKA_TOPIC = 'orders', PARTITIONS = 1, VALUE_FORMAT = 'JSON');
"""
SEEN = """
CREATE STREAM SEEN (CUSTOMER STRING KEY, N BIGINT) WITH (KAFKA_TOPIC = 'seen', PARTITIONS = 1, VALUE_FORMAT = 'JSON');
"""
TOPOLOGY = """
from dataclasses import dataclass
from datetime import datetime
from flowql import KeyValueStore, Processor, SessionStore, Topology, WindowStore

@dataclass
class Last:
    amounts: list[int]
    at: datetime | None

class Seen(Processor):
    def process(self, key, value):
        self.context.store("last").put(key, Last([value["AMOUNT"]], datetime(2026, 1, 2)))
        self.context.store("hours").put(key, 7, 3_600_000)
        self.context.store("visits").put((key, 1), 3_600_010, 3_600_020, "a visit")
        self.context.forward(key, {"N": 1})

seen = (
    Topology("SEEN_ORDERS")
    .add_source("orders", "ORDERS")
    .add_processor("seen", Seen, "orders")
    .add_state_store(KeyValueStore("last", key=str, value=Last), "seen")
    .add_state_store(WindowStore("hours", key=str, value=int), "seen")
    .add_state_store(SessionStore("visits", key=(str, int), value=str), "seen")
    .add_sink("results", "SEEN", "seen")
)
"""
WAITING = """
import asyncio
from flowql import udf

@udf(asynchronous=True)
async def score(customer: str) -> float:
    await asyncio.sleep(3600)
"""
TABLES = """
CREATE TABLE people (id INT PRIMARY KEY, name TEXT, dept INT);
CREATE TABLE depts (id INT PRIMARY KEY, title TEXT);
CREATE VIEW grouped AS SELECT dept, COUNT(*) AS n, MAX(name) AS m, COUNT(DISTINCT name) AS d FROM people GROUP BY dept;
CREATE VIEW joined AS SELECT p.id, p.name, d.title FROM people p LEFT JOIN depts d ON p.dept = d.id;
CREATE VIEW best AS SELECT id, name FROM people ORDER BY name LIMIT 2;
CREATE VIEW numbered AS SELECT id, SUM(id) OVER (PARTITION BY dept ORDER BY name) AS s FROM people;
CREATE VIEW fewer AS SELECT id FROM people EXCEPT SELECT id FROM depts;
"""


def test_stores_of_processors_have_the_columns_that_they_declare(tmp_path: Path) -> None:
    folder = made(tmp_path, "name: shop\nsql: [shop.sql]\nfunctions: [seen]\n", ORDERS + SEEN, seen=TOPOLOGY)
    with running(folder) as shop:
        shop.produce("ORDERS", {"customer": "ada", "amount": 5, "time": 3_600_030}, timestamp="time")
        until(lambda: shop.sql("SELECT COUNT(*) FROM SEEN").one(), 1)
        found = {n: list(shop.sql(f'SELECT * FROM "SEEN_ORDERS-process-1-{n}"')) for n in ("last", "hours", "visits")}
        assert found == {
            "last": [{"KEY": "ada", "amounts": [5], "at": datetime(2026, 1, 2)}],
            "hours": [{"KEY": "ada", "WINDOWSTART": 3_600_000, "VALUE": 7}],
            "visits": [
                {"KEY_1": "ada", "KEY_2": 1, "WINDOWEND": 3_600_020, "WINDOWSTART": 3_600_010, "VALUE": "a visit"}
            ],
        }


def test_rows_that_wait_for_an_asynchronous_function_can_be_looked_at(tmp_path: Path) -> None:
    scored = "CREATE STREAM SCORED AS SELECT CUSTOMER, SCORE(CUSTOMER) AS S FROM ORDERS;"
    yaml = "name: shop\nsql: [shop.sql]\nfunctions: [waiting]\n"
    with running(made(tmp_path, yaml, ORDERS + scored, waiting=WAITING)) as shop:
        shop.produce("ORDERS", {"customer": "ada", "amount": 5})
        store = "CSAS_SCORED-asyncmap-1"
        until(lambda: [("ada" in row["VALUE"]) for row in shop.sql(f'SELECT * FROM "{store}"')], [True])


def test_every_store_of_standard_sql_can_be_read(tmp_path: Path) -> None:
    """What an operator keeps for itself is text."""
    with running(made(tmp_path, "name: shop\nsql: [shop.sql]\ndialect: standard\n", TABLES)) as shop:
        shop.execute("INSERT INTO people VALUES (1, 'ada', 1), (2, 'bob', 1), (3, 'eve', 2)")
        shop.execute("INSERT INTO depts VALUES (1, 'sales'), (3, 'press')")
        until(lambda: shop.sql("SELECT COUNT(*) FROM fewer").one(), 1)
        stores = [row["store"] for row in shop.sql("SELECT STORE FROM FLOWQL_STORES WHERE ROWS > 0")]
        kinds = {"consolidate", "equijoin", "groupaggregate", "materialise", "over", "setoperation", "topn"}
        assert {part for s in stores for part in s.split("-")} >= kinds
        assert all(len(shop.sql(f'SELECT * FROM "{store}"')) for store in stores)
