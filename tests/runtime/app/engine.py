"""A small project on an instance, stepped by the driver or run by threads, and logs that fail."""

from __future__ import annotations

import json
from functools import cache

import pyarrow as pa

from flowql.compiler.diagnostics.source import SourceText
from flowql.compiler.driver import compile_project
from flowql.compiler.plan.topology import Plan
from flowql.runtime.app.driver import Driver
from flowql.runtime.app.instance import Instance
from flowql.runtime.clock import Clock, SystemClock, VirtualClock
from flowql.runtime.config import InstanceConfig
from flowql.runtime.errors import LogFull
from flowql.runtime.log.base import EARLIEST, PRODUCE_SCHEMA, Log, TopicPartition
from flowql.runtime.log.memory import MemoryLog
from flowql.runtime.log.transaction import Transaction
from flowql.runtime.state.memory import MemoryPhysical
from flowql.runtime.state.physical import Physical

APP = "flowql"
IN = TopicPartition("input", 0)
SOURCES = """
CREATE STREAM INPUT (K STRING KEY, V INT) WITH (KAFKA_TOPIC='input', KEY_FORMAT='KAFKA', VALUE_FORMAT='JSON');
CREATE STREAM OTHER (K STRING KEY, V INT) WITH (KAFKA_TOPIC='other', KEY_FORMAT='KAFKA', VALUE_FORMAT='JSON');
"""
DOUBLED = "CREATE STREAM DOUBLED WITH (KAFKA_TOPIC='doubled') AS SELECT K, V * 2 AS V FROM INPUT EMIT CHANGES;"
COUNTS = (
    "CREATE TABLE COUNTS WITH (KAFKA_TOPIC='counts') AS SELECT K, COUNT(*) AS N FROM INPUT GROUP BY K EMIT CHANGES;"
)
OTHERS = "CREATE STREAM OTHERS WITH (KAFKA_TOPIC='others') AS SELECT K, V + 1 AS V FROM OTHER EMIT CHANGES;"


@cache
def plan(*queries: str) -> Plan:
    result = compile_project([SourceText("test.sql", "\n".join((SOURCES, *queries)))])
    assert result.ok, result.diagnostics
    return result.plan


class FullLog(MemoryLog):
    """No space while `full`: for commits, for new producers, for trims."""

    full = False

    def commit(self, transactional_id: str, epoch: int, transaction: Transaction) -> int:
        self._need_space()
        return super().commit(transactional_id, epoch, transaction)

    def producer(self, transactional_id: str):
        self._need_space()
        return super().producer(transactional_id)

    def trim_redo(self, transactional_id: str, sequence: int) -> None:
        self._need_space()
        super().trim_redo(transactional_id, sequence)

    def _need_space(self) -> None:
        if self.full:
            raise LogFull("no space left on device")


def make(log: MemoryLog | None = None, *queries: str, clock: Clock | None = None, **config) -> tuple[Instance, Driver]:
    """An instance with these queries deployed, and its driver."""
    log = log or MemoryLog()
    _topics(log)
    clock = clock or VirtualClock()
    instance = Instance(log, MemoryPhysical(), clock, InstanceConfig(**config))
    tick = (lambda: clock.advance(10)) if isinstance(clock, VirtualClock) else (lambda: None)
    driver = Driver(instance, tick=tick)
    instance.deploy(plan(*queries))
    return instance, driver


def threaded(log: Log, *queries: str, **config) -> Instance:
    """An instance with its threads running."""
    _topics(log)
    instance = Instance(log, MemoryPhysical(), SystemClock(), InstanceConfig(**config))
    instance.start()
    instance.deploy(plan(*queries))
    return instance


def resume(log: Log, physical: Physical, **config) -> tuple[Instance, Driver]:
    """A new instance on what an earlier one left."""
    clock = VirtualClock()
    instance = Instance(log, physical, clock, InstanceConfig(**config))
    driver = Driver(instance, tick=lambda: clock.advance(10))
    instance.resume()
    return instance, driver


def _topics(log: Log) -> None:
    for topic in {"input", "other"} - set(log.admin().topics()):
        log.admin().create_topic(topic, 1)


def produce(log: Log, topic: str, *values: object, start_ms: int = 0) -> None:
    """Records with key k; bytes are written as they are."""
    raw = [v if isinstance(v, bytes) else json.dumps({"V": v}).encode() for v in values]
    records = [{"timestamp": start_ms + n, "key": b"k", "value": v, "headers": None} for n, v in enumerate(raw)]
    producer = log.producer("test")
    producer.begin()
    producer.send(TopicPartition(topic, 0), pa.RecordBatch.from_pylist(records, PRODUCE_SCHEMA))
    producer.commit()
    producer.close()


def read(log: Log, topic: str) -> list:
    """Decoded values of a topic."""
    reader = log.reader(TopicPartition(topic, 0), EARLIEST)
    out = []
    while (batch := reader.read(10_000, 1 << 30)) is not None:
        out += [None if v is None else json.loads(v) for v in batch.records.column("value").to_pylist()]
    return out
