"""A log that does not take every record."""

from __future__ import annotations

from flowql.runtime.errors import RecordRefused
from flowql.runtime.log.base import largest_record
from flowql.runtime.log.memory import MemoryLog


class NarrowLog(MemoryLog):
    """Takes records up to a size, by topic."""

    def __init__(self):
        super().__init__()
        self.bytes_max = {}

    def record_bytes_max(self, topic):
        return self.bytes_max.get(topic)

    def commit(self, transactional_id, epoch, transaction):
        for tp, batches in transaction.batches():
            if any(largest_record(b) > self.bytes_max.get(tp.topic, 1 << 30) for b in batches):
                error = RecordRefused(f"{tp}: a record is too large")
                error.partition = tp
                raise error
        return super().commit(transactional_id, epoch, transaction)
