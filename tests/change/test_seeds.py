"""A sample of the stories of `python -m tests.change`: whatever is edited and whenever the engine dies, all is as from the beginning."""

import pytest

from tests.change.__main__ import live
from tests.change.forward import ForwardOptions
from tests.change.plants import PLANTS, planted
from tests.change.story import Options

PLANT_SEEDS = 60  # a story has to notice within so many


@pytest.mark.turns("stories")
@pytest.mark.parametrize("seed", range(6))
@pytest.mark.parametrize("kills", [False, True])
def test_whatever_is_edited_all_is_as_from_the_beginning(seed, kills):
    outcome = live(seed, Options("all", kills))
    assert not outcome.wrong, str(outcome)


@pytest.mark.turns("stories")
@pytest.mark.parametrize(("kafka", "seed"), [("alone", 514), ("member", 500)])
def test_on_a_log_that_can_do_what_brokers_can_all_is_as_from_the_beginning(kafka, seed):
    outcome = live(seed, Options("all", kills=True, kafka=kafka))
    assert not outcome.wrong, str(outcome)


@pytest.mark.turns("stories")
@pytest.mark.parametrize("seed", range(6))
@pytest.mark.parametrize("kills", [False, True])
def test_the_old_text_below_the_recorded_offsets_and_the_new_one_above(seed, kills):
    outcome = live(seed, ForwardOptions(kills))
    assert not outcome.wrong, str(outcome)


def test_an_offset_that_is_recorded_too_low_is_found():
    assert any(live(seed, ForwardOptions(), "forward-too-low").wrong for seed in range(6))


@pytest.mark.parametrize("plant", PLANTS)
def test_a_bug_can_be_planted(plant):
    with planted(plant):
        pass


@pytest.mark.parametrize(
    ("plant", "first"),
    [
        ("readers-kept", 0),
        ("no-tombstones", 0),
        ("early-swap", 0),
        ("two-commits", 0),
        ("other-writers-kept", 0),
        ("heads-lost", 22),
    ],
)
@pytest.mark.turns("plants")
def test_a_planted_bug_is_found(plant, first):
    """The others of `PLANTS` take more stories: `python -m tests.change --plant NAME`. first: a seed near the one that finds it."""
    for seed in range(first, first + PLANT_SEEDS):
        wrong = live(seed, Options("all", kills=plant in ("two-commits", "heads-lost")), plant).wrong
        if wrong:
            assert not wrong[0].startswith("Traceback"), "the plant itself is broken"
            return
    raise AssertionError("nobody has noticed")
