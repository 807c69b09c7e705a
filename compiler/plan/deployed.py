"""The plan topic's record: the serving plan, the requested plan, and the numbers of generations.

While nothing is rebuilt the two plans are one. During a rebuild the serving plan answers interactive queries and feeds readers; the queries
of the wanted plan whose generation differs are computed beside it, in *groups* that swap in together.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Literal

from flowql.compiler.plan.generations import runtime_name, staged, staging_name, topic_of, topics_read, under_own_name
from flowql.compiler.plan.priorities import PRIORITY_WEIGHTS
from flowql.compiler.plan.topology import InsertValues, Plan, QueryPlan, sink_of

NO_PLAN = Plan()
FORWARDS_KEPT = 50  # of a query, as many as there are deployments in the history


@dataclass(frozen=True, slots=True)
class TopicHistory:
    """The record of a topic that queries write, or once wrote.

    last: the number of the last generation that was begun, whatever became of it. kind: of the generation whose records it holds.
    mixed: its records are of several generations, as at a swap a table gets the difference alone: as a table it is exact, its
    history is not that of one generation.
    """

    topic: str
    last: int
    kind: Literal["stream", "table"] = "stream"
    mixed: bool = False


# replace: the old records are deleted first. difference: between two tables. append: behind the records of the topic.
How = Literal["replace", "difference", "append"]


@dataclass(frozen=True, slots=True)
class Move:
    """A partition of a staging topic whose records a swap brings into `topic`, where a log cannot replace records in a commit.

    end: of the old records in the topic. staged_end: of the staging partition. readers: where tasks stand in it that will read the
    topic, ascending, each once.
    """

    staging: str
    topic: str
    partition: int
    how: How
    end: int
    staged_end: int
    readers: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class Moved:
    """Positions in a partition of a staging topic after its swap: (there, in the topic), for each position of a task."""

    staging: str
    topic: str
    partition: int
    places: tuple[tuple[int, int], ...]


@dataclass(frozen=True, slots=True)
class Swap:
    """A group that takes the place of what serves, where that needs more than one commit (`flowql.runtime.app.swapping`).

    id: rising, never used again. group: its name. moves: what is to be done; None while tasks are still being parked.
    """

    id: int
    group: str
    moves: tuple[Move, ...] | None = None


@dataclass(frozen=True, slots=True)
class Forward:
    """From where on a definition holds that took the place of another without a rebuild.

    query: the name under which it runs. deployment: its number. reads: (topic, partition, offset): the new definition has
    processed the records from this offset on, older ones the definition before it. results: (topic, partition, offset): what
    this query has written from there on, the new definition has made.
    """

    query: str
    deployment: int
    reads: tuple[tuple[str, int, int], ...] = ()
    results: tuple[tuple[str, int, int], ...] = ()


@dataclass(frozen=True, slots=True)
class Deployed:
    """The newest record of the plan topic.

    serving: answers interactive queries. wanted: None when it is what serves. histories: of topics that queries write or wrote. last: of
    each query id the number of its last generation. refreshed: ids that are rebuilt although nothing changed, until that ends. reasons: why,
    of those whose rebuild was not asked for. id: number of the deployment, rising. lost: serving queries, by the names under which they run, whose state is gone, and
    why they cannot be rebuilt (empty: they are): their results serve as they are, and they do not run. begins: first offsets, by
    partition, of streams whose older records were deleted for a new generation. forwards: of serving queries, whose results are of
    several definitions. held: ids of queries that are built and do not swap in until they are promoted, with the groups they
    belong to. forgotten: the record before this one is lost, so that no query can go on with its state and its results.
    left: (topic, row) of rows of INSERT VALUES that the plan no longer has, and that stay where they are, as no query writes the topic.

    Where a log cannot replace records in a commit: prefix: of the names of staging topics, which are among those of other
    applications there. swap: one that is under way; swaps: how many have begun. moved: since the last swap of each topic.
    """

    serving: Plan = NO_PLAN
    wanted: Plan | None = None
    histories: tuple[TopicHistory, ...] = ()
    last: tuple[tuple[str, int], ...] = ()
    refreshed: tuple[str, ...] = ()
    reasons: tuple[tuple[str, str], ...] = ()
    id: int = 0
    begins: tuple[tuple[str, tuple[int, ...]], ...] = ()
    lost: tuple[tuple[str, str], ...] = ()
    forwards: tuple[Forward, ...] = ()
    held: tuple[str, ...] = ()
    prefix: str = ""
    swap: Swap | None = None
    swaps: int = 0
    moved: tuple[Moved, ...] = ()
    forgotten: bool = False
    left: tuple[tuple[str, InsertValues], ...] = ()

    def rows_inserted(self) -> set[tuple[str, InsertValues]]:
        """Rows of INSERT VALUES that are in topics, with the topic of each."""
        topics = {s.name: s.topic for s in self.serving.sources}
        return {*self.left, *((topics[row.target], row) for row in self.serving.inserts)}

    def position(self, topic: str, partition: int, positions: Mapping[str, int]) -> int | None:
        """Where a task with these positions, by topic, is in a partition: also if it was last in the staging topic."""
        if topic in positions:
            return positions[topic]
        for m in self.moved:
            if (m.topic, m.partition) == (topic, partition) and m.staging in positions:
                return dict(m.places)[positions[m.staging]]
        return None

    def begin(self, topic: str, partition: int) -> int:
        """Where the records of the serving generation of a topic begin at the earliest."""
        known = dict(self.begins).get(topic, ())
        return known[partition] if partition < len(known) else 0

    @property
    def plan(self) -> Plan:
        """The plan after all rebuilds."""
        return self.serving if self.wanted is None else self.wanted

    def history(self, topic: str) -> TopicHistory | None:
        return next((h for h in self.histories if h.topic == topic), None)

    @property
    def building(self) -> tuple[QueryPlan, ...]:
        """Queries of the wanted plan that do not serve yet."""
        if self.wanted is None:
            return ()
        return tuple(q for q in self.wanted.queries if not is_serving(self.serving, q))


@dataclass(frozen=True, slots=True)
class About:
    """The origin of a deployment. how: `deploy`, `rollback to 3`, `pause` ... files: of the project, with a hash of each."""

    how: str = "deploy"
    files: tuple[tuple[str, str], ...] = ()


DEPLOY = About()


@dataclass(frozen=True, slots=True)
class Hold:
    """The options of a deployment for the swap of its new generations.

    hold: whether all that is built from now on waits until it is promoted; None for what was held before. promoted: ids that wait no
    longer. abandoned: ids whose rebuild was asked for, and is not any more.
    """

    hold: bool | None = None
    promoted: tuple[str, ...] = ()
    abandoned: tuple[str, ...] = ()


AS_BEFORE = Hold()


@dataclass(frozen=True, slots=True)
class Entry:
    """One deployment in the history. changes: (query, action, because). plan: what was wanted. done_ms: when all of it served; None
    while something is rebuilt, or if another deployment came first. forwards: of queries that it changed without a rebuild.
    """

    id: int
    ms: int
    about: About
    changes: tuple[tuple[str, str, str], ...]
    plan: Plan
    done_ms: int | None = None
    forwards: tuple[Forward, ...] = ()


@dataclass(frozen=True, slots=True)
class SwapGroup:
    """Queries that swap in together, as they write or read each other's topics.

    queries: of the wanted plan. topics: what they write, with the number of the generation. staging: where they write it until then.
    gone: serving queries whose time ends
    with the swap: those that are replaced, and those that the wanted plan no longer has. name: of its first query, so it stays
    while the group is built.
    """

    queries: tuple[QueryPlan, ...]
    topics: Mapping[str, int]
    staging: Mapping[str, str]
    gone: tuple[QueryPlan, ...]
    name: str

    @property
    def all_topics(self) -> set[str]:
        """Topics that the queries write once they serve, and the staging topics until then."""
        return {*self.topics, *self.staging.values()}

    def as_staged(self, query: QueryPlan) -> QueryPlan:
        """One of `queries` as it runs until the swap: on staging topics, at the least priority."""
        at_work = replace(query, priority="batch", weight=PRIORITY_WEIGHTS["batch"], latency_target_ms=None)
        return under_own_name(staged(at_work, self.staging))


def is_held(deployed: Deployed, group: SwapGroup) -> bool:
    """Whether a group waits until it is promoted."""
    return any(q.id in deployed.held for q in group.queries)


def without(deployed: Deployed, groups: Collection[SwapGroup]) -> Plan:
    """The wanted plan, but for these groups, whose queries are as they serve."""
    assert deployed.wanted is not None, "nothing is being built"
    built = {q.id for group in groups for q in group.queries}
    queries = {q.id: q for q in deployed.wanted.queries if q.id not in built}
    queries |= {q.id: q for group in groups for q in group.gone}
    if len(queries) == len(deployed.serving.queries) and all(is_serving(deployed.serving, q) for q in queries.values()):
        return deployed.serving
    return serving_plan(deployed.serving, deployed.wanted, queries)


def is_serving(serving: Plan, query: QueryPlan) -> bool:
    """Whether this generation of a query serves."""
    served = serving.by_id.get(query.id)
    return served is not None and served.generation == query.generation


def groups_of(deployed: Deployed) -> tuple[SwapGroup, ...]:
    """The groups that are being built, in the order of the wanted plan."""
    if deployed.wanted is None:
        return ()
    building = deployed.building
    replaced = [q for b in building for q in [deployed.serving.by_id.get(b.id)] if q is not None]
    leaving = [q for q in deployed.serving.queries if q.id not in deployed.wanted.by_id]
    renewed = {q.topic for q in (*building, *leaving)}
    members = _Components()
    for query in (*building, *replaced, *leaving):
        members.join(f"query {query.id}", *(f"topic {t}" for t in _touched(query) if t in renewed))
    groups: dict[str, list[QueryPlan]] = {}
    for query in building:
        groups.setdefault(members.root(f"query {query.id}"), []).append(query)
    return tuple(
        SwapGroup(
            tuple(queries),
            {q.topic: q.generation for q in queries},
            {q.topic: staging_name(q.topic, q.generation, deployed.prefix) for q in queries},
            tuple(q for q in (*replaced, *leaving) if members.root(f"query {q.id}") == root),
            runtime_name(queries[0]),
        )
        for root, queries in groups.items()
    )


def _touched(query: QueryPlan) -> tuple[str, ...]:
    return (*topics_read(query), query.topic)


class _Components:
    """Connected components of names (union-find)."""

    def __init__(self) -> None:
        self._above: dict[str, str] = {}

    def root(self, name: str) -> str:
        above = self._above.setdefault(name, name)
        return name if above == name else self.root(above)

    def join(self, name: str, *others: str) -> None:
        for other in others:
            self._above[self.root(other)] = self.root(name)


def running_plan(deployed: Deployed) -> Plan:
    """The queries that an engine runs: the serving queries and those that are built, under names that tell generations apart."""
    lost = dict(deployed.lost)
    queries = [under_own_name(q) for q in deployed.serving.queries if runtime_name(q) not in lost]
    queries += [group.as_staged(q) for group in groups_of(deployed) for q in group.queries]
    paused = {*deployed.serving.paused, *deployed.plan.paused}
    names = {runtime_name(q) for q in (*deployed.serving.queries, *deployed.building) if q.id in paused}
    return replace(deployed.serving, queries=tuple(queries), paused=tuple(q.id for q in queries if q.id in names))


def swapped(deployed: Deployed, group: SwapGroup, mixed: Collection[str]) -> Deployed:
    """The record after a group has swapped in. mixed: topics of it that got the difference between two tables."""
    assert deployed.wanted is not None, "nothing is being built"
    wanted, new = deployed.wanted, {q.id: q for q in group.queries}
    gone = {q.id for q in group.gone}
    queries = {q.id: q for q in deployed.serving.queries if q.id not in gone} | new
    serving = serving_plan(deployed.serving, wanted, queries)
    kinds = {q.topic: sink_of(q).kind for q in group.queries}
    histories = tuple(
        replace(h, mixed=h.topic in mixed, kind=kinds[h.topic]) if h.topic in kinds else h for h in deployed.histories
    )
    serves = {runtime_name(q) for q in serving.queries}
    lost = tuple((name, why) for name, why in deployed.lost if name in serves)
    forwards = forwards_of(deployed.forwards, serving)
    held, refreshed = (tuple(i for i in ids if i not in new) for ids in (deployed.held, deployed.refreshed))
    after = replace(
        deployed,
        serving=serving,
        histories=histories,
        lost=lost,
        forwards=forwards,
        held=held,
        refreshed=refreshed,
        reasons=tuple((query, why) for query, why in deployed.reasons if query in refreshed),
    )
    if after.building or any(q.id not in wanted.by_id for q in serving.queries):
        return after
    return replace(after, serving=wanted, wanted=None, refreshed=(), reasons=())


def takes_difference(deployed: Deployed, group: SwapGroup, topic: str) -> bool:
    """Whether a topic that has records gets the difference between two tables; else the new records in place of the old."""
    history = deployed.history(topic)
    new = [sink_of(q).kind for q in group.queries if q.topic == topic]
    return history is not None and history.kind == "table" and all(kind == "table" for kind in new)


def moved_in(deployed: Deployed, group: SwapGroup, places: Collection[Moved]) -> Deployed:
    """The record after the swap that is under way. places: what became of positions in its staging topics."""
    swap = deployed.swap
    assert swap is not None, "nothing swaps in"
    assert swap.moves is not None, "no swap is being carried out"
    mixed = {m.topic for m in swap.moves if m.how == "difference"}
    begins = dict(deployed.begins)
    for topic in sorted({m.topic for m in swap.moves if m.how == "replace"}):
        begins[topic] = tuple(m.end for m in sorted(swap.moves, key=lambda m: m.partition) if m.topic == topic)
    known = tuple(m for m in deployed.moved if m.topic not in group.topics)
    after = swapped(replace(deployed, swap=None), group, mixed)
    return replace(after, begins=tuple(begins.items()), moved=(*known, *places))


def forwards_of(known: Iterable[Forward], serving: Plan) -> tuple[Forward, ...]:
    """Those of queries that serve: a new generation is of one definition. Of each query the newest."""
    names = {runtime_name(q) for q in serving.queries}
    count = Counter[str]()
    found: list[Forward] = []
    for forward in reversed([f for f in known if f.query in names]):
        count[forward.query] += 1
        if count[forward.query] <= FORWARDS_KEPT:
            found.append(forward)
    return tuple(reversed(found))


def serving_plan(before: Plan, wanted: Plan, queries: Mapping[str, QueryPlan]) -> Plan:
    """The plan in which these queries serve, by id: some as wanted, some as they have served in `before`.

    A topic whose wanted generation does not serve yet is still described as before, with the rows that were inserted into it;
    everything else is as wanted.
    """
    apart = [q for q in wanted.queries if q.id not in queries or queries[q.id].generation != q.generation]
    apart += [q for q in queries.values() if not is_serving(wanted, q)]
    as_before = {q.topic for q in apart}
    kept = {s.name: s for s in before.sources if s.topic in as_before}
    sources = tuple(s for s in wanted.sources if s.topic not in as_before and s.name not in kept)
    rows = (
        *(i for i in wanted.inserts if topic_of(wanted, i) not in as_before),
        *(i for i in before.inserts if topic_of(before, i) in as_before),
    )
    names = [q.id for q in wanted.queries if q.id in queries]
    names += [i for i in queries if i not in names]
    return replace(
        wanted,
        sources=(*sources, *kept.values()),
        queries=tuple(queries[i] for i in names),
        inserts=rows,
        paused=tuple(i for i in names if i in wanted.paused),
    )
