"""An aggregate that changes its accumulator in place, in worlds with kills, aborts and hand-overs: committed state is never touched."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import pytest
from msgspec import Struct

from flowql.compiler.functions.user_aggregates import udaf
from tests.sim import project
from tests.sim.__main__ import live
from tests.sim.declared import declared

SEEDS = 8


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


class Value(Struct):
    n: int


@dataclass
class Values:
    all: list[Value] = field(default_factory=list)


@udaf(name="KEPT", version="1")
class Objects:
    """As `Kept`, in objects."""

    def init(self) -> Values:
        return Values()

    def add(self, seen: Values, value: int) -> None:
        seen.all.reverse()
        seen.all.append(Value(value))

    def result(self, seen: Values) -> int:
        total = 0
        while seen.all:
            total += seen.all[-1].n
            seen.all.pop().n = -1
        return total


@pytest.mark.turns("worlds")
@pytest.mark.parametrize(("made", "seeds"), [(Kept, range(SEEDS)), (Objects, range(100, 100 + SEEDS))])
def test_an_accumulator_changed_in_place_survives_whatever_happens(
    monkeypatch: pytest.MonkeyPatch, made: Any, seeds: range
) -> None:
    with declared(monkeypatch, made, {"SUM(QTY": "KEPT(QTY"}):
        for seed in seeds:
            world, wrong = live(seed)
            assert not wrong, f"seed {seed}\n" + "\n".join([*world.trace, *wrong])
        assert "KEPT@mine:1" in str(project.plan())
