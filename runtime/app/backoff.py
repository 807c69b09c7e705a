"""When a query that failed is tried again: later and later."""

from __future__ import annotations

from dataclasses import dataclass

BACKOFF_MS_MIN, BACKOFF_MS_MAX = 500, 30_000
HEALTHY_MS = 2 * BACKOFF_MS_MAX  # without a failure for so long, the next one is a first one again


@dataclass(slots=True)
class Backoff:
    """A query that waits to be tried again, or was. failures: in a row."""

    failures: int = 0
    resume_at_ms: int = 0
    held: bool = False

    def hold(self, now_ms: int) -> int:
        """For how many ms."""
        if now_ms - self.resume_at_ms > HEALTHY_MS:
            self.failures = 0
        wait = min(BACKOFF_MS_MAX, BACKOFF_MS_MIN << min(self.failures, 10))
        self.failures += 1
        self.resume_at_ms, self.held = now_ms + wait, True
        return wait
