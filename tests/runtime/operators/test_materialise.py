"""The latest row of each key: whole columns against row by row, and both against DuckDB."""

from decimal import Decimal

import duckdb
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from flowql.compiler.plan.logical import Materialise
from flowql.compiler.plan.schema import Field, Schema
from flowql.compiler.plan.topology import Operator, StoreSpec
from flowql.compiler.plan.types import BIGINT, DATE, DOUBLE, INT, STRING, array, decimal
from flowql.runtime.batch import Batch
from tests.runtime.operators.world import Task, batch, cuts, source

VALUES = {
    "i": (INT, st.integers(0, 1)),
    "d": (DOUBLE, st.sampled_from([0.0, -0.0, 1.5, float("nan")])),
    "s": (STRING, st.sampled_from(["", "a", "\0"])),
    "m": (
        decimal(30, 2),
        st.sampled_from([Decimal("0.00"), Decimal("1.10"), Decimal("1E+20").quantize(Decimal("0.01"))]),
    ),
    "n": (decimal(4, 1), st.sampled_from([Decimal("0.0"), Decimal("-999.9")])),
    "x": (array(INT), st.lists(st.none() | st.integers(0, 1), max_size=1)),
}
SCHEMA = Schema(
    (Field("k", STRING, "key"), *(Field(n, t) for n, (t, _) in VALUES.items()), Field("l", DATE, "key")),
)
FEW = st.tuples(*(st.none() | values for _, values in VALUES.values()))
ROW = st.tuples(st.sampled_from(["a", "b\0", None]), FEW, st.sampled_from([0, 1, None]))
ROWS = st.lists(
    st.tuples(st.sampled_from("++>><--"), ROW.map(lambda r: (r[0], *r[1], r[2])), st.integers(0, 60)),
    min_size=6,
    max_size=30,
)


def latest_plan(s: Schema, *, null_group: bool = False) -> tuple[Operator, list[Operator]]:
    store = StoreSpec("latest", "table", Schema(s.key), Schema(s.value))
    plan = Operator("latest", Materialise(null_group), ("source",), s, "retract", (store,))
    return plan, [source(s, "upsert")]


def latest(s: Schema, *, null_group: bool = False, **options: bool) -> Task:
    return Task(*latest_plan(s, null_group=null_group), coalesce=True, **options)


def in_columns(b: Batch, *, headers: bool) -> Batch:
    marks = [("h", str(s).encode()) for s in b.seq.tolist()] if headers else None
    return Batch(b.schema, arrow=b.arrow(), rowtime=b.rowtime, op=b.op, seq=b.seq, headers=marks)


@settings(max_examples=150, deadline=None)
@given(ROWS, st.lists(st.integers(0, 30), max_size=3), st.booleans(), st.booleans())
def test_columns_equal_rows(rows, points, null_group, headers):
    tasks = []
    for vector in (False, True):
        task = latest(SCHEMA, null_group=null_group, vector=vector)
        out, start = [], 0
        for part in cuts(rows, points):
            given_rows = in_columns(batch(SCHEMA, *part, start=start), headers=headers)
            made = task.run_batch(given_rows) if part else None
            if made is not None:
                out.append(
                    (made.op.tolist(), repr(made.rows()), made.rowtime.tolist(), made.seq.tolist(), made.headers)
                )
            start += len(part)
        tasks.append((out, repr(sorted(task.table().items(), key=repr))))
    assert tasks[0] == tasks[1]


@pytest.mark.parametrize("vector", [True, False])
def test_the_table_is_what_duckdb_says_of_the_records(vector):
    s = Schema((Field("k", BIGINT, "key"), Field("v", INT)))
    random = __import__("random").Random(5)
    records = [(random.choice("+++-"), (random.randrange(40), random.randrange(3)), t) for t in range(600)]
    task = latest(s, vector=vector)
    shown: dict[int, int] = {}
    for start in range(0, len(records), 100):
        for op, (k, v), _ in task.run(in_columns(batch(s, *records[start : start + 100], start=start), headers=False)):
            if op in "<-":
                assert shown.pop(k) == v
            else:
                assert k not in shown
                shown[k] = v
    given_records = pa.table({"n": range(600), "op": [o for o, _, _ in records], "k": [r[0] for _, r, _ in records], "v": [r[1] for _, r, _ in records]})  # fmt: skip
    assert given_records.num_rows == 600
    wanted = duckdb.sql(
        "SELECT k, arg_max(v, n) FROM given_records GROUP BY k HAVING arg_max(op, n) <> '-' ORDER BY k"
    ).fetchall()
    assert sorted(shown.items()) == wanted
    assert [(k, v[0]) for (k,), v in sorted(task.table().items())] == wanted


def test_a_row_of_the_state_that_is_no_valid_text_is_replaced_row_by_row():
    s = Schema((Field("k", BIGINT, "key"), Field("v", STRING)))
    task = latest(s, vector=False)
    task.run(batch(s, ((1, "\ud800"), 0)))
    task.vector = True
    out = task.run(in_columns(batch(s, ((1, "b"), 1), ((2, "c"), 2), start=1), headers=False))
    assert out == [("<", (1, "\ud800"), 1), (">", (1, "b"), 1), ("+", (2, "c"), 2)]


@pytest.mark.parametrize("vector", [True, False])
def test_a_row_that_is_removed_twice_goes_with_the_first_removal(vector):
    s = Schema((Field("k", BIGINT, "key"), Field("v", INT)))
    task = latest(s, vector=vector)
    task.run(in_columns(batch(s, ((1, 5), 0), ((2, 6), 1)), headers=False))
    removals = batch(s, ("-", (1, None), 3), ("-", (2, None), 4), ("-", (1, None), 5), ("-", (3, None), 6), start=2)
    assert task.run(in_columns(removals, headers=False)) == [("-", (1, 5), 3), ("-", (2, 6), 4)]
