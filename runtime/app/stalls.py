"""Which partitions are stalled: nothing arrives of them though the log goes on.

A client of the log may stop fetching one partition without an error (librdkafka issue 5591: a pause just before an assignment).
"""

from __future__ import annotations

from flowql.runtime.log.base import TopicPartition

STALLED_MS = 30_000  # longer than a slow fetch: to read anew throws away what is on its way


class StallDetector:
    """Owned by the polling thread."""

    def __init__(self) -> None:
        self._waiting: dict[TopicPartition, tuple[int, int]] = {}  # the offset that is waited for, and since when

    def is_long(self, tp: TopicPartition, waits_at: int | None, now_ms: int) -> bool:
        """Whether the partition has been stalled at this offset for STALLED_MS. Answers True once, then counts from zero.

        waits_at: the offset of the next record to fetch, or None if no input waits for it.
        """
        if waits_at is None:
            self._waiting.pop(tp, None)
            return False
        offset, since_ms = self._waiting.get(tp, (None, now_ms))
        if offset == waits_at and now_ms - since_ms >= STALLED_MS:
            del self._waiting[tp]
            return True
        if offset != waits_at or now_ms < since_ms:
            self._waiting[tp] = waits_at, now_ms
        return False
