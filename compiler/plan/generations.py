"""Generations: the numbered attempts at computing a result, and the names they carry.

A topic that queries write belongs to one generation at a time. A change computes the next generation beside the serving one:
its queries write to *staging topics* (`ORDERS@2`) and read those of each other, until one commit puts their records into the
topics themselves. Tasks, stores and internal topics of generation n > 1 carry `@n` for good, staging topics until the swap.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from flowql.compiler.plan.logical import Node, Scan, Sink, Spec
from flowql.compiler.plan.topology import (
    ExchangeSink,
    ExchangeSource,
    InsertValues,
    Operator,
    Plan,
    QueryPlan,
    SubTopology,
)
from flowql.compiler.plan.visit import map_nodes

MARK = "@"


def numbered(name: str, generation: int) -> str:
    """The name of a task, store or topic in a generation.

    >>> numbered("ORDERS", 1), numbered("ORDERS", 2)
    ('ORDERS', 'ORDERS@2')
    """
    return name if generation == 1 else f"{name}{MARK}{generation}"


def plain(name: str, generation: int) -> str:
    """The inverse of `numbered`: the name that people use.

    >>> plain("ORDERS@2", 2), plain("ORDERS", 1)
    ('ORDERS', 'ORDERS')
    """
    return name if generation == 1 else name.removesuffix(f"{MARK}{generation}")


def staging_name(topic: str, generation: int, prefix: str = "") -> str:
    """Where a generation waits for its swap. prefix: of a log that many applications share, and that takes no `@` in names.

    >>> staging_name("ORDERS", 2), staging_name("ORDERS", 2, "shop-")
    ('ORDERS@2', 'shop-ORDERS.g2-staging')
    """
    return f"{prefix}{topic}.g{generation}-staging" if prefix else numbered(topic, generation)


def at_generation(query: QueryPlan, generation: int) -> QueryPlan:
    """A query whose stores and repartitions are those of a generation."""
    before = query.generation

    def named(name: str) -> str:
        return numbered(plain(name, before), generation)

    def operator(op: Operator) -> Operator:
        stores = tuple(replace(s, name=named(s.name)) for s in op.stores)
        if isinstance(op.spec, ExchangeSink | ExchangeSource):
            return replace(op, spec=replace(op.spec, topic=named(op.spec.topic)), stores=stores)
        return replace(op, stores=stores)

    inside = set(query.repartitions)
    subs = tuple(
        SubTopology(
            s.number,
            tuple(operator(op) for op in s.operators),
            tuple(named(t) if t in inside else t for t in s.topics),
        )
        for s in query.subtopologies
    )
    return replace(
        query, generation=generation, subtopologies=subs, repartitions=tuple(named(t) for t in query.repartitions)
    )


def staged(query: QueryPlan, staging: Mapping[str, str]) -> QueryPlan:
    """A query that reads and writes staging topics in place of topics. staging: topic -> its staging topic."""

    def spec(found: Spec) -> Spec:
        return replace(found, topic=staging.get(found.topic, found.topic)) if isinstance(found, Scan | Sink) else found

    def node(found: Node) -> Node:
        changed = spec(found.spec)
        return found if changed is found.spec else replace(found, spec=changed)

    subs = tuple(
        replace(
            s,
            operators=tuple(
                replace(op, spec=spec(op.spec)) if isinstance(op.spec, Scan | Sink) else op for op in s.operators
            ),
            topics=tuple(staging.get(t, t) for t in s.topics),
        )
        for s in query.subtopologies
    )
    return replace(query, logical=map_nodes(query.logical, node), subtopologies=subs)


def under_own_name(query: QueryPlan) -> QueryPlan:
    """As an engine runs it: its id names the generation too, so that two generations of a query run side by side."""
    return replace(query, id=runtime_name(query))


def runtime_name(query: QueryPlan) -> str:
    """The name of the query in tasks, accounts and counters."""
    return numbered(query.id, query.generation)


def user_id(name: str, generation: int) -> str:
    """The id that people use, of a query that `under_own_name` has named."""
    return plain(name, generation)


def topics_read(query: QueryPlan) -> tuple[str, ...]:
    """Topics that a query scans, repartitions left out."""
    found = (op.spec.topic for s in query.subtopologies for op in s.operators if isinstance(op.spec, Scan))
    return tuple(dict.fromkeys(found))


def topic_of(plan: Plan, insert: InsertValues) -> str:
    """The topic in which the record of an INSERT VALUES lies."""
    return next(s.topic for s in plan.sources if s.name == insert.target)


def inserts_into(plan: Plan, topic: str) -> tuple[InsertValues, ...]:
    """INSERT VALUES whose records lie in a topic."""
    names = {s.name for s in plan.sources if s.topic == topic}
    return tuple(i for i in plan.inserts if i.target in names)
