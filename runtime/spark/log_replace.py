"""Earlier results that new ones take the place of, where a log cannot drop records with a transaction: on Kafka. No pyspark.

Brokers delete records on demand, but not together with a commit, and none of a compacted topic. So of a compacted one the keys
that new results do not have get tombstones in the transaction: who reads it as a table sees the old rows or the new. Of others the
records are deleted after the commit, and until then a reader sees both.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping

import pyarrow as pa
import pyarrow.compute as pc

from runtime.log.base import PRODUCE_SCHEMA, Log, Producer, TopicInfo, TopicPartition
from runtime.spark.log_offsets import LogRange, read_range

_CHUNK_ROWS = 65_536
_KEYS = pa.schema([PRODUCE_SCHEMA.field("key"), PRODUCE_SCHEMA.field("timestamp"), pa.field("lives", pa.bool_())])


def replace_with(
    log: Log, producer: Producer, replaces: Mapping[TopicPartition, int], new: Iterable[tuple[TopicPartition, pa.Array]]
) -> None:
    """What of a replacement goes into the open transaction. replaces: where old records end; new: keys of what takes their place."""
    if log.drops_with_commits:
        for tp, offset in replaces.items():
            producer.drop_before(tp, offset)
        return
    compacted = _compacted(log, replaces)
    kept: dict[TopicPartition, list[pa.Array]] = {}
    for tp, keys in new:
        if tp in compacted:
            kept.setdefault(tp, []).append(keys)
    for tp, offset in compacted.items():
        found = tombstones(log, tp, offset, kept.get(tp, []))
        if found.num_rows:
            producer.send(tp, found)


def replaced(log: Log, replaces: Mapping[TopicPartition, int]) -> None:
    """What is done after the commit; again is no harm."""
    if log.drops_with_commits:
        return
    compacted = _compacted(log, replaces)
    for tp, offset in replaces.items():
        if tp not in compacted and log.admin().begin_offset(tp) < offset:
            log.admin().drop_before(tp, offset)


def drop_all(log: Log, topic: str, writer: str) -> None:
    """All records there are in a topic are gone. writer: transactional id, for tombstones."""
    admin = log.admin()
    tps = [TopicPartition(topic, p) for p in range(admin.partition_counts([topic])[topic])]
    begins, ends = admin.begin_offsets(tps), admin.end_offsets(tps)
    held = {tp: end for tp, end in ends.items() if begins[tp] < end}
    compacted = {} if log.drops_with_commits else _compacted(log, held)
    for tp, end in held.items():
        if tp not in compacted:
            admin.drop_before(tp, end)
    if compacted:
        producer = log.producer(writer)
        try:
            producer.begin()
            replace_with(log, producer, compacted, ())
            producer.commit()
        finally:
            producer.close()


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


def _compacted(log: Log, offsets: Mapping[TopicPartition, int]) -> dict[TopicPartition, int]:
    """Those of topics of which records cannot be deleted on demand."""
    if not offsets:
        return {}
    topics = log.admin().topics()
    return {tp: offset for tp, offset in offsets.items() if tp.topic in topics and _keeps(topics[tp.topic])}


def _keeps(topic: TopicInfo) -> bool:
    policies = {word.strip() for word in topic.config.get("cleanup.policy", "delete").split(",")}
    return "delete" not in policies
