"""Groups over changes are the same by columns and by rows: what they give, and what is kept of them."""

from __future__ import annotations

from decimal import Decimal

from hypothesis import given, settings
from hypothesis import strategies as st

from flowql.compiler.plan.changes import GroupAggregate, GroupCall
from flowql.compiler.plan.schema import Field, Schema
from flowql.compiler.plan.topology import Operator, StoreSpec
from flowql.compiler.plan.types import BIGINT, BOOLEAN, DATE, INT, STRING, decimal
from flowql.runtime.batch import DELETE, INSERT, from_rows
from flowql.runtime.operators.base import MicroBatchContext
from flowql.runtime.operators.changes.group_columns import Declined, GroupColumns
from tests.runtime.operators.world import Task, source

MONEY = decimal(12, 2)
SOURCE = Schema(
    (
        Field("__id", BIGINT, "key"),
        *(
            Field(n, t)
            for n, t in (
                ("k", INT),
                ("s", STRING),
                ("on", DATE),
                ("i", INT),
                ("b", BIGINT),
                ("d", MONEY),
                ("p", BOOLEAN),
            )
        ),
    )
)
CALLS = (
    GroupCall("rows", "COUNT", (), BIGINT),
    GroupCall("known", "COUNT", ("b",), BIGINT),
    GroupCall("total", "SUM", ("i",), BIGINT),
    GroupCall("wide", "SUM", ("b",), decimal(38, 0), filter="p"),
    GroupCall("money", "SUM", ("d",), decimal(38, 2)),
    GroupCall("mean", "AVG", ("d",), decimal(38, 10)),
)
KEYS = [("k",), ("s", "on"), ("on", "k", "s")]
LARGE = (1 << 63) - 1
ROW = st.tuples(
    st.none() | st.integers(0, 2),
    st.none() | st.sampled_from(["", "a", "b\0c"]),
    st.none() | st.integers(0, 1),
    st.none() | st.integers(-3, 3),
    st.none() | st.integers(-3, 3) | st.sampled_from([LARGE, -LARGE]),
    st.none() | st.integers(-999, 999).map(lambda n: Decimal(n).scaleb(-2)),
    st.none() | st.booleans(),
)


def task(keys: tuple[str, ...], *, vector: bool) -> Task:
    types = {f.name: f.type for f in SOURCE}
    key = tuple(Field(f"__{k}", types[k], "key") for k in keys)
    schema = Schema((*key, *(Field(c.name, c.type) for c in CALLS)))
    store = StoreSpec("groups", "table", Schema(key), Schema(schema.value))
    plan = Operator("groups", GroupAggregate(keys, CALLS), ("source",), schema, "retract", (store,))
    return Task(plan, [source(SOURCE, "retract")], vector=vector)


@st.composite
def histories(draw):
    """Runs of changes: (sign, row), in which only rows leave that have come."""
    runs, here = [], []
    for _ in range(draw(st.integers(1, 4))):
        run = []
        for _ in range(draw(st.integers(1, 12))):
            if here and draw(st.booleans()):
                run.append((DELETE, here.pop(draw(st.integers(0, len(here) - 1)))))
            else:
                row = (0, *draw(ROW))
                here.append(row)
                run.append((INSERT, row))
        runs.append(run)
    return draw(st.sampled_from(KEYS)), runs


@given(histories())
@settings(deadline=None, max_examples=80)
def test_columns_give_and_keep_what_rows_do(drawn) -> None:
    keys, runs = drawn
    by_rows, by_columns = task(keys, vector=False), task(keys, vector=True)
    seq = 0
    for run in runs:
        ops, rows = zip(*run, strict=True)
        times = [7 * i % 5 for i in range(len(rows))]
        made = from_rows(SOURCE, list(rows), times, list(ops), list(range(seq, seq + len(rows))))
        seq += len(rows)
        want, got = by_rows.run(made), by_columns.run(made)
        assert sorted(want, key=repr) == sorted(got, key=repr)
        assert by_rows.table() == by_columns.table()
    assert by_rows.dead == by_columns.dead == []


def test_batches_are_taken_by_columns_unless_a_sum_is_too_wide() -> None:
    operator = task(("k",), vector=True).operator
    columns = operator._columns  # type: ignore[attr-defined]
    assert isinstance(columns, GroupColumns)
    state = task(("k",), vector=True).state
    for value, declined in ((5, False), (LARGE, True)):
        batch = from_rows(SOURCE, [(0, 1, "a", 0, 1, value, None, True)], [0], [INSERT], [0])
        context = MicroBatchContext(state=state)
        try:
            assert columns.apply(batch, state.store("groups"), context) is not None
        except Declined:
            assert declined
        else:
            assert not declined


def test_before_images_that_nobody_reads_are_not_made() -> None:
    it = task(("k",), vector=True)
    row = (0, 1, "a", 0, 1, 2, None, True)
    it.run(from_rows(SOURCE, [row], [0], [INSERT], [0]))
    context = MicroBatchContext(state=it.state, vector=True, befores=False)
    out = it.operator.process([from_rows(SOURCE, [row], [0], [INSERT], [1])], context)
    assert out is not None
    assert [r[:2] for r in out.rows()] == [(1, 2)]
