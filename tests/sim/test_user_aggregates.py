"""An aggregate that changes its accumulator in place, in worlds with kills, aborts and hand-overs: committed state is never touched."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from flowql.compiler.functions.user_aggregates import udaf
from tests.sim import project
from tests.sim.__main__ import live
from tests.sim.declared import declared

SEEDS = 15


@udaf(version="1")
class Kept:
    """The sum of all values, which are kept in reverse and shown by emptying the list."""

    def init(self) -> list[int]:
        return []

    def add(self, seen: list[int], value: int) -> None:
        seen.reverse()
        seen.append(value)

    def result(self, seen: list[int]) -> int:
        total = 0
        while seen:
            total += seen.pop()
        return total


@pytest.fixture
def _kept(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    with declared(monkeypatch, Kept, {"SUM(QTY": "KEPT(QTY"}):
        yield


@pytest.mark.usefixtures("_kept")
def test_an_accumulator_changed_in_place_survives_whatever_happens() -> None:
    for seed in range(SEEDS):
        world, wrong = live(seed)
        assert not wrong, f"seed {seed}\n" + "\n".join([*world.trace, *wrong])
    assert "KEPT@mine:1" in str(project.plan())
