"""Rows that come and go with the wall clock: conditions such as `ts > NOW() - INTERVAL '1 hour'` (temporal filters)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

DAY_MS = 86_400_000


@dataclass(frozen=True, slots=True)
class Edge:
    """A moment of the wall clock that a row tells: `column * unit_ms + shift_ms`, brought to the beginning of a day, plus `after_ms`.

    column: a DATE (unit_ms is that of a day), a timestamp, or milliseconds. day: to the midnight at or before it, at or behind it, or not at all.
    """

    column: str
    unit_ms: int = 1
    shift_ms: int = 0
    day: Literal["", "floor", "ceil"] = ""
    after_ms: int = 0


@dataclass(frozen=True, slots=True)
class TemporalFilter:
    """Rows from the latest of `starts` until just before the earliest of `ends`. A row with NULL in one of their columns is never there."""

    starts: tuple[Edge, ...] = ()
    ends: tuple[Edge, ...] = ()

    @property
    def columns(self) -> tuple[str, ...]:
        """The columns that it looks at."""
        return tuple(dict.fromkeys(e.column for e in (*self.starts, *self.ends)))
