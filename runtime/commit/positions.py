"""Committed offsets of a group: the lowest position of the tasks of a partition, and the metadata that tells commit and tasks."""

from __future__ import annotations

from collections.abc import Hashable, Iterable
from functools import lru_cache
from typing import NamedTuple
from zlib import crc32


class ReaderPosition(NamedTuple):
    """Where the tasks that read a partition are: the lowest position of all (the exact ones are in task metadata), and `readers`."""

    offset: int
    readers: str


@lru_cache(maxsize=1 << 16)
def _checksum(task: Hashable) -> int:
    return crc32(str(task).encode())


def readers(tasks: Iterable[Hashable]) -> str:
    """A checksum of a set of tasks, by their ids: a position is that of a task only if the task was in the set when it was computed."""
    marks = [_checksum(task) for task in tasks]
    return f"{len(marks)}.{sum(marks) & 0xFFFFFFFF:08x}"


def offset_metadata(writer: str, sequence: int, of: str = "") -> str:
    """The metadata of a committed offset: writer and sequence of its commit (rule R3; `Position.commit` reads them), and `readers` of its tasks."""
    return f"seq={sequence}{f' of={of}' if of else ''} by={writer}"


def readers_in(metadata: str) -> str:
    """The `readers` that this metadata of an offset is of; empty if it does not say."""
    return metadata.partition(" by=")[0].partition(" of=")[2]


RENEW_MS = 24 * 3_600_000


class PositionRenewal:
    """Each commit carries all positions and the number of commits: one is due when the last is a day old, though nothing was published.

    Brokers delete positions that were not committed for a week (`offsets.retention.minutes`), of quiet sources too. needed: of a log that does so.
    """

    def __init__(self, *, needed: bool) -> None:
        self._needed = needed
        self._since_ms: int | None = None

    def is_due(self, now_ms: int, cut_ms: int, sequence: int) -> bool:
        """cut_ms: when the last commit was, 0 if none was since the start. sequence: of the last commit; 0: there is nothing to renew."""
        if not self._needed:
            return False
        self._since_ms = now_ms if self._since_ms is None or now_ms < self._since_ms else max(self._since_ms, cut_ms)
        return sequence > 0 and now_ms - self._since_ms >= RENEW_MS
