"""The operators on the state manager: encoded, committed and reopened state gives the rows that dicts give."""

from __future__ import annotations

from typing import Any

import hypothesis.strategies as st
import pytest
from hypothesis import example, given, settings

from flowql.runtime.operators.base import MicroBatchContext
from flowql.runtime.state.manager import StateManager
from flowql.runtime.state.memory import MemoryPhysical
from tests.runtime.operators.test_aggregate import EXACT, LIMITED, NATIVE, ROWS, WIDE, WINDOWS, _as_taken, _wide
from tests.runtime.operators.test_join_columns import EVENTS, LEFT, OUT, RIGHT, in_columns
from tests.runtime.operators.test_joins import FULL, L, R
from tests.runtime.operators.test_materialise import latest_plan
from tests.runtime.operators.test_splits import ONE, POINTS, TWO, WINDOWED, S, _pair, _runs
from tests.runtime.operators.world import Task, aggregate, batch, cuts, join


class Managed:
    """A task's state that is committed, closed and opened again after every publish where `reopen`."""

    def __init__(self, stores: Any, *, reopen: bool) -> None:
        self.specs, self.reopen = stores, reopen
        self.physical = MemoryPhysical()
        self._open()

    def _open(self) -> None:
        self.manager = StateManager(self.physical)
        self.task = self.manager.open_task("0_0", 0, self.specs)

    def store(self, name: str) -> Any:
        return self.task.store(name)

    @property
    def metadata(self) -> Any:
        return self.task.metadata

    def publish(self, metadata: Any) -> None:
        with self.manager.epoch_lock:
            self.task.publish(metadata)
        if self.reopen:
            self.restart()

    def discard(self) -> None:
        self.task.discard()

    def restart(self) -> None:
        self.manager.apply(self.manager.cut(), self.manager.applied_sequence + 1)
        self.manager.close_task("0_0")
        self._open()


def _both(plan: Any, feed: Any, *, reopen: bool, **options: Any) -> None:
    outs = []
    for state in (None, Managed(plan[0].stores, reopen=reopen)):
        outs.append(feed(Task(*plan, state=state, **options)))
    assert outs[0] == outs[1]


@pytest.mark.parametrize("reopen", [False, True])
@settings(max_examples=40, deadline=None)
@given(rows=ONE, points=POINTS, windowed=WINDOWED)
def test_aggregates(reopen, rows, points, windowed):
    window, final = windowed

    def feed(task: Task) -> Any:
        out, start = [], 0
        for part in cuts(rows, points):
            out += task.run(batch(S, *part, start=start))
            start += len(part)
        return out

    _both(aggregate(S, "AVG:v COUNT MAX:v", window=window, final=final), feed, reopen=reopen)


RUNS = st.lists(
    st.tuples(st.integers(1, 30), st.booleans(), st.sampled_from(("", "", "", "fails", "restarts"))), max_size=6
)


@settings(max_examples=150, deadline=None)
@given(
    rows=ROWS,
    runs=RUNS,
    windowed=WINDOWS,
    change=st.sampled_from(["upsert", "retract"]),
    text=st.sampled_from([NATIVE, EXACT, LIMITED]),
)
def test_windows_by_rows_and_by_columns_have_one_state(rows, runs, windowed, change, text):
    """runs: before which row one begins, whether it takes columns, and what happens before it: the same rows in a run that fails, or a restart."""
    window, final = windowed
    plan = aggregate(WIDE, text, window=window, final=final, change=change)
    expected = Task(*plan, coalesce=True, vector=False)
    task = Task(*plan, coalesce=True, state=Managed(plan[0].stores, reopen=False))
    how = {at: (vector, before) for at, vector, before in runs}
    start = 0
    for part in cuts(rows, list(how)):
        task.vector, before = how.get(start, (True, ""))
        if before == "fails":
            _fail(task, part, start)
        elif before == "restarts":
            task.state.restart()
            task = _taken_over(plan, task)
        by_row, given_rows = _wide(expected, part, start), _wide(task, part, start)
        if change == "retract" or final:
            assert given_rows == by_row
        else:  # columns give a row that did not change, too
            assert [r for r in given_rows if r in by_row] == by_row
        start += len(part)
    found = dict(task.state.store(plan[0].stores[0].name).scan())
    assert found == {k: v for k, v in expected.state.store(plan[0].stores[0].name).scan()}
    assert task.late == expected.late


# The row of the table has no key, so a micro-batch stages nothing before it looks rows up: this was an IndexError.
ROW_WITHOUT_KEY = [*[(0, "+", ("b", None), 0)] * 27, (1, "+", (None,) * 7, 0), *[(0, "+", ("b", None), 0)] * 2]


@settings(max_examples=100, deadline=None)
@given(EVENTS, RUNS, st.sampled_from(["latest", "stream-table left", "table-table inner", "table-table full"]))
@example(ROW_WITHOUT_KEY, [(27, True, "")], "stream-table left")
def test_tables_by_rows_and_by_columns_have_one_state(events, runs, what):
    shape, _, kind = what.partition(" ")
    if shape == "latest":
        events, plan = [(0, *row) for side, *row in events if side == 1], latest_plan(RIGHT)
    else:
        inputs = ("append" if shape == "stream-table" else "upsert", "upsert")
        plan = join(LEFT, RIGHT, OUT, shape, kind, change="retract", inputs=inputs)
    schemas = [i.schema for i in plan[1]]
    expected = Task(*plan, coalesce=True, vector=False)
    task = Task(*plan, coalesce=True, state=Managed(plan[0].stores, reopen=False))
    how = {at: (vector, before) for at, vector, before in runs}
    start = 0
    for part in cuts(events, list(how)):
        task.vector, before = how.get(start, (True, ""))
        given_rows = in_columns(schemas, part, start)
        if before == "fails":
            context = MicroBatchContext(state=task.state, coalesce=True, vector=task.vector)
            task.operator.process(given_rows, context)
            task.state.discard()
        elif before == "restarts":
            task.state.restart()
            task = Task(*plan, coalesce=True, vector=task.vector, state=task.state)
        start += len(part)
        if part:
            assert repr(task.run(*given_rows)) == repr(expected.run(*given_rows))
    for store in plan[0].stores:
        found, wanted = (sorted(t.state.store(store.name).scan(), key=repr) for t in (task, expected))
        assert repr(found) == repr(wanted)


def _fail(task: Task, part: Any, start: int) -> None:
    context = MicroBatchContext(
        state=task.state, stream_times=dict(task.state.metadata.get("times", {})), coalesce=True, vector=task.vector
    )
    task.operator.process([_as_taken(task, part, start)], context)
    task.state.discard()


def _taken_over(plan: Any, task: Task) -> Task:
    """The task with an operator that knows nothing."""
    made = Task(*plan, coalesce=True, vector=task.vector, state=task.state)
    made.late = task.late
    return made


@settings(max_examples=60, deadline=None)
@given(
    rows=TWO,
    points=POINTS,
    kind=st.sampled_from(["inner", "left", "full"]),
    shape=st.sampled_from(["stream-stream", "table-table"]),
    grace=st.sampled_from([None, 0, 6]),
)
def test_joins(rows, points, kind, shape, grace):
    options = {"before_ms": 5, "after_ms": 4, "grace_ms": grace} if shape == "stream-stream" else {}

    def feed(task: Task) -> Any:
        return [r for pair in _runs(rows, points, L, R, _pair) for r in task.run(*pair)]

    plan = join(L, R, FULL, shape, kind, inputs=("append",) * 2, **options)
    _both(plan, feed, reopen=True)
