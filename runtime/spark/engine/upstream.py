"""A stream that merges its inputs by time waits for the queries that write them, when it begins over existing records. No pyspark.

A micro-batch is processed to its end, so a join that began beside the query that writes its table would have read its other side before the
first row of the table came, and have met nothing. It begins when all that its inputs are made of has been read up to the ends that
were found then, one query upstream after the other, and is in the log. Runs that end have this order by themselves.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Protocol

from flowql.compiler.plan.topology import Plan, QueryPlan
from flowql.runtime.errors import RuntimeFailure
from flowql.runtime.events import INFO, say
from flowql.runtime.spark.engine.feeders import is_feeder
from flowql.runtime.spark.engine.order import topics_read, topics_written
from flowql.runtime.spark.engine.streams import RunningQuery
from flowql.runtime.spark.log_offsets import Offsets
from flowql.runtime.topology.upstream import merges, upstream_of

LOOK_MS = 250  # brokers are asked


class Asked(Protocol):
    """The requests to the log."""

    def epoch(self, query: RunningQuery) -> int: ...

    def ends(self, query: RunningQuery) -> Offsets: ...

    def lacks(self, query: RunningQuery, ends: Offsets) -> bool: ...


def awaited(query: QueryPlan, plan: Plan) -> list[str]:
    """The queries that it waits for, in their order: first those that read files. plan: with its feeders."""
    if not merges(query):
        return []
    own = Plan(queries=tuple(q for q in plan.queries if not is_feeder(q)))
    upstream = upstream_of(query, own)
    read = {t for q in (query, *upstream) for t in topics_read(q)}
    feeders = [q for q in plan.queries if is_feeder(q) and read & {*topics_written(q)}]
    return [q.id for q in (*feeders, *upstream)]


def is_held(query: RunningQuery, queries: Mapping[str, RunningQuery], asked: Asked, now_ms: int) -> bool:
    """Whether a query that would be started now waits for another one. queries: all of the instance."""
    if query.waits_for is None:
        query.waits_for = awaited(query.plan, Plan(queries=tuple(q.plan for q in queries.values())))
        if query.waits_for:
            say(
                INFO,
                "query.waits",
                f"until the existing records have been read by {', '.join(query.waits_for)}",
                query=query.plan.id,
            )
    if not query.waits_for or now_ms < query.look_at_ms:
        return bool(query.waits_for)
    query.look_at_ms = now_ms + LOOK_MS
    try:
        while query.waits_for and _is_done(query, queries.get(query.waits_for[0]), asked):
            query.waits_for, query.ends = query.waits_for[1:], None
    except RuntimeFailure:  # brokers are away
        return True
    return bool(query.waits_for)


def _is_done(query: RunningQuery, other: RunningQuery | None, asked: Asked) -> bool:
    """Whether the query whose turn it is has read up to the ends, or does not go on by itself. One that has read something
    before does not wait for one that fails.
    """
    if other is None or other.paused or other.state == "error":
        return True
    if other.state == "failed" and asked.epoch(query) >= 0:
        return True
    if is_feeder(other.plan):
        return other.is_idle
    if query.ends is None:
        query.ends = asked.ends(other)
    return not asked.lacks(other, query.ends)
