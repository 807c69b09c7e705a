"""Rows of a table that an aggregate cannot take: they are left out as long as they are there, and nothing else is wrong for them."""

from __future__ import annotations

from collections.abc import Iterator
from decimal import Decimal
from typing import Any

import hypothesis.strategies as st
import pytest
from hypothesis import given, settings

from flowql.compiler.functions.registry import AggregateFunction, register_aggregate
from flowql.compiler.functions.signatures import Resolution
from flowql.compiler.plan.schema import Field, Schema
from flowql.compiler.plan.types import BIGINT, decimal
from tests.registries import unregister_aggregate
from tests.runtime.operators.world import Task, aggregate, batch, schema

S = schema("k:BIGINT", "v")


@pytest.fixture(autouse=True, scope="module")
def _brittle() -> Iterator[None]:
    """A sum of 100 / v, which a row of 0 fails; and one of at most 99, as of a short DECIMAL."""

    def short(total: Any) -> Any:
        if abs(total) > 99:
            raise ValueError("it does not fit")
        return total

    for name, part in (
        ("INVERSE", lambda acc, v, sign: acc + sign * (100 // v)),
        ("SHORT", lambda a, v, s: short(a + s * v)),
    ):
        register_aggregate(
            AggregateFunction(
                name,
                lambda t, i: Resolution(t, BIGINT),
                lambda r, i: 0,
                lambda r, i, part=part: lambda acc, v: part(acc, v, 1),
                lambda r, i: lambda a: a,
                undo=lambda r, i, part=part: lambda acc, v: part(acc, v, -1),
            )
        )
    yield
    for name in ("INVERSE", "SHORT"):
        unregister_aggregate(name)


def over_a_table(text: str, change: str = "retract") -> Task:
    return Task(*aggregate(S, text, input_change="retract", change=change))


def test_a_row_that_was_left_out_does_not_leave_twice() -> None:
    """It was undone when it changed, though it had never been added."""
    task = over_a_table("COUNT SHORT:v")
    task.run(batch(S, ((1, 60), 0), ((1, 60), 1)))
    assert [d.seq for d in task.dead] == [1]
    assert task.run(batch(S, ("<", (1, 60), 2), (">", (1, 5), 2))) == [("<", (1, 1, 60), 2), (">", (1, 2, 65), 2)]


def test_what_replaces_a_row_that_was_left_out_is_added() -> None:
    """The old row failed once more as it was to leave, and the new one was left out with it."""
    task = over_a_table("INVERSE:v")
    task.run(batch(S, ((1, 10), 0), ((1, 0), 1)))
    assert [d.seq for d in task.dead] == [1]
    assert task.run(batch(S, ("<", (1, 0), 2), (">", (1, 20), 2))) == [("<", (1, 10), 2), (">", (1, 15), 2)]
    assert len(task.dead) == 1


def test_a_group_of_nothing_but_rows_left_out_is_none_until_it_has_a_row() -> None:
    task = over_a_table("INVERSE:v")
    assert task.run(batch(S, ((1, 0), 0))) == []
    assert task.run(batch(S, ("-", (1, 0), 1))) == []
    assert task.run(batch(S, ((1, 0), 2), ((1, 50), 3))) == [("+", (1, 2), 3)]
    assert task.run(batch(S, ("-", (1, 0), 4))) == []
    assert task.run(batch(S, ("-", (1, 50), 5))) == [("<", (1, 2), 5), (">", (1, 0), 5)]


def test_a_row_that_cannot_leave_now_leaves_later() -> None:
    task = over_a_table("SHORT:v")
    task.run(batch(S, ((1, 60), 0), ((1, -60), 1), ((1, 70), 2)))
    assert task.run(batch(S, ("-", (1, -60), 3))) == []
    assert len(task.dead) == 1
    assert task.run(batch(S, ("-", (1, 60), 4))) == [("<", (1, 70), 4), (">", (1, 10), 4)]
    assert task.run(batch(S, ("-", (1, 70), 5))) == [("<", (1, 10), 5), (">", (1, 0), 5)]
    assert len(task.dead) == 1


@settings(max_examples=60, deadline=None)
@given(
    st.lists(st.tuples(st.integers(0, 5), st.sampled_from((None, 0, 1, 3, 50))), min_size=1, max_size=30),
    st.integers(1, 5),
)
def test_the_sum_is_that_of_the_rows_that_are_there(changes: list[tuple[int, int | None]], step: int) -> None:
    """Rows by a key of their own, of which 0 cannot be taken; None: the row goes."""
    task, rows, said = over_a_table("COUNT INVERSE:v"), dict[int, int](), []
    for n, (row, value) in enumerate(changes):
        old = rows.pop(row, None)
        if value is not None:
            rows[row] = value
        if old is not None and value is not None:
            said += [("<", (1, old), n), (">", (1, value), n)]
        elif old is not None or value is not None:
            said.append(("-", (1, old), n) if value is None else ((1, value), n))
    folded: Any = None
    pieces, at = [], 0
    while at < len(said):
        end = at + step
        if end < len(said) and said[end - 1][0] == "<":
            end += 1
        pieces.append(said[at:end])
        at = end
    for piece in pieces:
        for sign, row, _ in task.run(batch(S, *piece)):
            if sign == "<":
                assert row == folded
            else:
                folded = row
    taken = [v for v in rows.values() if v]
    if folded is None:
        assert not taken
    else:
        assert folded == (1, len(taken), sum(100 // v for v in taken))


def test_a_decimal_of_a_table() -> None:
    """Not only functions of users fail: a total must fit into the type."""
    s = Schema((Field("k", BIGINT, "key"), Field("v", decimal(3, 1))))
    task = Task(*aggregate(s, "COUNT SUM:v", input_change="retract", change="retract"))
    task.run(batch(s, ((1, Decimal("90.0")), 0), ((1, Decimal("20.0")), 1)))
    assert [d.seq for d in task.dead] == [1]
    assert task.run(batch(s, ("-", (1, Decimal("20.0")), 2))) == []
    assert task.run(batch(s, ("-", (1, Decimal("90.0")), 3)))[-1] == (">", (1, 0, Decimal("0.0")), 3)
