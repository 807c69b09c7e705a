"""How fast work in the background goes: a share of one processor, and so many bytes a second."""

from __future__ import annotations

from collections.abc import Generator
from concurrent.futures import Future
from typing import TypeVar

from flowql.runtime.clock import Clock

T = TypeVar("T")

Walk = Generator[None, None, T]
"""Work in steps of a few milliseconds; its result."""

SHARE = 0.05  # of one processor
BYTES_PER_S = 64 << 20
POLL_MS, IDLE_MS = 5, 500


class Pace:
    """Runs a walk step by step, and says when it may go on. The calling thread's processor time counts.

    moved: bytes since the last rest. spent_ns: processor time of other threads since then.
    """

    def __init__(self, clock: Clock, share: float | None = None, bytes_per_s: int | None = None) -> None:
        self._clock, self._share, self._bytes_per_s = clock, share, bytes_per_s
        self._rest_until_ms = 0
        self.moved = self.spent_ns = 0

    def advance(self, walk: Walk[object], now_ms: int) -> int | None:
        """One step; ms until the next one, None when the walk has ended. Raises what the walk raises."""
        if now_ms < self._rest_until_ms:
            return self._rest_until_ms - now_ms
        begin_ns = self._clock.cpu_ns()
        try:
            next(walk)
        except StopIteration:
            return None
        finally:
            spent_ms = (self._clock.cpu_ns() - begin_ns + self.spent_ns) / 1e6
            moved_ms = self.moved * 1000 / (self._bytes_per_s or BYTES_PER_S)
            self.moved = self.spent_ns = 0
            self._rest_until_ms = now_ms + int(max(spent_ms / (self._share or SHARE) - spent_ms, moved_ms))
        return max(POLL_MS, self._rest_until_ms - now_ms)


def awaited(future: Future[T]) -> Walk[T]:
    """The result of a call that is under way elsewhere."""
    while not future.done():
        yield
    return future.result()
