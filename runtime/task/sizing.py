"""The number of rows of a micro-batch that fills a time slice and not more."""

from __future__ import annotations

import threading
from functools import cached_property

from flowql.runtime.config import ROWS_PER_RUN_MAX, ROWS_PER_RUN_MIN

START_ROWS = 2_000
LEARNED_ROWS_MIN = ROWS_PER_RUN_MIN // 2
FORGET = 0.9  # the weight of all earlier micro-batches, with each one that is learned
DEARER = 0.03  # the weight of a micro-batch that cost more than expected
KEPT = 1e-3  # the weight of the fixed cost that is known already: it stays while all micro-batches have about the same size
TASKS, TASKS_MAX = 8, 256  # of a joint micro-batch: at first, and at most
PROBE = 8  # one of so many micro-batches has a quarter less rows, since equal sizes do not show which part of a cost is fixed


class MicroBatchSizer:
    """Fits a fixed cost and a cost per row to the costs of micro-batches, and chooses the rows that fit the time slice.

    The fixed cost is at most half of the cost of a micro-batch, even where this takes longer than the slice: below that size, a
    record costs more and no micro-batch becomes much shorter. Micro-batches that cost more than expected count little, since other work on
    the machine only adds to a measurement. Those of far fewer rows than chosen teach nothing unless they take far longer than the slice: their cost is
    mostly fixed, and kernels may process them in another way. Any thread.
    """

    def __init__(self) -> None:
        self._lock, self._tasks = threading.Lock(), TASKS
        self._ns_per_row: float | None = None
        self._fixed_ns = 0.0
        self._chosen, self._budget_ns = START_ROWS, 0
        self._learned, self._rows_max = 0, 2 * START_ROWS
        self._weight = self._rows = self._costs = self._squares = self._products = 0.0  # weighted sums

    @cached_property
    def joint(self) -> MicroBatchSizer:
        """Of joint micro-batches of these tasks."""
        return MicroBatchSizer()

    @property
    def tasks(self) -> int:
        """The most tasks of a joint micro-batch: half as many after one that took far longer than the slice, twice as many after one that did not fill it."""
        return self._tasks

    @property
    def chosen(self) -> int:
        """The last result of `rows`."""
        return self._chosen

    def rows(self, budget_ns: int) -> int:
        """The rows of the next micro-batch: at most twice as many as the largest one so far had."""
        with self._lock:
            self._budget_ns = budget_ns
            if self._ns_per_row is not None:
                rows = min(self._rows_max, max(budget_ns - self._fixed_ns, self._fixed_ns) / self._ns_per_row)
                rows = max(ROWS_PER_RUN_MIN, min(ROWS_PER_RUN_MAX, rows))
                self._chosen = int(rows if self._learned % PROBE else 0.75 * rows)
            return self._chosen

    def learn(self, rows: int, cost_ns: int, tasks: int = 1) -> None:
        """Learns from a micro-batch of `rows` rows of so many tasks that took `cost_ns` of processor time. A joint one says nothing of the costs of one task."""
        if tasks > 1:
            self.joint.learn(rows, cost_ns)
            with self._lock:
                if cost_ns > 2 * self._budget_ns:
                    self._tasks = max(2, tasks // 2)
                elif cost_ns < self._budget_ns and tasks == self._tasks:
                    self._tasks = min(TASKS_MAX, 2 * tasks)
            return
        if rows < LEARNED_ROWS_MIN or (2 * rows < self._chosen and cost_ns < 2 * self._budget_ns):
            return
        with self._lock:
            dearer = self._ns_per_row is not None and cost_ns > self._fixed_ns + self._ns_per_row * rows
            self._learned, self._rows_max = self._learned + 1, max(self._rows_max, 2 * rows)
            self._add(rows, cost_ns, DEARER if dearer else 1.0)
            self._fit()

    def _add(self, rows: int, cost_ns: int, weight: float) -> None:
        self._weight = FORGET * self._weight + weight
        self._rows = FORGET * self._rows + weight * rows
        self._costs = FORGET * self._costs + weight * cost_ns
        self._squares = FORGET * self._squares + weight * rows * rows
        self._products = FORGET * self._products + weight * rows * cost_ns

    def _fit(self) -> None:
        """Least squares. The known fixed cost takes part as a micro-batch without rows."""
        weight, kept = (1 + KEPT) * self._weight, KEPT * self._weight
        rows, cost = self._rows / weight, (self._costs + kept * self._fixed_ns) / weight
        slope = (self._products / weight - rows * cost) / (self._squares / weight - rows * rows)
        self._ns_per_row = max(1.0, min(slope, cost / rows))  # no fixed cost is negative
        self._fixed_ns = max(0.0, cost - self._ns_per_row * rows)
