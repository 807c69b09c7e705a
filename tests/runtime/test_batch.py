"""Columns of reference values."""

from __future__ import annotations

import pytest

from compiler.plan.types import INT, STRING, array, map_of, struct
from runtime.batch import to_arrow

PAIR = struct(("K", STRING), ("V", INT))


@pytest.mark.parametrize("t", [PAIR, array(PAIR), map_of(STRING, PAIR), array(array(PAIR)), struct(("S", PAIR))])
def test_no_values_are_a_column_of_their_type(t) -> None:
    """A list of structs without any element failed, as the mask of nothing had no type."""
    assert to_arrow([], t).to_pylist() == []
    empty = {} if t.kind.value == "MAP" else []
    if t.kind.value in ("ARRAY", "MAP"):
        assert len(to_arrow([empty, None], t)) == 2
