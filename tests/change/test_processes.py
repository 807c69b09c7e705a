"""A sample of `python -m tests.change --processes`: real processes, the embedded log, kill -9."""

import tempfile

import pytest

from tests.change.__main__ import live
from tests.change.story import Options

SMALL = Options(kills=True, turns=2, records=30, queries=4, processes=True)
PLANT_SEEDS = 8  # a story has to notice within so many


@pytest.fixture(autouse=True)
def _here(tmp_path, monkeypatch):
    """What is left of a story in which something is wrong goes with the test."""
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))


@pytest.mark.crash
def test_whatever_is_edited_and_killed_all_is_as_from_the_beginning():
    outcome = live(1, SMALL)
    assert not outcome.wrong, str(outcome)
    assert outcome.deaths


@pytest.mark.turns("plants")
@pytest.mark.crash
def test_a_planted_bug_is_found():
    """The others of `PLANTS` take more stories: `python -m tests.change --processes --plant NAME`."""
    assert any(live(seed, SMALL, "both-generations").wrong for seed in range(PLANT_SEEDS))
