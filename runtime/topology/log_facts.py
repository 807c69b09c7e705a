"""Facts about the topics of queries that are built together: each kind of request is made once for all of them.

A hundred queries make as many requests at their start as one. The facts are of one moment: later builds make new requests.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from functools import cached_property

from flowql.compiler.plan.generations import topics_read
from flowql.compiler.plan.logical import Scan, Sink
from flowql.compiler.plan.topology import QueryPlan
from flowql.runtime.errors import LogDenied, PartitionsUneven, TopicMissing
from flowql.runtime.log.base import Admin, TopicInfo, TopicPartition
from flowql.runtime.task.id import TaskId
from flowql.runtime.task.repartition import topic_of
from flowql.runtime.topology.grouping import GROUPER, UnevenPartitions


class LogFacts:
    """Owned by one thread. Every method may raise LogUnavailable; the next call asks again."""

    def __init__(self, admin: Admin, application_id: str, queries: Sequence[QueryPlan]) -> None:
        self.admin = admin
        self._application_id, self._queries = application_id, queries

    @cached_property
    def topics(self) -> Mapping[str, TopicInfo]:
        """All topics that the log lists."""
        return self.admin.topics()

    def partitions(self, topics: Collection[str]) -> dict[str, int]:
        """Number of partitions of those that exist. LogDenied for a topic that may not be described."""
        found = {t: self.topics[t].partitions for t in topics if t in self.topics}
        unlisted = [t for t in topics if t not in found]
        return found | (self.admin.partition_counts(unlisted) if unlisted else {})

    def counts(self, query: QueryPlan) -> dict[int, int]:
        """As `task_counts`, for the topics as they are now. LogDenied."""
        return task_counts(query, self.partitions(scanned(query)))

    def tasks(self, query: QueryPlan) -> list[TaskId]:
        """Every task of a query, wherever it runs. As `counts`."""
        counts = self.counts(query)
        return [TaskId(query.id, sub.number, p) for sub in query.subtopologies for p in range(counts[sub.number])]

    def ids(self, topics: Collection[str]) -> dict[str, str]:
        """Ids of topics, which tell them from deleted ones of the same name; of those whose id the log knows."""
        return {t: self._ids[t] for t in topics if self._ids.get(t)}

    @cached_property
    def _ids(self) -> dict[str, str]:
        described = self.admin.describe_topics({t for q in self._queries for t in topics_read(q)}).result()
        return {name: topic.id for name, topic in described.items()}

    def replaced_times(self, query: QueryPlan) -> list[str]:
        """Sorted topics that a query writes and in which brokers replace the times of records."""
        return sorted(self._replaced_times & self._written(query))

    @cached_property
    def _replaced_times(self) -> set[str]:
        return self.admin.with_replaced_times(set().union(*map(self._written, self._queries)))

    def _written(self, query: QueryPlan) -> set[str]:
        written = {op.spec.topic for sub in query.subtopologies for op in sub.operators if isinstance(op.spec, Sink)}
        return written | self._repartitions(query)

    def _repartitions(self, query: QueryPlan) -> set[str]:
        return {topic_of(self._application_id, r) for r in query.repartitions}

    def begin(self, tp: TopicPartition) -> int:
        """The first offset of a partition that one of the queries reads. TopicMissing, LogDenied."""
        known = self._begins.get(tp)
        return self.admin.begin_offset(tp) if known is None else known

    @cached_property
    def _begins(self) -> Mapping[TopicPartition, int]:
        read = {t for q in self._queries for t in (*scanned(q), *self._repartitions(q)) if t in self.topics}
        tps = [TopicPartition(t, p) for t in sorted(read) for p in range(self.topics[t].partitions)]
        try:
            return self.admin.begin_offsets(tps)
        except LogDenied:  # of one of them: `begin` raises it for that one
            return {}


def scanned(query: QueryPlan) -> list[str]:
    """The topics that a query reads, without its repartitions."""
    return [op.spec.topic for sub in query.subtopologies for op in sub.operators if isinstance(op.spec, Scan)]


def task_counts(query: QueryPlan, partitions: Mapping[str, int]) -> dict[int, int]:
    """Partitions (= tasks) of each sub-topology: those of its topics, which must agree (PartitionsUneven); of a repartition alone, the most of any source."""
    counts: dict[int, int] = {}
    for sub in query.subtopologies:
        read = [op.spec.topic for op in sub.operators if isinstance(op.spec, Scan)]
        missing = [t for t in read if t not in partitions]
        if missing:
            raise TopicMissing(f"{query.id} reads {', '.join(missing)}, which does not exist")
        found = {t: partitions[t] for t in read}
        try:
            groups = GROUPER.group(found)
        except UnevenPartitions as error:
            msg = f"{query.id} joins topics with different partition counts: {error}; give them the same number"
            raise PartitionsUneven(msg) from None
        if groups:
            counts[sub.number] = len(groups)
    most = max(counts.values(), default=1)
    return {sub.number: counts.get(sub.number, most) for sub in query.subtopologies}
