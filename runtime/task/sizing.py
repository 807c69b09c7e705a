"""The number of rows of a micro-batch that fills a time slice and not more."""

from __future__ import annotations

from flowql.runtime.config import ROWS_PER_RUN_MAX, ROWS_PER_RUN_MIN

START_ROWS = 2_000
FORGET = 1.05  # the estimate grows by this factor after a full-size micro-batch that cost more than estimated


class MicroBatchSizer:
    """Learns the cost per row from the cheapest full-size micro-batches.

    It takes the minimum, not a mean: other work on the machine only ever adds to a measurement, and fixed costs of kernels make rows of
    small micro-batches look expensive; with a mean, both would shrink micro-batches further and further. Micro-batches that were small
    because few rows were buffered do not tell the cost of large ones: they can only lower the estimate.
    """

    __slots__ = ("_ns_per_row", "_rows")

    def __init__(self) -> None:
        self._ns_per_row: float | None = None
        self._rows = START_ROWS

    def rows(self, budget_ns: int) -> int:
        if self._ns_per_row is not None:
            self._rows = int(min(ROWS_PER_RUN_MAX, max(ROWS_PER_RUN_MIN, budget_ns / self._ns_per_row)))
        return self._rows

    def learn(self, rows: int, cost_ns: int) -> None:
        """Learns from a micro-batch of `rows` rows that took `cost_ns` of processor time."""
        if rows <= 0:
            return
        sample = max(1.0, cost_ns / rows)
        if self._ns_per_row is None or sample < self._ns_per_row:
            self._ns_per_row = sample if rows >= self._rows // 2 or self._ns_per_row is not None else None
        elif rows >= self._rows:
            self._ns_per_row = min(sample, self._ns_per_row * FORGET)
