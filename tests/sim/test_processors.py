"""Processors that cache state in attributes, in worlds with kills, aborts and hand-overs: objects are made anew whenever a run was dropped."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from flowql.compiler.processors.processor import Processor, ProcessorContext
from flowql.compiler.processors.stores import KeyValueStore
from flowql.compiler.processors.topology import Topology
from tests.sim import project
from tests.sim.__main__ import live
from tests.sim.declared import declared

SEEDS = 15
ITEMS = """CREATE TABLE ITEMS WITH (KAFKA_TOPIC='items') AS
  SELECT ITEM, COUNT(*) AS N, SUM(QTY) AS QTY FROM ORDERS GROUP BY ITEM EMIT CHANGES;"""
DECLARED = """CREATE STREAM BY_ITEM WITH (KAFKA_TOPIC='by-item') AS SELECT ITEM, QTY FROM ORDERS PARTITION BY ITEM EMIT CHANGES;
CREATE TABLE ITEMS (ITEM STRING PRIMARY KEY, N BIGINT, QTY BIGINT)
  WITH (KAFKA_TOPIC='items', PARTITIONS=2, KEY_FORMAT='KAFKA', VALUE_FORMAT='JSON');"""


class Count(Processor):
    """Counts orders and quantities of items. Asks the store once per item, and its own memory from then on."""

    def init(self, context: ProcessorContext) -> None:
        self.context = context
        self.counts = context.store("counts")
        self.known: dict[str, list[int]] = {}
        context.schedule(200)
        context.schedule(100, self.look, clock="wall")

    def process(self, key: Any, value: Any) -> None:
        seen = self.known.setdefault(key, self.counts.get(key, [0, 0]))
        seen[0] += 1
        seen[1] += value["QTY"]
        self.counts.put(key, seen)
        self.context.forward(key, {"N": seen[0], "QTY": seen[1]})

    def punctuate(self, timestamp: int) -> None:
        for key, (n, qty) in self.counts.all():
            self.context.forward(key, {"N": n, "QTY": qty})

    def look(self, timestamp: int) -> None:
        for key, seen in self.counts.all():
            assert self.known.get(key, seen) == seen


COUNTING = (
    Topology("COUNTING", version="1")
    .add_source("items", "BY_ITEM")
    .add_processor("count", Count, "items")
    .add_state_store(KeyValueStore("counts", key=str, value=list[int]), "count")
    .add_sink("counted", "ITEMS", "count")
)


@pytest.fixture
def _counting(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    with declared(monkeypatch, COUNTING, {ITEMS: DECLARED}):
        yield


@pytest.mark.turns("worlds")
@pytest.mark.usefixtures("_counting")
def test_state_and_results_of_processors_survive_whatever_happens() -> None:
    assert "COUNTING@mine:1" in str(project.plan())
    for seed in range(SEEDS):
        world, wrong = live(seed)
        assert not wrong, f"seed {seed}\n" + "\n".join([*world.trace, *wrong])
