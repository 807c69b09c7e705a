"""The operators on the state manager: encoded, committed and reopened state gives the rows that dicts give."""

from __future__ import annotations

from typing import Any

import hypothesis.strategies as st
import pytest
from hypothesis import given, settings

from flowql.runtime.state.manager import StateManager
from flowql.runtime.state.memory import MemoryPhysical
from tests.runtime.operators.test_joins import FULL, L, R
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
