"""When something that failed is tried again: twice as late each time, and at once again once it was healthy for long."""

from __future__ import annotations

from flowql.runtime.app.backoff import BACKOFF_MS_MAX, BACKOFF_MS_MIN, HEALTHY, HEALTHY_MS, Backoff


def test_each_failure_in_a_row_is_waited_for_twice_as_long_up_to_the_most() -> None:
    backoff, now, waits = HEALTHY, 0, list[int]()
    for n in range(12):
        backoff = backoff.after_failure(now)
        assert backoff.failures == n + 1
        waits.append(backoff.retry_at_ms - now)
        now = backoff.retry_at_ms
    assert waits == [min(BACKOFF_MS_MAX, BACKOFF_MS_MIN * 2**n) for n in range(12)]


def test_after_a_healthy_time_a_failure_is_a_first_one_again() -> None:
    failing = Backoff(3, 10_000)
    assert failing.after_failure(10_000 + HEALTHY_MS) == Backoff(4, 10_000 + HEALTHY_MS + 8 * BACKOFF_MS_MIN)
    later = 10_001 + HEALTHY_MS
    assert failing.after_failure(later) == Backoff(1, later + BACKOFF_MS_MIN)


def test_what_has_not_failed_may_be_tried_at_once() -> None:
    assert (HEALTHY.failures, HEALTHY.retry_at_ms) == (0, 0)
    assert HEALTHY.after_failure(HEALTHY_MS) == Backoff(1, HEALTHY_MS + BACKOFF_MS_MIN)
