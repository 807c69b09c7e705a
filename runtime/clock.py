"""The only source of time in the engine, so that simulation and tests can replace it (rule R16)."""

from __future__ import annotations

import time
from typing import Protocol


class Clock(Protocol):
    """Wall clock in ms for timers, and a cost meter in ns for scheduling."""

    def now_ms(self) -> int:
        """Milliseconds since the epoch; never goes back within a process."""
        ...

    def cost_ns(self) -> int:
        """A monotonic reading for measuring how long a slice took."""
        ...

    def cpu_ns(self) -> int:
        """Processor time of the calling thread: what a kernel costs whatever else the machine does."""
        ...


class SystemClock:
    """The machine's clocks."""

    def __init__(self) -> None:
        self._last_ms = 0

    def now_ms(self) -> int:
        self._last_ms = max(self._last_ms, time.time_ns() // 1_000_000)
        return self._last_ms

    def cost_ns(self) -> int:
        return time.perf_counter_ns()

    def cpu_ns(self) -> int:
        return time.thread_time_ns()


class VirtualClock:
    """A clock that a test or the deterministic driver moves by hand."""

    def __init__(self, now_ms: int = 0) -> None:
        self._now_ms = now_ms
        self._cost_ns = 0

    def now_ms(self) -> int:
        return self._now_ms

    def cost_ns(self) -> int:
        return self._cost_ns

    def cpu_ns(self) -> int:
        return self._cost_ns

    def advance(self, ms: int) -> None:
        self._now_ms += ms
        self._cost_ns += ms * 1_000_000

    def spend(self, ns: int) -> None:
        """Let a slice appear to have cost `ns`."""
        self._cost_ns += ns
