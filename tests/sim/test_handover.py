"""A move of partitions survives a fault at any place; `python -m tests.sim.handover` tries all of them."""

from __future__ import annotations

import pytest

from tests.sim.handover import cases, search

STEP = 90


@pytest.mark.turns("cases")
@pytest.mark.parametrize("first", range(0, STEP, 15))
def test_a_move_with_a_fault_on_its_way_ends_as_duckdb_says(first: int) -> None:
    assert not search(list(cases(STEP, first)))
