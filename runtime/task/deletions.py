"""Deletions that a reader of a table can miss: a compacted topic keeps the tombstone of a key for `delete.retention.ms` after it was compacted.

A reader that has not read everything for longer than that may find no tombstone for a row that it has: the row would stay for good. The offsets that
compaction has removed are missing in what the reader gets next, so a reader that was away for long looks at them until it has caught up.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np

from flowql.runtime.log.base import RawBatch

KEPT_MS = 86_400_000  # of a topic that does not say it
# In the metadata of a task whose inputs are looked at: by input that is overdue, when (ms since the epoch) it had read everything.
KNOWN = "known"


@dataclass(slots=True)
class Deletions:
    """kept_ms: how long the topic keeps tombstones. known_ms: when the reader had read everything; wall_ms: the wall clock.

    goal: an end that was asked for, and when: once the reader is there it is known as of then. gap: the longest run of offsets that are missing where
    tombstones may be among them. Owned by the polling thread; others may read it.
    """

    kept_ms: int
    known_ms: int
    wall_ms: Callable[[], int]
    goal: tuple[int, int] | None = None
    gap: int = 0

    @property
    def is_overdue(self) -> bool:
        """Whether tombstones may be gone that it has not read."""
        return self.wall_ms() - self.known_ms > self.kept_ms

    def reach(self, position: int, end: int) -> None:
        """The reader has processed everything before `position`, and the log ends at `end` now."""
        if self.goal is not None and position >= self.goal[0]:
            self.known_ms, self.goal = self.goal[1], None
        if self.goal is None:
            self.goal = end, self.wall_ms()

    def look(self, position: int, batch: RawBatch) -> bool:
        """Whether offsets are missing between `position` and the end of fetched records, while the reader is overdue."""
        if self.is_overdue and batch.next_offset > position:
            offsets = batch.records.column(0).to_numpy()
            edges = np.concatenate(([position - 1], offsets[offsets >= position], [batch.next_offset]))
            self.gap = max(self.gap, int(np.diff(edges).max()) - 1)
        return self.gap > 0


class Reader(Protocol):
    """An input of a task."""

    deletions: Deletions | None

    @property
    def name(self) -> str: ...


def known_times(inputs: Iterable[Reader]) -> Mapping[str, Any]:
    """The times of deletions in the metadata of a task; its next owner looks for missing offsets as well. Empty for other tasks."""
    looked_at = [(i.name, i.deletions) for i in inputs if i.deletions is not None]
    return {KNOWN: {name: d.known_ms for name, d in looked_at if d.is_overdue}} if looked_at else {}
