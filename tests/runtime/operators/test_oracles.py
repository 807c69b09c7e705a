"""Operators against one DuckDB statement over all rows."""

from __future__ import annotations

from collections import Counter
from typing import Any

import duckdb
import hypothesis.strategies as st
import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings

from flowql.compiler.plan.logical import Window
from flowql.runtime.batch import Batch
from tests.runtime.operators.test_joins import FULL, OUT, L, R
from tests.runtime.operators.world import Task, aggregate, batch, cuts, join, schema

S = schema("k", "v")


def _sql(statement: str, **tables: pa.Table) -> list[Any]:
    with duckdb.connect() as db:
        for name, table in tables.items():
            db.register(name, table)
        return db.execute(statement).fetchall()


def _records(seed: int, n: int, late: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Keys, values and times; times rise but for up to `late` ms."""
    rng = np.random.default_rng(seed)
    times = np.sort(rng.integers(0, 5_000, n)) + 10_000 - rng.integers(0, late + 1, n)
    return rng.integers(0, 30, n), rng.integers(-50, 50, n), times


def _feed(task: Task, keys: Any, values: Any, times: Any, size: int) -> list[Any]:
    out = []
    for a in range(0, len(keys), size):
        part = slice(a, a + size)
        n = len(keys[part])
        record = pa.RecordBatch.from_arrays([pa.array(keys[part]), pa.array(values[part])], names=["k", "v"])
        zeros = np.zeros(n, np.int8)
        out += task.run(Batch(S, arrow=record, rowtime=times[part], op=zeros, seq=np.arange(a, a + n)))
    return out


@pytest.mark.parametrize("vector", [True, False])
def test_unwindowed(vector):
    keys, values, times = _records(1, 4_000, 0)
    task = Task(*aggregate(S, "COUNT SUM:v MIN:v MAX:v AVG:v"), coalesce=True, vector=vector)
    out = _feed(task, keys, values, times, 600)
    records = pa.table({"k": keys, "v": values})
    expected = _sql("SELECT k, count(*), sum(v), min(v), max(v), avg(v) FROM records GROUP BY k", records=records)
    final = {r[0]: r for _, r, _ in out}
    assert {r[0]: (*map(int, r[:5]), pytest.approx(r[5])) for r in expected} == final


@pytest.mark.parametrize("vector", [True, False])
@pytest.mark.parametrize("final", [True, False])
@pytest.mark.parametrize("window", [Window("tumbling", 100, 100, 50, 9_000), Window("hopping", 90, 40, 60, 9_000)])
def test_windows_without_late_rows(window, final, vector):
    keys, values, times = _records(2, 4_000, 50)
    task = Task(*aggregate(S, "COUNT SUM:v", window=window, final=final), coalesce=True, vector=vector)
    out = _feed(task, keys, values, times, 700)
    assert task.late == 0
    records = pa.table({"k": keys, "v": values, "t": times})
    expected = _sql(
        f"""SELECT k, s, s + {window.size_ms}, count(*), sum(v) FROM
            (SELECT *, unnest(range(0, {window.size_ms}, {window.advance_ms})) AS back FROM records),
            LATERAL (SELECT t - t % {window.advance_ms} - back AS s)
            WHERE s > t - {window.size_ms} {_closed(window, times) if final else ""} GROUP BY k, s""",
        records=records,
    )
    given_rows = {r[:3]: r for _, r, _ in out}
    if final:
        assert len(given_rows) == len(out), "a window is given once"
    assert given_rows == {r[:3]: (*r[:4], int(r[4])) for r in expected}


@pytest.mark.parametrize("vector", [True, False])
@pytest.mark.parametrize("window", [Window("tumbling", 100, 100, 5, 9_000), Window("hopping", 90, 40, 0, 9_000)])
def test_windows_with_late_rows(window, vector):
    """A row counts in a window whose end and grace period no row up to it has reached, itself included."""
    keys, values, times = _records(4, 4_000, 250)
    task = Task(*aggregate(S, "COUNT SUM:v", window=window), coalesce=True, vector=vector)
    out = _feed(task, keys, values, times, 700)
    records = pa.table({"n": np.arange(len(times)), "k": keys, "v": values, "t": times})
    falls = f"""SELECT *, unnest(range(0, {window.size_ms}, {window.advance_ms})) AS back FROM
            (SELECT *, max(t) OVER (ORDER BY n) AS now FROM records)"""
    windows = f"""({falls}), LATERAL (SELECT t - t % {window.advance_ms} - back AS s) WHERE s > t - {window.size_ms}"""
    closed = f"s + {window.size_ms + window.grace_ms} <= now"
    expected = _sql(
        f"SELECT k, s, s + {window.size_ms}, count(*), sum(v) FROM {windows} AND NOT {closed} GROUP BY k, s",
        records=records,
    )
    ((late,),) = _sql(f"SELECT count(*) FROM {windows} AND {closed}", records=records)
    assert task.late == late > 100
    assert {r[:3]: r for _, r, _ in out} == {r[:3]: (*r[:4], int(r[4])) for r in expected}


@pytest.mark.parametrize("final", [True, False])
def test_cumulating_windows_without_late_rows(final):
    window = Window("cumulating", 120, 40, 60, 9_000)
    keys, values, times = _records(3, 3_000, 50)
    times -= 9_950  # so that the first windows begin with the epoch
    task = Task(*aggregate(S, "COUNT SUM:v", window=window, final=final), coalesce=True)
    out = _feed(task, keys, values, times, 700)
    assert task.late == 0
    records = pa.table({"k": keys, "v": values, "t": times})
    closed = f"AND e + {window.grace_ms} <= {times.max()}" if final else ""
    expected = _sql(
        f"""SELECT k, t - t % 120 AS s, e, count(*), sum(v) FROM
            (SELECT *, unnest([40, 80, 120]) + t - t % 120 AS e FROM records) WHERE e > t {closed} GROUP BY k, s, e""",
        records=records,
    )
    given_rows = {r[:3]: r for _, r, _ in out}
    if final:
        assert len(given_rows) == len(out), "a window is given once"
    assert given_rows == {r[:3]: (*r[:4], int(r[4])) for r in expected}


def _closed(window: Window, times: Any) -> str:
    return f"AND s + {window.size_ms + (window.grace_ms or 0)} <= {times.max()}"


@settings(max_examples=40, deadline=None)
@given(
    st.lists(st.tuples(st.booleans(), st.integers(0, 3), st.integers(0, 60)), max_size=40),
    st.lists(st.integers(0, 40), max_size=4),
    st.sampled_from(["inner", "left"]),
    st.booleans(),
)
def test_stream_table_join_is_an_as_of_join_over_the_order_of_the_run(rows, points, kind, vector):
    task = Task(*join(L, R, OUT, "stream-table", kind, inputs=("append", "upsert")), vector=vector)
    out, start = [], 0
    for part in cuts(rows, points):
        sides: Any = ([], [])
        for seq, (is_left, k, v) in enumerate(part, start):
            sides[not is_left].append((seq, ((k, str(v)), v)))
        start += len(part)
        out += task.run(
            *(
                batch(s, *[r for _, r in side], seqs=[q for q, _ in side]) if side else None
                for s, side in zip((L, R), sides, strict=True)
            )
        )
    columns = list(zip(*[(i, *r) for i, r in enumerate(rows)], strict=True)) or [[], [], [], []]
    types = (pa.int64(), pa.bool_(), pa.int64(), pa.int64())
    arrays = [pa.array(list(c), t) for c, t in zip(columns, types, strict=True)]
    both = pa.table(arrays, names=["i", "is_left", "k", "v"])
    expected = _sql(
        f"""SELECT l.k, l.v::VARCHAR, r.v::VARCHAR FROM (SELECT * FROM both_sides WHERE is_left) l
            ASOF {kind} JOIN (SELECT * FROM both_sides WHERE NOT is_left) r ON l.k = r.k AND l.i >= r.i ORDER BY l.i""",
        both_sides=both,
    )
    assert [r for _, r, _ in out] == expected


@settings(max_examples=40, deadline=None)
@given(
    st.lists(st.tuples(st.booleans(), st.integers(0, 2), st.integers(0, 30)), max_size=30),
    st.sampled_from(["inner", "left", "right", "full"]),
)
def test_stream_stream_join_is_a_band_join_when_nothing_is_late(rows, kind):
    rows = sorted(rows, key=lambda r: r[2])
    plan = join(L, R, FULL, "stream-stream", kind, before_ms=4, after_ms=2, grace_ms=0)
    task = Task(*plan)
    out = []
    for i, (is_left, k, t) in enumerate(rows):
        b = batch(L if is_left else R, ((k, str(i)), t), start=i)
        out += task.run(b, None) if is_left else task.run(None, b)
    out += task.run(batch(L, ((99, "end"), 1_000), start=50), None)
    sides = [[(i, k, t) for i, (left, k, t) in enumerate(rows) if left == wanted] for wanted in (True, False)]
    types = (pa.int64(),) * 3
    left, right = (
        pa.table(
            [pa.array([r[j] for r in side], t) for j, t in enumerate(types)],
            names=["i", "k", "t"],
        )
        for side in sides
    )
    expected = _sql(
        f"""SELECT coalesce(l.k, r.k), l.k, l.i::VARCHAR, r.k, r.i::VARCHAR FROM lefts l {kind} JOIN rights r
            ON l.k = r.k AND r.t BETWEEN l.t - 4 AND l.t + 2""",
        lefts=left,
        rights=right,
    )
    assert Counter(r for _, r, _ in out) == Counter(expected)
