"""The inner join of two streams row by row and in columns: the same rows, state, stream times and late rows."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from flowql.compiler.plan.event_times import EARLIEST_MS, LATEST_MS
from flowql.compiler.plan.schema import Field, Schema
from flowql.compiler.plan.types import BIGINT, STRING, SqlType, array
from flowql.runtime.batch import DELETE, INSERT, Batch, from_rows
from flowql.runtime.operators.base import MicroBatchContext
from tests.runtime.operators.world import Task, join

KEYS = {BIGINT: (None, 0, -1), STRING: (None, "", "é\U0001f600")}
VALUES = st.tuples(st.sampled_from([None, "", "x"]), st.sampled_from([None, [], [1, None]]))
TIMES = st.one_of(st.integers(-9, 9), st.sampled_from([-62_135_596_800_000, 0, 253_402_300_799_999]))
BOUNDS = st.fixed_dictionaries(
    {
        "before_ms": st.sampled_from([0, 1, 2, 5, 20]),
        "after_ms": st.sampled_from([0, 1, 2, 5, 20]),
        "grace_ms": st.sampled_from([None, 0, 1, 10]),
    }
)


def sides(t: SqlType) -> tuple[Schema, Schema, Schema]:
    """Of the two streams, and of their join: key columns in other places, a column of the right key, some left out."""
    values = (Field("A", STRING), Field("N", array(BIGINT)))
    left = Schema((values[0], Field("LK", t, "key"), values[1]))
    right = Schema((Field("RK", t, "key"), Field("B", STRING), Field("M", array(BIGINT))))
    return (
        left,
        right,
        Schema((Field("M", array(BIGINT)), Field("LK", t, "key"), values[0], Field("RK", t), Field("B", STRING))),
    )


@st.composite
def runs(draw: Any, t: SqlType) -> list[tuple[Batch | None, Batch | None]]:
    """Several runs; `seq` of the two sides is mixed, with ties."""
    made = []
    for _ in range(draw(st.integers(1, 4))):
        batches: list[Batch | None] = []
        for schema in sides(t)[:2]:
            rows, n = [], draw(st.integers(0, 8))
            for _ in range(n):
                key, value, time = draw(st.sampled_from(KEYS[t])), draw(VALUES), draw(TIMES)
                op = draw(st.sampled_from([INSERT, INSERT, INSERT, DELETE]))
                row = (value[0], key, value[1]) if schema.names[0] == "A" else (key, *value)
                rows.append((row, time, op))
            seq = sorted(draw(st.lists(st.integers(0, 9), min_size=n, max_size=n)))
            batches.append(from_rows(schema, *map(list, zip(*rows, strict=True)), seq) if n else None)  # type: ignore[arg-type]
        made.append((batches[0], batches[1]))
    return made


def outcome(task: Task, given: list[tuple[Batch | None, Batch | None]]) -> list[Any]:
    """What each run gives and leaves."""
    found: list[Any] = []
    for batches in given:
        times = dict(task.state.metadata.get("times", {}))
        context = MicroBatchContext(task.state, times, vector=task.vector)
        out = task.operator.process(batches, context)
        task.state.publish({"times": context.stream_times})
        rows = (
            []
            if out is None
            else [*zip(out.rows(), out.rowtime.tolist(), out.op.tolist(), out.seq.tolist(), strict=True)]
        )
        stores = {name: dict(store.published) for name, store in task.state.stores.items()}
        found.append((rows, stores, context.stream_times, context.late, context.behind))
    return found


@settings(max_examples=150, deadline=None)
@given(st.data(), st.sampled_from([BIGINT, STRING]), BOUNDS)
def test_rows_and_columns_join_streams_alike(data: Any, t: SqlType, bounds: dict[str, Any]) -> None:
    left, right, out = sides(t)
    made = data.draw(runs(t))
    plan = join(left, right, out, "stream-stream", "inner", **bounds)
    by_rows, by_columns = (Task(*plan, vector=vector) for vector in (False, True))
    assert by_columns.operator._columns is not None  # type: ignore[attr-defined]
    assert outcome(by_columns, made) == outcome(by_rows, made)


@settings(max_examples=40, deadline=None)
@given(st.data(), st.booleans())
def test_a_join_that_forgets_nothing_gives_the_same_over_filtered_sides(data: Any, vector: bool) -> None:
    """What `push_filter` relies on."""
    left, right, out = sides(BIGINT)
    made = data.draw(runs(BIGINT))
    for batch in (b for pair in made for b in pair if b is not None):
        batch.rowtime[:] = np.clip(batch.rowtime, EARLIEST_MS, LATEST_MS - 1)
    plan = join(left, right, out, "stream-stream", "inner", before_ms=0, after_ms=LATEST_MS - EARLIEST_MS, grace_ms=0)
    filtered = [(keeping(a, "A"), keeping(b, "B")) for a, b in made]
    below = outcome(Task(*plan, vector=vector), filtered)
    above = outcome(Task(*plan, vector=vector), made)
    a, b = (out.names.index(n) for n in ("A", "B"))
    assert [run[0] for run in below] == [[r for r in run[0] if r[0][a] == r[0][b] == "x"] for run in above]
    assert not any(run[3] for run in above)


def keeping(batch: Batch | None, column: str) -> Batch | None:
    if batch is None:
        return None
    at = batch.schema.names.index(column)
    return batch.take(np.array([i for i, row in enumerate(batch.rows()) if row[at] == "x"], np.int64))


@pytest.mark.parametrize("vector", [False, True])
def test_a_row_is_met_until_its_side_has_forgotten_it(*, vector: bool) -> None:
    left, right, out = sides(BIGINT)
    met = {}
    for age in (5, 6, 7):
        task = Task(
            *join(left, right, out, "stream-stream", "inner", before_ms=2, after_ms=3, grace_ms=1), vector=vector
        )
        ahead = from_rows(left, [("old", 0, None), ("new", 0, None)], [0, age], [INSERT, INSERT], [0, 1])
        found = outcome(task, [(ahead, from_rows(right, [(0, "late", None)], [0], [INSERT], [2]))])
        met[age] = [row for row, *_ in found[0][0]]
    assert met == {5: [(None, 0, "old", 0, "late")], 6: [], 7: []}
