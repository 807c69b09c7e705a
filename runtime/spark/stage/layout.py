"""How a query's sub-topologies are laid out over Spark stages: levels, groups, and which of them need no grouping. Plain data.

A group is a task: (sub-topology, partition). Sub-topologies whose inputs are all known at the same depth run in one Spark stage;
rows for deeper ones and finished rows travel through. A *free* sub-topology keeps nothing and reads one log topic: its records
may be cut anywhere, so it runs where they are read.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

from flowql.compiler.plan.changes import GroupAggregate
from flowql.compiler.plan.codec import from_data, to_data
from flowql.compiler.plan.logical import Explode, Filter, Project, Rekey, Scan, SchemaRef, Sink
from flowql.compiler.plan.topology import ExchangeSink, ExchangeSource, Plan, QueryPlan, SubTopology
from flowql.compiler.plan.visit import functions_called
from flowql.runtime.functions.shipping import shipped
from flowql.runtime.topology.log_facts import task_counts
from flowql.runtime.topology.query import upsert_topics

_FREE = (Explode, Filter, Project, Rekey, Scan, Sink, ExchangeSink)


@dataclass(frozen=True)
class Layout:
    """counts: tasks of each sub-topology, in order. partitions: of every topic that is read, and of every topic and repartition that is written.

    coalesce: one update per key and run is enough, for everyone reads the sink as a table (rule R13). schemas: that records may
    name and no registry keeps. functions: modules with the user-defined ones that are called (`flowql.runtime.functions.shipping`).
    grouped: no sub-topology is free, so that every task runs once, over all of its records, and has stream times and counts of its own.
    """

    query: str
    subtopologies: tuple[SubTopology, ...]
    counts: Mapping[int, int]
    partitions: Mapping[str, int]
    coalesce: bool = False
    schemas: tuple[SchemaRef, ...] = ()
    functions: Sequence[Any] = ()
    grouped: bool = False
    free: frozenset[int] = field(init=False)
    levels: Mapping[int, int] = field(init=False)

    def __post_init__(self) -> None:
        object.__setattr__(
            self, "free", frozenset(s.number for s in self.subtopologies if _is_free(s) and not self.grouped)
        )
        object.__setattr__(self, "levels", _levels(self))

    def sub(self, number: int) -> SubTopology:
        return next(s for s in self.subtopologies if s.number == number)

    @cached_property
    def writers(self) -> Mapping[str, int]:
        """Repartition -> the sub-topology that writes it."""
        return _by_repartition(self.subtopologies, ExchangeSink)

    @cached_property
    def consumers(self) -> Mapping[str, int]:
        """Repartition -> the sub-topology that reads it."""
        return _by_repartition(self.subtopologies, ExchangeSource)

    @cached_property
    def readers(self) -> Mapping[str, tuple[int, ...]]:
        """Log topic -> the sub-topologies that read it."""
        found: dict[str, list[int]] = {}
        for s in self.subtopologies:
            for topic in dict.fromkeys(op.spec.topic for op in s.operators if isinstance(op.spec, Scan)):
                found.setdefault(topic, []).append(s.number)
        return {topic: tuple(numbers) for topic, numbers in found.items()}

    def groups(self, level: int) -> list[tuple[int, int]]:
        """The tasks that run grouped at a level; their places in this list are their group numbers."""
        return [
            (s.number, p)
            for s in self.subtopologies
            if self.levels[s.number] == level and s.number not in self.free
            for p in range(self.counts[s.number])
        ]

    @cached_property
    def starting(self) -> tuple[tuple[int, int], ...]:
        """Tasks that may have results without input rows: those of aggregates without keys. Spark must call them in any case."""
        return tuple(
            (s.number, p)
            for s in self.subtopologies
            if any(isinstance(op.spec, GroupAggregate) and not op.spec.keys for op in s.operators)
            for p in range(self.counts[s.number])
        )

    def grouped_levels(self) -> list[int]:
        return [n for n in range(max(self.levels.values(), default=-1) + 1) if self.groups(n)]

    def dumps(self) -> str:
        """As text that workers build it from; equal layouts give equal text."""
        return json.dumps(
            [
                self.query,
                to_data(self.subtopologies),
                sorted(self.counts.items()),
                sorted(self.partitions.items()),
                self.coalesce,
                to_data(self.schemas),
                self.functions,
                self.grouped,
            ]
        )


def loads(text: str) -> Layout:
    """The inverse of `Layout.dumps`."""
    query, subs, counts, partitions, coalesce, schemas, functions, grouped = json.loads(text)
    found = from_data(subs), dict(counts), dict(partitions), coalesce, from_data(schemas), functions, grouped
    return Layout(query, *found)


def layout_of(
    plan: Plan,
    query: QueryPlan,
    partitions: Mapping[str, int],
    *,
    coalesce: bool = True,
    grouped: bool = False,
    buckets: int = 0,
) -> Layout:
    """The layout of a query over topics with these partition counts. coalesce: merge updates where the plan allows it. grouped: see `Layout`.

    buckets: tasks of sub-topologies that read repartitions alone; 0 for as many as topics have partitions.

    Raises TopicMissing and LogError as a deployment to an instance would.
    """
    counts = task_counts(query, partitions)
    if buckets:
        counts |= dict.fromkeys(behind_repartitions(query), buckets)
    known: dict[str, int] = {}
    for sub in query.subtopologies:
        for op in sub.operators:
            if isinstance(op.spec, Sink):
                there = partitions.get(op.spec.topic)
                known[op.spec.topic] = there or op.spec.partitions or counts[sub.number]
            elif isinstance(op.spec, Scan):
                known[op.spec.topic] = partitions[op.spec.topic]
            elif isinstance(op.spec, ExchangeSource):
                known[op.spec.topic] = counts[sub.number]
    sink = plan.source(query.sink)
    merge = coalesce and sink is not None and sink.topic in upsert_topics(plan)
    functions = shipped(functions_called(query.logical))
    return Layout(query.id, query.subtopologies, counts, known, merge, plan.schemas, functions, grouped)


def behind_repartitions(query: QueryPlan) -> list[int]:
    """Sub-topologies that read no topic, so that no topic decides the number of their tasks."""
    return [s.number for s in query.subtopologies if not any(isinstance(op.spec, Scan) for op in s.operators)]


def _is_free(sub: SubTopology) -> bool:
    scans = [op for op in sub.operators if isinstance(op.spec, Scan)]
    stateless = all(isinstance(op.spec, _FREE) and not op.stores for op in sub.operators)
    return stateless and len(scans) == 1 and all(op.spec.kind == "stream" for op in scans)  # type: ignore[union-attr]


def _by_repartition(subs: Sequence[SubTopology], end: type[ExchangeSink] | type[ExchangeSource]) -> dict[str, int]:
    """Repartition -> the sub-topology with this end of it."""
    return {op.spec.topic: s.number for s in subs for op in s.operators if isinstance(op.spec, end)}


def _levels(layout: Layout) -> dict[int, int]:
    """Depth of each sub-topology: one more than the deepest that feeds it through a repartition."""
    feeds = {
        s.number: [layout.writers[op.spec.topic] for op in s.operators if isinstance(op.spec, ExchangeSource)]
        for s in layout.subtopologies
    }
    found: dict[int, int] = {}

    def depth(number: int) -> int:
        if number not in found:
            found[number] = 1 + max((depth(w) for w in feeds[number]), default=-1)
        return found[number]

    return {number: depth(number) for number in feeds}
