"""A topology of processors as an operator of a task (KIP-28).

Objects of processors live from run to run, and what they keep in attributes is not state. So they are made anew whenever what they have
seen is not what is published: after a run that failed, or was dropped with its epoch. A counter of runs in the task's metadata tells.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from flowql.compiler.plan.processors import Process
from flowql.compiler.plan.topology import Operator
from flowql.runtime.batch import Batch
from flowql.runtime.operators.base import AT_ONCE, NO_TIME, MicroBatchContext
from flowql.runtime.operators.processors.running import RunningTopology


class ProcessOperator:
    """Implements `Timed`."""

    def __init__(self, plan: Operator, inputs: Sequence[Operator]) -> None:
        assert isinstance(plan.spec, Process)
        self.plan, self._spec = plan, plan.spec
        self._inputs = inputs
        self._stores = {s.name: spec.name for s, spec in zip(plan.spec.stores, plan.stores, strict=True)}
        self._running: RunningTopology | None = None
        self._runs = 0
        self.due_ms: int | None = AT_ONCE  # `init` is called before there are records

    def process(self, inputs: Sequence[Batch | None], run: MicroBatchContext) -> Batch | None:
        saved: Mapping[str, Any] = run.timers.get(self.plan.id, {})
        running = self._ready(saved, run)
        try:
            batch = running.run(inputs, run)
        except BaseException:
            self._drop()
            raise
        self.due_ms = running.schedules.next_ms("wall")
        if batch is None and all(b is None for b in inputs) and not running.has_changed(saved.get("schedules", ())):
            return None  # a punctuation that did nothing is no reason for a commit
        self._runs += 1
        run.timers[self.plan.id] = {"runs": self._runs, "schedules": running.schedules.to_data()}
        return batch

    def _ready(self, saved: Mapping[str, Any], run: MicroBatchContext) -> RunningTopology:
        """Objects that have seen what is published, and nothing else."""
        runs = saved.get("runs", 0)
        if self._running is not None and self._runs == runs:
            return self._running
        self._drop()
        stream_time = run.stream_times.get(self.plan.id, NO_TIME)
        made = RunningTopology(self.plan, self._inputs, self._stores, saved.get("schedules", ()), stream_time)
        if self._close not in run.state.closing:
            run.state.closing.append(self._close)
        made.begin(run)
        made.initialise()
        self._running, self._runs = made, runs
        return made

    def _drop(self) -> None:
        running, self._running = self._running, None
        if running is not None:
            running.close()

    def _close(self) -> None:
        """The task ends: no thread holds it."""
        self._drop()
