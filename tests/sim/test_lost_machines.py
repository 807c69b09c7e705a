"""Machines are lost with their disks, and what is in a remote store is what others begin with."""

from collections import Counter

import pytest

from tests.sim.__main__ import OF_MACHINES, live
from tests.sim.embedded_plants import EMBEDDED_PLANTS
from tests.sim.plants import planted
from tests.sim.remote_plants import SIMULATED_PLANTS

SEEDS = 2


@pytest.mark.parametrize("lost", OF_MACHINES)
def test_machines_that_are_lost_change_nothing(lost):
    happened = Counter()
    for seed in range(SEEDS):
        world, wrong = live(seed, lost=lost)
        assert not wrong, f"python -m tests.sim --lost {lost} --seed {seed}\n" + "\n".join([*world.trace, *wrong])
        happened.update(world.happened)
        assert any("/manifests/" in name for name in world.objects.data)
    assert happened["lost"] > 3


@pytest.mark.turns("plants")
@pytest.mark.parametrize("plant", SIMULATED_PLANTS)
def test_a_planted_bug_is_found(plant):
    with planted(plant):
        assert any(live(seed, lost=lost)[1] for seed in range(12) for lost in ("alone", "members"))


@pytest.mark.turns("plants")
@pytest.mark.parametrize("plant", EMBEDDED_PLANTS)
def test_a_bug_that_is_planted_in_uploads_of_the_embedded_log_is_found(plant):
    with planted(plant):
        assert any(live(seed, lost="embedded")[1] for seed in range(12))
