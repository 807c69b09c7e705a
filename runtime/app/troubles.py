"""Partitions that cannot be read at the moment, for `status`: reading is retried, and no other message would show it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from flowql.runtime.errors import LogError
from flowql.runtime.log.base import TopicPartition

CURRENT_MS = 15_000  # after its last repetition; a partition that stays silent is reported every five seconds
PLACES_MAX = 1_000


@dataclass(frozen=True, slots=True)
class Trouble:
    """An error that has occurred `times` times since `since_ms`."""

    partition: TopicPartition | None
    error: str
    since_ms: int
    last_ms: int
    times: int

    def to_data(self, now_ms: int) -> dict[str, Any]:
        where = None if self.partition is None else str(self.partition)
        return {
            "partition": where,
            "error": self.error,
            "for_ms": max(0, now_ms - self.since_ms),
            "times": self.times,
        }


class Troubles:
    """The last error of each partition, and the last without a partition. Only the polling thread calls it, except for `current`."""

    def __init__(self) -> None:
        self._of: dict[TopicPartition | None, Trouble] = {}

    def note(self, error: Exception, now_ms: int) -> bool:
        """Records an error. True if it is new: repetitions of it for the same partition are not."""
        where = error.partition if isinstance(error, LogError) else None
        place = None if where is None else TopicPartition(*where)
        said = f"{type(error).__name__}: {error}"
        before = self._of.get(place)
        if before is None or before.error != said or now_ms - before.last_ms > CURRENT_MS:
            self._forget_old(now_ms)
            self._of[place] = Trouble(place, said, now_ms, now_ms, 1)
            return True
        self._of[place] = Trouble(place, said, before.since_ms, now_ms, before.times + 1)
        return False

    def over(self, place: TopicPartition | None) -> None:
        """Forgets the error of a partition that can be read again."""
        self._of.pop(place, None)

    def current(self, now_ms: int) -> Sequence[Trouble]:
        """Errors that occurred in the last `CURRENT_MS`. Any thread."""
        found = [t for t in list(self._of.values()) if now_ms - t.last_ms <= CURRENT_MS]
        return sorted(found, key=lambda t: (str(t.partition), t.error))

    def _forget_old(self, now_ms: int) -> None:
        if len(self._of) >= PLACES_MAX:
            self._of = {p: t for p, t in self._of.items() if now_ms - t.last_ms <= CURRENT_MS}
