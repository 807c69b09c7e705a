"""The same input for every target: topics that queries read and none of them writes, copied once into fresh logs."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from flowql.compiler.plan.logical import Scan, Sink, walk_nodes
from flowql.compiler.plan.topology import Plan
from flowql.errors import CommandError
from flowql.runtime.log.base import PRODUCE_SCHEMA, Log, Producer, TopicPartition
from flowql.runtime.topology.query import build_inserts, ensure_topics
from flowql.verify.leftover import records_of

NO_INPUT = "FQ5601"
_TRANSACTION_BYTES = 128 << 20
_ID = "flowql-verify"


def source_topics(plan: Plan) -> tuple[str, ...]:
    """Topics that come from outside."""
    specs = [n.spec for query in plan.queries for n in walk_nodes(query.logical)]
    written = {s.topic for s in specs if isinstance(s, Sink)}
    return tuple(sorted({s.topic for s in specs if isinstance(s, Scan)} - written))


def count_records(plan: Plan, log: Log) -> int:
    """How much there is to copy; offsets may have gaps, so at most that many records."""
    admin = log.admin()
    found = admin.topics()
    tps = [TopicPartition(t, p) for t in source_topics(plan) if t in found for p in range(found[t].partitions)]
    return sum(admin.end_offset(tp) - admin.begin_offset(tp) for tp in tps)


def copy_inputs(
    plan: Plan, deployed: Plan, origin: Log, copies: Sequence[Log], now_ms: int, advance: Callable[[int], None]
) -> int:
    """Write the input of a plan into logs that have none of its topics yet; returns the number of records of each.

    deployed: what runs over `origin`: what its INSERT VALUES wrote is in the topics already, those of the plan alone are
    written here, at one time for all copies. Raises CommandError when there is nothing.
    """
    topics = source_topics(plan)
    existing = origin.admin().topics()
    for log in copies:
        for topic in topics:
            if topic in existing:
                log.admin().create_topic(topic, existing[topic].partitions, existing[topic].config)
        ensure_topics(plan, log.admin())
    producers = [log.producer(_ID) for log in copies]
    for p in producers:
        p.begin()
    count = pending = 0
    for topic in topics:
        for tp, records in records_of(origin, topic):
            batch = records.select(PRODUCE_SCHEMA.names)
            for p in producers:
                p.send(tp, batch)
            count += batch.num_rows
            pending += batch.nbytes
            advance(batch.num_rows)
            if pending > _TRANSACTION_BYTES:
                for p in producers:
                    p.commit()
                    p.begin()
                pending = 0
    count += _insert(plan, deployed, copies[0], producers, now_ms)
    for p in producers:
        p.commit()
        p.close()
    if not count:
        names = ", ".join(topics) or "none"
        title = f"there is no input to compare over (source topics: {names})"
        raise CommandError(title, code=NO_INPUT, help="flowql topic import TOPIC FILE -t TARGET  (the first target)")
    return count


def _insert(plan: Plan, deployed: Plan, like: Log, producers: Sequence[Producer], now_ms: int) -> int:
    """Rows of INSERT VALUES that the copied topics do not hold."""
    copied = set(source_topics(plan))
    targets = {s.name: s.topic for s in plan.sources}
    inserts = [i for i in plan.inserts if targets[i.target] not in copied or i not in deployed.inserts]
    records = build_inserts(plan, inserts, like.admin(), now_ms)
    for tp, batch in records:
        for p in producers:
            p.send(tp, batch)
    return sum(batch.num_rows for _, batch in records)
