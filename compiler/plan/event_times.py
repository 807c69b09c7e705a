"""Which times of records are used.

One record with a time such as 9223372036854775807, which means "never" in many systems, would move stream time to the end of all days:
every later record of its partition is late then, and no window, grace period or expiry can be computed from it. So there is one range
for all queries, and a record outside is a dead letter.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

EARLIEST_MS, LATEST_MS = -2_208_988_800_000, 7_258_118_400_000  # 1900-01-01 and 2200-01-01
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


@dataclass(frozen=True, slots=True)
class EventTimes:
    """From the earliest on and before `latest_ms`, in ms since 1970.

    earliest_ms: None for 1900 of records' own times, and 1970 of those that a column gives: there, as in ksqlDB, a negative number
    means that none is known. ahead_ms: how far a record may be ahead of the wall clock when it is read; None for as far as it likes.
    """

    earliest_ms: int | None = None
    latest_ms: int = LATEST_MS
    ahead_ms: int | None = None

    def hull(self, other: EventTimes) -> EventTimes:
        """The times of both; how far ahead they were is no matter behind a source."""
        given = [ms for ms in (self.earliest_ms, other.earliest_ms) if ms is not None]
        return EventTimes(min(EARLIEST_MS, *given) if given else None, max(self.latest_ms, other.latest_ms))

    def first_ms(self, *, of_column: bool) -> int:
        """The first time that is not too early."""
        if self.earliest_ms is not None:
            return self.earliest_ms
        return 0 if of_column else EARLIEST_MS

    def end_ms(self, wall_ms: int) -> int:
        """The first time that is too late now."""
        return self.latest_ms if self.ahead_ms is None else min(self.latest_ms, wall_ms + self.ahead_ms + 1)

    def limits(self) -> str:
        """The declared times of a source, for `explain`; empty without a declaration.

        >>> EventTimes(earliest_ms=0, ahead_ms=60_000).limits()
        ', from 1970-01-01, at most 60 s ahead of the clock'
        """
        since = f", from {_text(self.earliest_ms)}" if self.earliest_ms is not None else ""
        until = f", before {_text(self.latest_ms)}" if self.latest_ms != LATEST_MS else ""
        ahead = f", at most {self.ahead_ms // 1000} s ahead of the clock" if self.ahead_ms is not None else ""
        return since + until + ahead

    def why_not(self, time_ms: int, wall_ms: int, *, of_column: bool) -> str:
        """Why a time is not used; empty if it is.

        >>> EventTimes().why_not(9223372036854775807, 0, of_column=False)
        '9223372036854775807 is not from 1900-01-01 to 2200-01-01'
        >>> EventTimes(ahead_ms=60_000).why_not(100_000, 30_000, of_column=True)
        '1970-01-01T00:01:40 is 70 s ahead of the clock (MAX_AHEAD is 60 s)'
        """
        first_ms = self.first_ms(of_column=of_column)
        if not first_ms <= time_ms < self.latest_ms:
            return f"{time_ms} is not from {_text(first_ms)} to {_text(self.latest_ms)}"
        if time_ms >= self.end_ms(wall_ms):
            ahead = f"{(time_ms - wall_ms) // 1000} s ahead of the clock"
            return f"{_text(time_ms)} is {ahead} (MAX_AHEAD is {(self.ahead_ms or 0) // 1000} s)"
        return ""


USUAL_TIMES = EventTimes()


def _text(time_ms: int) -> str:
    return (_EPOCH + timedelta(milliseconds=time_ms)).replace(tzinfo=None).isoformat().removesuffix("T00:00:00")
