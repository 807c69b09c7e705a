"""How fast work in the background goes: a share of one processor, so many bytes a second, and fewer attempts while a store fails."""

from __future__ import annotations

from collections.abc import Generator
from concurrent.futures import Future
from typing import TypeVar

from flowql.runtime.clock import Clock
from flowql.runtime.errors import RuntimeFailure
from flowql.runtime.events import INFO, WARNING, say

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


RETRY_MS, RETRY_MS_MAX = 5_000, 60_000  # the wait is doubled with each attempt


class Outage:
    """A store that takes nothing: said once at its beginning and once at its end. what: is uploaded. reason: of the last attempt; empty while the store answers. attempts: in vain. until_ms: then the next one."""

    def __init__(self, what: str) -> None:
        self._what, self._code = what, ""
        self.reason = ""
        self.attempts = self.until_ms = 0

    def goes_on(self, error: Exception, now_ms: int) -> int:
        """After an attempt in vain; ms until the next one. An event also says when the store refuses what it could not do before."""
        code = error.code if isinstance(error, RuntimeFailure) else ""
        if not self.reason or code != self._code:
            say(
                WARNING,
                "state.remote",
                f"{self._what} wait, queries go on: {error}",
                **({"code": code} if code else {}),
            )
        self.reason, self._code = str(error), code
        wait_ms = min(RETRY_MS << min(self.attempts, 10), RETRY_MS_MAX)
        self.attempts, self.until_ms = self.attempts + 1, now_ms + wait_ms
        return wait_ms

    def ends(self) -> None:
        """After an attempt that succeeded."""
        if self.reason:
            say(INFO, "state.remote", f"the remote store answers again: {self._what} go on")
        self.reason, self.attempts = "", 0
