"""Crashes at random moments, also in the middle of restorations, end where an undisturbed run ends."""

from __future__ import annotations

from functools import cache

import pytest

from flowql.runtime.app import restoration
from tests.crash.contents import differences
from tests.crash.simulated import expected
from tests.runtime.restoration.machine import ForgetfulMachine

pytestmark = pytest.mark.turns("long")

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


@pytest.mark.turns("cases")
@pytest.mark.parametrize("seed", range(SEEDS))
def test_what_is_lost_comes_back_and_nothing_twice(seed: int) -> None:
    assert ended(seed)[0] == []


def test_these_seeds_die_while_they_restore() -> None:
    assert sum(ended(seed)[1] for seed in range(SEEDS)) >= SEEDS


def test_io_errors_of_the_state_change_nothing() -> None:
    """It is opened again and all tasks begin anew, also while they are restored; with crashes, and a disk that is full."""
    errors = reopened = 0
    for seed in range(6):
        machine = ForgetfulMachine(seed, faults=True)
        found = differences(expected(), machine.run(3))
        assert not found, f"seed {seed}, {machine.errors} errors: {found}"
        errors += machine.errors
        reopened += machine.physical.reopened
    assert errors > 10
    assert reopened > 20
