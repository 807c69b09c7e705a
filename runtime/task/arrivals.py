"""When the records of a partition came to be known: what latency is counted from, at a few numbers per batch."""

from __future__ import annotations

from bisect import bisect_right

MARKS_MAX = 2_048


class Arrivals:
    """Rising marks (end offset, ms): records below an offset were known to be in the log at that time.

    A mark is made when a batch is fetched or the end of the partition is looked at, whichever is first, so a record that waits in
    the log is known before it is fetched. What is there at the first mark counts from then. Written by the polling thread, read
    by any.
    """

    __slots__ = ("_marks",)

    def __init__(self) -> None:
        self._marks: tuple[list[int], list[int]] = ([], [])

    def reach(self, end: int, now_ms: int) -> None:
        """The log is known to have everything below `end`."""
        ends, times = self._marks
        if ends and end <= ends[-1]:
            return
        times.append(now_ms)  # first: readers of `ends` look up here
        ends.append(end)
        if len(ends) > MARKS_MAX:  # what stays of two marks is the earlier time, for the records of both
            self._marks = (ends[1::2] + ends[-1:] * (len(ends) % 2), times[::2])

    def between(self, start: int, end: int, records: int) -> list[tuple[int, int]]:
        """(ms, how many) of the `records` at offsets start <= offset < end. Offsets may have gaps: the sum is right."""
        ends, times = self._marks
        found: list[tuple[int, int]] = []
        at = bisect_right(ends, start)
        while records and at < len(ends) and ends[at] < end:
            here = min(records, ends[at] - start)
            found.append((times[at], here))
            records, start, at = records - here, ends[at], at + 1
        if records and times:
            found.append((times[min(at, len(times) - 1)], records))
        return found
