"""A log that does not take every record."""

from __future__ import annotations

from flowql.runtime.errors import RecordAhead, RecordRefused
from flowql.runtime.log.base import largest_record, latest_record
from flowql.runtime.log.memory import MemoryLog


class NarrowLog(MemoryLog):
    """Takes records up to a size and up to a time, by topic."""

    def __init__(self):
        super().__init__()
        self.bytes_max, self.time_max_ms, self.says_why = {}, {}, True

    def record_bytes_max(self, topic):
        return self.bytes_max.get(topic)

    def record_ahead_ms_max(self, topic):
        return 3_600_000 if topic in self.time_max_ms else None

    def commit(self, transactional_id, epoch, transaction):
        for tp, batches in transaction.batches():
            if any(largest_record(b) > self.bytes_max.get(tp.topic, 1 << 30) for b in batches):
                error = RecordRefused(f"{tp}: a record is too large")
                error.partition = tp
                raise error
            if any(latest_record(b) > self.time_max_ms.get(tp.topic, 1 << 62) for b in batches):
                # Brokers do not say it of the other records of a batch.
                error = (RecordAhead if self.says_why else RecordRefused)(f"{tp}: a record is invalid")
                error.partition = tp
                raise error
        return super().commit(transactional_id, epoch, transaction)
