"""Queries over queries: who reads whose results, and so in which order they run. No pyspark."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from flowql.compiler.plan.logical import Scan, walk_nodes
from flowql.compiler.plan.topology import Plan, QueryPlan
from flowql.runtime.spark.engine.deployed import Record
from flowql.runtime.spark.history import topics_written


def topics_read(query: QueryPlan) -> tuple[str, ...]:
    """Log topics a query reads, each once, in plan order."""
    specs = (n.spec for n in walk_nodes(query.logical))
    return tuple(sorted({s.topic for s in specs if isinstance(s, Scan)}))


def topics_followed(query: QueryPlan, record: Record | None) -> tuple[str, ...]:
    """Those of which it is known how far it has read them. A native stream reads tables anew with each micro-batch."""
    if record is None or (record.form, record.how) != ("stream", "native"):
        return topics_read(query)
    specs = (n.spec for n in walk_nodes(query.logical))
    return tuple(sorted({s.topic for s in specs if isinstance(s, Scan) and s.kind == "stream"}))


def levels(queries: Sequence[QueryPlan]) -> list[list[QueryPlan]]:
    """The queries so that each comes after those whose results it reads; those of one level do not depend on each other.

    Queries that read each other in a circle share a level.
    """
    feeds = feeds_of(queries)
    waiting, done, found = list(queries), set[str](), list[list[QueryPlan]]()
    while waiting:
        ready = [q for q in waiting if feeds[q.id] <= done]
        if not ready:  # a circle: the part of it that needs nothing else
            reach = {q.id: _reach(q.id, feeds, done) for q in waiting}
            least = min(len(r) for r in reach.values())
            first = next(q for q in waiting if len(reach[q.id]) == least)
            ready = [q for q in waiting if q.id in reach[first.id] | {first.id}]
        found.append(ready)
        done |= {q.id for q in ready}
        waiting = [q for q in waiting if q.id not in done]
    return found


def is_circle(level: Sequence[QueryPlan]) -> bool:
    """Some query of a level reads what it, or another of the level, writes."""
    written = {t for q in level for t in topics_written(q)}
    return any(written & set(topics_read(q)) for q in level)


def downstream(plan: Plan, changed: Iterable[str]) -> set[str]:
    """The queries `changed`, all that read their results, directly or not, and all that write to the same topics."""
    return set(begun_with(plan, dict.fromkeys(changed, "")))


def begun_with(plan: Plan, because: Mapping[str, str]) -> dict[str, str]:
    """`downstream`, each with why. because: of the queries at the origin; of another, the id of a query that takes it along."""
    found = dict(because)
    while True:
        by_topic: dict[str, str] = {}
        for query in plan.queries:
            if query.id in found:
                for topic in topics_written(query):
                    by_topic.setdefault(topic, query.id)
        more = {q.id: t for q in plan.queries if q.id not in found for t in _touched(q) if t in by_topic}
        if not more:
            return found
        found |= {query: by_topic[topic] for query, topic in more.items()}


def outside_topics(plan: Plan) -> set[str]:
    """Topics that are read and that no query of the plan writes."""
    written = {t for q in plan.queries for t in topics_written(q)}
    return {t for q in plan.queries for t in topics_read(q)} - written


def _touched(query: QueryPlan) -> tuple[str, ...]:
    return (*topics_read(query), *topics_written(query))


def feeds_of(queries: Sequence[QueryPlan]) -> dict[str, set[str]]:
    """Query -> the others whose results it reads."""
    writers: dict[str, set[str]] = {}
    for q in queries:
        for topic in topics_written(q):
            writers.setdefault(topic, set()).add(q.id)
    return {q.id: {w for t in topics_read(q) for w in writers.get(t, ())} - {q.id} for q in queries}


def _reach(query: str, feeds: Mapping[str, set[str]], done: set[str]) -> set[str]:
    """All queries a query waits for."""
    found: set[str] = set()
    new = feeds[query] - done
    while new:
        found |= new
        new = {f for n in new for f in feeds[n]} - done - found
    return found
