"""The greatest and least structs found in columns are those that rows find one by one."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from flowql.compiler.plan.logical import Window
from flowql.compiler.plan.schema import Field, Schema
from flowql.compiler.plan.types import BIGINT, DATE, DOUBLE, INT, STRING, struct
from flowql.runtime.operators.partials import Partials
from flowql.runtime.operators.winners import can_win
from tests.runtime.operators.world import Task, aggregate, batch

PAIR = struct(("N", BIGINT), ("D", DATE), ("I", INT))
S = Schema((Field("k", STRING, "key"), Field("s", PAIR)))
FIELDS = st.fixed_dictionaries(
    {"N": st.integers(-2, 2) | st.just(2**63 - 1), "D": st.integers(0, 2), "I": st.integers(-1, 1)}
)
ROWS = st.lists(st.tuples(st.sampled_from("ab"), FIELDS | st.none(), st.integers(0, 40)), min_size=1, max_size=30)


def last_values(window: Window | None, rows: list[tuple[str, Any, int]], **options: Any) -> dict[Any, Any]:
    task = Task(*aggregate(S, "MAX:s MIN:s", window=window), coalesce=True, **options)
    task.run(batch(S, *(((k, s), t) for k, s, t in rows[:17])))
    if rows[17:]:
        task.run(batch(S, *(((k, s), t) for k, s, t in rows[17:]), start=17))
    return task.table()


@pytest.mark.parametrize("window", [None, Window("hopping", 10, 5, grace_ms=100)])
@settings(max_examples=60, deadline=None)
@given(rows=ROWS)
def test_columns_give_what_rows_give(window: Window | None, rows: list[tuple[str, Any, int]]) -> None:
    assert last_values(window, rows, vector=True) == last_values(window, rows, vector=False)


def test_a_field_that_is_null_takes_the_rows_way() -> None:
    rows = [("a", {"N": None, "D": 1, "I": 1}, 0), ("a", {"N": -5, "D": 1, "I": 1}, 1)]
    found = last_values(None, rows, vector=True)
    assert found == last_values(None, rows, vector=False)
    assert next(iter(found.values()))[:2] == ({"N": -5, "D": 1, "I": 1}, {"N": None, "D": 1, "I": 1})


def test_only_structs_of_whole_numbers_and_times_are_compared_in_columns() -> None:
    assert can_win(PAIR)
    assert not can_win(struct(("N", DOUBLE)))
    assert not can_win(struct(("P", PAIR)))
    task = Task(*aggregate(S, "MAX:s"))
    assert isinstance(task.operator._partials, Partials)  # type: ignore[attr-defined]
