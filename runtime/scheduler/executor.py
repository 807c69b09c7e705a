"""The step of a processing thread."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from flowql.compiler.plan.priorities import PRIORITY_WEIGHTS
from flowql.runtime.clock import Clock
from flowql.runtime.events import WARNING, is_a_step, say
from flowql.runtime.functions.runs import giving_way
from flowql.runtime.metrics import Metrics
from flowql.runtime.scheduler.manager import SLOW_NS, TaskManager
from flowql.runtime.task.cohort import Cohort
from flowql.runtime.task.task import Begins, not_noted

IDLE_MS = 20
QUIET_MS_MAX = 160  # between two looks while no task can run and no thread works; any change of that wakes this thread


class ProcessingStep:
    """Takes a task, runs it for a slice and gives it back. An exception fails the task, never the thread.

    preempts: this is the step of the preemption worker, which runs queries of more weight.
    """

    def __init__(
        self, name: str, manager: TaskManager, clock: Clock, metrics: Metrics, *, preempts: bool = False
    ) -> None:
        self.name = name
        self._idle_ms = IDLE_MS
        self._manager, self._clock, self._metrics = manager, clock, metrics
        self._acquire = manager.acquire_preempting if preempts else manager.acquire
        wait = manager.wait_preempting if preempts else manager.wait
        self.wait: Callable[[float], None] = partial(wait, name)
        self.begins: Begins = not_noted  # called before each micro-batch

    def run_once(self, now_ms: int) -> int:
        grant = self._acquire(self.name)
        if grant is None:
            self._idle_ms = min(QUIET_MS_MAX, 2 * self._idle_ms) if self._manager.quiet else IDLE_MS
            return self._idle_ms
        self._idle_ms = IDLE_MS
        start, cpu, error, rows = self._clock.cost_ns(), self._clock.cpu_ns(), None, 0
        cohort = Cohort((grant.task, *grant.others), self._clock, grant.known)
        try:
            with giving_way(grant.weight <= PRIORITY_WEIGHTS["batch"]):
                rows = cohort.process(grant.limit_ns, self.begins)
        except Exception as e:  # goes to the exception queue with its task
            error = e
        cost_ns = self._clock.cost_ns() - start
        m = self._metrics.query(grant.task.id.query)
        m.cpu_ns += self._clock.cpu_ns() - cpu
        m.turn_ns += cost_ns
        m.slices += 1
        m.slowest_slice_ns = max(m.slowest_slice_ns, cost_ns)
        if cost_ns > SLOW_NS:
            m.slow_slices += 1
            if is_a_step(m.slow_slices - 1, m.slow_slices):
                said = {"took_ms": cost_ns // 1_000_000, "total": m.slow_slices}
                say(
                    WARNING,
                    "slice.slow",
                    "a turn took far too long",
                    query=grant.task.id.query,
                    task=grant.task.id,
                    **said,
                )
        self._manager.release(grant, cost_ns, error, rows, failed=cohort.current)
        return 0
