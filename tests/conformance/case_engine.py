"""The engine of one case: topics with their records so far, and queries over them on an instance of their own."""

from __future__ import annotations

import base64
import time
from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from itertools import groupby
from typing import Any

import pyarrow as pa

from flowql.compiler.plan.logical import Scan, Sink
from flowql.compiler.plan.topology import Plan, QueryPlan, SourceDef
from flowql.runtime.app.driver import Driver
from flowql.runtime.app.instance import Instance
from flowql.runtime.app.progress import caught_up, source_ends
from flowql.runtime.clock import SystemClock, VirtualClock
from flowql.runtime.config import InstanceConfig
from flowql.runtime.errors import RuntimeFailure
from flowql.runtime.log.base import EARLIEST, PRODUCE_SCHEMA, Log, TopicPartition
from flowql.runtime.log.memory import MemoryLog
from flowql.runtime.log.murmur2 import murmur2
from flowql.runtime.state.memory import MemoryPhysical
from flowql.runtime.topology.row_store import encode_insert
from flowql.runtime.topology.table_writer import POLICY as TABLE_POLICY
from tests.conformance.records import decode, decode_key, encode, encode_key

Record = dict[str, Any]  # timestamp, key, value, headers as bytes
Step = list[tuple[str, Record]]  # (topic, record), written together
FEED = "case"  # the producer of inputs


class QueryFailed(Exception):
    """A query stopped while it processed its input."""


class NotSupported(Exception):
    """The engine says that it cannot run a query; the text is the reason, without names of the case."""


@dataclass(slots=True)
class Shape:
    """How a query is run. rows: None feeds and processes one record at a time; else neighbouring
    records of one topic together, in runs of `rows`.

    changelogs: after half of the input the state is lost and restored from changelogs. partitions: of each topic.
    threads: that process, beside all the others of an instance; 0 means none at all, one step after the other.
    kill: the seed of a moment at which a process is killed that runs the query on files (see `processes`)."""

    rows: int | None = None
    vector: bool | None = None
    coalesce: bool = False
    changelogs: bool = False
    partitions: int = 1
    threads: int = 0
    kill: int | None = None

    @property
    def config(self) -> InstanceConfig:
        return InstanceConfig(
            threads=self.threads or 1,
            coalesce=self.coalesce,
            vector=self.vector,
            rows_per_run=self.rows,
            changelogs=self.changelogs,
        )

    def steps(self, feed: list[tuple[str, Record]]) -> list[Step]:
        """What is written before the engine runs again. Neighbouring records of one topic may go together: the order stays."""
        if self.rows is None:
            return [[f] for f in feed]
        return [list(group) for _, group in groupby(feed, key=lambda f: f[0])]


@dataclass(slots=True)
class CaseEngine:
    """Topics of a case. `named`: topics that the case's inputs name. letters: how many dead letters there are."""

    shape: Shape = field(default_factory=Shape)
    topics: dict[str, list[Record]] = field(default_factory=dict)
    letters: int = 0

    @property
    def final(self) -> bool:
        """Only what a run ends in can be compared: it does not emit every update."""
        return self.shape.rows is not None

    def add(self, topic: str, records: Iterable[Record]) -> None:
        self.topics.setdefault(topic, []).extend(records)

    def insert(self, plan: Plan, row: Any) -> None:
        """INSERT VALUES: written at once, wall clock at 0."""
        source = plan.source(row.target)
        assert source is not None
        self.add(source.topic, encode_insert(source, row, 0).to_pylist())

    def run(self, query: QueryPlan, plan: Plan, inputs: list[tuple[str, Record]]) -> None:
        """Run a query over all its input; what it writes is added to the topics."""
        read = topics_of(query, Scan)
        sinks = topics_of(query, Sink)
        named = {t for t, _ in inputs}
        feed = [(t, r) for t, r in inputs if t in read]
        feed += [(t, r) for t in read if t not in named for r in self.topics.get(t, [])]
        self.process(query, plan, feed, [t for t in sinks if t not in read])

    def process(self, query: QueryPlan, plan: Plan, feed: list[tuple[str, Record]], sinks: list[str]) -> None:
        """Run a query over records in this order; what it writes to `sinks` is added to them."""
        log = MemoryLog()
        log.supports_redo = not self.shape.changelogs
        create_topics(log, query, plan, self.shape)
        steps = self.shape.steps(feed)
        if self.shape.threads:
            self._with_threads(log, query, plan, steps)
        else:
            self._stepped(log, query, plan, steps)
        self.collect(log, sinks)

    def _stepped(self, log: MemoryLog, query: QueryPlan, plan: Plan, steps: list[Step]) -> None:
        instance = Instance(log, MemoryPhysical(), VirtualClock(), self.shape.config)
        driver = Driver(instance)
        instance.deploy(alone(query, plan, log))
        for n, step in enumerate(steps):
            if self.shape.changelogs and n == len(steps) // 2:
                instance, driver = _without_state(log, driver, self.shape.config)
            send(log, step, self.shape)
            driver.run_until_idle()
            check(instance, query)
        driver.commit()
        self.letters += instance.metrics.query(query.id).dead_letters

    def _with_threads(self, log: MemoryLog, query: QueryPlan, plan: Plan, steps: list[Step]) -> None:
        instance = Instance(log, MemoryPhysical(), SystemClock(), self.shape.config)
        instance.start()
        try:
            instance.deploy(alone(query, plan, log))
            for step in steps:
                send(log, step, self.shape)
                settle(instance, query)
        finally:
            stuck = instance.stop()
        assert not stuck, f"threads that do not end: {stuck}"

    def collect(self, log: Log, topics: Iterable[str]) -> None:
        """Add what a query wrote."""
        for topic in topics:
            self.add(topic, _read(log, topic))


def topics_of(query: QueryPlan, *kinds: type[Scan | Sink]) -> list[str]:
    """Topics a query reads or writes."""
    specs = [o.spec for s in query.subtopologies for o in s.operators]
    return sorted({s.topic for s in specs if isinstance(s, kinds or (Scan, Sink))})  # type: ignore[union-attr]


def create_topics(log: Log, query: QueryPlan, plan: Plan, shape: Shape) -> None:
    own = {s.topic for s in plan.sources if s.is_own_table}
    for topic in topics_of(query):
        log.admin().create_topic(topic, shape.partitions, TABLE_POLICY if topic in own else None)


def alone(query: QueryPlan, plan: Plan, log: Log) -> Plan:
    """The plan of one query, with the sources whose topics exist."""
    topics = log.admin().topics()
    return replace(plan, queries=(query,), inserts=(), sources=tuple(s for s in plan.sources if s.topic in topics))


def send(log: Log, step: Step, shape: Shape) -> None:
    """Write records in one transaction, each to where Kafka's own producer puts it; those without a key stay together."""
    producer = log.producer(FEED)
    producer.begin()
    for topic, record in step:
        key = record["key"]
        partition = 0 if key is None else (murmur2(key) & 0x7FFF_FFFF) % shape.partitions
        producer.send(TopicPartition(topic, partition), pa.RecordBatch.from_pylist([record], PRODUCE_SCHEMA))
    producer.commit()
    producer.close()


def check(instance: Instance, query: QueryPlan) -> None:
    """Raise what went wrong."""
    found = instance.metrics.query(query.id)
    if instance.fatal is not None or found.errors:
        raise QueryFailed(str(instance.fatal or found.last_error))


def settle(instance: Instance, query: QueryPlan) -> None:
    """Wait for threads until everything is processed and committed."""
    ends = source_ends(instance)
    while True:
        instance.wait(instance.commit.request())
        check(instance, query)
        if caught_up(instance, ends):
            return
        time.sleep(0.001)


def _without_state(log: MemoryLog, driver: Driver, config: InstanceConfig) -> tuple[Instance, Driver]:
    """The instance again after it has lost its state."""
    driver.commit()
    driver.instance.close()
    instance = Instance(log, MemoryPhysical(), VirtualClock(), config)
    assert instance.state.restoring(), "nothing is to be restored"
    driver = Driver(instance)
    instance.resume()
    return instance, driver


def _read(log: Log, topic: str) -> list[Record]:
    out: list[Record] = []
    for partition in range(log.admin().topics()[topic].partitions):
        reader = log.reader(TopicPartition(topic, partition), EARLIEST)
        while (batch := reader.read(100_000, 1 << 30)) is not None:
            out += batch.records.to_pylist()
    return out


def input_record(record: Record, source: SourceDef | None) -> Record:
    """An input of a case as bytes."""
    headers = [{"key": h["KEY"], "value": _bytes(h["VALUE"])} for h in record.get("headers", [])]
    if source is None:
        key, value = None, None
    else:
        key = encode_key(record, source)
        value = encode(record.get("value"), source.value_format, source.schema.value)
    return {"timestamp": record.get("timestamp") or 0, "key": key, "value": value, "headers": headers or None}


def output_record(record: Record, source: SourceDef) -> Record:
    """A record of an output topic in its logical form."""
    try:
        key, window = decode_key(record["key"], source)
        value = decode(record["value"], source.value_format, source.schema.value)
    except (ValueError, UnicodeDecodeError) as error:
        raise RuntimeFailure(f"cannot read back {record}: {error}") from error
    headers = [(h["key"], _text(h["value"])) for h in record["headers"] or []]
    return {"key": key, "value": value, "timestamp": record["timestamp"], "window": window, "headers": headers}


def _bytes(text: str | None) -> bytes | None:
    return None if text is None else base64.b64decode(text)


def _text(data: bytes | None) -> str | None:
    return None if data is None else base64.b64encode(data).decode()
