"""Names of the topics behind streams and tables: the one place that puts a target's prefix before them."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class TopicNames:
    """How a project names topics.

    prefix: put before the name of every topic that FlowQL creates. results: topics of its queries' results, without prefix.
    written: names of streams and tables that its statements write to.
    """

    prefix: str = ""
    results: frozenset[str] = frozenset()
    written: frozenset[str] = frozenset()

    def made(self, topic: str, known: Collection[str] = ()) -> str:
        """The name of a topic that FlowQL creates. known: topics of sources; one that has the prefix keeps its name.

        >>> TopicNames("anna_").made("ORDERS"), TopicNames("anna_").made("anna_ORDERS", ["anna_ORDERS"])
        ('anna_ORDERS', 'anna_ORDERS')
        """
        return topic if topic in known and topic.startswith(self.prefix) else self.prefix + topic

    def declared(self, source: str, topic: str, known: Collection[str], *, partitioned: bool) -> str:
        """The name of the topic that a source is declared over. partitioned: whether PARTITIONS is given; FlowQL then creates it.

        A topic that is only read belongs to others and keeps its name.

        >>> TopicNames("anna_", results=frozenset({"BIG"})).declared("B", "BIG", (), partitioned=False)
        'anna_BIG'
        >>> TopicNames("anna_").declared("O", "orders", (), partitioned=False)
        'orders'
        """
        own = partitioned or topic in self.results or source in self.written
        return self.made(topic, known) if own else topic


PLAIN = TopicNames()
