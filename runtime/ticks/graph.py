"""Which queries follow ticks, and which of them read the results of which."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from flowql.compiler.plan import changes
from flowql.compiler.plan.generations import topics_read
from flowql.compiler.plan.logical import Project, Sink
from flowql.compiler.plan.topology import ExchangeSink, Plan, QueryPlan, SubTopology
from flowql.runtime.task.repartition import topic_of
from flowql.runtime.topology.query import input_topics

CHANGES = tuple(c for c in vars(changes).values() if isinstance(c, type) and c.__module__ == changes.__name__)


@dataclass(frozen=True, slots=True)
class Stage:
    """Sub-topologies that finish ticks together, because they write the same topics: those of results, and of repartitions between members.

    topic: the first of these topics, which names the stage. subs: query and number of each sub-topology. sources: topics that it reads and no stage
    writes; upstream: the stages that write the others; reads: all topics. reads_tables: brokers may compact a topic that it reads.
    """

    topic: str
    subs: frozenset[tuple[str, int]]
    writes: frozenset[str]
    reads: frozenset[str]
    sources: frozenset[str]
    upstream: frozenset[str]
    reads_tables: bool = False
    queries: tuple[str, ...] = field(init=False, compare=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "queries", tuple(sorted({query for query, _ in self.subs})))

    @property
    def is_combined(self) -> bool:
        """Whether a part of a tick would combine states of different moments."""
        return bool(self.upstream) or len(self.sources) > 1


def stages_of(plan: Plan, group: str | None) -> list[Stage]:
    """The stages of standard views and of all queries that these read; upstream ones first. Queries that read their own results, by whatever way,
    are not among them: there is no tick that they could finish.

    group: its repartitions are topics, as tasks of one query are at several members. None: an instance that is alone, where a query is in one stage.
    """
    following = following_ticks(plan)
    subs = {(q.id, sub.number): (q, sub) for q in plan.queries if q.id in following for sub in q.subtopologies}
    together = _together(
        {of: frozenset({q.topic}) if group is None else _topics_written(sub, group) for of, (q, sub) in subs.items()}
    )
    stage_of = {topic: name for name, (_, topics) in together.items() for topic in topics}
    reads = {
        name: frozenset(
            topic
            for query, sub in map(subs.__getitem__, members)
            for topic in (topics_read(query) if group is None else input_topics(sub, group))
        )
        for name, (members, _) in together.items()
    }
    order = _in_order({name: {stage_of[t] for t in topics if t in stage_of} for name, topics in reads.items()})
    found, tables = list[Stage](), frozenset(s.topic for s in plan.sources if s.kind == "table")
    for name in order:
        members, topics = together[name]
        made = frozenset(t for t in reads[name] if stage_of.get(t) in order)
        upstream = frozenset(stage_of[t] for t in made)
        reads_tables = not reads[name].isdisjoint(tables)
        found.append(Stage(name, members, topics, reads[name], reads[name] - made, upstream, reads_tables))
    return found


def _topics_written(sub: SubTopology, group: str) -> frozenset[str]:
    repartitions = {topic_of(group, op.spec.topic) for op in sub.operators if isinstance(op.spec, ExchangeSink)}
    return frozenset(repartitions | {op.spec.topic for op in sub.operators if isinstance(op.spec, Sink)})


def _together(
    writes: Mapping[tuple[str, int], frozenset[str]],
) -> dict[str, tuple[frozenset[tuple[str, int]], frozenset[str]]]:
    """Sub-topologies that share a topic, directly or through others, with all their topics; by the first of these."""
    groups = list[tuple[set[tuple[str, int]], set[str]]]()
    for of, topics in writes.items():
        members, written = {of}, set(topics)
        apart = list[tuple[set[tuple[str, int]], set[str]]]()
        for group in groups:
            if group[1] & written:
                members, written = members | group[0], written | group[1]
            else:
                apart.append(group)
        groups = [*apart, (members, written)]
    return {min(topics): (frozenset(members), frozenset(topics)) for members, topics in groups if topics}


def following_ticks(plan: Plan) -> set[str]:
    """The ids of the queries that follow ticks: standard views, and all queries that these read."""
    reads = {q.id: topics_read(q) for q in plan.queries}
    relations = {s.query for s in plan.sources if s.relation}
    todo = [q for q in plan.queries if q.id in relations or _is_view(q)]
    found = set[str]()
    while todo:
        query = todo.pop()
        if query.id not in found:
            found.add(query.id)
            todo += [w for topic in (query.topic, *reads[query.id]) for w in plan.writers.get(topic, ())]
    return found


def _is_view(query: QueryPlan) -> bool:
    """Whether an operator has the meaning of standard SQL."""
    specs = (op.spec for sub in query.subtopologies for op in sub.operators)
    return any(isinstance(s, CHANGES) or (isinstance(s, Project) and s.drop_failed) for s in specs)


def _in_order(upstream: Mapping[str, Iterable[str]]) -> list[str]:
    """Topics after those that they are made of, without those on a cycle."""
    left = {topic: set(above) for topic, above in upstream.items()}
    on_cycles = {t for t in left if t in _reachable(t, upstream)}
    left = {t: above - on_cycles for t, above in left.items() if t not in on_cycles}
    order = list[str]()
    while left:
        free = sorted(t for t, above in left.items() if not above)
        assert free, "no cycle is left"
        order += free
        left = {t: above.difference(free) for t, above in left.items() if t not in free}
    return order


def _reachable(topic: str, upstream: Mapping[str, Iterable[str]]) -> set[str]:
    found, todo = set[str](), list(upstream[topic])
    while todo:
        above = todo.pop()
        if above not in found:
            found.add(above)
            todo += upstream[above]
    return found
