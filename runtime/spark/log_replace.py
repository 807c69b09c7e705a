"""Earlier results that new ones take the place of. No pyspark.

In a compacted topic, which is a table, the keys that the new results do not have get tombstones in the transaction: a reader that
has followed the old table comes to the new one. The embedded log also drops the old records with the transaction. Brokers delete
records on demand, but not together with a commit, and none of a topic that is only compacted. So on Kafka the records of other
topics are deleted after the commit, and until then a reader sees both.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping

import pyarrow as pa
import pyarrow.compute as pc

from flowql.runtime.log.base import PRODUCE_SCHEMA, Log, Producer, TopicPartition
from flowql.runtime.spark.log_offsets import LogRange, read_range

_CHUNK_ROWS = 65_536
_KEYS = pa.schema([PRODUCE_SCHEMA.field("key"), PRODUCE_SCHEMA.field("timestamp"), pa.field("lives", pa.bool_())])


def replace_with(
    log: Log, producer: Producer, replaces: Mapping[TopicPartition, int], new: Iterable[tuple[TopicPartition, pa.Array]]
) -> dict[TopicPartition, int]:
    """Writes a replacement's part of the transaction; returns the number of tombstones. replaces: where old records end; new: keys of the new ones."""
    for tp, offset in replaces.items() if log.drops_with_commits else ():
        producer.drop_before(tp, offset)
    policies = _policies(log, replaces)
    tables = {tp: offset for tp, offset in replaces.items() if "compact" in policies[tp.topic]}
    kept: dict[TopicPartition, list[pa.Array]] = {}
    for tp, keys in new:
        if tp in tables:
            kept.setdefault(tp, []).append(keys)
    sent: dict[TopicPartition, int] = {}
    for tp, offset in tables.items():
        found = tombstones(log, tp, offset, kept.get(tp, []))
        if found.num_rows:
            producer.send(tp, found)
            sent[tp] = found.num_rows
    return sent


def replaced(log: Log, replaces: Mapping[TopicPartition, int]) -> None:
    """Finishes a replacement after the commit; may be repeated."""
    if log.drops_with_commits:
        return
    policies = _policies(log, replaces)
    for tp, offset in replaces.items():
        if "delete" in policies[tp.topic] and log.admin().begin_offset(tp) < offset:
            log.admin().drop_before(tp, offset)


def drop_all(log: Log, topic: str, writer: str) -> None:
    """All records there are in a topic are gone. writer: transactional id, for tombstones."""
    admin = log.admin()
    tps = [TopicPartition(topic, p) for p in range(admin.partition_counts([topic])[topic])]
    begins, ends = admin.begin_offsets(tps), admin.end_offsets(tps)
    held = {tp: end for tp, end in ends.items() if begins[tp] < end}
    if not held:
        return
    producer = log.producer(writer)
    try:
        producer.begin()
        replace_with(log, producer, held, ())
        producer.commit()
    finally:
        producer.close()
    replaced(log, held)


def tombstones(log: Log, tp: TopicPartition, before: int, kept: Iterable[pa.Array]) -> pa.RecordBatch:
    """PRODUCE_SCHEMA: one for each key that has a value below an offset and is not among `kept`."""
    rows = pa.Table.from_batches(_keys(log, tp, before), _KEYS)
    last = rows.group_by("key", use_threads=False).aggregate([("timestamp", "max"), ("lives", "last")])
    gone = last.filter(pc.and_(last.column("lives_last"), pc.is_valid(last.column("key"))))
    for keys in kept:
        gone = gone.filter(pc.invert(pc.is_in(gone.column("key"), value_set=keys)))
    n = gone.num_rows
    columns = [gone.column("timestamp_max").combine_chunks(), gone.column("key").combine_chunks()]
    empty = [pa.nulls(n, PRODUCE_SCHEMA.field(name).type) for name in ("value", "headers")]
    return pa.RecordBatch.from_arrays([*columns, *empty], schema=PRODUCE_SCHEMA)


def _keys(log: Log, tp: TopicPartition, before: int) -> Iterator[pa.RecordBatch]:
    wanted = LogRange(tp.topic, tp.partition, log.admin().begin_offset(tp), before)
    for raw in read_range(log, wanted, _CHUNK_ROWS):
        records = raw.records
        lives = pc.is_valid(records.column("value"))
        yield pa.RecordBatch.from_arrays([records.column("key"), records.column("timestamp"), lives], schema=_KEYS)


def _policies(log: Log, tps: Iterable[TopicPartition]) -> dict[str, set[str]]:
    """`cleanup.policy` of topics; brokers delete records on demand where it has `delete`."""
    wanted = {tp.topic for tp in tps}
    topics = log.admin().topics() if wanted else {}
    said = {t: topics[t].config.get("cleanup.policy", "delete") if t in topics else "delete" for t in wanted}
    return {topic: {word.strip() for word in policy.split(",")} for topic, policy in said.items()}
