"""All tasks of the plan of a group, wherever they run: what each reads, and the tasks upstream of it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, field

from flowql.compiler.plan.topology import ExchangeSink, Plan, QueryPlan
from flowql.runtime.app.frontier import Upstream
from flowql.runtime.commit.positions import readers
from flowql.runtime.log.base import TopicPartition
from flowql.runtime.state.changelog import WrittenTask
from flowql.runtime.task.id import TaskId
from flowql.runtime.task.repartition import topic_of
from flowql.runtime.topology.grouping import GROUPER
from flowql.runtime.topology.log_facts import LogFacts
from flowql.runtime.topology.query import TASKS, input_topics

SubTopologyId = tuple[str, int]  # query, number


def tasks_as_begun(query: QueryPlan, facts: LogFacts, written: Mapping[str, WrittenTask]) -> list[TaskId]:
    """Every task of a query, wherever it runs: for as many partitions as its topics had when it began, as the records of its tasks tell."""
    counts = facts.counts(query)
    for task, there in written.items():
        name, _, place = task.rpartition("/")
        if name == query.id:
            number = int(place.partition("_")[0])
            counts[number] = there.record.read().get(TASKS, counts[number])
    return [TaskId(query.id, number, p) for number, n in counts.items() for p in range(n)]


@dataclass(frozen=True, slots=True)
class PlannedTasks:
    """reads: the partitions that each task reads. writers: of each repartition topic, the sub-topology that writes it."""

    reads: dict[TaskId, frozenset[TopicPartition]] = field(default_factory=dict)
    writers: dict[str, SubTopologyId] = field(default_factory=dict)

    @classmethod
    def of(cls, plan: Plan, group: str, tasks_of: Callable[[QueryPlan], list[TaskId]]) -> PlannedTasks:
        """tasks_of: the tasks of a query; none while it is stopped."""
        topics = {(q.id, sub.number): input_topics(sub, group) for q in plan.queries for sub in q.subtopologies}
        tasks = [t for q in plan.queries for t in tasks_of(q)]
        counts = Counter((t.query, t.subtopology) for t in tasks)
        groups = {sub: GROUPER.group(dict.fromkeys(topics[sub], n)) for sub, n in counts.items()}
        writers = {
            topic_of(group, op.spec.topic): (q.id, sub.number)
            for q in plan.queries
            for sub in q.subtopologies
            for op in sub.operators
            if isinstance(op.spec, ExchangeSink)
        }
        return cls({t: groups[t.query, t.subtopology][t.partition] for t in tasks}, writers)

    @property
    def topics(self) -> frozenset[str]:
        return frozenset(tp.topic for reads in self.reads.values() for tp in reads)

    @property
    def partitions(self) -> frozenset[TopicPartition]:
        return frozenset(tp for reads in self.reads.values() for tp in reads)

    @property
    def readers(self) -> dict[TopicPartition, str]:
        """For each partition, the field `readers` of a committed position if none of its tasks is behind it."""
        tasks: dict[TopicPartition, list[TaskId]] = {}
        for task, reads in self.reads.items():
            for tp in reads:
                tasks.setdefault(tp, []).append(task)
        return {tp: readers(names) for tp, names in tasks.items()}

    def has(self, query: str) -> bool:
        return any(t.query == query for t in self.reads)

    def within(self, partitions: AbstractSet[TopicPartition]) -> dict[TaskId, frozenset[TopicPartition]]:
        """Tasks that read these partitions only."""
        return {t: reads for t, reads in self.reads.items() if reads <= partitions}

    def upstream(self) -> dict[TaskId, Upstream]:
        by_sub: dict[SubTopologyId, list[TaskId]] = {}
        for t in self.reads:
            by_sub.setdefault((t.query, t.subtopology), []).append(t)
        return {
            t: Upstream(
                reads,
                tuple(b for tp in sorted(reads) if tp.topic in self.writers for b in by_sub[self.writers[tp.topic]]),
            )
            for t, reads in self.reads.items()
        }
