"""Where the instances of one application answer for their partitions: a compacted topic with a record per instance.

A topic of its own, not the one of the tasks' records: every reader reads it from its beginning.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field

import pyarrow as pa

from flowql.runtime.log.base import EARLIEST, PRODUCE_SCHEMA, Log, Reader, TopicPartition
from flowql.runtime.placement.record import read_fields
from flowql.runtime.state.changelog import COMPACTED, changes

_READ_ROWS, _READ_BYTES = 10_000, 1 << 22


@dataclass(frozen=True, slots=True)
class MemberAddress:
    """A member and the address on which it listens. token: permits reading rows, and nothing else."""

    host: str
    port: int
    token: str = field(repr=False)

    def __str__(self) -> str:
        return f"{self.host}:{self.port}"


def topic_name(application_id: str) -> str:
    return f"{application_id}-members"


def write_member(log: Log, application_id: str, process_id: str, member: MemberAddress | None, now_ms: int) -> None:
    """Tell the others where this instance listens; None when it does no more. Waits for the brokers."""
    tp = TopicPartition(topic_name(application_id), 0)
    log.admin().create_topic(tp.topic, 1, COMPACTED)
    value = None if member is None else json.dumps(asdict(member)).encode()
    columns = [[now_ms], [process_id.encode()], [value], [None]]
    arrays = [pa.array(c, f.type) for c, f in zip(columns, PRODUCE_SCHEMA, strict=True)]
    producer = log.producer(f"{application_id}-{process_id}-member")
    try:
        producer.begin()
        producer.send(tp, pa.RecordBatch.from_arrays(arrays, schema=PRODUCE_SCHEMA))
        producer.commit()
    finally:
        producer.close()


class MemberReader:
    """The instances that listen, by process id, read on from where it was. One thread at a time."""

    def __init__(self, log: Log, application_id: str) -> None:
        self._log, self._tp = log, TopicPartition(topic_name(application_id), 0)
        self._reader: Reader | None = None
        self._members: dict[str, MemberAddress] = {}

    def read(self) -> Mapping[str, MemberAddress]:
        """As of now. An instance that was killed is among them. Raises LogError."""
        if self._reader is None:
            if not self._log.admin().partition_counts([self._tp.topic]):
                return {}
            self._reader = self._log.reader(self._tp, EARLIEST)
        while (batch := self._reader.read(_READ_ROWS, _READ_BYTES)) is not None:
            for key, value in changes(batch):
                self._members.pop(key.decode(), None)
                if value is not None:
                    self._members[key.decode()] = read_fields(MemberAddress, value)
        return dict(self._members)
