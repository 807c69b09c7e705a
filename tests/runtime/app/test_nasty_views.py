"""A sample of `python -m tests.nasty_views`, and what the whole of it has found."""

from __future__ import annotations

import functools

import pytest

from tests import nasty_values
from tests.nasty_views import GOOD, TYPES, VIEWS, fits, live, wrong

pytestmark = pytest.mark.turns("instances")

SAMPLED = 10


@functools.cache
def sample() -> list[tuple[str, str]]:
    """Not when the tests are collected, which each process does."""
    return nasty_values.sample(VIEWS, TYPES, fits, SAMPLED)


def test_the_sweep_has_every_kind_of_column_in_every_view() -> None:
    assert set(GOOD) == set(TYPES)
    assert [view for view in VIEWS if not any(fits(view, column) for column in TYPES)] == []
    assert [column for column in TYPES if not any(fits(view, column) for view in VIEWS)] == []


@pytest.mark.parametrize("number", range(SAMPLED))
def test_no_value_stops_its_view_or_changes_what_is_left_without_it(number: int) -> None:
    view, column = sample()[number]
    assert wrong(view, column, vector=number % 2 == 0) == [], (view, column)


@pytest.mark.parametrize("vector", [False, True])
def test_a_record_that_changes_many_rows_makes_one_letter(vector: bool) -> None:
    """Each of the rows behind it had a sum that does not fit, and there was a letter for each."""
    most = "9" * 28 + ".9999999999"
    found = live("running", "h", [most, "1", "2", "3"], vector=vector)
    assert [(x["TOPIC"], x["CODE"]) for x in found.letters] == [("ts", "FQ4026")]
    assert found.wrong == []
