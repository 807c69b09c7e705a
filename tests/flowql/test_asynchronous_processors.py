"""Asynchronous processors: calls of many records at once, and records that are processed in their order, with state."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import flowql
from flowql.config.compile import compile_sources
from flowql.config.load import load_project
from tests.flowql.projects_with_modules import made, resumed, running, until

YAML = "name: shop\nfunctions: [scores]\nsql: [shop.sql]\n"
SQL = """
CREATE STREAM ORDERS (CUSTOMER STRING KEY, ID BIGINT, MS BIGINT)
  WITH (KAFKA_TOPIC = 'orders', PARTITIONS = 1, KEY_FORMAT = 'KAFKA', VALUE_FORMAT = 'JSON');
CREATE TABLE CUSTOMERS (CUSTOMER STRING PRIMARY KEY, CITY STRING)
  WITH (KAFKA_TOPIC = 'customers', PARTITIONS = 1, KEY_FORMAT = 'KAFKA', VALUE_FORMAT = 'JSON');
CREATE STREAM SCORED (CUSTOMER STRING KEY, ID BIGINT, SCORE BIGINT, N BIGINT, "OFFSET" BIGINT)
  WITH (KAFKA_TOPIC = 'scored', PARTITIONS = 1, KEY_FORMAT = 'KAFKA', VALUE_FORMAT = 'JSON');
"""
SCORES = """
import asyncio, time
from flowql import AsyncProcessor, KeyValueStore, Processor, Topology, exponential

class Score(AsyncProcessor):
    max_in_flight, retry = 50, exponential(0.02, attempts=3)

    def __init__(self):
        self.started = []

    def init(self, context):
        self.context, self.counts = context, context.store("counts")

    async def call(self, key, value):
        self.started.append(key)
        while len(self.started) < 20:  # so many at once
            await asyncio.sleep(0.01)
        await asyncio.sleep(value["MS"] / 1000)
        if value["ID"] == 7:
            raise ValueError("there is no score of 7")
        return {"of": value["ID"] * 10}

    def process(self, key, value, result=None):
        if value is None:
            self.context.forward(key, {"ID": -1})
            return
        n = self.counts.get(key, 0) + 1
        self.counts.put(key, n)
        self.context.forward(key, {"ID": value["ID"], "SCORE": result["of"], "N": n, "OFFSET": self.context.offset})

scores = (
    Topology("SCORES")
    .add_source("orders", "ORDERS")
    .add_processor("score", Score, "orders")
    .add_state_store(KeyValueStore("counts", key=str, value=int), "score")
    .add_sink("scored", "SCORED", "score")
)
"""


def rows(instance: flowql.Connection, sql: str) -> list[tuple[Any, ...]]:
    return [tuple(r.values()) for r in instance.sql(sql)]


def test_records_are_processed_in_order_with_what_their_calls_returned(tmp_path: Path) -> None:
    folder = made(tmp_path / "shop", YAML, SQL, scores=SCORES)
    orders = [{"CUSTOMER": f"c{n % 3}", "ID": n, "MS": 300 if n == 1 else 0} for n in range(40)]
    with running(folder) as instance:
        instance.produce("ORDERS", orders)
        until(lambda: rows(instance, "SELECT COUNT(*) FROM SCORED"), [(39,)])
        with instance.subscribe("SCORED", start="earliest", limit=39) as changes:
            found = [change.row for change in changes]
        (letter,) = instance.sql("SELECT * FROM DEAD_LETTERS")
    assert [r["ID"] for r in found] == [n for n in range(40) if n != 7]
    assert all((r["SCORE"], r["OFFSET"]) == (10 * r["ID"], r["ID"]) for r in found)
    assert [r["N"] for r in found if r["CUSTOMER"] == "c1"] == list(range(1, 13))
    assert (letter["OFFSET"], letter["CODE"]) == (7, "FQ4030")
    assert "ValueError: there is no score of 7" in letter["MESSAGE"]
    with resumed(folder) as instance:
        instance.produce("ORDERS", [{"CUSTOMER": "c1", "ID": 50 + n, "MS": 0} for n in range(20)])
        until(lambda: rows(instance, "SELECT MAX(N) FROM SCORED WHERE CUSTOMER = 'c1'"), [(32,)])


def test_calls_that_block_are_made_in_threads(tmp_path: Path) -> None:
    source = SCORES.replace("async def call", "def call").replace("await asyncio.sleep", "time.sleep")
    folder = made(tmp_path / "shop", YAML, SQL, scores=source)
    with running(folder) as instance:
        instance.produce("ORDERS", [{"CUSTOMER": "a", "ID": n, "MS": 0} for n in range(20, 40)])
        until(lambda: rows(instance, "SELECT COUNT(*), MAX(SCORE), MIN(ID) FROM SCORED"), [(20, 390, 20)])


def test_a_table_is_refused_by_name(tmp_path: Path) -> None:
    folder = made(tmp_path / "shop", YAML, SQL, scores=SCORES.replace('"ORDERS"', '"CUSTOMERS"'))
    (found,) = [d for d in compile_sources(load_project(folder)).diagnostics if d.severity == "error"]
    assert found.title == "topology SCORES: the asynchronous processor score reads CUSTOMERS, which is a table"
    assert found.unsupported


MISTAKES = {
    "is asynchronous, and gets records of a processor": (
        '.add_processor("score", Score, "orders")',
        '.add_processor("first", Score, "orders").add_processor("score", Score, "first")',
    ),
    "has order='none'": ("max_in_flight, retry = 50,", 'order, max_in_flight, retry = "none", 50,'),
    "max_in_flight=0 is not a number of calls": ("= 50,", "= 0,"),
    "has no method call": ("async def call", "async def ask"),
}


@pytest.mark.parametrize("said", list(MISTAKES))
def test_mistakes_are_told(tmp_path: Path, said: str) -> None:
    folder = made(tmp_path / "shop", YAML, SQL, scores=SCORES.replace(*MISTAKES[said]))
    (found,) = [d for d in compile_sources(load_project(folder)).diagnostics if d.code == "FQ3012"]
    assert said in found.title
