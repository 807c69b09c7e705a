"""Writes records into topics."""

from __future__ import annotations

from collections.abc import Sequence

from flowql.runtime.log.base import Log
from flowql.topics.records import Record, RecordWriter


def write_records(log: Log, topic: str, partitions: int, records: Sequence[Record], transactional_id: str) -> None:
    """Writes all records in one transaction, into a topic that exists."""
    with RecordWriter(log, topic, partitions, transactional_id) as writer:
        writer.write(records)
