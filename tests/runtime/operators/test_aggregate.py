"""Aggregation without a window, and the columnar path of all windows against the row path."""

from __future__ import annotations

from decimal import Context, Decimal
from typing import Any

import hypothesis.strategies as st
import pytest
from hypothesis import given, settings

from flowql.compiler.functions.registry import AggregateFunction, register_aggregate
from flowql.compiler.functions.signatures import Resolution
from flowql.compiler.plan.logical import Window
from flowql.compiler.plan.schema import Field, Schema
from flowql.compiler.plan.types import BIGINT, DATE, DOUBLE, INT, STRING, TIMESTAMP, SqlType, decimal
from flowql.runtime.batch import Batch, from_rows
from flowql.runtime.operators.fold import AggregateUnsupported
from tests.registries import unregister_aggregate
from tests.runtime.operators.world import Task, aggregate, batch, cuts, schema

S = schema("k:BIGINT", "v")


def counting(text="COUNT SUM:v", **options):
    of_task = {k: options.pop(k) for k in ("coalesce", "vector") if k in options}
    return Task(*aggregate(S, text, **options), **of_task)


def test_every_row_gives_an_update_at_the_highest_time_of_its_group():
    got = counting().run(batch(S, ((1, 5), 10), ((2, 1), 3), ((1, None), 4), ((1, 2), 20)))
    assert got == [
        ("+", (1, 1, 5), 10),
        ("+", (2, 1, 1), 3),
        (">", (1, 2, 5), 10),
        (">", (1, 3, 7), 20),
    ]


def test_retract_output_carries_before_images():
    got = counting(change="retract").run(batch(S, ((1, 5), 0), ((1, 6), 1)))
    assert got == [("+", (1, 1, 5), 0), ("<", (1, 1, 5), 1), (">", (1, 2, 11), 1)]


def test_null_values_of_streams_and_rows_without_key_are_skipped():
    assert counting().run(batch(S, ("-", (1, None), 0), ((None, 1), 1))) == []


def test_a_table_row_that_moves_gives_the_removal_then_the_addition_and_empty_groups_stay():
    task = counting(input_change="retract")
    assert task.run(batch(S, ((1, 5), 0), ((1, 7), 1), ("-", (1, 5), 2), ((2, 5), 2), ("-", (1, 7), 3))) == [
        ("+", (1, 1, 5), 0),
        (">", (1, 2, 12), 1),
        (">", (1, 1, 7), 2),
        ("+", (2, 1, 5), 2),
        (">", (1, 0, 0), 3),
    ]


def test_an_update_within_a_group_is_one_change():
    task = counting(input_change="retract")
    task.run(batch(S, ((1, 5), 0)))
    assert task.run(batch(S, ("<", (1, 5), 1), (">", (1, 9), 1))) == [(">", (1, 1, 9), 1)]


def test_a_removal_from_an_unknown_group_gives_nothing():
    assert counting(input_change="retract").run(batch(S, ("-", (1, 5), 0))) == []


@pytest.mark.parametrize("vector", [False, True])
def test_coalesced_updates_are_one_per_key_and_nothing_when_nothing_changed(vector):
    task = counting("SUM:v", change="retract", coalesce=True, vector=vector)
    assert task.run(batch(S, ((1, 5), 0), ((2, 1), 1), ((1, 6), 2))) == [("+", (2, 1), 1), ("+", (1, 11), 2)]
    assert task.run(batch(S, ((1, 5), 3), ((1, -5), 4), ((2, 1), 5))) == [("<", (2, 1), 5), (">", (2, 2), 5)]


def test_an_aggregate_that_cannot_be_undone_is_refused_over_a_table():
    with pytest.raises(AggregateUnsupported, match="MAX cannot be used over a table"):
        counting("MAX:v", input_change="retract")


def test_a_failing_aggregate_leaves_the_group_and_a_dead_letter():
    def fail(_r: Resolution, _i: Any) -> Any:
        return lambda acc, v: acc + 10 // v

    register_aggregate(
        AggregateFunction("BRITTLE", lambda t, i: Resolution(t, BIGINT), lambda r, i: 0, fail, lambda r, i: lambda a: a)
    )
    try:
        task = counting("BRITTLE:v")
        assert task.run(batch(S, ((1, 5), 0), ((1, 0), 1), ((1, 10), 2))) == [("+", (1, 2), 0), (">", (1, 3), 2)]
        assert [(d.seq, d.code) for d in task.dead] == [(1, "FQ4026")]
    finally:
        unregister_aggregate("BRITTLE")


def test_a_relation_without_key_columns_has_one_group():
    s = schema("", "v")
    task = Task(*aggregate(s, "COUNT"))
    assert task.run(batch(s, ((3,), 0), ((4,), 1))) == [("+", (1,), 0), (">", (2,), 1)]


def _of_18(n: int) -> Decimal:
    return Context(prec=60).scaleb(Decimal(n), -18)


TYPES: dict[str, tuple[SqlType, st.SearchStrategy[Any]]] = {
    "i": (INT, st.integers(-(2**31), 2**31 - 1)),
    "b": (BIGINT, st.integers(-(2**63), 2**63 - 1)),
    "d": (DOUBLE, st.integers(-1000, 1000).map(float)),
    "t": (TIMESTAMP, st.integers(-(2**40), 2**40)),
    "D": (DATE, st.integers(-30_000, 30_000)),
    "s": (STRING, st.text(max_size=2)),
    "n": (decimal(4, 2), st.integers(-(10**4) + 1, 10**4 - 1).map(lambda n: Decimal(n).scaleb(-2))),
    "m": (decimal(6, 1), st.integers(0, 999).map(lambda n: Decimal(n).scaleb(-1))),
    "p": (decimal(3, 1), st.integers(-900, 0).map(lambda n: Decimal(n).scaleb(-1))),
    "w": (decimal(38, 18), st.sampled_from((10, 10**18, 10**37)).flatmap(lambda n: st.integers(-n, n)).map(_of_18)),
}
WIDE = Schema((Field("k1", STRING, "key"), Field("k2", DATE, "key"), *(Field(n, t) for n, (t, _) in TYPES.items())))
NATIVE = "COUNT COUNT:s COUNT:D SUM:i SUM:b SUM:d AVG:d AVG:b MIN:i MAX:b MIN:d MAX:t MIN:D"
EXACT = (
    "sql_sum:i sql_sum:b sql_sum:n sql_sum:w sql_avg:i sql_avg:b sql_avg:n sql_avg:w MIN:n MAX:n MIN:w MAX:w COUNT:w"
)
LIMITED = "SUM:n SUM:m SUM:p SUM:w"  # a DECIMAL overflows with one of the rows
ROWS = st.lists(
    st.tuples(
        st.sampled_from(["+", "+", "+", "-"]),
        st.tuples(
            st.one_of(st.none(), st.sampled_from("ab")),
            st.one_of(st.none(), st.integers(0, 1)),
            *(st.one_of(st.none(), s) for _, s in TYPES.values()),
        ),
        st.integers(0, 60),
    ),
    max_size=30,
)
WINDOWS = st.sampled_from(
    [
        (None, False),
        (Window("tumbling", 10, 10, grace_ms=5), False),
        (Window("hopping", 10, 4, grace_ms=0), False),
        (Window("hopping", 10, 5, grace_ms=3), True),
        (Window("tumbling", 7, 7, grace_ms=0, retention_ms=500), True),
        (Window("cumulating", 12, 4, grace_ms=2), False),
        (Window("cumulating", 12, 4, grace_ms=2), True),
    ]
)


def _wide(task: Task, rows: Any, start: int) -> list[Any]:
    return task.run(_as_taken(task, rows, start))


def _as_taken(task: Task, rows: Any, start: int) -> Batch:
    b = batch(WIDE, *rows, start=start)
    return Batch(WIDE, arrow=b.arrow(), rowtime=b.rowtime, op=b.op, seq=b.seq) if task.vector else b


@settings(max_examples=120, deadline=None)
@given(
    ROWS,
    st.lists(st.integers(0, 30), max_size=3),
    WINDOWS,
    st.sampled_from(["upsert", "retract"]),
    st.sampled_from([NATIVE, EXACT, LIMITED, "SUM:m sql_avg:n"]),
)
def test_columns_equal_rows(rows, points, windowed, change, text):
    window, final = windowed
    tasks = []
    for vector in (False, True):
        plan = aggregate(WIDE, text, window=window, final=final, change=change)
        task = Task(*plan, coalesce=True, vector=vector)
        assert getattr(task.operator, "_partials") is not None  # noqa: B009
        out, start = [], 0
        for part in cuts(rows, points):
            out.append(_wide(task, part, start))
            start += len(part)
        tasks.append((out, task.table(), task.late, task.dead))
    by_row, by_column = tasks
    assert by_column[1:] == by_row[1:]
    if change == "retract" or final:
        assert by_column[0] == by_row[0]
    else:  # the row path leaves out what did not change, the columns do not look
        flat = {(i, r) for i, o in enumerate(by_row[0]) for r in o}
        assert flat <= {(i, r) for i, o in enumerate(by_column[0]) for r in o}


@pytest.mark.parametrize("digits", range(1, 19))
def test_columns_refuse_a_sum_just_below_the_range_as_rows_do(digits):
    """Sums of two's complement lose small negative numbers in doubles."""
    s = Schema((Field("k", BIGINT, "key"), Field("x", decimal(digits, 0))))
    first, second = Decimal(1 - 10**digits), Decimal(-1)
    tasks = []
    for vector in (False, True):
        task = Task(*aggregate(s, "SUM:x"), coalesce=True, vector=vector)
        out = []
        for at, value in enumerate((first, second)):
            rows = from_rows(s, [(1, value)], [0], [0], [at])
            out.append(task.run(Batch(s, arrow=rows.arrow(), rowtime=rows.rowtime, op=rows.op, seq=rows.seq)))
        tasks.append((out, task.table(), task.dead))
    assert tasks[0] == tasks[1]
    assert tasks[0][2]


def test_nan_goes_through_the_row_path():
    s = Schema((Field("k", BIGINT, "key"), Field("d", DOUBLE)))
    task = Task(*aggregate(s, "MAX:d"), coalesce=True, vector=True)
    plain = Task(*aggregate(s, "MAX:d"), coalesce=True, vector=False)
    rows = from_rows(s, [(1, 1.0), (1, float("nan")), (1, 2.0)], [0, 1, 2], [0, 0, 0], [0, 1, 2])
    assert repr(task.run(rows)) == repr(plain.run(rows))
