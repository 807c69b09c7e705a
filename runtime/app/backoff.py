"""When something that failed is tried again: later and later."""

from __future__ import annotations

from dataclasses import dataclass

BACKOFF_MS_MIN, BACKOFF_MS_MAX = 500, 30_000
HEALTHY_MS = 2 * BACKOFF_MS_MAX  # without a failure for so long, the next one is a first one again


@dataclass(frozen=True, slots=True)
class Backoff:
    """failures: in a row. retry_at_ms: the next attempt, or the last one."""

    failures: int = 0
    retry_at_ms: int = 0

    def after_failure(self, now_ms: int) -> Backoff:
        """Twice the wait of the failure before."""
        failures = 0 if now_ms - self.retry_at_ms > HEALTHY_MS else self.failures
        return Backoff(failures + 1, now_ms + min(BACKOFF_MS_MAX, BACKOFF_MS_MIN << min(failures, 10)))


HEALTHY = Backoff()
