"""Results in the log that a deployment takes away: whether they may go, and how they go. No pyspark.

Rows of INSERT INTO ... VALUES are written here, too: in a topic whose records go they are written once more.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Collection

import pyarrow as pa

from flowql.compiler.plan import codec
from flowql.compiler.plan.topology import InsertValues, Plan
from flowql.runtime.errors import OutsideRecords
from flowql.runtime.log.base import PRODUCE_SCHEMA, TopicPartition
from flowql.runtime.spark.engine.deployed import Deployed
from flowql.runtime.spark.engine.feeders import is_feeder, topic_fed_by
from flowql.runtime.spark.engine.order import topics_written
from flowql.runtime.spark.engine.site import Site
from flowql.runtime.spark.log_append import epochs_topic
from flowql.runtime.spark.log_offsets import Offsets, bounds, partition_offsets
from flowql.runtime.spark.log_replace import replace_with, replaced
from flowql.runtime.topology.query import build_inserts

_INSERTED = b"inserts"  # the key of the record
_CHUNK_ROWS, _CHUNK_BYTES = 1_000, 16 << 20


def topics_with_results(site: Site, before: Deployed) -> tuple[str, ...]:
    """Topics with records to which queries of this target have written, queries that were removed included."""
    found = {t for t, queries in _writers(before).items() if any(site.committed_epochs(q) is not None for q in queries)}
    there = sorted({*before.topics, *found} & site.partitions().keys())
    first, after = bounds(site.log, there)
    return tuple(t for t in there if first[t] != after[t])


def topics_to_replace(site: Site, before: Deployed, whole: Plan, fresh: Collection[str]) -> list[str]:
    """Topics with results of queries that begin anew. OutsideRecords if one holds records that others have written."""
    results, found = topics_with_results(site, before), []
    written = {t for q in whole.queries if q.id in fresh for t in topics_written(q)}
    for topic in sorted(written & site.partitions().keys()):
        now = [q for q in whole.queries if topic in topics_written(q)]
        if topic not in results and not any(_is_lost(site, before, q.id) for q in now):
            continue
        owned = any(map(is_feeder, now)) or any(s.topic == topic and s.query is not None for s in whole.sources)
        _refuse_outside(site, topic, [q.id for q in now], owned=owned)
        assert {q.id for q in now} <= set(fresh), "all queries that write to the same topic start again"
        found.append(topic)
    return found


def take_away(site: Site, plan: Plan, ends: Offsets, anew: Collection[str], now_ms: int) -> Offsets:
    """Records below `ends` go, and no epoch of the queries `anew` counts any more; rows of INSERT VALUES that are new or went with
    those records are written: in one transaction. Where a log deletes nothing with a transaction it does so right after.
    Where what comes instead begins: behind the tombstones of a table.
    """
    at, known = TopicPartition(epochs_topic(site.application_id), 0), _inserted(site)
    wanted = {_digest(i): i for i in plan.inserts}
    topics = {s.name: s.topic for s in plan.sources}
    rows = [i for d, i in wanted.items() if d not in known or topics[i.target] in ends]
    away = partition_offsets(ends)
    anew = [q for q in anew if site.committed_epochs(q) is not None]
    if not (rows or away or anew) and wanted.keys() == known:
        return {}
    records = build_inserts(plan, rows, site.log.admin(), now_ms)
    producer = site.log.producer(f"{site.application_id}-spark-inserts")
    try:
        producer.begin()
        gone = replace_with(site.log, producer, away, ())
        for tp, batch in records:
            producer.send(tp, batch)
        for query in anew:
            producer.send_positions(site.target(query).group, site.no_epochs(query))
        said = {"timestamp": now_ms, "key": _INSERTED, "value": json.dumps(sorted(wanted)).encode(), "headers": None}
        producer.send(at, pa.RecordBatch.from_pylist([said], schema=PRODUCE_SCHEMA))
        producer.commit()
    finally:
        producer.close()
    replaced(site.log, away)
    return {t: {p: end + gone.get(TopicPartition(t, int(p)), 0) for p, end in at.items()} for t, at in ends.items()}


def _is_lost(site: Site, before: Deployed, query: str) -> bool:
    """It has results in the log, and `plan.json` does not know of it."""
    committed = site.committed_epochs(query)
    return query not in before.records and committed is not None and committed.next_epoch > 0


def _writers(before: Deployed) -> dict[str, set[str]]:
    """Topic -> the queries that have written it, feeders included."""
    found: dict[str, set[str]] = {}
    for query in before.plan.queries:
        for topic in topics_written(query):
            found.setdefault(topic, set()).add(query.id)
    for name in before.records:
        topic_fed = topic_fed_by(name)
        if topic_fed is not None:
            found.setdefault(topic_fed, set()).add(name)
    return found


def _refuse_outside(site: Site, topic: str, queries: Collection[str], *, owned: bool) -> None:
    """owned: the topic is that of a result, where a log that does not say who has written is trusted."""
    admin, found = site.log.admin(), set[str]()
    for p in range(admin.partition_counts([topic])[topic]):
        found |= admin.writers(TopicPartition(topic, p)) or frozenset()
    others = sorted(w for w in found if not w.startswith(f"{site.application_id}-spark-"))
    if not others and (found or owned):
        return
    by = f" of {', '.join(others)}" if others else ", as far as is known,"
    raise OutsideRecords(
        f"{topic} holds records from outside{by} beside the results of {', '.join(queries)}: recomputing these would lose "
        "them; let the queries write to another topic (KAFKA_TOPIC), or use a target with another data_dir"
    )


def _inserted(site: Site) -> set[str]:
    """Digests of the inserts that were written."""
    found: set[str] = set()
    reader = site.log.reader(TopicPartition(epochs_topic(site.application_id), 0))
    while (raw := reader.read(_CHUNK_ROWS, _CHUNK_BYTES)) is not None:
        for row in raw.records.to_pylist():
            if row["key"] == _INSERTED:
                found = set(json.loads(row["value"]))
    reader.close()
    return found


def _digest(insert: InsertValues) -> str:
    return hashlib.sha256(json.dumps(codec.to_data(insert)).encode()).hexdigest()[:16]
