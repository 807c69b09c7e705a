"""Keys of rows as dicts and stores find them."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from flowql.compiler.plan.schema import Field, Schema
from flowql.compiler.plan.types import DATE, DOUBLE, TIME, TIMESTAMP, array
from flowql.runtime.batch import from_rows
from flowql.runtime.operators.changes.group_deltas import PlacementKeys
from flowql.runtime.operators.keys import NAN, freeze


def test_null_is_no_zero_and_zeros_of_both_signs_are_one():
    """NULL of a DOUBLE was frozen as 0.0: a foreign key that was NULL met the row with key 0."""
    assert freeze(None, DOUBLE) is None
    assert freeze([None, -0.0], array(DOUBLE)) == (None, 0.0)
    assert str(freeze(-0.0, DOUBLE)) == "0.0"
    assert freeze(float("nan"), DOUBLE) is NAN


@settings(max_examples=60, deadline=None)
@given(
    st.lists(
        st.tuples(st.integers(-(2**63), 2**63 - 1), st.integers(-(2**31), 2**31 - 1), st.integers(0, 86_399_999)),
        min_size=1,
    )
)
def test_rows_are_placed_by_the_same_bytes_in_rows_and_in_columns(rows):
    types = (TIMESTAMP, DATE, TIME)
    rows = [(at // 2**13, day // 2**8, time) for at, day, time in rows]
    source = Schema(tuple(Field(n, t) for n, t in zip("abc", types, strict=True)))
    batch = from_rows(source, rows, [0] * len(rows), [0] * len(rows), range(len(rows)))
    for columns in ("abc", "ca", "b"):
        keys = PlacementKeys(source, columns)
        assert keys.of(batch, vector=True) == keys.of(batch, vector=False)
