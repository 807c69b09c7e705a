"""Partitions that cannot be read at the moment, for `status`: reading is retried, and no other message would show it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from concurrent.futures import Future
from dataclasses import dataclass
from typing import Any

from flowql.runtime.errors import LogError, PartitionsChanged
from flowql.runtime.log.base import Admin, TopicDescription, TopicPartition
from flowql.runtime.task.input_buffer import LogInput
from flowql.runtime.topology.query import replaced

CURRENT_MS = 15_000  # after its last repetition; a partition that stays silent is reported every five seconds
PLACES_MAX = 1_000
STALLED_MS = 30_000  # longer than a slow fetch: to read anew throws away what is on its way


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


class StallDetector:
    """Which partitions are stalled: nothing arrives of them though the log goes on. Owned by the polling thread.

    A client of the log may stop fetching one partition without an error (librdkafka issue 5591: a pause just before an assignment).
    """

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


COMPARE_TOPICS_MS = 30_000


class ChangedTopics:
    """Asks the log from time to time which topics have another one's name now, or more partitions. Owned by the polling thread."""

    def __init__(self, admin: Admin) -> None:
        self._admin = admin
        self._asked: Future[dict[str, TopicDescription]] | None = None
        self.asked_at_ms = 0

    def look(
        self, now_ms: int, inputs: Mapping[TopicPartition, Sequence[LogInput]]
    ) -> list[tuple[TopicPartition, LogError]]:
        """Partitions whose inputs began with another topic (TopicReplaced) or number of partitions (PartitionsChanged). LogError without brokers."""
        if self._asked is None:
            if not 0 <= now_ms - self.asked_at_ms < COMPARE_TOPICS_MS:
                self.asked_at_ms = now_ms
                known = {i.tp.topic for of_tp in inputs.values() for i in of_tp if i.topic_id or i.partitions}
                self._asked = self._admin.describe_topics(known) if known else None
            return []
        if not self._asked.done():
            return []
        answer, self._asked = self._asked, None
        found: list[tuple[TopicPartition, LogError]] = []
        for tp, topic in ((tp, answer.result().get(tp.topic)) for tp in inputs):
            if topic is None:
                continue
            if topic.id and any(i.topic_id not in ("", topic.id) for i in inputs[tp]):
                found.append((tp, replaced(tp, topic.id)))
            elif other := {i.partitions for i in inputs[tp]} - {0, topic.partitions}:
                said = f"{tp.topic} has {topic.partitions} partitions, and had {min(other)}"
                found.append((tp, PartitionsChanged(said, topic.partitions)))
        return found
