"""A small engine in memory whose commits can be asked."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

import pyarrow as pa

from flowql.compiler.diagnostics.source import SourceText
from flowql.compiler.driver import compile_project
from flowql.compiler.plan.topology import Plan
from flowql.query.committed import Commit
from flowql.query.session import evaluate
from flowql.runtime.app.driver import Driver
from flowql.runtime.app.instance import Instance
from flowql.runtime.clock import VirtualClock
from flowql.runtime.config import InstanceConfig
from flowql.runtime.log.base import PRODUCE_SCHEMA, TopicPartition
from flowql.runtime.log.memory import MemoryLog
from flowql.runtime.log.murmur2 import partition_for
from flowql.runtime.state.memory import MemoryPhysical

APPLICATION = "flowql"


def plan_of(sql: str) -> Plan:
    compiled = compile_project([SourceText("test.sql", sql)])
    assert compiled.ok, compiled.diagnostics
    return compiled.plan


class QueryHarness:
    """An instance under the driver, with a feed."""

    def __init__(self, sql: str) -> None:
        self.log = MemoryLog()
        self.instance = Instance(self.log, MemoryPhysical(), VirtualClock(), InstanceConfig(threads=1))
        self.driver = Driver(self.instance)
        self.producer = self.log.producer("feed")
        self.instance.deploy(plan_of(sql))

    def feed(self, topic: str, rows: list[tuple[str | None, Any, int]]) -> None:
        """(key, JSON value, timestamp) records, committed and processed."""
        self.send(topic, rows)
        self.driver.run_until_caught_up()

    def send(self, topic: str, rows: list[tuple[str | None, Any, int]]) -> None:
        """The same, only written to the log."""
        partitions = self.log.admin().topics()[topic].partitions
        self.producer.begin()
        for key, value, timestamp in rows:
            raw = None if key is None else key.encode()
            record = {
                "timestamp": timestamp,
                "key": raw,
                "value": None if value is None else json.dumps(value).encode(),
                "headers": None,
            }
            p = partition_for(raw, partitions) if raw is not None else 0
            self.producer.send(TopicPartition(topic, p), pa.RecordBatch.from_pylist([record], PRODUCE_SCHEMA))
        self.producer.commit()

    def commit(self, _relations: Sequence[str] = ()) -> Commit:
        return Commit(self.instance.plan, self.instance.snapshot(), self.log, APPLICATION)

    def ask(self, sql: str) -> list[dict[str, Any]]:
        return list(evaluate(sql, self.commit).to_pylist())
