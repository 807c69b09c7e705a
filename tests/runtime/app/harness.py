"""An instance over the in-memory log with a feed: stepped by a driver, or with real threads."""

from __future__ import annotations

import base64
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import orjson
import pyarrow as pa

from flowql.compiler.diagnostics.source import SourceText
from flowql.compiler.dialect.parser import DialectName
from flowql.compiler.driver import compile_project
from flowql.compiler.functions.registry import Function, QueryFailure, register, unregister
from flowql.compiler.functions.signatures import Resolution
from flowql.compiler.plan.diff import QueryChange
from flowql.compiler.plan.generations import plain
from flowql.compiler.plan.topology import Plan, stores_of
from flowql.compiler.plan.types import BIGINT
from flowql.runtime.app.driver import Driver
from flowql.runtime.app.instance import Instance
from flowql.runtime.app.progress import caught_up, remaining_of, source_ends
from flowql.runtime.clock import Clock, SystemClock, VirtualClock
from flowql.runtime.config import InstanceConfig
from flowql.runtime.log.base import EARLIEST, PRODUCE_SCHEMA, TopicPartition
from flowql.runtime.log.memory import MemoryLog
from flowql.runtime.log.murmur2 import partition_for
from flowql.runtime.state.memory import MemoryPhysical
from flowql.runtime.state.physical import Physical
from flowql.runtime.task.dead_letters import topic_name

Row = tuple[Any, ...]
Sent = tuple[int | None, dict[str, Any] | bytes, int]
WAIT_S = 120.0  # a live test fails after this long: only a hang or a lost wake-up takes it


def plan_of(sql: str, previous: Plan | None = None, dialect: DialectName = "ksql") -> Plan:
    compiled = compile_project([SourceText("test.sql", sql)], previous=previous, dialect=dialect)
    assert compiled.ok, compiled.diagnostics
    return compiled.plan


class InstanceHarness:
    """One instance. With `live` it has threads and the system's clock, else a driver and a virtual clock."""

    def __init__(
        self,
        sql: str,
        *,
        live: bool = False,
        seed: int | None = None,
        physical: Physical | None = None,
        log: MemoryLog | None = None,
        clock: Clock | None = None,
        tick_ms: int = 0,
        dialect: DialectName = "ksql",
        **config: Any,
    ) -> None:
        """tick_ms: by how much a round takes the clock on."""
        self._dialect = dialect
        self.log = log or MemoryLog()
        self.clock: Clock = clock or (SystemClock() if live else VirtualClock(1_000_000))
        self.instance = Instance(self.log, physical or MemoryPhysical(), self.clock, InstanceConfig(**config))
        self.tick_ms = tick_ms
        self.driver = None if live else Driver(self.instance, seed=seed, tick=self.tick)
        self.producer = self.log.producer("feed")
        if live:
            self.instance.start()
        self.deploy(sql)

    def __enter__(self) -> InstanceHarness:
        return self

    def __exit__(self, kind: object, *_: object) -> None:
        if self.driver is None:
            stuck = self.instance.stop()
            assert kind is not None or not stuck, "threads that do not end"

    def tick(self) -> None:
        if isinstance(self.clock, VirtualClock):
            self.clock.advance(self.tick_ms)

    def deploy(self, sql: str) -> tuple[QueryChange, ...]:
        previous = self.instance.plan if self.instance.plan.queries else None
        return self.instance.deploy(plan_of(sql, previous, self._dialect))

    # -- the feed

    def partitions(self, topic: str) -> int:
        return self.log.admin().topics()[topic].partitions

    def partition(self, topic: str, key: int | None) -> int:
        return 0 if key is None else partition_for(_key(key), self.partitions(topic))

    def send(self, topic: str, rows: Sequence[Sent]) -> None:
        """(key, JSON value, timestamp) as one transaction; the key is a KAFKA BIGINT and chooses the partition."""
        by_partition: dict[int, list[Sent]] = {}
        for row in rows:
            by_partition.setdefault(self.partition(topic, row[0]), []).append(row)
        self.producer.begin()
        for p, part in by_partition.items():
            self.producer.send(TopicPartition(topic, p), self.encode(part))
        self.producer.commit()

    def encode(self, rows: Sequence[Sent]) -> pa.RecordBatch:
        return pa.RecordBatch.from_pylist(
            [
                {
                    "timestamp": timestamp,
                    "key": None if key is None else _key(key),
                    "value": value if isinstance(value, bytes) else orjson.dumps(value),
                    "headers": None,
                }
                for key, value, timestamp in rows
            ],
            PRODUCE_SCHEMA,
        )

    # -- waiting

    def settle(self) -> None:
        """Everything there is now is processed and committed."""
        if self.driver is not None:
            self.driver.run_until_caught_up()
            return
        ends = source_ends(self.instance)
        self.until(lambda: caught_up(self.instance, ends), "caught up")

    def rest(self) -> None:
        """Everything is processed and committed but for queries that wait for their restart (driver)."""
        assert self.driver is not None
        self.driver.run_until_idle()
        self.driver.commit()

    def until(self, condition: Callable[[], bool], what: str) -> None:
        limit = time.monotonic() + WAIT_S
        while not condition():
            assert self.instance.fatal is None, self.instance.fatal
            assert time.monotonic() < limit, f"never {what}: {self.lags()}"
            time.sleep(0.002)

    def lags(self) -> dict[str, int]:
        return {name: remaining_of(self.instance, q).lag for name, q in self.instance.queries.items()}

    def lag(self, query: str) -> int:
        return remaining_of(self.instance, self.instance.queries[query]).lag

    # -- results

    def table(self, name: str) -> list[Row]:
        """Rows of a table as of the last commit, sorted; none before the first commit of its query."""
        snapshot = self.instance.snapshot()
        plan = self.instance.plan_at(snapshot.sequence)
        store = next((s.name for q, s in stores_of(plan) if plain(s.name, q.generation) == name), name)
        known = any(s.name == store for s in snapshot.stores())
        rows = sorted((*key, *value) for key, value in snapshot.scan(store)) if known else []
        snapshot.close()
        return rows

    def records(self, topic: str) -> list[tuple[int, int, bytes | None, Any, int]]:
        """(partition, offset, key, value, timestamp) of all records, in order within each partition."""
        out = []
        for p in range(self.partitions(topic)):
            reader = self.log.reader(TopicPartition(topic, p), EARLIEST)
            while (batch := reader.read(100_000, 1 << 30)) is not None:
                for r in batch.records.to_pylist():
                    value = None if r["value"] is None else orjson.loads(r["value"])
                    out.append((p, r["offset"], r["key"], value, r["timestamp"]))
        return out

    def values(self, topic: str) -> list[Any]:
        return [value for _, _, _, value, _ in self.records(topic)]

    def dead_letters(self, query: str) -> list[dict[str, Any]]:
        letters = [v for v in self.values(topic_name("flowql")) if v["QUERY"] == query]
        return [{**v, "VALUE": v["VALUE"] and base64.b64decode(v["VALUE"])} for v in letters]


@contextmanager
def function(name: str, body: Callable[[Any], Any]) -> Iterator[None]:
    """A user function BIGINT -> BIGINT for as long as the block runs."""

    def resolve(args: tuple[Any, ...]) -> Resolution:
        return Resolution((BIGINT,), BIGINT)

    register(Function(name, resolve, lambda resolution: body, deterministic=False))
    try:
        yield
    finally:
        unregister(name)


def fail(value: Any) -> Any:
    raise QueryFailure(f"no to {value}")


def _key(key: int) -> bytes:
    return key.to_bytes(8, "big", signed=True)
