"""Records that a task is given once more, beside its input: `flowql dlq replay --append`."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import Future
from dataclasses import dataclass, field

from flowql.runtime.batch import Batch


@dataclass(frozen=True, slots=True)
class DeliveryResult:
    """The outcome of a delivery. late: rows whose window was closed. older: those before the stream time of the task."""

    rows: int
    late: int = 0
    older: int = 0


@dataclass(frozen=True, slots=True)
class Delivery:
    """Rows for a source operator, as one run. Positions stay where they are.

    mark: writes into the epoch that this was done; called with the epoch lock held, as the run is published. done: what became of
    it, which counts once the epoch is committed, or why nothing was done; until a thread begins it may be cancelled.
    """

    operator: str
    batch: Batch
    mark: Callable[[], None]
    done: Future[DeliveryResult] = field(default_factory=Future)
