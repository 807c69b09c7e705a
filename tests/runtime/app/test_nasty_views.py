"""A sample of `python -m tests.nasty_views`, and what the whole of it has found."""

from __future__ import annotations

import random

import pytest

from tests.nasty_views import GOOD, TYPES, VIEWS, live, pairs, wrong

PAIRS = list(pairs())
SAMPLE = random.Random(15).sample(PAIRS, 20)


def test_the_sweep_has_every_kind_of_column_in_every_view() -> None:
    assert {view for view, _ in PAIRS} == set(VIEWS)
    assert {column for _, column in PAIRS} == set(GOOD) == set(TYPES)
    assert len(PAIRS) > 280


@pytest.mark.parametrize(("view", "column"), SAMPLE, ids=lambda x: x)
def test_no_value_stops_its_view_or_changes_what_is_left_without_it(view: str, column: str) -> None:
    assert wrong(view, column, vector=len(view + column) % 2 == 0) == []


@pytest.mark.parametrize("vector", [False, True])
def test_a_record_that_changes_many_rows_makes_one_letter(vector: bool) -> None:
    """Each of the rows behind it had a sum that does not fit, and there was a letter for each."""
    most = "9" * 28 + ".9999999999"
    found = live("running", "h", [most, "1", "2", "3"], vector=vector)
    assert [(x["TOPIC"], x["CODE"]) for x in found.letters] == [("ts", "FQ4026")]
    assert found.wrong == []
