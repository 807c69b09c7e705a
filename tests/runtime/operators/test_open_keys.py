"""The index of open windows and groups follows the store, whatever happened to the runs before."""

from __future__ import annotations

import pytest

from flowql.compiler.plan.logical import Window
from flowql.compiler.plan.watermarks import Closing
from flowql.runtime.batch import UPDATE_AFTER, UPDATE_BEFORE
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


T = schema("k:STRING t", "v")  # groups are closed 10 behind t


class Closed:
    """A task whose groups a watermark closes. closes: whether a group is given then, and never before."""

    def __init__(self, *, closes: bool, vector: bool, state=None):
        plan = aggregate(T, "COUNT SUM:v", final=closes, change="retract", closing=(Closing("t", 10),))
        self.task = Task(*plan, vector=vector, state=state)

    def run(self, watermark, *rows, fails=False):
        """What a run gives, in which the watermark comes to this time: signs and rows."""
        task, given = self.task, batch(T, *rows) if rows else None
        context = MicroBatchContext(
            state=task.state,
            stream_times=dict(task.state.metadata.get("times", {})),
            vector=task.vector,
            watermark=watermark,
        )
        out = task.operator.process([given], context)
        if fails:
            task.state.discard()
            return []
        task.state.publish({"times": context.stream_times})
        return [] if out is None else list(zip(out.op.tolist(), out.rows(), strict=True))


def row(k, t, v=1):
    return (k, t, v), 0


@pytest.mark.parametrize("vector", [False, True])
def test_groups_are_given_when_they_are_closed_and_forgotten(vector):
    it = Closed(closes=True, vector=vector)
    assert it.run(None, row("b", 1), row("a", 2), row("a", 2, None), row("a", None), row(None, 1), row("c", 9)) == []
    assert it.run(10) == []
    assert it.run(12, row("a", 2)) == [(0, (None, 1, 1, 1)), (0, ("b", 1, 1, 1)), (0, ("a", 2, 3, 2))]
    assert it.task.table().keys() == {("a", None), ("c", 9)}, "a group without a time is never closed"


@pytest.mark.parametrize("vector", [False, True])
def test_results_stay_when_groups_are_forgotten(vector):
    it = Closed(closes=False, vector=vector)
    it.run(0, row("a", 2), row("b", 3))
    assert it.run(12, row("a", 2)) == [(UPDATE_BEFORE, ("a", 2, 1, 1)), (UPDATE_AFTER, ("a", 2, 2, 2))]
    assert it.task.table().keys() == {("b", 3)}


@pytest.mark.parametrize("vector", [False, True])
def test_groups_that_a_failed_run_closed_are_given_by_the_next(vector):
    it = Closed(closes=True, vector=vector)
    it.run(0, row("a", 1))
    it.run(30, row("b", 5), fails=True)
    assert it.run(12) == [(0, ("a", 1, 1, 1))]
    assert it.run(30) == [], "the group of the failed run is not there"


@pytest.mark.parametrize("vector", [False, True])
def test_groups_open_before_a_restart_are_given_after_it(vector):
    first = Closed(closes=True, vector=vector)
    first.run(0, row("b", 1), row("a", None), row("a", 1))
    again = Closed(closes=True, vector=vector, state=first.task.state)
    assert again.run(11) == [(0, ("a", 1, 1, 1)), (0, ("b", 1, 1, 1))]
