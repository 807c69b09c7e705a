"""Positions of imported files are renewed before brokers delete them, while an instance reads their topics.

Brokers delete committed positions of a group that has no members and commits nothing for a week (`offsets.retention.minutes`). Without them `flowql topic
import` would take a file for one that was never imported, and write its records again.
"""

from __future__ import annotations

from collections.abc import Callable, Collection

from flowql.compiler.plan.generations import topics_read
from flowql.compiler.plan.topology import Plan
from flowql.runtime.commit.positions import RENEW_MS
from flowql.runtime.errors import RuntimeFailure
from flowql.runtime.events import WARNING, say
from flowql.runtime.log.base import Log, Position, TopicPartition
from flowql.runtime.log.policy import imported_topic

LOOK_MS = 3_600_000


class ImportPositions:
    """Owned by the thread of the cleanup step.

    A position that did not move between two looks is committed again once a day. An import that is under way moves it, and is left alone: a
    renewal takes over its transactional id. topics: those that the queries of the plan read. needed: of a log that deletes positions.
    """

    def __init__(self, log: Log, topics: Callable[[], Collection[str]], *, needed: bool) -> None:
        self._log, self._topics, self._needed = log, topics, needed
        self._next_ms = 0
        self._seen: dict[str, Position] = {}
        self._renewed_ms: dict[str, int] = {}
        self._trouble = ""

    def look(self, now_ms: int) -> None:
        """At most once an hour; what fails is tried again at the next look. It blocks."""
        if not self._needed or now_ms < self._next_ms:
            return
        self._next_ms = now_ms + LOOK_MS
        try:
            self._look(now_ms)
        except RuntimeFailure as error:
            self._say(f"positions of imports are not renewed: {error}")

    def _look(self, now_ms: int) -> None:
        topics, admin = self._topics(), self._log.admin()
        for group in admin.groups("") if topics else ():
            tp = TopicPartition(imported_topic(group), 0)
            position = admin.stable_positions(group, [tp]).get(tp) if tp.topic in topics else None
            if position is None:
                continue
            is_due = now_ms - self._renewed_ms.get(group, now_ms - RENEW_MS) >= RENEW_MS
            if self._seen.get(group) == position and is_due and self._renew(group, tp, position):
                self._renewed_ms[group] = now_ms
            self._seen[group] = position

    def _renew(self, group: str, tp: TopicPartition, position: Position) -> bool:
        """False if it was not possible: brokers refuse, or an import has begun."""
        try:
            producer = self._log.producer(group)  # from here on no other transaction of this import commits
            try:
                if self._log.admin().stable_positions(group, [tp]).get(tp) != position:
                    return False
                producer.begin()
                producer.send_positions(group, {tp: position})
                producer.commit()
            finally:
                producer.close()
        except RuntimeFailure as error:
            self._say(f"the position of an import into {tp.topic} is not renewed: {error}")
            return False
        return True

    def _say(self, trouble: str) -> None:
        if trouble != self._trouble:
            say(WARNING, "import.positions", trouble)
        self._trouble = trouble


def topics_of(plan: Plan) -> set[str]:
    """The topics that its queries read."""
    return {topic for query in plan.queries for topic in topics_read(query)}
