"""Keys of rows as dicts and stores find them."""

from __future__ import annotations

from compiler.plan.types import DOUBLE, array
from runtime.operators.keys import NAN, freeze


def test_null_is_no_zero_and_zeros_of_both_signs_are_one():
    """NULL of a DOUBLE was frozen as 0.0: a foreign key that was NULL met the row with key 0."""
    assert freeze(None, DOUBLE) is None
    assert freeze([None, -0.0], array(DOUBLE)) == (None, 0.0)
    assert str(freeze(-0.0, DOUBLE)) == "0.0"
    assert freeze(float("nan"), DOUBLE) is NAN
