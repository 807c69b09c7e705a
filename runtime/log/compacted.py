"""Whether compaction has removed records of a topic, known from the offsets that it has left."""

from __future__ import annotations

import pyarrow.compute as pc

from flowql.runtime.log.base import Log, TopicInfo, TopicPartition

LOOKED_AT = 1_000_000  # records of a partition; compaction removes the oldest ones first
_ROWS, _BYTES = 50_000, 8 << 20


def removed_from(log: Log, topic: TopicInfo) -> TopicPartition | None:
    """The first partition that compaction has taken some of its oldest records from; None if there is none.

    Where the log keeps account of it, also of a topic that is compacted no more; else of one whose policy says so.
    """
    says_so = "compact" in topic.config.get("cleanup.policy", "")
    for p in range(topic.partitions):
        tp = TopicPartition(topic.name, p)
        was = log.admin().was_compacted(tp)
        if (says_so if was is None else was) and _has_gap(log, tp):
            return tp
    return None


def _has_gap(log: Log, tp: TopicPartition) -> bool:
    """Whether offsets are missing among the first LOOKED_AT records. Of a log whose commits take offsets a single one says nothing."""
    step = 1 if log.drops_with_commits else 2
    expected, looked_at = log.admin().begin_offset(tp), 0
    reader = log.reader(tp, expected)
    try:
        while looked_at < LOOKED_AT and (batch := reader.read(_ROWS, _BYTES)) is not None:
            widest = pc.max(pc.pairwise_diff(batch.records.column("offset"))).as_py() or 1
            if batch.first_offset >= expected + step or widest > step:
                return True
            expected, looked_at = batch.last_offset + 1, looked_at + batch.rows
    finally:
        reader.close()
    return False
