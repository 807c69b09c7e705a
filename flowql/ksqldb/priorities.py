"""Priorities of an imported project: what its scripts let one conclude, since ksqlDB has none."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from flowql.compiler.plan.logical import Scan, walk_nodes
from flowql.compiler.plan.priorities import PRIORITY_WEIGHTS, Priority
from flowql.compiler.plan.topology import Plan, QueryPlan
from flowql.ksqldb.settings import COMMIT_INTERVAL, plain

DEFAULT_INTERVAL_MS = 2_000  # of ksqlDB
BATCH_INTERVAL_MS = 30_000
_RANK = {name: n for n, name in enumerate(sorted(PRIORITY_WEIGHTS, key=PRIORITY_WEIGHTS.__getitem__))}


@dataclass(frozen=True, slots=True)
class Wanted:
    """of_reader: the query for whose sake another one has this class."""

    priority: Priority = "normal"
    latency_target_ms: int | None = None
    why: str = ""


def priorities(
    plan: Plan, properties: Mapping[str, Mapping[str, str]], given: Mapping[str, Priority]
) -> dict[str, Wanted]:
    """By query id, where it is not simply normal.

    properties: of each query where it was defined. given: classes that the person names, by id or result. A commit interval
    shorter than ksqlDB's own asks for low latency, one of half a minute for none at all. Who feeds a query gets at least
    its class, or the query would wait for it.
    """
    found = {q.id: _of(q, properties.get(q.id, {}), given) for q in plan.queries}
    for query in reversed(plan.queries):  # readers come after those they read from
        mine = found[query.id]
        for writer in _feeding(plan, query):
            if _RANK[found[writer.id].priority] < _RANK[mine.priority]:
                why = mine.why if mine.why.startswith("feeds") else f"feeds {query.id}"
                found[writer.id] = Wanted(mine.priority, found[writer.id].latency_target_ms, why)
    return {q: w for q, w in found.items() if w.priority != "normal" or w.latency_target_ms is not None}


def _of(query: QueryPlan, properties: Mapping[str, str], given: Mapping[str, Priority]) -> Wanted:
    named = {n.casefold(): p for n, p in given.items()}
    chosen = named.get(query.id.casefold()) or named.get(query.sink.casefold())
    text = next((v for n, v in properties.items() if plain(n) == COMMIT_INTERVAL), "")
    interval = int(text) if text.isdigit() else DEFAULT_INTERVAL_MS
    target = interval if 0 < interval < DEFAULT_INTERVAL_MS else None
    if chosen is not None:
        return Wanted(chosen, target, "as asked")
    if target is not None:
        return Wanted("high", target, f"{COMMIT_INTERVAL} is {interval}")
    if interval >= BATCH_INTERVAL_MS:
        return Wanted("batch", None, f"{COMMIT_INTERVAL} is {interval}")
    return Wanted()


def _feeding(plan: Plan, query: QueryPlan) -> list[QueryPlan]:
    topics = {s.name: s.topic for s in plan.sources}
    read = {n.spec.topic for n in walk_nodes(query.logical) if isinstance(n.spec, Scan)}
    return [q for q in plan.queries if topics.get(q.sink) in read and q.id != query.id]
