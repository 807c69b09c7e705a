"""Whether an answer combines results of queries that read their inputs separately, so that its rows may be of different moments.

Views are shown as of one tick (`runtime.ticks`), also those of several members, but not tables that are read beside them. Other queries that read
a topic of the project's inputs side by side are stopped at the same offsets for an answer (`runtime.app.consistent_snapshot`), unless one
reads another, or they read different topics. Nothing is said of these if the commit shows that all of them have read all there is.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence

from flowql.compiler.plan.generations import runtime_name
from flowql.compiler.plan.logical import Scan
from flowql.compiler.plan.topology import NO_ROWS, Plan, QueryPlan
from flowql.query.committed import Commit, makers
from flowql.query.of_plan import OfPlan
from flowql.runtime.app.exchanges import STORE as EXCHANGES
from flowql.runtime.log.base import TopicPartition
from flowql.runtime.task.position_names import topic_named


def why_separate(commit: Commit, relations: Collection[str]) -> str:
    """A sentence about what is combined though it may be of different moments; empty if nothing is."""
    if commit.apart:  # the answer says that already
        return ""
    known, key = _combined(commit.plan), (tuple(relations), commit.is_whole, commit.others is None)
    found = known.get(key)
    if found is None:
        if len(known) >= _COMBINED_MAX:
            known.clear()
        found = known[key] = _what_is_combined(commit, relations)
    said, upstream = found
    return "" if said and _has_read_all(commit, upstream) else said


_COMBINED_MAX = 1_000
# By names of relations, whether views are whole, and whether an instance is alone.
_combined = OfPlan[dict[tuple[tuple[str, ...], bool, bool], tuple[str, Sequence[QueryPlan]]]](lambda _: {})


def _what_is_combined(commit: Commit, relations: Collection[str]) -> tuple[str, Sequence[QueryPlan]]:
    """The sentence, whatever was read so far, and the queries that it is about."""
    plan = commit.plan
    made = makers(plan)
    behind = {name: made[name.casefold()] for name in relations if name.casefold() in made}
    if not behind:
        return "", ()
    upstream = _upstream(plan, behind.values())
    said = _side_by_side(commit, relations, behind)
    if not said and not commit.is_whole:
        said = next(filter(None, (_inside(plan, q) for q in upstream)), "")
    return said, upstream


def _upstream(plan: Plan, queries: Iterable[QueryPlan]) -> list[QueryPlan]:
    """These queries and all that make what they read."""
    found, todo = dict[str, QueryPlan](), list(queries)
    while todo:
        query = todo.pop(0)
        if query.id not in found:
            found[query.id] = query
            todo += [q for topic in _topics(query) for q in plan.writers.get(topic, ())]
    return list(found.values())


def _side_by_side(commit: Commit, relations: Iterable[str], behind: Mapping[str, QueryPlan]) -> str:
    """The relations that the interactive query itself reads together: views, and tables that views are over."""
    plan = commit.plan
    inputs = {frozenset(_topics(q)) for q in behind.values()}
    is_aligned = len(inputs) == 1 and commit.others is None and not any(t in plan.writers for t in next(iter(inputs)))
    is_aligned = is_aligned or commit.is_whole
    names = list(behind) if len({q.id for q in behind.values()}) > 1 and not is_aligned else []
    below = {topic for query in _upstream(plan, behind.values()) for topic in _topics(query)}
    tables = [name for name in relations if name not in behind and _topic(plan, name) in below]
    names = [*tables, *behind] if tables else names
    return f"{_listed(names)} {_SEPARATELY}" if names else ""


_SEPARATELY = "follow their inputs separately; an answer over them may combine states of different moments"


def _inside(plan: Plan, query: QueryPlan) -> str:
    """The relations that a view reads together: several views, or a view and its inputs."""
    made = [topic for topic in _topics(query) if topic in plan.writers]
    below = {t for topic in made for q in _upstream(plan, plan.writers[topic]) for t in _topics(q)}
    arms = [t for t in _topics(query) if t in made or t in below]
    return f"{query.sink} reads {_listed([_name(plan, t) for t in arms])}, which {_SEPARATELY}" if len(arms) > 1 else ""


def _has_read_all(commit: Commit, queries: Iterable[QueryPlan]) -> bool:
    """Whether the commit is known to have all results of all records. On Kafka it is not: ends count the markers of transactions."""
    if commit.others is not None or commit.restoring or not commit.log.supports_redo:
        return False
    snapshot = commit.snapshot
    if (
        any(s.name == EXCHANGES.name for s in snapshot.stores())
        and next(snapshot.scan(EXCHANGES.name), None) is not None
    ):
        return False  # rows between tasks
    tasks, reads = snapshot.tasks(), dict[TopicPartition, list[int]]()
    partitions = {name: topic.partitions for name, topic in commit.log.admin().topics().items()}
    for tp, at in _positions(tasks, queries, partitions):
        reads.setdefault(tp, []).append(at)
    ends = commit.log.admin().end_offsets(list(reads))
    return all(at >= ends.get(tp, 0) for tp, positions in reads.items() for at in positions)


def _positions(
    tasks: Mapping[str, Mapping[str, Mapping[str, int]]], queries: Iterable[QueryPlan], partitions: Mapping[str, int]
) -> Iterator[tuple[TopicPartition, int]]:
    """How far the tasks of these queries have read each partition of their topics; 0 for a task that has committed nothing."""
    for query in queries:
        topics = set(_topics(query))
        for sub in query.subtopologies:
            for topic in topics.intersection(sub.topics):
                for p in range(partitions.get(topic, 0)):
                    at = tasks.get(f"{runtime_name(query)}/{sub.number}_{p}", {}).get("positions", {})
                    named = [offset for name, offset in at.items() if topic_named(name) == topic]
                    yield TopicPartition(topic, p), min(named, default=0)


def _topics(query: QueryPlan) -> tuple[str, ...]:
    """Topics that it reads, without that of `NO_ROWS`: a view without a table waits for none."""
    scans = [op.spec for s in query.subtopologies for op in s.operators if isinstance(op.spec, Scan)]
    return tuple(dict.fromkeys(s.topic for s in scans if s.source != NO_ROWS.name))


def _topic(plan: Plan, relation: str) -> str | None:
    return next((s.topic for s in plan.sources if s.name == relation), None)


def _name(plan: Plan, topic: str) -> str:
    return next((s.name for s in plan.sources if s.topic == topic), topic)


def _listed(names: Iterable[str]) -> str:
    *others, last = dict.fromkeys(names)
    return f"{', '.join(others)} and {last}" if others else last
