"""Reports commits that brokers have lost in part: the partitions, and the command that computes the query again."""

from __future__ import annotations

from collections.abc import Callable

from flowql.compiler.plan.generations import user_id
from flowql.compiler.plan.topology import Plan
from flowql.runtime.app.internal_topics import internal_topics
from flowql.runtime.app.troubles import Trouble
from flowql.runtime.errors import CommitTorn
from flowql.runtime.events import ERROR, say
from flowql.runtime.log.base import Admin, TopicPartition
from flowql.runtime.task.dead_letters import topic_name as dead_letters_of


class TornCommits:
    """Owned by the polling thread, but for `current`. plan: what runs; nothing is said before it is known."""

    def __init__(self, admin: Admin, application_id: str, plan: Callable[[], Plan]) -> None:
        self._admin, self._app, self._plan = admin, application_id, plan
        self._found: dict[TopicPartition, tuple[CommitTorn, str, int]] = {}  # with what to do, and since when

    def look(self, now_ms: int) -> None:
        """Says what is new. Asks no broker."""
        torn = {TopicPartition(*e.partition): e for e in self._admin.torn_commits() if e.partition is not None}
        if torn.keys() == self._found.keys() or not self._plan().queries:
            return
        before = self._found
        self._found = {tp: before.get(tp, (error, self._way_back(tp.topic), now_ms)) for tp, error in torn.items()}
        for error, way, _ in (found for tp, found in self._found.items() if tp not in before):
            say(ERROR, "commit.torn", f"{error}; {way}", code=error.code)

    def current(self, now_ms: int) -> list[Trouble]:
        """For status. Any thread."""
        return [
            Trouble(tp, f"{type(error).__name__}: {error}; {way}", since_ms, now_ms, 1)
            for tp, (error, way, since_ms) in sorted(self._found.items())
        ]

    def _way_back(self, topic: str) -> str:
        """A command, for the results, changelogs and repartition topics of a query."""
        for query in self._plan().queries:
            if topic == query.topic or topic in internal_topics(query, self._app):
                return f"to compute it again:  flowql deploy --full-refresh {user_id(query.id, query.generation)}"
        if topic == dead_letters_of(self._app):
            return "results are not affected"
        return f"if {topic} is a topic of {self._app} itself, stop its instances and compute everything again:  flowql app reset"
