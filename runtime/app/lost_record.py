"""A damaged record of what is deployed, when readers of the log leave it out from now on.

Names of tasks, state and positions say nothing about the text of a query: without the record, a query with another text would go on
with them, and generations would be numbered anew. So a record takes its place that knows no queries: the next start drops
all state, and queries that are deployed then are computed from the beginning, as new generations of their topics.
"""

from __future__ import annotations

from collections.abc import Collection
from contextlib import closing

from flowql.compiler.plan.deployed import Deployed, TopicHistory
from flowql.runtime.app.plan_topic import KEY, topic_name, write_deployed
from flowql.runtime.app.plan_writer import writer_id
from flowql.runtime.log.base import EARLIEST, Log, TopicPartition


def forget_deployed(log: Log, application_id: str, left_out: Collection[int], now_ms: int) -> bool:
    """Whether the newest record was lost with what is left out: ends of ranges of offsets in the topic of plans."""
    tp = TopicPartition(topic_name(application_id), 0)
    if not left_out or max(left_out) <= _newest(log, tp):
        return False
    with closing(log.producer(writer_id(application_id))) as producer:
        producer.begin()
        producer.send(*write_deployed(_forgotten(log, application_id, tp), log.admin(), application_id, now_ms))
        producer.commit()
    return True


def _newest(log: Log, tp: TopicPartition) -> int:
    """The offset of the newest record that can be read, or -1."""
    reader, found = log.reader(tp, EARLIEST), -1
    while (batch := reader.read(10_000, 1 << 26)) is not None:
        offsets, keys = (batch.records.column(name).to_pylist() for name in ("offset", "key"))
        found = max([found, *(offset for offset, key in zip(offsets, keys, strict=True) if key == KEY)])
    return found


def _forgotten(log: Log, application_id: str, tp: TopicPartition) -> Deployed:
    """Each generation and each deployment had a record of its own: numbers above the end of the topic are new."""
    admin, number = log.admin(), log.admin().end_offset(tp)
    written = {
        name for name, info in admin.topics().items() if _has_written(log, application_id, name, info.partitions)
    }
    histories = tuple(TopicHistory(name, number) for name in sorted(written - {tp.topic}))
    return Deployed(histories=histories, id=number, forgotten=True)


def _has_written(log: Log, application_id: str, topic: str, partitions: int) -> bool:
    writers = (log.admin().writers(TopicPartition(topic, p)) for p in range(partitions))
    return any(w is not None and application_id in w for w in writers)
