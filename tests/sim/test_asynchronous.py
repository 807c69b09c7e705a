"""Calls that end at random times, fail, or are asked for again, in worlds with kills, aborts, hand-overs and rebuilds: results are those without them."""

from __future__ import annotations

import pytest

from tests.sim import project
from tests.sim.__main__ import live
from tests.sim.asynchronous import calling

pytestmark = pytest.mark.turns("long")

SEEDS = 6


@pytest.mark.turns("worlds")
@pytest.mark.parametrize("rebuilds", [False, True])
def test_results_are_those_of_calls_that_do_not_wait(rebuilds: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    with calling(monkeypatch) as calls:
        assert str(project.plan()).count("AsyncMap") > 4
        for seed in range(SEEDS // (2 if rebuilds else 1)):
            world, wrong = live(seed, rebuilds=rebuilds)
            assert not wrong, f"seed {seed}\n" + "\n".join([*world.trace, *wrong])
        assert calls.failed > 10


def test_a_suspended_query_says_nothing_of_a_partition_that_has_left(monkeypatch: pytest.MonkeyPatch) -> None:
    """It was refused in the commit that handed the partition over, and said from then on that this is where it had got to alone."""
    with calling(monkeypatch):
        world, wrong = live(21065)
        assert not wrong, "\n".join([*world.trace, *wrong])
