"""The index of open windows follows the store, whatever happened to the runs before."""

from __future__ import annotations

import pytest

from flowql.compiler.plan.logical import Window
from flowql.runtime.operators.base import MicroBatchContext
from tests.runtime.operators.world import Task, aggregate, batch, schema

S = schema("k:STRING", "v")
WINDOW = Window("tumbling", 10, 10, grace_ms=0)


def task(**options):
    return Task(*aggregate(S, "COUNT", window=WINDOW, final=True), **options)


def test_windows_open_before_a_restart_are_given_after_it():
    first = task()
    first.run(batch(S, (("b", 1), 1), (("a", 1), 2)))
    got = task(state=first.state).run(batch(S, (("a", 1), 11), start=2))
    assert [r for _, r, _ in got] == [("a", 0, 10, 1), ("b", 0, 10, 1)]


def test_windows_that_a_failed_run_closed_are_given_by_the_next():
    it = task()
    it.run(batch(S, (("a", 1), 1)))
    closes = batch(S, (("b", 1), 12), start=1)
    times = dict(it.state.metadata["times"])
    it.operator.process([closes], MicroBatchContext(state=it.state, stream_times=times, coalesce=False))
    it.state.discard()
    assert [r for _, r, _ in it.run(closes)] == [("a", 0, 10, 1)]


@pytest.mark.parametrize("vector", [False, True])
def test_columns_close_what_rows_close_even_where_updates_are_not_coalesced(vector):
    it = task(vector=vector)
    rows = [((f"k{i % 7}", 1), i) for i in range(45)]
    got = it.run(batch(S, *rows[:20])) + it.run(batch(S, *rows[20:], start=20))
    assert [r[:2] for _, r, _ in got] == [(f"k{i}", start) for start in (0, 10, 20, 30) for i in range(7)]
    assert sum(r[3] for _, r, _ in got) == 40
