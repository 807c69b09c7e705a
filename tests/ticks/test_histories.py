"""A sample of the random views over tables and views, sampled while statements change rows."""

from __future__ import annotations

import pytest

from tests.ticks.histories import run


@pytest.mark.turns("cases")
@pytest.mark.parametrize("seed", [0, 5, 8])
def test_every_answer_is_of_a_prefix_of_the_statements(seed: int) -> None:
    compared, between = run(seed, restarts=seed % 2 == 1)
    assert between > compared // 10, "answers are taken on the way"


def test_groups_that_are_folded_in_columns_follow_ticks_too() -> None:
    run(3038)


def test_an_answer_over_views_that_are_behind_does_not_go_back() -> None:
    run(3214)


def test_views_over_a_view_that_stays_empty_go_on_after_a_restart() -> None:
    run(7, restarts=True)
