"""Crashes at random moments, also in the middle of restorations, end where an undisturbed run ends."""

from __future__ import annotations

from functools import cache

import pytest

from runtime.app import restoration
from tests.crash.outcome import differences
from tests.crash.simulated import expected
from tests.runtime.restoration.machine import ForgetfulMachine

CRASHES, SEEDS = 10, 12


@cache
def ended(seed: int) -> tuple[list[str], int]:
    """How a machine differs from one without crashes, and how often it died while it restored."""
    machine = ForgetfulMachine(seed)
    found = machine.run(CRASHES)
    return differences(expected(), found), machine.died_restoring


@pytest.fixture(autouse=True)
def small_chunks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(restoration, "CHUNK_RECORDS", 20)


@pytest.mark.parametrize("seed", range(SEEDS))
def test_what_is_lost_comes_back_and_nothing_twice(seed: int) -> None:
    assert ended(seed)[0] == []


def test_these_seeds_die_while_they_restore() -> None:
    assert sum(ended(seed)[1] for seed in range(SEEDS)) >= SEEDS
