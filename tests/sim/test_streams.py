"""Streams in Python in worlds with kills, aborts and hand-overs: aggregates of a function of Python are those of SQL."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import pytest

from flowql import StreamsBuilder
from tests.sim import project
from tests.sim.__main__ import live
from tests.sim.declared import declared
from tests.sim.test_processors import ITEMS

pytestmark = pytest.mark.turns("long")

SEEDS = 15


@dataclass
class Total:
    n: int
    qty: int


def add(total: Total, order: dict[str, Any]) -> Total:
    total.n += 1
    total.qty += order["QTY"]
    return total


def streams() -> StreamsBuilder:
    s = StreamsBuilder("COUNTED", version="1")
    pairs = s.stream("ORDERS").map(
        lambda _, order: (order["ITEM"], {"qty": order["QTY"]}), key={"item": str}, value={"qty": int}
    )
    totals = pairs.group_by_key().aggregate(add, initial=lambda: Total(0, 0), value=Total)
    totals.to("ITEMS", topic="items")
    return s


@pytest.fixture
def _counted(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    with declared(monkeypatch, streams(), {ITEMS: ""}):
        yield


@pytest.mark.turns("worlds")
@pytest.mark.usefixtures("_counted")
def test_state_and_results_of_functions_survive_whatever_happens() -> None:
    assert "COUNTED_AGGREGATE_1@mine:1" in str(project.plan())
    for seed in range(SEEDS):
        world, wrong = live(seed)
        assert not wrong, f"seed {seed}\n" + "\n".join([*world.trace, *wrong])
