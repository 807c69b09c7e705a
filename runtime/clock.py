"""The only source of time in the engine, so that simulation and tests can replace it (rule R16).

It has two clocks. The wall clock may be set, by hand or by NTP, at any moment and by any amount; the timer never is. Waits, back-offs and
time-outs use the timer. Times that are shown, written into records, or compared with times of another process or of an earlier start use
the wall clock.
"""

from __future__ import annotations

import time
from datetime import UTC, datetime
from typing import Protocol


class Clock(Protocol):
    """A timer and the wall clock in ms, and a cost meter in ns for scheduling."""

    def timer_ms(self) -> int:
        """Milliseconds since some moment; never goes back or jumps. Means nothing in another process."""
        ...

    def wall_ms(self) -> int:
        """Milliseconds since the epoch (1970, UTC), as the machine says now; may jump in both directions."""
        ...

    def cost_ns(self) -> int:
        """A monotonic reading for measuring how long a slice took."""
        ...

    def cpu_ns(self) -> int:
        """Processor time of the calling thread: what a kernel costs whatever else the machine does."""
        ...


class SystemClock:
    """The machine's clocks."""

    def timer_ms(self) -> int:
        return time.monotonic_ns() // 1_000_000

    def wall_ms(self) -> int:
        return time.time_ns() // 1_000_000

    def cost_ns(self) -> int:
        return time.perf_counter_ns()

    def cpu_ns(self) -> int:
        return time.thread_time_ns()


class VirtualClock:
    """A clock that a test or the deterministic driver moves by hand. Timer and wall clock begin alike."""

    def __init__(self, now_ms: int = 0) -> None:
        self._timer_ms = now_ms
        self._set_by_ms = 0
        self._cost_ns = 0

    def timer_ms(self) -> int:
        return self._timer_ms

    def wall_ms(self) -> int:
        return self._timer_ms + self._set_by_ms

    def cost_ns(self) -> int:
        return self._cost_ns

    def cpu_ns(self) -> int:
        return self._cost_ns

    def advance(self, ms: int) -> None:
        self._timer_ms += ms
        self._cost_ns += ms * 1_000_000

    def set_wall(self, by_ms: int) -> None:
        """The wall clock is set forward, or back with a negative number; no time passes."""
        self._set_by_ms += by_ms

    def spend(self, ns: int) -> None:
        """Let a slice appear to have cost `ns`."""
        self._cost_ns += ns


def iso_time(ms: float, digits: str = "milliseconds") -> str:
    """ISO-8601 in UTC of a time in ms since 1970. digits: as `timespec` of `datetime.isoformat`.

    >>> iso_time(1767225600123), iso_time(1767225600123, "seconds")
    ('2026-01-01T00:00:00.123Z', '2026-01-01T00:00:00Z')
    """
    return datetime.fromtimestamp(ms / 1000, UTC).isoformat(timespec=digits).replace("+00:00", "Z")
