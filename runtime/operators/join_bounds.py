"""Which rows of two streams a join pairs, and for how long it remembers them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeVar

from flowql.compiler.plan.logical import Join
from flowql.runtime.batch import Ints
from flowql.runtime.operators.windows import DAY_MS

LEFT, RIGHT = 0, 1
T = TypeVar("T", int, Ints)
BUCKETS = 2  # a join window covers about so many buckets: few look-ups per row, short lists per bucket


class JoinBounds:
    """A right row matches if left.time - before <= right.time <= left.time + after; all in ms.

    retention: a side remembers rows younger than its own highest time minus this. bucket: the length of a bucket of row times in state.
    """

    __slots__ = ("after", "before", "bucket", "grace", "retention")

    def __init__(self, spec: Join) -> None:
        self.before, self.after = spec.before_ms, spec.after_ms
        size = self.before + self.after
        self.grace = max(DAY_MS - size, 0) if spec.grace_ms is None else spec.grace_ms
        self.retention = size + self.grace
        self.bucket = max(1, size // BUCKETS)

    def span(self, side: int, time: T) -> tuple[T, T]:
        """Times of the other side that match a row of `side`, or each of its rows."""
        return (time - self.before, time + self.after) if side == LEFT else (time - self.after, time + self.before)

    def buckets(self, low: int, high: int) -> range:
        """The buckets that cover these times, by their first time."""
        return range(low - low % self.bucket, high + 1, self.bucket)


@dataclass(slots=True)
class Clocks:
    """Stream time of both sides, and the late rows of a run; see `MicroBatchContext.late`."""

    times: list[int]
    late: int = 0
    behind: int = 0
